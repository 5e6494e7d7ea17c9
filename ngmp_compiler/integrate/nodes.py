r"""Nodes: where a density of a few coordinates is evaluated, and the weight of each.

Up to three coordinates: a tensor grid in the axes of the extent, between the ends of the tails along each. The
trapezoidal rule on a smooth density that vanishes at both ends is exact up to $e^{-2 \pi^2 / h^2}$ for a spacing of h
standard deviations. More: points of low discrepancy, of the proposal that exploration has adapted, weighed by
importance.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .reach import Extent, placed, scattered

_SIDES = {1: (41, 81), 2: (19, 37), 3: (13, 23)}  # nodes along every axis, and of a finer grid
_POINTS = 4096, 16384
_BEYOND = 0.125  # of the box, that a finer grid reaches beyond it at either end


class Nodes(NamedTuple):
    """Nodes in the coordinates v and z of an extent, and the logarithm of the volume that each stands for."""

    v: Float[Array, "m d"]
    z: Float[Array, "m d"]
    log_volume: Float[Array, " m"]


def sides(dim: int, finer: bool) -> int | None:
    """How many nodes a tensor grid has along every axis; None where points are drawn instead."""
    return _SIDES[dim][finer] if dim in _SIDES else None


@functools.lru_cache
def units(dim: int, finer: bool | None) -> np.ndarray:
    """The nodes before they are placed: a grid on the unit cube, or points."""
    side = sides(dim, bool(finer))
    if side is None:
        return scattered(_POINTS[bool(finer)], dim)
    beyond = _BEYOND * bool(finer)
    axis = np.linspace(-beyond, 1.0 + beyond, side)
    return np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), -1).reshape(-1, dim)


def spacing(extent: Extent, finer: bool | None) -> Float[Array, " d"]:
    """Between neighbours along every axis of z; of points, as if none were near."""
    side = sides(extent.low.shape[-1], bool(finer))
    width = (1 + 2 * _BEYOND * bool(finer)) * (extent.high - extent.low)
    return jnp.full_like(extent.low, jnp.inf) if side is None else width / (side - 1)


def place(extent: Extent, finer: bool = False) -> Nodes:
    """Nodes for a density of a known extent."""
    dim, dtype = extent.low.shape[-1], extent.low.dtype
    z, log_density = placed(jnp.asarray(units(dim, finer), dtype), extent)
    if sides(dim, finer) is None:
        volume = extent.log_volume - log_density - np.log(len(z))
    else:
        volume = extent.log_volume + jnp.sum(jnp.log(spacing(extent, finer))) + log_density
    return Nodes(extent.centre + z @ extent.axes.T, z, volume)


def coarse(count: int, dim: int) -> tuple[np.ndarray, float]:
    """Half of the nodes, as a mask, and the logarithm of the volume that each stands for, over what it was: every
    second along each axis of a grid; of points, the first half."""
    if dim not in _SIDES:
        return np.arange(count) < count // 2, np.log(2.0)
    side = round(count ** (1 / dim))
    every = np.arange(side) % 2 == 0
    return np.all(np.meshgrid(*[every] * dim), axis=0).reshape(-1), dim * np.log(2.0)


def outermost(count: int, dim: int) -> np.ndarray:
    """The nodes on the faces of a grid, as a mask."""
    side = round(count ** (1 / dim))
    end = np.isin(np.arange(side), (0, side - 1))
    return np.any(np.meshgrid(*[end] * dim), axis=0).reshape(-1)
