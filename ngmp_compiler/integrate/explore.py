r"""Explore: where a log-density of a few coordinates has its modes, and how far it reaches.

No derivatives are taken: a round evaluates a fixed number of points in one batch, and values are exact to rounding at
a fixed point. The rounds are, in order: *spread*, points over the prior, the best of every quarter of which is where a
climber begins; *climb* (`climb.py`); then, around the highest mode, *lines* and *boxes* (`reach.py`). Where a value
takes iterations, the *nodes* of the integral are evaluated by the same loop, so that its body is compiled once.

What a round makes of its values is computed for all phases and then chosen: it is little, and a branch for every phase
takes twice as long to compile.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .climb import Climbers, advance, chosen, lattice, number_of, quarters, starts, stencil, stencil_size
from .nodes import spacing, units
from .reach import Extent, along, around, boxed, boxes, coarse_grid, columns, in_parts, including, lines, placed

_ROUNDS = 40
_PATIENCE = 3  # rounds that the other climbers have after the highest one has arrived
_BATCH = {1: 24, 2: 48, 3: 72}
_SPREAD, _CLIMB, _LINES, _BOX, _NODES, _DONE = range(6)
NEAR = 3.0  # standard deviations within which two climbers are at the same mode
LIGHT = 7.0  # nats below the heaviest mode, below which one does not matter

Evaluate = Callable[[Array, Any, Array], tuple[Array, Any]]


class Landscape(NamedTuple):
    """What is known of a log-density."""

    extent: Extent
    height: Float[Array, ""]  # of the highest point seen
    found: Bool[Array, ""]  # whether the mode was
    missed: Bool[Array, ""]  # whether another mode is not resolved by nodes in this extent
    climbers: Climbers
    rounds: Int[Array, ""]


class _State(NamedTuple):
    phase: Array
    rounds: Array
    waited: Array  # rounds since the highest climber has arrived
    part: Array  # of the rounds after the climb: lines, boxes, nodes
    climbers: Climbers
    extent: Extent
    height: Array
    seen: Array  # values of the coarse grid, as far as it has been evaluated
    kept: Any  # what evaluating the best point left for the next: a warm start
    values: Any  # of the nodes, with what evaluating each has left


def batch(dim: int) -> int:
    """Points of a round."""
    return _BATCH.get(dim, max(16 * dim, number_of(dim) * stencil_size(dim)))


class _Tables(NamedTuple):
    """Offsets of all rounds but those of the climb, (rounds, points, columns), and how many there are of each kind."""

    rows: np.ndarray
    coarse: np.ndarray
    nodes: int

    @classmethod
    def of(cls, dim: int, finer: bool | None) -> "_Tables":
        number = batch(dim)
        coarse = coarse_grid(dim, number)
        nodes = in_parts(units(dim, finer), number) if finer is not None else np.zeros((0, number, columns(dim)))
        first = np.zeros((2, number, columns(dim)))
        first[0, :, :dim], first[1, : len(lines(dim)), :dim] = 1.2 * lattice(number, dim), lines(dim)
        return cls(np.concatenate([first, *[coarse] * boxes(dim), nodes]), coarse, len(nodes))


def _points(state: _State, rows: Array, inner: Array, outer: Array) -> Array:
    """Where the next round evaluates."""
    dim, dtype = len(state.extent.low), rows.dtype
    row = rows[state.part]
    box = jnp.where(state.part >= 2, placed(row, state.extent)[0], row[:, :dim])
    climbers = state.climbers
    own = climbers.centre[:, None] + jnp.einsum("ni,kji->knj", inner, climbers.axes)
    top = jnp.argmax(climbers.height)
    rest = climbers.centre[top] + outer @ climbers.axes[top].T
    climb = jnp.concatenate([own.reshape(-1, dim), rest]).astype(dtype)
    return jnp.where(state.phase == _CLIMB, climb, state.extent.centre + box @ state.extent.axes.T)


def _others(extent: Extent, climbers: Climbers) -> tuple[Array, Array, Array]:
    """Climbers in the coordinates of the extent, (k, d), how wide their modes are there, and which count."""
    z = (climbers.centre - extent.centre) @ extent.inverse.T
    width = jnp.sqrt(jnp.sum(jnp.einsum("ij,kjl->kil", extent.inverse, climbers.axes) ** 2, -1))
    mass = climbers.height + climbers.log_volume
    top = jnp.argmax(climbers.height)
    heavy = climbers.found & (mass > mass[top] - LIGHT)
    far = jnp.sum((z - z[top]) ** 2 / jnp.maximum(width, width[top]) ** 2, -1) > NEAR**2
    return z, width, heavy & far


def _after(state: _State, f: Array, points: Array, tables: _Tables, parts: np.ndarray) -> _State:
    """The state after a round, but for what is kept of its points."""
    dim, phase = points.shape[-1], state.phase
    number, size = number_of(dim), stencil_size(dim)
    moved = advance(state.climbers, f[: number * size].reshape(number, size))
    climbers = chosen(phase == _CLIMB, moved, chosen(phase == _SPREAD, starts(f, points, parts), state.climbers))
    top = jnp.argmax(climbers.height)
    found = climbers.found[top]
    waited = jnp.where(found & (phase == _CLIMB), state.waited + 1, 0)
    over = (found & (jnp.all(climbers.found) | (waited > _PATIENCE))) | (state.rounds >= _ROUNDS - 2)

    z, width, counts = _others(state.extent, climbers)
    twice = jnp.concatenate([counts, counts])
    lined = including(along(state.extent, state.height, f), jnp.concatenate([z - 3 * width, z + 3 * width]), twice)
    at = (state.part - 2) % len(tables.coarse)
    seen = state.seen.at[at].set(f)
    full = (phase == _BOX) & (at + 1 == len(tables.coarse))
    box, usable = boxed(state.extent, seen, tables.coarse)
    extent = chosen(full & usable, box, state.extent)
    extent = chosen(phase == _LINES, lined, chosen(phase <= _CLIMB, around(climbers, top), extent))

    part = jnp.where(phase == _CLIMB, jnp.where(over, 1, 0), jnp.where(phase == _SPREAD, 0, state.part + 1))
    last = 2 + boxes(dim) * len(tables.coarse)
    phase = jnp.where(phase == _SPREAD, _CLIMB, jnp.where(phase == _CLIMB, jnp.where(over, _LINES, _CLIMB),
            jnp.where(part < last, _BOX, jnp.where(part < last + tables.nodes, _NODES, _DONE))))  # fmt: skip
    return state._replace(phase=phase, waited=waited, part=part, climbers=climbers, extent=extent, seen=seen)


def explore(
    evaluate: Evaluate, dim: int, kept: Any, dtype: Any, finer: bool | None = None, start: Climbers | None = None
) -> tuple[Landscape, Any, Any]:
    """Explore a log-density of `dim` coordinates; what is known of it, what was kept of the best and of the nodes.

    Args:
        evaluate: values (p,) at points (p, dim), minus infinity or NaN where there is none, and what to keep of every
            point, like `kept` with a leading axis p; given points, what was kept of the best so far, and whether they
            are points of the search, which may be given up, and no nodes.
        dim: at least one.
        kept: to begin with.
        dtype: of the coordinates.
        finer: whether the nodes are the finer ones; None if they are not to be evaluated here. If they are, their
            values, with what was kept of each, are returned.
        start: climbers of which the first has arrived, to begin at.
    """
    number, size, tables = batch(dim), stencil_size(dim) * number_of(dim), _Tables.of(dim, finer)
    parts = quarters(tables.rows[0, :, :dim], number_of(dim))
    rows, inner = jnp.asarray(tables.rows, dtype), jnp.asarray(stencil(dim), dtype)
    outer = jnp.asarray(2.0 * lattice(number - size + 1, dim)[1:], dtype)

    def body(before: _State) -> _State:
        state = before
        points = _points(state, rows, inner, outer)
        f, keeps = evaluate(points, state.kept, state.phase < _NODES)
        f = jnp.where(jnp.isnan(f), -jnp.inf, f).astype(dtype)
        top = jnp.argmax(f)
        kept = jax.tree.map(lambda a, b: jnp.where(f[top] > state.height, a[top], b), keeps, state.kept)
        values = state.values
        if tables.nodes:  # what is no node goes to a row that is never read
            at = jnp.where(state.phase == _NODES, state.part - len(rows) + tables.nodes, tables.nodes)
            values = jax.tree.map(lambda every, own: every.at[at].set(own), values, (f, keeps))
        state = state._replace(height=jnp.maximum(f[top], state.height), kept=kept, values=values)
        after = _after(state, f, points, tables, parts)._replace(rounds=state.rounds + 1)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), after, before)  # numpy's numbers are float64

    begin = _begin(dim, kept, dtype, start, tables)
    end = jax.lax.while_loop(lambda s: s.phase < _DONE, body, begin)
    top = jnp.argmax(end.climbers.height)
    values = jax.tree.map(lambda x: x[:-1].reshape(-1, *x.shape[2:])[: len(units(dim, finer))], end.values)
    missed = _missed(end.extent, end.climbers, top, finer)
    found = Landscape(end.extent, end.height, end.climbers.found[top], missed, end.climbers, end.rounds)
    return found, end.kept, values


def _missed(extent: Extent, climbers: Climbers, top: Array, finer: bool | None) -> Bool[Array, ""]:
    """Whether there are several modes, and nodes in this extent do not resolve them all."""
    z, width, others = _others(extent, climbers)
    unseen = (z - width < extent.low) | (z + width > extent.high) | (spacing(extent, finer) > 1.5 * width)
    modes = others | (np.arange(len(others)) == top)
    return jnp.any(others) & jnp.any(unseen & modes[:, None])


def _begin(dim: int, kept: Any, dtype: Any, start: Climbers | None, tables: _Tables) -> _State:
    """The state before the first round; with a climber that has arrived, before the lines are drawn."""
    none, k = jnp.asarray(0), number_of(dim)
    origin = jnp.zeros((k, dim), dtype)
    eye = jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (k, dim, dim))
    flat = jnp.full(k, -jnp.inf, dtype)
    climbers = Climbers(origin, eye, eye, jnp.zeros(k, dtype), flat, origin, jnp.zeros(k, bool))
    if start is not None:
        climbers = jax.tree.map(lambda all, own: all.at[0].set(own[0]), climbers, start)
    values: Any = None
    if tables.nodes:
        one = jnp.zeros((), dtype), kept
        values = jax.tree.map(lambda x: jnp.zeros((tables.nodes + 1, batch(dim), *x.shape), x.dtype), one)
    phase = jnp.asarray(_SPREAD if start is None else _LINES)
    seen = jnp.full(tables.coarse.shape[:2], -jnp.inf, dtype)
    part = none if start is None else none + 1
    return _State(phase, none, none, part, climbers, around(climbers, 0), climbers.height[0], seen, kept, values)
