r"""Climb: to the modes of a log-density of a few coordinates, from several starts at once.

Every climber has a centre c and axes A. Gradient and Hessian in the coordinates z of $v = c + A z$ come from central
differences at half a unit, which are linear in the values at a fixed stencil. With $-\nabla^2 f = L L^T$ the Newton
step is $L^{-T} L^{-1} \nabla f$ and the new axes are $A L^{-T}$: after a few steps the Hessian is the identity. Where
it has no such L, its diagonal, made positive, takes its place. A step that has led downhill is taken back, to the best
point the climber has seen, at half the size.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import cholesky, triangular_solve
from jaxtyping import Array, Bool, Float
from scipy.special import ndtri
from scipy.stats import qmc

_H = 0.5
_FLAT = 0.06  # added to curvatures, which are about one


class Climbers(NamedTuple):
    """Where k climbers stand."""

    centre: Float[Array, "k d"]
    axes: Float[Array, "k d d"]  # A
    inverse: Float[Array, "k d d"]
    log_volume: Float[Array, " k"]  # log |det A|
    height: Float[Array, " k"]  # of the best point that each has seen
    best: Float[Array, "k d"]
    found: Bool[Array, " k"]  # whether each is at a mode


def number_of(dim: int) -> int:
    """How many climbers there are: their stencils are one batch."""
    return 4 if dim <= 6 else 2 if dim <= 10 else 1


def stencil_size(dim: int) -> int:
    return 1 + 2 * dim + dim * (dim - 1) // 2


def lattice(points: int, dim: int) -> np.ndarray:
    """Standard normal points (points, dim) that fill space evenly; the first is the origin."""
    found = ndtri(qmc.Halton(dim, scramble=False).random(points + 1)[1:])
    return np.concatenate([np.zeros((1, dim)), found[: points - 1]])


def quarters(points: np.ndarray, number: int) -> np.ndarray:
    """Which points belong to which climber, (number, points): halves along the first axis, then along the second."""
    keys = [points[:, 0], points[:, min(1, points.shape[1] - 1)]]
    part = np.zeros(len(points), int)
    for step, key in zip(range(int(np.log2(number))), keys, strict=False):
        for p in np.unique(part):
            own = part == p
            part[own] += 2**step * (key[own] > np.median(key[own]))
    return part == np.arange(number)[:, None]


def stencil(dim: int) -> np.ndarray:
    """The origin, plus and minus h along every axis, h along every pair of axes."""
    axes = _H * np.eye(dim)
    pairs = [axes[i] + axes[j] for i in range(dim) for j in range(i)]
    return np.stack([np.zeros(dim), *axes, *-axes, *pairs])


def _differences(dim: int) -> np.ndarray:
    """Gradient and Hessian at the origin (d, 1 + d, n) as linear functions of the values at the stencil."""
    size = stencil_size(dim)
    out = np.zeros((dim, 1 + dim, size))
    pairs = iter(range(1 + 2 * dim, size))
    for i in range(dim):
        plus, minus = 1 + i, 1 + dim + i
        out[i, 0, [plus, minus]] = 1 / (2 * _H), -1 / (2 * _H)
        out[i, 1 + i, [plus, 0, minus]] = 1 / _H**2, -2 / _H**2, 1 / _H**2
        for j in range(i):
            out[i, 1 + j, [next(pairs), plus, 1 + j, 0]] = 1 / _H**2, -1 / _H**2, -1 / _H**2, 1 / _H**2
            out[j, 1 + i] = out[i, 1 + j]
    return out


def root(matrix: Float[Array, "*k d d"]) -> tuple[Float[Array, "*k d d"], Float[Array, "*k d d"]]:
    """L and its inverse, $M = L L^T$; of the diagonal of M, made positive, where there is none."""
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    # Not written out, as elsewhere: this runs once a round, and calls of LAPACK are quick to compile.
    found = cholesky(matrix, symmetrize_input=False)
    there = jnp.all(jnp.isfinite(found), (-2, -1), keepdims=True)
    lower = jnp.where(there, jnp.tril(found), jnp.sqrt(jnp.abs(matrix) * eye))
    return lower, triangular_solve(lower, jnp.broadcast_to(eye, matrix.shape), left_side=True, lower=True)


def starts(f: Float[Array, " p"], points: Float[Array, "p d"], parts: np.ndarray) -> Climbers:
    """A climber at the best point of every part."""
    number, dim = len(parts), points.shape[-1]
    top = jnp.argmax(jnp.where(parts, f, -jnp.inf), -1)
    eye = jnp.broadcast_to(jnp.eye(dim, dtype=points.dtype), (number, dim, dim))
    volume = jnp.full(number, -dim * np.log(2.0), points.dtype)
    return Climbers(points[top], 0.5 * eye, 2 * eye, volume, f[top], points[top], jnp.zeros(number, bool))


def advance(climbers: Climbers, f: Float[Array, "k n"]) -> Climbers:
    """One Newton step of every climber, by values at its stencil."""
    dim, dtype = climbers.centre.shape[-1], f.dtype
    inner = jnp.asarray(stencil(dim), dtype)
    usable = jnp.all(jnp.isfinite(f), -1) & (f[:, 0] >= climbers.height - 0.05)
    level = jnp.where(jnp.isfinite(f), f - f[:, :1], 0.0)
    derivatives = jnp.einsum("ijn,kn->kij", jnp.asarray(_differences(dim), dtype), level)
    eye = jnp.eye(dim, dtype=dtype)
    lower, inverse = root(_FLAT * eye - derivatives[..., 1:])
    slope = jnp.einsum("kij,kj->ki", inverse, derivatives[..., 0])
    step = jnp.einsum("kij,ki->kj", inverse, slope)
    step = step * jnp.minimum(1.0, 3.0 / jnp.maximum(jnp.linalg.norm(step, axis=-1, keepdims=True), 1e-30))
    # Near enough: the boxes that follow do not need the mode itself.
    plain = jnp.all(jnp.abs(lower - eye) < 0.6, (-2, -1))
    settled = usable & plain & (jnp.sum(slope**2, -1) < 0.25**2)
    top = jnp.argmax(f, -1)
    peak = jnp.max(f, -1)
    seen = climbers.centre + jnp.einsum("kij,kj->ki", climbers.axes, inner[top])
    best = jnp.where((peak > climbers.height)[:, None], seen, climbers.best)
    one, two = usable[:, None], usable[:, None, None]
    moved = Climbers(
        jnp.where(one, climbers.centre + jnp.einsum("kij,kj->ki", climbers.axes, step), best),
        jnp.where(two, jnp.einsum("kij,klj->kil", climbers.axes, inverse), 0.5 * climbers.axes),
        jnp.where(two, jnp.einsum("kji,kjl->kil", lower, climbers.inverse), 2.0 * climbers.inverse),
        climbers.log_volume - jnp.where(usable, jnp.sum(jnp.log(jnp.diagonal(lower, 0, 1, 2)), -1), dim * np.log(2.0)),
        jnp.maximum(peak, climbers.height), best, settled,
    )  # fmt: skip
    return chosen(climbers.found, climbers, moved)  # one that has arrived stays


def chosen(flag: Bool[Array, "*k"], yes: Any, no: Any) -> Any:
    """One of two trees of arrays with the same leading axes as the flag."""
    return jax.tree.map(lambda a, b: jnp.where(flag.reshape(flag.shape + (1,) * (a.ndim - flag.ndim)), a, b), yes, no)


def distinct(climbers: Climbers, near: float, light: float) -> Float[Array, " k"]:
    """Log-masses of the distinct modes by Laplace's method; minus infinity for climbers that are at none, at that of
    another, or at one that is lighter than the heaviest by `light`. The climber that has got highest always counts."""
    number = len(climbers.height)
    off = climbers.centre - climbers.centre[:, None]
    distance = jnp.linalg.norm(jnp.einsum("kij,klj->kli", climbers.inverse, off), axis=-1)
    mass = climbers.height + climbers.log_volume
    first = jnp.arange(number) == jnp.argmax(climbers.height)
    rank = jnp.where(first, jnp.inf, jnp.where(climbers.found, climbers.height, -jnp.inf))
    ahead = (rank[:, None] > rank) | ((rank[:, None] == rank) & (np.arange(number)[:, None] < np.arange(number)))
    taken = jnp.any(ahead & (jnp.minimum(distance, distance.T) < near) & (rank > -jnp.inf)[:, None], 0)
    counts = (climbers.found & ~taken) | first
    heavy = mass > jnp.max(jnp.where(counts, mass, -jnp.inf)) - light
    return jnp.where(counts & heavy, mass, -jnp.inf)
