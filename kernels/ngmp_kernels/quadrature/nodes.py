"""Nodes and normalised log-weights: what the families place theirs with."""

import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
