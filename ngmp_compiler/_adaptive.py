"""The default step: damping with one rate per leaf, as an optax transformation; and the same on a single edge."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ngmp_kernels.families import AbstractFamily


class AdaptiveState(NamedTuple):
    """The damping of every leaf, and the gradients of the sweep before."""

    rate: Any
    last: Any

    def refused(self) -> "AdaptiveState":
        """After a step that was not accepted: all rates halved, so that the same step is not tried again and again."""
        return AdaptiveState(jax.tree.map(lambda a: 0.5 * a, self.rate), jax.tree.map(jnp.zeros_like, self.last))


def _is_family(x: Any) -> bool:
    return isinstance(x, AbstractFamily)


def adaptive(least: float = 0.02, cut: float = 0.5, grow: float = 1.3) -> optax.GradientTransformation:
    """The default solver: damping with a rate for every leaf, set by a secant through its last two residuals.

    If the residual of a leaf behaves like `r_t = (1 - rate * kappa) r_{t-1}`, then with
    `rho = <r_t, r_{t-1}> / |r_{t-1}|^2` the best rate is `1 / kappa = rate / (1 - rho)`: an overshooting leaf
    (rho < 0) is damped, a lagging one sped up. A rate changes by at most the factors `cut` and `grow` a sweep and
    stays in [least, 1], so both natural parameters of a leaf remain between their old values and their targets.
    There is nothing to tune.
    """

    def init(params: Any) -> AdaptiveState:
        rate = jax.tree.map(lambda q: jnp.ones(q.batch_shape, q.dtype), params, is_leaf=_is_family)
        return AdaptiveState(rate, jax.tree.map(jnp.zeros_like, params))

    def new_rate(gradient: Any, last: Any, rate: Array, eta: Any) -> Array:
        overlap, square = jnp.zeros_like(rate), jnp.zeros_like(rate)
        floor = jnp.zeros_like(rate)
        for x in jax.tree.leaves(eta):
            floor += 1e-4 * jnp.abs(x).reshape(*rate.shape, -1).sum(-1)
        for g, h, x in zip(*(jax.tree.leaves(t) for t in (gradient, last, eta)), strict=True):
            # Residuals relative to the size of the parameter make the coordinates of a leaf comparable; the floor
            # keeps the rounding noise of one that is zero from drowning the other.
            least_scale = floor.reshape(*rate.shape, *(1,) * (x.ndim - rate.ndim)) + jnp.finfo(x.dtype).tiny
            scale = jnp.abs(x) + jnp.abs(g) + jnp.abs(h) + least_scale
            g, h = g / scale, h / scale
            event = tuple(range(rate.ndim, g.ndim))
            overlap += jnp.sum(g * h, event)
            square += jnp.sum(h * h, event)
        known = square > 0
        rho = overlap / jnp.where(known, square, 1)
        factor = jnp.clip(1 / jnp.maximum(1 - rho, 0.1), cut, grow)
        return jnp.clip(jnp.where(known, rate * factor, rate), least, 1.0)

    def update(updates: Any, state: AdaptiveState, params: Any = None) -> tuple[Any, AdaptiveState]:
        rate = jax.tree.map(new_rate, updates, state.last, state.rate, params, is_leaf=_is_family)
        steps = jax.tree.map(lambda g, a: -(g * a), updates, rate, is_leaf=_is_family)
        return steps, AdaptiveState(rate, updates)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def solve_edge(
    toward: Callable[[AbstractFamily], AbstractFamily],
    cavity: AbstractFamily,
    start: AbstractFamily,
    most: int,
    tol: float,
) -> AbstractFamily:
    """The message `eta` with `eta = toward(cavity + eta)`: a fixed point on one edge, element by element.

    Elements are independent, so each has its own rate, and one whose step would turn its marginal improper takes half
    of it instead.
    """
    transformation: Any = adaptive()

    def residual(eta: AbstractFamily) -> AbstractFamily:
        return eta - toward(cavity + eta)

    def body(carry: tuple) -> tuple:
        eta, memory, _, count = carry
        gradient = residual(eta)
        step, memory = transformation.update(gradient, memory, eta)
        trial = jax.tree.map(jnp.add, eta, step)
        proper = (cavity + trial).is_proper()
        half = jax.tree.map(lambda x, s: x + 0.5 * s, eta, step)

        def pick(a: Array, b: Array) -> Array:
            return jnp.where(proper.reshape(proper.shape + (1,) * (a.ndim - proper.ndim)), a, b)

        size = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(eta)))
        gap = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(gradient)))
        return jax.tree.map(pick, trial, half), memory, gap / (size + jnp.finfo(size.dtype).tiny), count + 1

    def more(carry: tuple) -> Array:
        return (carry[2] > tol) & (carry[3] < most)

    infinite = jnp.asarray(jnp.inf, start.dtype)
    return jax.lax.while_loop(more, body, (start, transformation.init(start), infinite, jnp.asarray(0)))[0]
