"""Solve: iterate the map with an optax transformation, guarded so that no marginal ever turns improper."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int
from ngmp_kernels.families import AbstractFamily

from ._core import Leaves
from ._emit import Map

CONVERGED, RUNNING, STUCK, INVALID = 0, 1, 2, 3
REASONS = {
    CONVERGED: "converged",
    RUNNING: "the residual is above tol after max_sweeps sweeps; raise max_sweeps or tol",
    STUCK: "no proper step was found: marginals turn improper along every shortened step; check priors and data scale",
    INVALID: "data or parameters are invalid (not finite, or outside the support of their distribution)",
}
_SHRINK = 0.25
_MAX_SHRINKS = 30


class State(eqx.Module):
    """Where a run stands: the last proper leaves, the step to try next, and the solver's memory."""

    leaves: Leaves
    step: Leaves  # what to add to `leaves` at the next sweep
    memory: Any  # state of the optax transformation
    residual: Float[Array, ""]
    sweeps: Int[Array, ""]
    shrinks: Int[Array, ""]  # improper proposals since the last proper one


class AdaptiveState(NamedTuple):
    """The damping of every leaf, and the gradients of the sweep before."""

    rate: Any
    last: Any


def _is_family(x: Any) -> bool:
    return isinstance(x, AbstractFamily)


def adaptive(least: float = 0.02, cut: float = 0.5, grow: float = 1.3) -> optax.GradientTransformation:
    """The default solver: damping with a rate for every leaf, set by a secant through its last two residuals.

    If the residual of a leaf behaves like `r_t = (1 - rate * kappa) r_{t-1}`, then with `rho = <r_t, r_{t-1}> / |r_{t-1}|^2`
    the best rate is `1 / kappa = rate / (1 - rho)`: an overshooting leaf (rho < 0) is damped, a lagging one sped up. A rate
    changes by at most the factors `cut` and `grow` a sweep and stays in [least, 1], so both natural parameters of
    a leaf remain between their old values and their targets. There is nothing to tune.
    """

    def init(params: Any) -> AdaptiveState:
        rate = jax.tree.map(lambda q: jnp.ones(q.batch_shape, q.dtype), params, is_leaf=_is_family)
        return AdaptiveState(rate, jax.tree.map(jnp.zeros_like, params))

    def new_rate(gradient: Any, last: Any, rate: Array, eta: Any) -> Array:
        overlap, square = jnp.zeros_like(rate), jnp.zeros_like(rate)
        for g, h, x in zip(*(jax.tree.leaves(t) for t in (gradient, last, eta)), strict=True):
            # Residuals relative to the size of the parameter, which makes the two coordinates of a leaf comparable.
            scale = jnp.abs(x) + jnp.abs(g) + jnp.abs(h) + jnp.finfo(x.dtype).tiny
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

    return optax.GradientTransformation(init, update)


def residual_norm(target: Leaves, leaves: Leaves) -> Float[Array, ""]:
    """`max` over leaves of `|eta* - eta| / |eta*|` (Euclidean over the factors of a group)."""
    worst = jnp.zeros(())
    for key, eta in target.items():
        gap = sum(jnp.sum((a - b) ** 2) for a, b in zip(jax.tree.leaves(eta), jax.tree.leaves(leaves[key]), strict=True))
        size = sum(jnp.sum(a**2) for a in jax.tree.leaves(eta))
        tiny = jnp.finfo(gap.dtype).tiny
        worst = jnp.maximum(worst, jnp.sqrt(gap) / jnp.sqrt(size + tiny))
    return worst


class Solver:
    """The guarded iteration. A sweep is one evaluation of the map.

    `optax` transformations see `eta - eta*` as the gradient. A proposal at which a marginal is improper or a target is
    not finite is not accepted: the step is cut to a quarter, momentum is dropped, and the sweep counts.
    """

    def __init__(self, map: Map, transformation: optax.GradientTransformation, max_sweeps: int, tol: float):
        self.map, self.transformation, self.max_sweeps, self.tol = map, transformation, max_sweeps, tol

    def init(self, leaves: Leaves) -> State:
        dtype = self.map.plan.dtype
        return State(
            leaves, jax.tree.map(jnp.zeros_like, leaves), self.transformation.init(leaves),
            jnp.asarray(jnp.inf, dtype), jnp.asarray(0), jnp.asarray(0),
        )  # fmt: skip

    def sweep(self, state: State) -> State:
        """Try the pending step; if proper, evaluate the map there and prepare the next."""
        trial = jax.tree.map(jnp.add, state.leaves, state.step)
        target, _, usable = self.map.evaluate(trial)
        gradient = jax.tree.map(jnp.subtract, trial, target)
        step, memory = self.transformation.update(gradient, state.memory, trial)
        accepted = State(
            trial, step, memory, residual_norm(target, trial).astype(state.residual.dtype),
            state.sweeps + 1, jnp.zeros_like(state.shrinks),
        )  # fmt: skip
        refused = State(
            state.leaves, jax.tree.map(lambda s: _SHRINK * s, state.step), self.transformation.init(state.leaves),
            state.residual, state.sweeps + 1, state.shrinks + 1,
        )  # fmt: skip
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), accepted, refused)

    def running(self, state: State) -> Bool[Array, ""]:
        more = (state.sweeps < self.max_sweeps) & (state.shrinks < _MAX_SHRINKS)
        return more & ~(state.residual <= self.tol)

    def run(self, state: State) -> State:
        return jax.lax.while_loop(self.running, self.sweep, state)

    def status(self, state: State) -> Int[Array, ""]:
        stuck = state.shrinks >= _MAX_SHRINKS
        code = jnp.where(state.residual <= self.tol, CONVERGED, jnp.where(stuck, STUCK, RUNNING))
        return code
