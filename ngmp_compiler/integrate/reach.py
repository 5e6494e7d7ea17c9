r"""Reach: how far a log-density extends around a mode, and in which axes it is nearest to standard.

- *lines*: outward along the axes, to where the density has dropped by `DROP`;
- *box*: a coarse grid over what was found before; its moments are the new centre and axes, and the box around all of
  its nodes that are not below `DROP` the new ends. Of more than three coordinates, points of an adapted proposal,
  weighed by importance: half of them a split Student t, the others Gaussian kernels around points of the proposal
  before, which follow what bends. A grid takes several rounds, and there are several grids.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln, ndtri, stdtrit
from scipy.stats import qmc

from .climb import Climbers, root

DROP = 10.0  # nats below the mode that tails are followed to
_DISTANCES = np.array([1.0, 2.0, 3.0, 4.5, 7.0, 11.0, 20.0, 40.0])  # the logarithm of a scale may end slowly
_COARSE = {1: 16, 2: 9, 3: 6}  # nodes along every axis of a coarse grid
_POINTS = 1024  # that take its place, at least
_DF = 4.0
_KERNELS = 64
_LEAST = {1: 3.5, 2: 3.5, 3: 3.0}
_FACE = 6.0  # nats below the mode that a face of a box should be, for the mass beyond not to matter
_FURTHER = 2.0  # times as far as the box before, at most
_MARGIN = {1: 1.0, 2: 1.0, 3: 0.5}  # spacings of a coarse grid beyond the nodes that count


class Extent(NamedTuple):
    """`v = centre + axes @ z`, with z about standard, and where the density has dropped along every axis of z."""

    centre: Float[Array, " d"]
    axes: Float[Array, "d d"]
    inverse: Float[Array, "d d"]  # of the axes
    log_volume: Float[Array, ""]  # log |det axes|
    low: Float[Array, " d"]  # z < 0
    high: Float[Array, " d"]
    ends: Bool[Array, ""]  # whether the density drops along all axes
    kernels: Float[Array, "k d"]  # their centres, in z; of three coordinates and fewer there are none


def around(climbers: Climbers, k: Any) -> Extent:
    """The extent around climber k, before anything is known of the tails."""
    centre, axes, inverse, volume = (x[k] for x in climbers[:4])
    zero = jnp.zeros_like(centre)
    kernels = jnp.zeros((0 if len(centre) in _COARSE else _KERNELS, len(centre)), centre.dtype)
    return Extent(centre, axes, inverse, volume, zero, zero, jnp.asarray(False), kernels)


def lines(dim: int) -> np.ndarray:
    """Offsets outward along every axis, and back."""
    out = (_DISTANCES[None, :, None] * np.eye(dim)[:, None, :]).reshape(-1, dim)
    return np.concatenate([out, -out])


def along(extent: Extent, height: Array, f: Float[Array, " p"]) -> Extent:
    """How far the density reaches along every axis: where it has dropped, between two distances."""
    dim = extent.centre.shape[0]
    drop = height - f[: 2 * dim * len(_DISTANCES)].reshape(2, dim, -1)
    drop = jnp.clip(jnp.where(jnp.isfinite(drop), drop, jnp.inf), 0.0, 9 * DROP)
    root = jnp.sqrt(jnp.concatenate([jnp.zeros((2, dim, 1), f.dtype), drop], -1))
    far = np.concatenate([np.zeros(1), _DISTANCES])
    beyond = root >= np.sqrt(DROP)
    # Of every pair of neighbours, where the density has dropped if it does so between them; the first that does counts.
    before, after = root[..., :-1], root[..., 1:]
    part = jnp.clip((np.sqrt(DROP) - before) / jnp.maximum(after - before, 1e-6), 0.1, 1.0)
    reach = jnp.where(beyond[..., 1:], jnp.asarray(far[:-1] + part * np.diff(far), f.dtype), _DISTANCES[-1])
    reach = jnp.min(reach, -1)
    return extent._replace(low=-reach[1], high=reach[0], ends=jnp.all(jnp.any(beyond, -1)))


def including(extent: Extent, z: Float[Array, "k d"], wanted: Bool[Array, " k"]) -> Extent:
    """The box with further points in it."""
    low = jnp.min(jnp.where(wanted[:, None], z, jnp.inf), 0)
    high = jnp.max(jnp.where(wanted[:, None], z, -jnp.inf), 0)
    return extent._replace(low=jnp.minimum(extent.low, low), high=jnp.maximum(extent.high, high))


def columns(dim: int) -> int:
    """Numbers in a row of nodes: coordinates; of points, also which kernel the point is of."""
    return dim + (dim not in _COARSE)


def scattered(points: int, dim: int) -> np.ndarray:
    """Points (points, dim + 1) of low discrepancy, before they are placed: half of them of independent Student t
    variables, with -1 as the last entry, half of standard normal ones, with the number of their kernel. They are
    scrambled, always alike: else the first lies in the corner of all tails, where it stands for more than all others
    together."""
    power = int(np.ceil(np.log2(points)))
    *u, last = qmc.Sobol(dim + 1, scramble=True, rng=0).random_base2(power)[:points].T
    wide = last < 0.5
    offsets = [np.where(wide, stdtrit(_DF, x), ndtri(x)) for x in u]
    return np.stack([*offsets, np.where(wide, -1.0, np.floor((2 * last - 1) * _KERNELS))], -1)


def width(dim: int) -> float:
    """Standard deviations of a kernel (Silverman's rule)."""
    return (4 / ((dim + 2) * _KERNELS)) ** (1 / (dim + 4))


def mixture(rows: Float[Array, "*m columns"], extent: Extent) -> tuple[Float[Array, "*m d"], Float[Array, " *m"]]:
    """Points of the proposal, and their log-densities: half a Student t that is split at the origin, with another scale
    to either side of every axis, such that a Gaussian of these scales has dropped by `DROP` at `low` and `high`; half
    the kernels."""
    t, own, h = rows[..., :-1], rows[..., -1], width(rows.shape[-1] - 1)
    near = extent.kernels[jnp.maximum(own, 0).astype(int)] + h * t
    z = jnp.where(own[..., None] < 0, t * jnp.where(t < 0, -extent.low, extent.high) / np.sqrt(2 * DROP), near)
    scale = jnp.where(z < 0, -extent.low, extent.high) / np.sqrt(2 * DROP)
    constant = gammaln((_DF + 1) / 2) - gammaln(_DF / 2) - 0.5 * np.log(_DF * np.pi)
    wide = jnp.sum(constant - (_DF + 1) / 2 * jnp.log1p((z / scale) ** 2 / _DF) - jnp.log(scale), -1)
    # Squares of distances as a product of matrices: one exponential for every pair.
    apart = jnp.sum(z**2, -1)[..., None] - 2 * z @ extent.kernels.T + jnp.sum(extent.kernels**2, -1)
    many = logsumexp(-0.5 * apart / h**2, axis=-1) - np.log(_KERNELS) - z.shape[-1] * np.log(h * np.sqrt(2 * np.pi))
    return z, jnp.logaddexp(wide, many) - np.log(2.0)


def coarse_grid(dim: int, number: int) -> np.ndarray:
    """A coarse grid on the unit cube, in parts of `number` nodes, (parts, number, dim), the last one filled up; of more
    than three coordinates, points."""
    if dim not in _COARSE:
        parts = -(-_POINTS // number)
        return scattered(parts * number, dim).reshape(parts, number, dim + 1)
    side = _COARSE[dim]
    nodes = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, side)] * dim, indexing="ij"), -1).reshape(-1, dim)
    return in_parts(nodes, number)


def boxes(dim: int) -> int:
    """How many coarse grids, one after the other; of points, proposals."""
    return 2 if dim in _COARSE else 4


def in_parts(rows: Any, number: int) -> Any:
    """Rows (m, ...) in parts of `number`, the last one filled up with the first row."""
    parts = -(-len(rows) // number)
    module = jnp if isinstance(rows, jax.Array) else np
    fill = module.repeat(rows[:1], parts * number - len(rows), axis=0)
    return module.concatenate([rows, fill]).reshape(parts, number, *rows.shape[1:])


def placed(grid: Array, extent: Extent) -> tuple[Array, Array]:
    """The nodes of a coarse grid, and what to subtract from the log-density at each to weigh it."""
    if extent.low.shape[-1] in _COARSE:
        return extent.low + (extent.high - extent.low) * grid, jnp.zeros(grid.shape[:-1], grid.dtype)
    return mixture(grid, extent)


def boxed(extent: Extent, seen: Float[Array, "parts p"], grid: np.ndarray) -> tuple[Extent, Bool[Array, ""]]:
    """The extent by values on a coarse grid: its moments, and the box around what it has seen; whether it exists."""
    dim = len(extent.low)
    count = _COARSE[dim] ** dim if dim in _COARSE else grid.shape[0] * grid.shape[1]
    values = seen.reshape(-1)[:count]
    z, density = placed(jnp.asarray(grid.reshape(-1, grid.shape[-1])[:count], values.dtype), extent)
    mass = jax.nn.softmax(values - density)
    if dim not in _COARSE:  # no point has more than its share of an honest average (Ionides, 2008)
        mass = jnp.minimum(mass, 1 / np.sqrt(count))
        mass = mass / jnp.sum(mass)
    mean = mass @ z
    spread = (mass[:, None] * (z - mean)).T @ (z - mean)
    turn, back = root(spread + 0.01 * jnp.eye(dim, dtype=values.dtype))
    inside, kernels = (z - mean) @ back.T, extent.kernels
    if dim in _COARSE:
        margin = _MARGIN[dim] * jnp.abs(back) @ ((extent.high - extent.low) / (_COARSE[dim] - 1))
        there = (values > jnp.max(values) - DROP)[:, None]
        ends = jnp.concatenate([inside, (_beyond(z, values, grid) - mean) @ back.T])
        there = jnp.concatenate([there, there])
        # A thin tail that bends may be missed between the nodes: so many standard deviations are always inside.
        low = jnp.minimum(jnp.min(jnp.where(there, ends, jnp.inf), 0) - margin, -_LEAST[dim])
        high = jnp.maximum(jnp.max(jnp.where(there, ends, -jnp.inf), 0) + margin, _LEAST[dim])
    else:
        # Wider than a Gaussian of these moments, for arms that bend; less so where every axis costs as much again.
        high = jnp.full(dim, (1 + 2.4 / dim) * np.sqrt(2 * DROP), values.dtype)
        low = -high
        picked = jnp.searchsorted(jnp.cumsum(mass), (np.arange(_KERNELS) + 0.5) / _KERNELS)
        kernels = np.sqrt(1 - width(dim) ** 2) * inside[jnp.minimum(picked, count - 1)]  # so all have unit variance
    found = Extent(
        extent.centre + extent.axes @ mean, extent.axes @ turn, back @ extent.inverse,
        extent.log_volume + jnp.sum(jnp.log(jnp.diagonal(turn))), low, high, extent.ends, kernels,
    )  # fmt: skip
    return found, jnp.all(jnp.isfinite(low + high + mean))


def _beyond(z: Float[Array, "p d"], values: Float[Array, " p"], grid: np.ndarray) -> Float[Array, "p d"]:
    """The nodes of a grid, those on its faces as far out as a Gaussian tail with their value would drop by `_FACE`."""
    unit = grid.reshape(-1, grid.shape[-1])[: len(z)]
    drop = jnp.max(values) - values
    further = jnp.clip(jnp.sqrt(_FACE / jnp.maximum(drop, 1e-6)), 1.0, _FURTHER)[:, None]
    return jnp.where((unit == 0.0) | (unit == 1.0), z * further, z)
