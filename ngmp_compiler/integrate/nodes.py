r"""Nodes: where a density of a few coordinates is evaluated, and the weight of each.

Up to three coordinates: a tensor grid in the axes of the mode's Hessian, between the ends of the tails along each. The
trapezoidal rule on a smooth density that vanishes at both ends is exact up to $e^{-2 \pi^2 / h^2}$ for a spacing of h
standard deviations. More: points of low discrepancy, drawn from a Student t that is split at the mode, with another
scale to either side of every axis, and weighed by importance.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .explore import Landscape, split_t, student_t

_SIDES = {1: (41, 81), 2: (19, 37), 3: (13, 23)}  # nodes along every axis, and of a finer grid
_POINTS = 4096, 16384


class Nodes(NamedTuple):
    """Nodes in the coordinates, and the logarithm of the volume that each stands for."""

    v: Float[Array, "m d"]
    log_volume: Float[Array, " m"]


def sides(dim: int, finer: bool) -> int | None:
    """How many nodes a tensor grid has along every axis; None where points are drawn instead."""
    return _SIDES[dim][finer] if dim in _SIDES else None


def place(landscape: Landscape, dim: int, finer: bool = False) -> Nodes:
    """Nodes for a density that was explored."""
    side = sides(dim, finer)
    volume = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(jnp.linalg.qr(landscape.axes)[1]))))
    if side is None:
        z, log_density = split_t(student_t(_POINTS[finer], dim), landscape.low, landscape.high)
        return Nodes(landscape.centre + z @ landscape.axes.T, volume - log_density - np.log(_POINTS[finer]))
    steps = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, side)] * dim, indexing="ij"), -1).reshape(-1, dim)
    width = landscape.high - landscape.low
    z = landscape.low + width * jnp.asarray(steps, width.dtype)
    cell = jnp.sum(jnp.log(width / (side - 1)))
    return Nodes(landscape.centre + z @ landscape.axes.T, jnp.broadcast_to(volume + cell, (len(steps),)))


def coarse(log_mass: Float[Array, " m"], dim: int) -> Float[Array, ""]:
    """The logarithm of the integral by every second node along each axis; by half of the points, where drawn."""
    if dim not in _SIDES:
        return logsumexp(log_mass[: log_mass.size // 2]) + np.log(2.0)
    side = round(log_mass.size ** (1 / dim))
    grid = log_mass.reshape((side,) * dim)[(slice(None, None, 2),) * dim]
    return logsumexp(grid) + dim * np.log(2.0)
