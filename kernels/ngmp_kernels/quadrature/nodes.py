"""Nodes and normalised log-weights: what the families place theirs with."""

import functools
import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri
from scipy.stats import qmc

from ..numerics.logarithm import log1p

Nodes = tuple[Array, Array]


@functools.lru_cache
def hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and normalised log-weights for the standard normal."""
    u, w = np.polynomial.hermite_e.hermegauss(n)
    return u, np.log(w) - np.log(w.sum())


def column(x: np.ndarray, q: Any) -> Float[Array, "Q ..."]:
    """A constant table as an array that broadcasts against the batch of q, in its dtype."""
    return jnp.asarray(x, q.dtype).reshape((-1,) + (1,) * len(q.batch_shape))


@functools.lru_cache
def hermite_product(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n^d, d) and log-weights for the standard normal in d dimensions."""
    u, log_weights = hermite(n)
    every = np.asarray(list(itertools.product(range(n), repeat=d)))
    return u[every], log_weights[every].sum(1)


# Points that are a in j of d coordinates, up to signs, and zero in the others: (j, a) of every set of them.
_SYMMETRIC = {
    5: ((0, 0.0), (1, 2.0), (1, 2.45), (1, 3.0), (2, 2.65), (5, 1.0), (5, 1.55)),
    6: ((1, 1.05), (1, 1.7), (1, 2.5), (1, 3.9), (2, 2.1), (2, 3.8), (6, 1.2)),
}
_EVEN = ((), (2,), (4,), (2, 2), (6,), (4, 2), (2, 2, 2))  # exponents of the monomials of degree seven that are not odd


@functools.lru_cache
def symmetric(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, 135 in five and 232 in six dimensions, and log-weights for the standard normal: exact to degree seven.

    The sets were chosen so that all weights are positive; these solve for the moments of `_EVEN`.
    """
    sets = _SYMMETRIC[d]

    def average(j: int, a: float, powers: tuple[int, ...]) -> float:
        """Of a monomial over a set."""
        k = len(powers)
        return math.comb(d - k, j - k) / math.comb(d, j) * a ** sum(powers) if j >= k else 0.0

    moments = [math.prod(math.prod(range(1, p, 2)) for p in powers) for powers in _EVEN]
    weights = np.linalg.solve([[average(j, a, p) for j, a in sets] for p in _EVEN], moments)
    points, shares = [], []
    for (j, a), weight in zip(sets, weights, strict=True):
        own = list(itertools.product(itertools.combinations(range(d), j), itertools.product((-a, a), repeat=j)))
        for at, signs in own:
            points.append(np.zeros(d))
            points[-1][list(at)] = signs
        shares += [weight / len(own)] * len(own)
    return np.asarray(points), np.log(shares)


@functools.lru_cache
def spread(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) of low discrepancy and of equal weight, and log-weights, for the standard normal: in many
    dimensions, where products of rules have too many. Symmetric, with a mean of zero and unit covariance."""
    half = ndtri(qmc.Sobol(d, scramble=False).random(n // 2) + 0.5 / (n // 2))
    u = np.concatenate([half, -half])
    u = u @ np.linalg.inv(np.linalg.cholesky(u.T @ u / n)).T
    return u, np.full(n, -np.log(n))


# -- trapezoidal rule in a logarithmic coordinate ------------------------------------------------------------------


def cutoff(dtype) -> float:
    """Log-density drop, relative to the mode, beyond which a tail is cut: e^-4 times the rounding unit."""
    return 4.0 - float(np.log(jnp.finfo(dtype).eps))


def stretch(left: Float[Array, "*b"], right: Float[Array, "*b"], n: int) -> Nodes:
    r"""Trapezoidal nodes x in [-left, right] and log dx/dv, uniform in v with $x = (v + \sinh v)/2$.

    The map is the identity near 0, where the mass is, and reaches an exponential tail of length L in log L steps; a
    uniform grid would need 1/shape times more nodes at shape < 1.
    """
    reach = jnp.stack([left, right])
    # Within 6 % of the end; a step of Newton's method, v - (v + sinh v - 2 reach) / (1 + cosh v) with e = exp(v), comes
    # within 0.2 %, and from above: the function is convex.
    v = jnp.log1p(reach * (1 + 0.868 * reach) / (1 + 0.217 * reach))
    e = jnp.exp(v)
    v = v - (e * e - 1 + e * (2 * v - 4 * reach)) / (1 + e) ** 2
    start, end = -v[0], v[1]
    unit = jnp.asarray(np.linspace(0.0, 1.0, n), v.dtype).reshape((-1,) + (1,) * start.ndim)
    v = start + (end - start) * unit
    e = jnp.expm1(v)  # sinh v = (e + e / (1 + e)) / 2, cosh v = 1 + e^2 / (2 (1 + e)), accurate at small v
    ratio = e / (1 + e)
    return 0.5 * v + 0.25 * (e + ratio), log1p(0.25 * e * ratio)


def normalised(log_weights: Float[Array, "Q *b"]) -> Float[Array, "Q *b"]:
    """Relative to the mode they are neither all tiny nor ever large: the sum needs no search for the largest."""
    return log_weights - jnp.log(jnp.sum(jnp.exp(log_weights), axis=0))


def point(q: Any) -> Nodes:
    """All mass at the mean."""
    return q.mean[None], jnp.zeros((1,) + q.batch_shape, q.dtype)
