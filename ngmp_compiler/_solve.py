"""Solve: iterate the map with an optax transformation, guarded so that no marginal ever turns improper."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import AbstractFamily

from ._core import Leaves
from ._emit import Map

CONVERGED, RUNNING, STUCK, INVALID, UNSETTLED = 0, 1, 2, 3, 4
REASONS = {
    CONVERGED: "converged",
    RUNNING: "the residual is above tol after max_sweeps sweeps; raise max_sweeps or tol",
    STUCK: "no proper step was found: marginals turn improper along every shortened step; check priors and data scale: "
    "the joint itself may be improper",
    INVALID: "data or parameters are invalid (not finite, or outside the support of their distribution)",
    UNSETTLED: "flooding, inside the core, has not converged: its messages oscillate, as strong loops make them do; "
    "choose an exact executor with executors= if one fits, or weaken the ties",
}
_SHRINK = 0.25
_MAX_SHRINKS = 30
_MANY_SHRINKS = 4  # a run that ends in the midst of so many was stopped by them, not by the number of sweeps


class State(eqx.Module):
    """Where a run stands: the last proper leaves, the step to try next, and the solver's memory."""

    leaves: Leaves
    step: Leaves  # what to add to `leaves` next
    memory: tuple[Any, ...]  # state of the optax transformation, for every block of the schedule
    residuals: Float[Array, " blocks"]
    sweeps: Int[Array, ""]
    shrinks: Int[Array, ""]  # improper proposals since the last proper one

    @property
    def residual(self) -> Float[Array, ""]:
        """The largest relative residual."""
        return jnp.max(self.residuals)


def measure(
    eta: AbstractFamily, gradient: AbstractFamily, fine: Bool[Array, " n"]
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """`|eta* - eta| / |eta*|`, Euclidean over the factors of a group, and whether all of them are fine.

    All in one reduction, where NaN marks what is not fine: XLA on a CPU takes as long for each as for the three.
    """
    gap = jnp.where(fine, _squares(gradient), jnp.nan)
    gap, size = jnp.sum(jnp.stack([gap, _squares(eta - gradient)]), 1)
    return jnp.sqrt(gap) / (jnp.sqrt(size) + jnp.finfo(size.dtype).tiny), ~jnp.isnan(gap)


def _squares(eta: AbstractFamily) -> Float[Array, " n"]:
    return sum(jnp.sum(x * x, tuple(range(1, x.ndim))) for x in jax.tree.leaves(eta))  # type: ignore[return-value]


class Solver:
    """The guarded iteration over the blocks of a schedule; one block of everything is the Jacobi schedule.

    `optax` transformations see `eta - eta*` as the gradient. A proposal at which a marginal is improper or a target is
    not finite is not accepted: the step is cut to a quarter, momentum and history are dropped, adaptive rates are
    halved, and the sweep counts.
    """

    def __init__(
        self, map: Map, transformation: optax.GradientTransformation, max_sweeps: int, tol: float, blocks: list
    ):
        self.map, self.max_sweeps, self.tol = map, max_sweeps, tol
        self.transformation: Any = transformation  # optax's types know dictionaries of arrays, not of families
        self.blocks: list[list[str]] = blocks  # keys of the leaves, in the order of a sweep

    def init(self, leaves: Leaves) -> State:
        # Secants of several blocks would chase each other: the last one mixes, and the others are a part of its map.
        *first, last = (self.transformation.init(_pick(leaves, keys)) for keys in self.blocks)
        damped = jax.tree.map(lambda s: s.damped() if _has_secants(s) else s, first, is_leaf=_has_secants)
        memory = (*damped, last)
        residuals = jnp.full(len(self.blocks), jnp.inf, self.map.plan.dtype)
        return State(leaves, jax.tree.map(jnp.zeros_like, leaves), memory, residuals, jnp.asarray(0), jnp.asarray(0))

    def sweep(self, state: State) -> State:
        """One sweep: the blocks in order, each at the leaves the one before it left."""
        for block in range(len(self.blocks)):
            state = self._advance(state, block)
        return eqx.tree_at(lambda s: s.sweeps, state, state.sweeps + 1)

    def _advance(self, state: State, block: int) -> State:
        """Try the pending step; if proper, evaluate the map there and prepare the step of a block."""
        keys = self.blocks[block]
        trial = jax.tree.map(jnp.add, state.leaves, state.step)
        target, result, fine = self.map.evaluate(trial, frozenset(keys))
        own = _pick(trial, keys)
        gradient = jax.tree.map(jnp.subtract, own, target)
        step, memory = self.transformation.update(gradient, state.memory[block], own)
        residual, usable = jnp.zeros((), state.residuals.dtype), result.proper
        for key, flags in fine.items():
            if key in own:
                ratio, flags = measure(own[key], gradient[key], flags)
                residual = jnp.maximum(residual, ratio.astype(residual.dtype))
            usable &= jnp.all(flags)
        zeros = jax.tree.map(jnp.zeros_like, state.leaves)
        accepted = State(
            trial, {**zeros, **step}, _put(state.memory, block, memory),
            state.residuals.at[block].set(residual), state.sweeps, jnp.zeros_like(state.shrinks),
        )  # fmt: skip
        fresh = tuple(self.transformation.init(_pick(state.leaves, k)) for k in self.blocks)
        cautious = jax.tree.map(lambda old, new: old.refused() if _has_rates(old) else new, state.memory, fresh,
                                is_leaf=_has_rates)  # fmt: skip
        shorter = jax.tree.map(lambda s: _SHRINK * s, state.step)
        refused = State(state.leaves, shorter, cautious, state.residuals, state.sweeps, state.shrinks + 1)
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), accepted, refused)

    def running(self, state: State) -> Bool[Array, ""]:
        """Whether there is more to do."""
        more = (state.sweeps < self.max_sweeps) & (state.shrinks < _MAX_SHRINKS)
        return more & ~(state.residual <= self.tol)

    def run(self, state: State) -> State:
        """Sweep until converged, stuck, or out of sweeps."""
        return jax.lax.while_loop(self.running, self.sweep, state)

    def status(self, state: State) -> Int[Array, ""]:
        """Why a run stopped: a key of `REASONS`."""
        stuck = jnp.where(state.shrinks >= _MANY_SHRINKS, STUCK, RUNNING)
        return jnp.where(state.residual <= self.tol, CONVERGED, stuck)


def _has_rates(x: Any) -> bool:
    """Whether a solver's memory knows what to make of a step that was refused; others start anew."""
    return hasattr(x, "refused")


def _has_secants(x: Any) -> bool:
    return hasattr(x, "damped")


def _pick(leaves: Leaves, keys: list[str]) -> Leaves:
    return {k: leaves[k] for k in keys}


def _put(items: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return items[:at] + (value,) + items[at + 1 :]
