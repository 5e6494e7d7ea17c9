r"""Solve: iterate the map with a step, guarded so that no marginal ever turns improper.

**When a run has converged.** One undamped sweep, $\eta \leftarrow \eta^*$, has moved no marginal, element by element,
by more than `tol`: the mean by `tol` of its standard deviation, the variance by `tol` of itself, probabilities by `tol`
in the Fisher metric (`AbstractFamily.location_scale`); or by no more than what rounding makes of a mean that lies many
standard deviations from zero. Steps are damped, so a run that moves little proves nothing; once it does, the next step
is the whole one, and what that moves decides.

**A descent.** The last rung of the ladder works on a free energy F whose gradient in the mean parameters is
$\eta - \eta^*$ (`AbstractRule.variational`), so that along $\eta^* - \eta$, a natural gradient, F falls at first. There
a step, whichever solver proposed it, is accepted only if F does not rise; instead of one that was refused, ever smaller
parts of the natural gradient are tried. F falls until it cannot.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..emit.core import CoreResult, Leaves
from ..emit.map import Map
from ..value import Value, replaced
from .divide import divide
from .flat import Flat, every, select_all
from .moves import Moves, Places, broadens, moved_by, places_of, put, room
from .stacks import Blocks, chosen, scaled
from .step import AbstractStep

CONVERGED, RUNNING, STUCK, INVALID, UNSETTLED, BLURRED, INTEGRAL, UNDEFINED = range(8)
REASONS = {
    CONVERGED: "converged",
    RUNNING: "the residual is above tol after max_sweeps sweeps; raise max_sweeps or tol",
    STUCK: "marginals turn improper, or run off, along every step that was tried; check priors and data scale: the "
    "joint itself may be improper",
    INVALID: "data or parameters are invalid (not finite, or outside the support of their distribution)",
    UNSETTLED: "flooding, inside the core, has not converged: its messages oscillate, as strong loops make them do; "
    "choose an exact executor with executors= if one fits, or weaken the ties",
    BLURRED: "float32 loses digits here; use float64. A precision matrix is ill-conditioned, data lie very many "
    "standard deviations from what the model says of them, or a difference of variables is known far better than they "
    "are; features that are centred, scaled and less alike may help",
    INTEGRAL: "the integral over hyperparameters is not to be trusted: look at post.nodes (found: the mode; ends: the "
    "density falls off on all sides, else the posterior may be improper; missed: another mode is not resolved; failed: "
    "nodes that have not converged; error: of the evidence, means and widths by half of the nodes)",
    UNDEFINED: "an energy (ngmp.functional) or a log-density (ngmp.factor) is not a number where the run stands: check "
    "logarithms, roots and divisions in it, and that no argument is a multiple of another one",
}
RUNGS = (
    "",
    "by acceleration, after the default solver had not got there",
    "by Newton's method, after the default solver and acceleration had not got there",
    "by small steps, after the default solver, acceleration and Newton's method had not got there",
    "by half of each factor at a time (power 1/2, post.approximate), after no solver of the whole had got there",
    "from where half of each factor at a time ends, after nothing else had got there",
    "by a descent on the variational free energy, after all else: several unknowns by mean field (post.approximate)",
    "from where a descent on the variational free energy ends, after all else had not got there",
)
HALVES, DESCENT = 4, 6  # of these; followed by that from where they end
_SHRINK, _LEAST = 0.25, 1e-3  # of a step that was refused; of one that leaps, tried next
_MAX_SHRINKS = 30
_MANY_SHRINKS = 4  # a run that ends in the midst of so many was stopped by them, not by the number of sweeps
_DIGITS = 0.6  # of those of a precision that a free energy has, a sum of large terms
_SMALL = 1e-3  # standard deviations: what moves no marginal farther changes it by less than is known of it
_LEAP = 10.0  # standard deviations that a marginal may move in a sweep, unless it has done so before


class State(eqx.Module):
    """Where a run stands: the last proper leaves, the step to try next, and the solver's memory."""

    leaves: Any  # `Leaves`; inside of a sweep stacks, block by block, and so is the step
    step: Any  # what to add to `leaves` next
    memory: tuple[Any, ...]  # of the step, for every block of the schedule
    places: Places  # of every edge at the leaves: see `AbstractFamily.location_scale`
    moves: Moves
    sweeps: Int[Array, ""]
    shrinks: Int[Array, ""]  # improper proposals since the last proper one
    rung: Int[Array, ""]  # of the ladder, that got here: a key of `RUNGS`
    borrowed: Int[Array, ""]  # how many factors are heard by mean field in part: see `Evaluation`
    objective: Any = ()  # of a descent: the free energy at the leaves, and its natural gradient

    @property
    def residual(self) -> Float[Array, ""]:
        """How far the last sweep moved the marginal that it moved farthest, in its standard deviations."""
        return jnp.max(self.moves.distance)


class Solver(Value):
    """The guarded iteration over the blocks of a schedule; one block of everything is the Jacobi schedule.

    Steps see `eta - eta*` as the gradient. A proposal at which a marginal is improper or a target is not finite is not
    accepted: the step is cut to a quarter, its memory is what `AbstractStep.refused` makes of it, and the sweep counts.
    """

    def __init__(self, map: Map, step: AbstractStep, max_sweeps: int, tol: float, blocks: list,
                 descends: bool = False, newton: bool = False):  # fmt: skip
        self.map, self.step, self.max_sweeps, self.tol = map, step, max_sweeps, tol
        self.blocks: list[list[str]] = blocks  # keys of the leaves, in the order of a sweep
        self.descends, self.newton = descends, newton  # see the module docstring; whether Newton's method comes first

    def centred(self, leaves: Leaves) -> "Solver":
        """The solver of a map that is centred: see `Core.centred`."""
        return replaced(self, map=self.map.centred(leaves))

    def init(self, leaves: Leaves) -> State:
        # Secants of several blocks would chase each other: the last one mixes, and the others are a part of its map.
        *first, last = (self.step.init(_pick(leaves, keys)) for keys in self.blocks)
        damped = map(self.step.damped, first)
        blocks, dtype = len(self.blocks), self.map.plan.dtype
        no = jnp.zeros(blocks, bool)
        far = jnp.full(blocks, jnp.inf, dtype)
        ones = jnp.ones(blocks, dtype)
        moves = Moves(far, no, no, no, ones, far, far, ones)
        zeros = jax.tree.map(jnp.zeros_like, leaves)
        none = jnp.asarray(0)
        objective = (jnp.asarray(jnp.inf, dtype), zeros) if self.descends else ()
        return State(leaves, zeros, (*damped, last), places_of(zeros), moves, none, none, none, none, objective)

    def sweep(self, state: State) -> State:
        """One sweep: the blocks in order, each at the leaves the one before it left."""
        blocks = Blocks.of(state.leaves, self.blocks)
        return _over(self._swept(_over(state, blocks.stack), blocks)[0], blocks.unstack)

    def _swept(self, state: State, blocks: Blocks) -> tuple[State, CoreResult, Bool[Array, ""]]:
        """The state after a sweep, the core where the last step was tried, and whether that is where the state is."""
        found: Any = None
        for block in range(len(self.blocks)):
            state, *found = self._advance(state, block, blocks)
        return eqx.tree_at(lambda s: s.sweeps, state, state.sweeps + 1), *found

    def _advance(self, state: State, block: int, blocks: Blocks) -> tuple[State, CoreResult, Bool[Array, ""]]:
        """Try the pending step, of the block before; if proper, evaluate the map there and prepare that of a block.

        Leaves and steps are stacks. See `_swept` for what comes back.
        """
        keys, before = self.blocks[block], block - 1 if block else len(self.blocks) - 1
        layout, like = blocks.layouts[block], blocks.pick(block)
        trial = jax.tree.map(jnp.add, state.leaves, state.step)
        leaves = blocks.unstack(trial)
        target, result, fine, borrowed = self.map.evaluate(leaves, frozenset(keys))
        gradient = jax.tree.map(jnp.subtract, trial[block], layout.stack(target))
        step, memory = self.step.advance(layout, gradient, state.memory[block], trial[block], like)
        places = places_of(result.edges)
        moved = moved_by(state.places, places).astype(state.moves.distance.dtype)
        moved = jnp.where((state.sweeps == 0) & (block == 0), jnp.inf, moved)  # nothing was tried before
        last = state.moves.distance[before]
        farthest = jnp.maximum(_LEAP, 1.5 * last)
        exists = result.proper & ~jnp.isnan(moved) & every(fine)
        leaps = exists & (moved > farthest) & (state.shrinks < _MANY_SHRINKS)
        energy = self.map.free_energy(leaves, result) if self.descends else moved
        usable = exists & ~leaps & (self._falls(energy, state) | (moved <= _SMALL))
        moves = state.moves.seen(before, moved, self.tol)
        step = jax.tree.map(lambda s, g: jnp.where(moves.wanted[block], -g, s), step, gradient)
        parts = {key: room(result.edges[key], s) for key, s in layout.unstack(step, like).items()}
        step = [scaled(s, part) for s, part in zip(step, layout.rows(parts), strict=True)]
        whole = every([s == -g for s, g in zip(*map(jax.tree.leaves, (step, gradient)), strict=True)])
        moves = moves._replace(next=put(moves.next, block, whole))
        steps = jax.tree.map(jnp.zeros_like, state.step)
        accepted = State(
            trial, _put(steps, block, step), _put(state.memory, block, memory), places, moves, state.sweeps,
            jnp.zeros_like(state.shrinks), state.rung, borrowed.astype(state.borrowed.dtype),
            (jnp.minimum(energy, state.objective[0]), _put(steps, block, gradient)) if self.descends else (),
        )  # fmt: skip
        # A step that is only too long is cut to what is allowed, at once, and so grows from sweep to sweep.
        shrink = jnp.where(leaps & jnp.isfinite(moved), jnp.maximum(0.9 * farthest / moved, _LEAST), _SHRINK)
        blamed = self._blamed(state, blocks.unstack(state.step), result.proper, fine)
        refused = self._refused(state, blocks, accepted, shrink, blamed)
        return select_all(usable, accepted, refused), result, usable

    def _refused(
        self, state: State, blocks: Blocks, accepted: State, shrink: Array, blamed: dict[str, Bool[Array, " n"]]
    ) -> State:
        """The state after a step that was not accepted: at the old leaves, with a shorter step to try."""
        leaves = blocks.unstack(state.leaves)
        fresh = (self.step.init(_pick(leaves, keys)) for keys in self.blocks)
        memories = zip(state.memory, fresh, accepted.memory, strict=True)
        cautious = tuple(self.step.refused(*each, blamed) for each in memories)
        rows = [layout.rows(blamed) for layout in blocks.layouts]
        shorter = [[chosen(own, scaled(s, shrink.astype(s.dtype)), s) for own, s in zip(*pair, strict=True)]
                   for pair in zip(rows, state.step, strict=True)]  # fmt: skip
        if self.descends:  # a step by mixing may lead uphill however short it is
            part = _SHRINK ** (state.shrinks + 1)
            shorter = jax.tree.map(lambda g: g * -part.astype(g.dtype), state.objective[1])
        no = jnp.zeros_like(state.moves.wanted)
        damped = state.moves._replace(wanted=no, next=no)
        return State(state.leaves, shorter, cautious, state.places, damped, state.sweeps, state.shrinks + 1,
                     state.rung, state.borrowed, state.objective)  # fmt: skip

    def _falls(self, energy: Array, state: State) -> Bool[Array, ""]:
        """Whether a free energy is no higher than the lowest so far, to rounding; true if there is no descent."""
        if not self.descends:
            return jnp.asarray(True)
        before = state.objective[0]
        known = float(jnp.finfo(energy.dtype).eps) ** _DIGITS
        return jnp.isfinite(energy) & (energy <= before + known * (1 + jnp.abs(energy)))

    def _blamed(
        self, state: State, steps: Leaves, proper: Array, fine: dict[str, Array]
    ) -> dict[str, Bool[Array, " n"]]:
        """The rows whose steps are cut after a refusal: those without a target, or whose step makes a marginal broader.

        One outlying row does not shorten the steps of all others. If that does not help, all are cut.
        """
        everyone = state.shrinks >= _MANY_SHRINKS - 1
        found = {key: jnp.where(proper, ~fine[key], broadens(step)) for key, step in steps.items()}
        anyone = ~every([~rows for rows in found.values()])
        return {key: rows | everyone | ~anyone for key, rows in found.items()}

    def _converged(self, state: State) -> Bool[Array, ""]:
        return jnp.all(state.moves.small(self.tol))

    def running(self, state: State) -> Bool[Array, ""]:
        """Whether there is more to do."""
        return (state.sweeps < self.max_sweeps) & (state.shrinks < _MAX_SHRINKS) & ~self._converged(state)

    def run(self, state: State) -> tuple[State, CoreResult]:
        """Sweep until converged, stuck, or out of sweeps; and the core at the end.

        What of the core no sweep needs is made of the last one alone, so the loop ends with an evaluation at the leaves
        of the state: if the last step was refused, with one that takes none.
        """
        blocks = Blocks.of(state.leaves, self.blocks)
        begin, found = _over(state, blocks.stack), []
        flat = Flat.of(begin)  # a loop copies, and compiles a kernel for, every array that it carries

        def swept(carry: list[Array]) -> tuple[tuple[list[Array], Array], list[Array]]:
            state = flat.unpack(carry)
            goes_on = self.running(state)
            step = jax.tree.map(lambda x: jnp.where(goes_on, x, 0), state.step)
            after, result, usable = self._swept(dataclasses.replace(state, step=step), blocks)
            after = [jnp.where(goes_on, a, b) for a, b in zip(flat.pack(after), carry, strict=True)]
            arrays, words = eqx.partition(result, lambda x: isinstance(x, jax.Array))
            found.append((jax.tree.structure(arrays), words))
            return (after, usable | ~goes_on), jax.tree.leaves(arrays)

        first, rest, shapes = divide(swept, flat.pack(begin))
        empty = [jnp.zeros(x.shape, x.dtype) for x in shapes]

        def turn(carry: Any) -> Any:
            (after, known), kept = first(carry[0])
            return after, known, kept

        def more(carry: Any) -> Array:
            return self.running(flat.unpack(carry[0])) | ~carry[1]

        end, _, kept = jax.lax.while_loop(more, turn, (flat.pack(begin), jnp.asarray(False), empty))
        structure, words = found[0]
        core = eqx.combine(jax.tree.unflatten(structure, rest(kept)), words)
        return _over(flat.unpack(end), blocks.unstack), core

    def exact(self, state: State, fine: Bool[Array, ""]) -> tuple[State, Int[Array, ""]]:
        """The end of a run that has nothing to iterate, and its status: one sweep, exact if all is `fine`."""
        none = jnp.where(fine, 0.0, state.moves.distance)
        moves = state.moves._replace(distance=none, ahead=none, whole=fine[None])
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


def _over(state: State, function: Callable[[Any], Any]) -> State:
    """A state with a function of its leaves, its step, and the gradient of a descent."""
    objective = state.objective and (state.objective[0], function(state.objective[1]))
    leaves, step = function(state.leaves), function(state.step)
    return dataclasses.replace(state, leaves=leaves, step=step, objective=objective)


def _put(items: Any, at: int, value: Any) -> Any:
    return type(items)([*items[:at], value, *items[at + 1 :]])
