r"""All unknown numbers of a model as one vector on the real line, standardised by the surrogate: where chains run.

Values on a support are mapped to the real line (positive ones by the logarithm, proportions by log-ratios to the last,
positive definite matrices by a Cholesky factor with the logarithm of its diagonal) and standardised by mean and
covariance of draws of the posterior, $u = \mu + L x$: where the surrogate is right, x is about standard normal.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ngmp_kernels.numerics.supports import from_real, log_slope, to_real

from ..errors import ModelError, Problem
from ..pipeline import Front
from .density import determined, event_of

DENSE = 1500  # numbers up to which the whole covariance is used
ENOUGH = 2.5  # draws for each number, with which no direction passes for 4.5 times as wide as another


class Entry(NamedTuple):
    """A name with its place in the vector."""

    name: str
    shape: tuple[int, ...]
    support: str
    ends: tuple[Any, Any]
    size: int  # numbers on the real line


def layout(front: Front) -> list[Entry]:
    """Every unknown that is not computed from others; an error names those that are discrete."""
    fixed, out, problems = determined(front), [], []
    for name, (plane, at, _) in front.rolled.collections.items():
        if fixed[plane][at].all():
            continue
        support, shape = plane.family.support, (*at.shape, *event_of(plane))
        if support == "classes":
            problems.append(_discrete(name))
        out.append(Entry(name, shape, support, (0.0, 1.0), _size(shape, support)))
    for name, site in front.integrated.items():
        if site.classes:
            problems.append(_discrete(name))
        shape = jnp.shape(site.value)
        out.append(Entry(name, shape, site.support, site.ends, _size(shape, site.support)))
    if problems:
        raise ModelError(problems)
    return out


def _discrete(name: str) -> Problem:
    return Problem(name, None, "it is discrete, and NUTS moves along gradients", "declare the model with it summed out")


def _size(shape: tuple[int, ...], support: str) -> int:
    if support == "simplex":
        return int(np.prod(shape[:-1])) * (shape[-1] - 1)
    if support == "matrix":
        return int(np.prod(shape[:-2])) * (shape[-1] * (shape[-1] + 1) // 2)
    return int(np.prod(shape))


def flat(entries: list[Entry], values: dict[str, Array]) -> Float[Array, " d"]:
    """Values by name as a vector on the real line."""
    return jnp.concatenate([_to_real(e, values[e.name]).reshape(-1) for e in entries])


def _to_real(e: Entry, x: Array) -> Array:
    if e.support == "simplex":
        logs = jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
        return logs[..., :-1] - logs[..., -1:]
    if e.support == "matrix":
        root = jnp.linalg.cholesky(x)
        rows, columns = np.tril_indices(e.shape[-1])
        entries = root[..., rows, columns]
        return jnp.where(rows == columns, jnp.log(entries), entries)
    return to_real(e.support, x, e.ends)


def unflat(entries: list[Entry], u: Float[Array, " d"]) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Values by name, and the logarithm of the volume they take for that of u."""
    out, volume, at = {}, jnp.zeros((), u.dtype), 0
    for e in entries:
        part = u[at : at + e.size]
        at += e.size
        out[e.name], more = _from_real(e, part)
        volume += more
    return out, volume


def _from_real(e: Entry, u: Array) -> tuple[Array, Array]:
    if e.support == "simplex":
        scores = u.reshape(*e.shape[:-1], e.shape[-1] - 1)
        logs = jax.nn.log_softmax(jnp.concatenate([scores, jnp.zeros_like(scores[..., :1])], -1), -1)
        return jnp.exp(logs), jnp.sum(logs)
    if e.support == "matrix":
        d = e.shape[-1]
        rows, columns = np.tril_indices(d)
        u = u.reshape(*e.shape[:-2], -1)
        entries = jnp.where(rows == columns, jnp.exp(u), u)
        root = jnp.zeros(e.shape, u.dtype).at[..., rows, columns].set(entries)
        powers = np.where(rows == columns, d + 1 - rows, 0)  # of the diagonal, in d(L L^T) / dL and in its logarithm
        return root @ jnp.swapaxes(root, -1, -2), jnp.sum(powers * u) + u[..., 0].size * d * np.log(2.0)
    u = u.reshape(e.shape)
    return from_real(e.support, u, e.ends), jnp.sum(log_slope(e.support, u, e.ends))


class Standard(NamedTuple):
    """`u = mean + root x`; the root is a lower triangle, or a vector for each number by itself."""

    mean: Float[Array, " d"]
    root: Float[Array, "d d"] | Float[Array, " d"]

    def real(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.mean + (self.root * x if self.root.ndim == 1 else self.root @ x)

    def standard(self, u: Float[Array, " d"]) -> Float[Array, " d"]:
        off = u - self.mean
        if self.root.ndim == 1:
            return off / self.root
        return jax.scipy.linalg.solve_triangular(self.root, off, lower=True)


def standardise(u: Float[Array, "n d"]) -> Standard:
    """Mean and root of the covariance of draws; off the diagonal it is drawn to zero, where there are few of them.

    Where there are enough it is not: what is narrow in one direction only (smooth curves) would look wide.
    """
    n, d = u.shape
    mean, scale = jnp.mean(u, 0), jnp.std(u, 0)
    scale = jnp.where(scale > 0, scale, 1.0)
    if d > DENSE:
        return Standard(mean, scale)
    white = (u - mean) / scale
    correlation = white.T @ white / n
    shrink = d / (d + 4.0 * n) if n < ENOUGH * d else 10.0 * d * jnp.finfo(u.dtype).eps
    correlation = (1 - shrink) * correlation + shrink * jnp.eye(d, dtype=u.dtype)
    return Standard(mean, scale[:, None] * jnp.linalg.cholesky(correlation))
