r"""Solve: iterate the map with a step, guarded so that no marginal ever turns improper.

**When a run has converged.** One undamped sweep, $\eta \leftarrow \eta^*$, has moved no marginal, element by element,
by more than `tol`: the mean by `tol` of its standard deviation, the variance by `tol` of itself, probabilities by `tol`
in the Fisher metric (`AbstractFamily.location_scale`); or by no more than what rounding makes of a mean that lies many
standard deviations from zero. Steps are damped, so a run that moves little proves nothing; once it does, the next step
is the whole one, and what that moves decides.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..emit.core import Leaves
from ..emit.map import Map, Shares
from ..emit.rules import select
from ..value import Value
from .moves import Moves, Places, Watch, broadens, largest, moves_of, places_of, within
from .step import AbstractStep

CONVERGED, RUNNING, STUCK, INVALID, UNSETTLED, BLURRED, INTEGRAL = range(7)
REASONS = {
    CONVERGED: "converged",
    RUNNING: "the residual is above tol after max_sweeps sweeps; raise max_sweeps or tol",
    STUCK: "marginals turn improper, or run off, along every step that was tried; check priors and data scale: the "
    "joint itself may be improper",
    INVALID: "data or parameters are invalid (not finite, or outside the support of their distribution)",
    UNSETTLED: "flooding, inside the core, has not converged: its messages oscillate, as strong loops make them do; "
    "choose an exact executor with executors= if one fits, or weaken the ties",
    BLURRED: "the precision matrix of a vector is so ill-conditioned that single precision loses its mean or its "
    "variances; use float64, or features that are centred, scaled and less alike",
    INTEGRAL: "the integral over hyperparameters is not to be trusted: look at post.nodes (found: the mode; ends: the "
    "density falls off on all sides, else the posterior may be improper; failed: nodes that have not converged; error: "
    "of the log-evidence by half of the nodes)",
}
RUNGS = ("", "by acceleration, after the default solver had not got there", "by small steps, after all else had not")
_SHRINK = 0.25
_MAX_SHRINKS = 30
_MANY_SHRINKS = 4  # a run that ends in the midst of so many was stopped by them, not by the number of sweeps
_WINDOW = 20  # sweeps after which it is asked whether they have got anywhere
_STALLED = 0.9  # of the smallest move in the window before: above it, a window has got nowhere
_LEAP = 10.0  # standard deviations that a marginal may move in a sweep, unless it has done so before


class State(eqx.Module):
    """Where a run stands: the last proper leaves, the step to try next, and the solver's memory."""

    leaves: Leaves
    step: Leaves  # what to add to `leaves` next
    memory: tuple[Any, ...]  # of the step, for every block of the schedule
    places: Places  # of every edge at the leaves: see `AbstractFamily.location_scale`
    moves: Moves
    sweeps: Int[Array, ""]
    shrinks: Int[Array, ""]  # improper proposals since the last proper one
    shares: Shares  # of their own rule in the targets of factors of several interfaces: see `Map.whole_shares`
    watch: Watch
    rung: Int[Array, ""]  # of the ladder, that got here: a key of `RUNGS`
    borrowed: Int[Array, ""]  # how many factors have targets that are, in part, those of mean field

    @property
    def residual(self) -> Float[Array, ""]:
        """How far the last sweep moved the marginal that it moved farthest, in its standard deviations."""
        return jnp.max(self.moves.distance)


class Solver(Value):
    """The guarded iteration over the blocks of a schedule; one block of everything is the Jacobi schedule.

    Steps see `eta - eta*` as the gradient. A proposal at which a marginal is improper or a target is not finite is not
    accepted: the step is cut to a quarter, its memory is what `AbstractStep.refused` makes of it, and the sweep counts.
    """

    def __init__(self, map: Map, step: AbstractStep, max_sweeps: int, tol: float, blocks: list):
        self.map, self.step, self.max_sweeps, self.tol = map, step, max_sweeps, tol
        self.blocks: list[list[str]] = blocks  # keys of the leaves, in the order of a sweep

    def init(self, leaves: Leaves) -> State:
        # Secants of several blocks would chase each other: the last one mixes, and the others are a part of its map.
        *first, last = (self.step.init(_pick(leaves, keys)) for keys in self.blocks)
        damped = map(self.step.damped, first)
        blocks, dtype = len(self.blocks), self.map.plan.dtype
        no = jnp.zeros(blocks, bool)
        moves = Moves(jnp.full(blocks, jnp.inf, dtype), no, no, no, jnp.ones(blocks, dtype))
        zeros = jax.tree.map(jnp.zeros_like, leaves)
        watch = Watch(jnp.asarray(jnp.inf, dtype), jnp.asarray(jnp.inf, dtype))
        none, shares = jnp.asarray(0), self.map.whole_shares()
        return State(leaves, zeros, (*damped, last), places_of(zeros), moves, none, none, shares, watch, none, none)

    def sweep(self, state: State) -> State:
        """One sweep: the blocks in order, each at the leaves the one before it left."""
        for block in range(len(self.blocks)):
            state = self._advance(state, block)
        return eqx.tree_at(lambda s: s.sweeps, state, state.sweeps + 1)

    def _advance(self, state: State, block: int) -> State:
        """Try the pending step, of the block before; if proper, evaluate the map there and prepare that of a block."""
        keys, before = self.blocks[block], block - 1 if block else len(self.blocks) - 1
        trial = jax.tree.map(jnp.add, state.leaves, state.step)
        target, result, fine, borrowed = self.map.evaluate(trial, frozenset(keys), state.shares)
        own = _pick(trial, keys)
        gradient = jax.tree.map(jnp.subtract, own, target)
        step, memory = self.step.update(gradient, state.memory[block], own)
        places = places_of(result.edges)
        rows = moves_of(state.places, places)
        moved = largest(rows).astype(state.moves.distance.dtype)
        moved = jnp.where((state.sweeps == 0) & (block == 0), jnp.inf, moved)  # nothing was tried before
        last = state.moves.distance[before]
        leaps = (moved > _LEAP) & (moved > 1.5 * last) & (state.shrinks < _MANY_SHRINKS)
        usable = result.proper & ~jnp.isnan(moved) & ~leaps
        for flags in fine.values():
            usable &= jnp.all(flags)
        moves = state.moves.seen(before, moved, self.tol)
        step = jax.tree.map(lambda s, g: jnp.where(moves.wanted[block], -g, s), step, gradient)
        step = {key: within(result.edges[key], s) for key, s in step.items()}
        whole = jax.tree.leaves(jax.tree.map(lambda s, g: jnp.all(s == -g), step, gradient))
        moves = moves._replace(next=moves.next.at[block].set(functools.reduce(jnp.logical_and, whole, True)))
        zeros = jax.tree.map(jnp.zeros_like, state.leaves)
        shares, watch = self._watched(state, block, moved, rows, borrowed)
        accepted = State(
            trial, {**zeros, **step}, _put(state.memory, block, memory), places, moves, state.sweeps,
            jnp.zeros_like(state.shrinks), shares, watch, state.rung, self._count(borrowed, state),
        )  # fmt: skip
        blamed = self._blamed(state, result.proper, fine)
        fresh = (self.step.init(_pick(state.leaves, k)) for k in self.blocks)
        memories = zip(state.memory, fresh, accepted.memory, strict=True)
        cautious = tuple(self.step.refused(*each, blamed) for each in memories)
        shorter = {k: select(blamed[k], _SHRINK * s, s) for k, s in state.step.items()}
        no = jnp.zeros_like(state.moves.wanted)
        damped = state.moves._replace(wanted=no, next=no)
        refused = State(state.leaves, shorter, cautious, state.places, damped, state.sweeps, state.shrinks + 1,
                        state.shares, state.watch, state.rung, state.borrowed)  # fmt: skip
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), accepted, refused)

    def _watched(
        self, state: State, block: int, moved: Array, rows: dict[str, Array], borrowed: dict[str, Array]
    ) -> tuple[Shares, Watch]:
        """Once a window of sweeps is over in which the moves have not got smaller, the shares of the factors that move
        most are lowered, and those of factors without a message are none from then on."""
        if not state.shares:
            return state.shares, state.watch
        now = jnp.minimum(state.watch.now, moved)
        over = (block == len(self.blocks) - 1) & (state.sweeps > 0) & (state.sweeps % _WINDOW == 0)
        stalls = over & (now > _STALLED * state.watch.before) & (state.sweeps >= 2 * _WINDOW)
        restless = {key: r > jnp.maximum(0.5 * moved, 100 * self.tol) ** 2 for key, r in rows.items()}
        watch = Watch(jnp.where(over, jnp.inf, now), jnp.where(over, now, state.watch.before))
        # A factor whose message comes and goes, with its cavity, makes the others move for ever: those first.
        gone = self._lowered(state.shares, borrowed, stalls, 0.0)
        same = jnp.all(jnp.stack([jnp.all(gone[name] == share) for name, share in state.shares.items()]))
        return self._lowered(gone, restless, stalls & same, 0.5), watch

    def _lowered(self, shares: Shares, rows: dict[str, Array], when: Array, factor: float) -> Shares:
        """The shares of the given rows, by leaf, times a factor; a small one is none."""
        out = dict(shares)
        for group in self.map.projected:
            if group.name in out:
                share = out[group.name]
                keys = [key for key in group.keys if key in rows]
                if not keys:
                    continue
                chosen = functools.reduce(jnp.logical_or, [rows[key] for key in keys])
                lower = jnp.where(share > 0.1, factor * share, 0.0)
                out[group.name] = jnp.where(when & chosen, lower, share)
        return out

    def _count(self, borrowed: dict[str, Array], state: State) -> Array:
        total = jnp.zeros_like(state.borrowed)
        for group in self.map.projected:
            flags = [borrowed[key] for key in group.keys if key in borrowed]
            if flags:
                total += jnp.sum(functools.reduce(jnp.logical_or, flags)).astype(total.dtype)
        return total

    def _blamed(self, state: State, proper: Array, fine: dict[str, Array]) -> dict[str, Bool[Array, " n"]]:
        """The rows whose steps are cut after a refusal: those without a target, or whose step makes a marginal broader.

        One outlying row does not shorten the steps of all others. If that does not help, all are cut.
        """
        everyone = state.shrinks >= _MANY_SHRINKS - 1
        found = {key: jnp.where(proper, ~fine[key], broadens(state.step[key])) for key in state.step}
        anyone = jnp.any(jnp.stack([jnp.asarray(False), *(jnp.any(rows) for rows in found.values())]))
        return {key: rows | everyone | ~anyone for key, rows in found.items()}

    def _converged(self, state: State) -> Bool[Array, ""]:
        return jnp.all(state.moves.whole & (state.moves.distance <= self.tol))

    def running(self, state: State) -> Bool[Array, ""]:
        """Whether there is more to do."""
        return (state.sweeps < self.max_sweeps) & (state.shrinks < _MAX_SHRINKS) & ~self._converged(state)

    def run(self, state: State) -> State:
        """Sweep until converged, stuck, or out of sweeps."""
        return jax.lax.while_loop(self.running, self.sweep, state)

    def exact(self, state: State, fine: Bool[Array, ""]) -> tuple[State, Int[Array, ""]]:
        """The end of a run that has nothing to iterate, and its status: one sweep, exact if all is `fine`."""
        moves = state.moves._replace(distance=jnp.where(fine, 0.0, state.moves.distance), whole=fine[None])
        state = eqx.tree_at(lambda s: (s.moves, s.sweeps), state, (moves, jnp.asarray(1)))
        return state, jnp.where(fine, CONVERGED, RUNNING)

    def lost(self, state: State) -> Bool[Array, ""]:
        """Whether a run has ended with marginals that still leap, or cannot move: its free energy says nothing."""
        far = (state.residual > _LEAP) & jnp.isfinite(state.residual)
        return ~self._converged(state) & (far | (state.residual == 0.0))

    def status(self, state: State) -> Int[Array, ""]:
        """Why a run stopped: a key of `REASONS`."""
        # A marginal that grows fourfold in every sweep runs off, to where rounding keeps it from moving at all.
        runs_off = (state.residual > 2.5) & jnp.isfinite(state.residual) | (state.residual == 0.0)
        stuck = jnp.where((state.shrinks >= _MANY_SHRINKS) | runs_off, STUCK, RUNNING)
        return jnp.where(self._converged(state), CONVERGED, stuck)


def _pick(leaves: Leaves, keys: list[str]) -> Leaves:
    return {k: leaves[k] for k in keys}


def _put(items: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return items[:at] + (value,) + items[at + 1 :]
