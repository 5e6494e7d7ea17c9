r"""Explore: where a log-density of a few coordinates has its mode, how it curves there, and how far it reaches.

No derivatives are taken: a round evaluates a fixed number of points in one batch, and values are exact to rounding at
a fixed point. The rounds are, in order:

- *spread*: points over the prior; the best of them is where to begin;
- *Newton*: gradient and Hessian by central differences at half a standard deviation, in coordinates in which the
  Hessian was the identity before; a step that leads downhill is taken back, to the best point of all, at half the size;
- *lines*: outward along the axes of the Hessian, to where the density has dropped by `DROP`;
- *box*: a coarse grid over what the rounds before found; its moments are the new centre and axes, and the box around
  all of its nodes that are not below `DROP` the new ends. Of more than three coordinates, points of a split Student t,
  weighed by importance. A grid takes several rounds, and there are several grids.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import gammaln, ndtri, stdtrit
from scipy.stats import qmc

DROP = 10.0  # nats below the mode that tails are followed to
_H = 0.5
_ROUNDS = 40
_DISTANCES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0])
_COARSE = {1: 16, 2: 9, 3: 6}  # nodes along every axis of a coarse grid
_PARTS = 6  # rounds for the points that take its place
_BOXES = 2
_DF = 8.0
_SPREAD, _NEWTON, _LINES, _BOX, _DONE = range(5)


Evaluate = Callable[[Array, Any], tuple[Array, Any]]


class Landscape(NamedTuple):
    """What is known of a log-density: `v = centre + axes @ z`, with z about standard."""

    centre: Float[Array, " d"]
    axes: Float[Array, "d d"]  # L
    height: Float[Array, ""]  # of the log-density at the mode
    low: Float[Array, " d"]  # where the density has dropped along every axis, z < 0
    high: Float[Array, " d"]
    found: Bool[Array, ""]  # whether the mode was
    ends: Bool[Array, ""]  # whether the density drops along all axes
    rounds: Int[Array, ""]


class _State(NamedTuple):
    phase: Array
    rounds: Array
    centre: Array
    axes: Array
    best: Array
    height: Array  # of the best point
    low: Array
    high: Array
    found: Array
    ends: Array
    seen: Array  # values of the coarse grid, as far as it has been evaluated
    part: Array  # of the coarse grids, counted through
    kept: Any  # what evaluating the best point left for the next: a warm start


def lattice(points: int, dim: int) -> np.ndarray:
    """Standard normal points (points, dim) that fill space evenly; the first is the origin."""
    found = ndtri(qmc.Halton(dim, scramble=False).random(points + 1)[1:])
    return np.concatenate([np.zeros((1, dim)), found[: points - 1]])


def _stencil(points: int, dim: int) -> np.ndarray:
    """The origin, plus and minus h along every axis, h along every pair of axes; the rest spread out wider."""
    axes = _H * np.eye(dim)
    pairs = [axes[i] + axes[j] for i in range(dim) for j in range(i)]
    inner = np.stack([np.zeros(dim), *axes, *-axes, *pairs])
    outer = 2.0 * lattice(points - len(inner) + 1, dim)[1:]
    return np.concatenate([inner, outer])


def _derivatives(f: Array, dim: int) -> tuple[Array, Array]:
    """Gradient and Hessian at the origin of the stencil, of its values."""
    zero, plus, minus, pairs = f[0], f[1 : 1 + dim], f[1 + dim : 1 + 2 * dim], f[1 + 2 * dim :]
    gradient = (plus - minus) / (2 * _H)
    hessian = jnp.diag((plus - 2 * zero + minus) / _H**2)
    rows, columns = (np.array(k, int) for k in zip(*((i, j) for i in range(dim) for j in range(i)), strict=True)) if (
        dim > 1
    ) else (np.zeros(0, int), np.zeros(0, int))
    mixed = (pairs[: len(rows)] - plus[rows] - plus[columns] + zero) / _H**2
    hessian = hessian.at[rows, columns].set(mixed).at[columns, rows].set(mixed)
    return gradient, hessian


def _newton(state: _State, f: Array, points: Array, dim: int) -> _State:
    """One Newton step from the centre, or back to the best point so far if the last one led downhill."""
    count = 1 + 2 * dim + dim * (dim - 1) // 2
    usable = jnp.all(jnp.isfinite(f[:count])) & (f[0] >= state.height - 0.05)
    gradient, hessian = _derivatives(jnp.where(jnp.isfinite(f), f, 0.0), dim)
    curvature, basis = jnp.linalg.eigh(-hessian)
    slope = basis.T @ gradient
    width = 1 / jnp.sqrt(jnp.clip(jnp.abs(curvature), 0.06, 16.0))
    step = slope * width**2
    step = step * jnp.minimum(1.0, 3.0 / jnp.linalg.norm(step))
    # Near enough: the boxes that follow do not need the mode itself.
    settled = (jnp.linalg.norm(slope * width) < 0.25) & jnp.all((curvature > 0.4) & (curvature < 2.5))
    top = jnp.argmax(f)
    better = f[top] > state.height
    best, height = jnp.where(better, points[top], state.best), jnp.where(better, f[top], state.height)
    turned = state.axes @ basis
    centre = jnp.where(usable, state.centre + turned @ step, best)
    axes = jnp.where(usable, turned * width, 0.5 * state.axes)
    found = usable & settled
    phase = jnp.where(found | (state.rounds >= _ROUNDS - 2), _LINES, _NEWTON)
    return state._replace(phase=phase, centre=centre, axes=axes, best=best, height=height, found=found)


def _lines(state: _State, f: Array, dim: int) -> _State:
    """How far the density reaches along every axis: where it has dropped, between two distances."""
    drop = state.height - f[: 2 * dim * len(_DISTANCES)].reshape(2, dim, -1)
    drop = jnp.where(jnp.isfinite(drop), jnp.maximum(drop, 0.0), jnp.inf)
    root = jnp.sqrt(jnp.concatenate([jnp.zeros((2, dim, 1), f.dtype), drop], -1))
    far = jnp.concatenate([jnp.zeros(1), _DISTANCES]).astype(f.dtype)
    beyond = root >= np.sqrt(DROP)
    at = jnp.argmax(beyond, -1)  # the first
    before, after = (jnp.take_along_axis(root, k[..., None], -1)[..., 0] for k in (jnp.maximum(at - 1, 0), at))
    after = jnp.where(jnp.isfinite(after), after, before + 2 * np.sqrt(DROP))
    part = jnp.clip((np.sqrt(DROP) - before) / jnp.maximum(after - before, 1e-6), 0.1, 1.0)
    reach = far[jnp.maximum(at - 1, 0)] + part * (far[at] - far[jnp.maximum(at - 1, 0)])
    ends = jnp.any(beyond, -1)
    reach = jnp.where(ends, reach, _DISTANCES[-1])
    return state._replace(phase=jnp.asarray(_BOX), low=-reach[1], high=reach[0], ends=jnp.all(ends))


def student_t(points: int, dim: int) -> np.ndarray:
    """Points (points, dim) of independent Student t variables of low discrepancy."""
    power = int(np.ceil(np.log2(points)))
    return stdtrit(_DF, qmc.Sobol(dim, scramble=False).random_base2(power)[:points] + 0.5 / 2**power)


def split_t(t: Any, low: Array, high: Array) -> tuple[Array, Array]:
    """Points of a Student t that is split at the origin, with another scale to either side of every axis, such that a
    Gaussian of these scales has dropped by `DROP` at `low` and `high`; and their log-densities."""
    scale = jnp.where(t < 0, -low, high) / np.sqrt(2 * DROP)
    constant = gammaln((_DF + 1) / 2) - gammaln(_DF / 2) - 0.5 * np.log(_DF * np.pi)
    density = constant - (_DF + 1) / 2 * jnp.log1p(t**2 / _DF) - jnp.log(scale)
    return t * scale, jnp.sum(density, -1)


def _grid(dim: int, number: int) -> np.ndarray:
    """A coarse grid on the unit cube, in parts of `number` nodes, (parts, number, dim), the last one filled up; of more
    than three coordinates, points of a Student t."""
    if dim not in _COARSE:
        return student_t(_PARTS * number, dim).reshape(_PARTS, number, dim)
    side = _COARSE[dim]
    nodes = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, side)] * dim, indexing="ij"), -1).reshape(-1, dim)
    parts = -(-len(nodes) // number)
    return np.concatenate([nodes, np.tile(nodes[:1], (parts * number - len(nodes), 1))]).reshape(parts, number, dim)


def _placed(grid: Array, low: Array, high: Array, dim: int) -> tuple[Array, Array]:
    """The nodes of a coarse grid, and what to subtract from the log-density at each to weigh it."""
    if dim in _COARSE:
        return low + (high - low) * grid, jnp.zeros(grid.shape[:-1], grid.dtype)
    return split_t(grid, low, high)


def _box(state: _State, f: Array, grid: Array, dim: int) -> _State:
    """Note a part of the coarse grid; after the last one, its moments and the box around what it has seen."""
    parts = len(grid)
    seen = state.seen.at[state.part % parts].set(f)
    count = _COARSE[dim] ** dim if dim in _COARSE else grid.shape[0] * grid.shape[1]
    values = seen.reshape(-1)[:count]
    z, density = _placed(grid.reshape(-1, dim)[:count], state.low, state.high, dim)
    mass = jax.nn.softmax(values - density)
    mean = mass @ z
    spread = (mass[:, None] * (z - mean)).T @ (z - mean)
    scale, basis = jnp.linalg.eigh(spread + 0.01 * jnp.eye(dim, dtype=f.dtype))
    axes = basis * jnp.sqrt(scale)
    if dim in _COARSE:
        inside = jnp.linalg.solve(axes, (z - mean).T).T
        cell = jnp.diag((state.high - state.low) / (_COARSE[dim] - 1))
        margin = 0.6 * jnp.sum(jnp.abs(jnp.linalg.solve(axes, cell)), 1)
        there = (values > jnp.max(values) - DROP)[:, None]
        low = jnp.min(jnp.where(there, inside, jnp.inf), 0) - margin
        high = jnp.max(jnp.where(there, inside, -jnp.inf), 0) + margin
    else:
        high = jnp.full(dim, 1.1 * np.sqrt(2 * DROP), f.dtype)
        low = -high
    over = (state.part + 1) % parts == 0
    last = state.part + 1 == _BOXES * parts
    usable = over & jnp.all(jnp.isfinite(low) & jnp.isfinite(high) & jnp.isfinite(mean))
    return state._replace(
        phase=jnp.where(last, _DONE, _BOX), seen=seen, part=state.part + 1,
        centre=jnp.where(usable, state.centre + state.axes @ mean, state.centre),
        axes=jnp.where(usable, state.axes @ axes, state.axes),
        low=jnp.where(usable, low, state.low), high=jnp.where(usable, high, state.high),
    )  # fmt: skip


def _pick(phase: Array, *choices: Array) -> Array:
    """What belongs to a phase."""
    return jnp.select([phase == k for k in range(len(choices) - 1)], choices[:-1], choices[-1])


def explore(evaluate: Evaluate, dim: int, kept: Any, dtype: Any) -> tuple[Landscape, Any]:
    """Explore a log-density of `dim` coordinates; what is known of it, and what was kept of the best point.

    Args:
        evaluate: values (p,) at points (p, dim), minus infinity or NaN where there is none, and what to keep of every
            point, with a leading axis p; given points and what was kept of the best so far.
        dim: at least one.
        kept: to begin with.
        dtype: of the coordinates.
    """
    number = max(16 * dim, 2 + 2 * dim + dim * (dim - 1) // 2)
    spread = jnp.asarray(1.2 * lattice(number, dim), dtype)
    stencil = jnp.asarray(_stencil(number, dim), dtype)
    out = (_DISTANCES[None, :, None] * np.eye(dim)[:, None, :]).reshape(-1, dim)
    out = np.concatenate([out, -out])
    lines = jnp.asarray(np.concatenate([out, np.zeros((number - len(out), dim))]), dtype)
    zeros, eye = jnp.zeros(dim, dtype), jnp.eye(dim, dtype=dtype)
    no, none = jnp.asarray(False), jnp.asarray(0)
    grid = jnp.asarray(_grid(dim, number), dtype)
    seen = jnp.full(grid.shape[:2], -jnp.inf, dtype)
    start = _State(
        none, none, zeros, eye, zeros, jnp.asarray(-jnp.inf, dtype), zeros, zeros, no, no, seen, none, kept
    )

    def body(state: _State) -> _State:
        box = _placed(grid[state.part % len(grid)], state.low, state.high, dim)[0]
        offsets = _pick(state.phase, spread, stencil, lines, box)
        points = state.centre + offsets @ state.axes.T
        f, keeps = evaluate(points, state.kept)
        f = jnp.where(jnp.isnan(f), -jnp.inf, f)
        top = jnp.argmax(f)
        first = state._replace(
            phase=jnp.asarray(_NEWTON), centre=points[top], axes=0.5 * state.axes, best=points[top], height=f[top]
        )
        choices = first, _newton(state, f, points, dim), _lines(state, f, dim), _box(state, f, grid, dim)
        chosen = jax.tree.map(lambda *x: _pick(state.phase, *x), *choices)
        better = f[top] > state.height
        keep = jax.tree.map(lambda a, b: jnp.where(better, a[top], b), keeps, state.kept)
        return chosen._replace(rounds=state.rounds + 1, kept=keep)

    end = jax.lax.while_loop(lambda s: s.phase < _DONE, body, start)
    return Landscape(end.centre, end.axes, end.height, end.low, end.high, end.found, end.ends, end.rounds), end.kept
