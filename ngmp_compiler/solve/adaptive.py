"""Damping with one rate per element of a leaf, as a step; and the same on a single edge."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.families import AbstractFamily

from .stacks import Stack, scales
from .step import AbstractStep, Blamed, Memory

Leaf = AbstractFamily | Stack


class AdaptiveState(Memory):
    """The damping of every leaf, and the gradient of the last sweep."""

    rate: Any
    last: Any

    def refused(self, blamed: Blamed, written: Any) -> "AdaptiveState":
        """After a step that was not accepted: the rates of the rows to blame are halved, so that the same step is not
        tried again and again."""
        return AdaptiveState(halved(self.rate, blamed), jax.tree.map(jnp.zeros_like, self.last))


def halved(rates: Any, blamed: Blamed) -> Any:
    """Rates by leaf, those of some rows halved; of leaves that a transformation does not see there are none."""
    return {k: jnp.where(blamed[k], 0.5 * a, a) if isinstance(a, jax.Array) else a for k, a in rates.items()}


def each(function: Any, *trees: Any) -> Any:
    """A function of every leaf, of trees of families."""
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, AbstractFamily))


def ones(params: Any) -> Any:
    """A rate of one for every element of every leaf."""
    return each(lambda q: jnp.ones(q.batch_shape, q.dtype), params)


def secant_rate(
    gradient: Leaf, last: Leaf, moved: Leaf, rate: Array, eta: Leaf,
    least: float = 0.02, cut: float = 0.5, grow: float = 1.3,
) -> Float[Array, "*b"]:  # fmt: skip
    """The best rate `<d, d> / <d, g - h>` of every element of a leaf, for gradients g and h before and a move d.

    It is reached by factors between `cut` and `grow` a sweep, and stays in [least, 1]. An element that has not moved
    keeps its rate.
    """
    overlap, square = jnp.zeros_like(rate), jnp.zeros_like(rate)
    for g, h, d, scale in zip(*map(jax.tree.leaves, (gradient, last, moved)), scales(eta, gradient, last), strict=True):
        event = tuple(range(rate.ndim, g.ndim))
        unit = 1 / scale
        d = d * unit
        overlap += jnp.sum(d * ((g - h) * unit), event)
        square += jnp.sum(d * d, event)
    known = square > 0
    # Under damping alone, d = -rate h, rate * overlap / square is 1 - rho with rho = <g, h> / <h, h>.
    factor = jnp.clip(square / jnp.where(known, jnp.maximum(rate * overlap, 0.1 * square), 1), cut, grow)
    return jnp.clip(jnp.where(known, rate * factor, rate), least, 1.0)


class Damped(AbstractStep):
    """Damping with a rate for every element of a leaf, set by a secant through its last two residuals.

    If the residual of an element behaves like `r_t = (1 - rate * kappa) r_{t-1}`, then with
    `rho = <r_t, r_{t-1}> / |r_{t-1}|^2` the best rate is `1 / kappa = rate / (1 - rho)`: an overshooting element
    (rho < 0) is damped, a lagging one sped up. A rate changes by at most the factors `cut` and `grow` a sweep and
    stays in [least, 1], so both natural parameters of a leaf remain between their old values and their targets.
    """

    least: float = 0.02
    cut: float = 0.5
    grow: float = 1.3

    def init(self, params: Any) -> AdaptiveState:
        return AdaptiveState(ones(params), jax.tree.map(jnp.zeros_like, params))

    def update(self, updates: Any, state: AdaptiveState, params: Any = None) -> tuple[Any, AdaptiveState]:
        def new_rate(gradient: Any, last: Any, rate: Array, eta: Any) -> Array:
            return secant_rate(gradient, last, -(last * rate), rate, eta, self.least, self.cut, self.grow)

        rate = each(new_rate, updates, state.last, state.rate, params)
        return each(lambda g, a: -(g * a), updates, rate), AdaptiveState(rate, updates)

    def __str__(self) -> str:
        return "adaptive(memory=0)"


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
    damped = Damped()

    def residual(eta: AbstractFamily) -> AbstractFamily:
        return eta - toward(cavity + eta)

    def body(carry: tuple) -> tuple:
        eta, memory, _, count = carry
        gradient = residual(eta)
        step, memory = damped.update(gradient, memory, eta)
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
    return jax.lax.while_loop(more, body, (start, damped.init(start), infinite, jnp.asarray(0)))[0]
