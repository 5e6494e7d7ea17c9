"""Weighted least squares at the nodes, and derivatives at a point: what the families regress a log-message with."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics.logarithm import log, log1p

LogMessage = Callable[[Array], Array]


def average(w: Float[Array, "Q *b"], x: Float[Array, "Q *b"]) -> Float[Array, "*b"]:
    """Weighted mean over nodes; a node of weight zero may hold an infinite value."""
    return jnp.sum(jnp.where(w > 0, w * jnp.where(w > 0, x, 0), 0), axis=0)


def slopes(w: Array, values: Array, x1: Array, x2: Array, centred: bool = False) -> tuple[Array, Array]:
    """Coefficients of x1 and x2 in the weighted regression of values on (1, x1, x2), by Gram-Schmidt.

    No normal equations are formed; the second coefficient is found first and its part removed, so that an exact
    relation is recovered to rounding.
    """
    if w.shape != values.shape:
        return _shared_slopes(w, values, x1, x2, centred)
    y, x1, x2 = (x - average(w, x) for x in (values, x1, x2))
    norm1 = average(w, x1**2)
    orthogonal = x2 - average(w, x1 * x2) / norm1 * x1
    beta2 = average(w, orthogonal * y) / average(w, orthogonal**2)
    beta1 = average(w, x1 * (y - beta2 * x2)) / norm1
    return beta1, beta2


def _shared_slopes(w: Array, values: Array, x1: Array, x2: Array, centred: bool) -> tuple[Array, Array]:
    """`slopes` where all regressions share nodes and weights, (Q, 1): they are then two sums over the values."""
    x1, x2 = (x - average(w, x) for x in (x1, x2))
    norm1 = average(w, x1**2)
    slope = average(w, x1 * x2) / norm1
    orthogonal = x2 - slope * x1
    y = jnp.where(w > 0, values, 0)
    if not centred:  # the weights of a row add up to zero only to rounding
        y = y - _combine(w, y)
    first, beta2 = (_combine(row, y) for row in (w * x1 / norm1, w * orthogonal / average(w, orthogonal**2)))
    return first - slope * beta2, beta2


def _combine(row: Array, y: Float[Array, "Q *b"]) -> Float[Array, "*b"]:
    """`sum_q row_q y_q` of a row that is shared by all, (Q, 1, ...): on a CPU a product is several times a sum."""
    if row.size > row.shape[0]:
        return jnp.sum(row * y, 0)
    return jnp.tensordot(row.reshape(-1), y, 1, precision="highest")


def log_quotient(z: Array, m: Array) -> Array:
    """log(z / m) for positive numbers: by log1p near 1, where a regression needs its curvature."""
    return log_shift(z - m, m, log(z) - log(m))


def log_shift(delta: Array, m: Array, far: Array) -> Array:
    """log((m + delta) / m): by log1p near 1, otherwise the given value."""
    near = jnp.abs(delta) < 0.5 * m
    return jnp.where(near, log1p(jnp.where(near, delta / m, 0)), far)


def derivatives(f: LogMessage, z: Float[Array, "*b"]) -> tuple[Array, Array]:
    """f' and f'' of an elementwise function, by forward mode."""

    def first(x):
        return jax.jvp(f, (x,), (jnp.ones_like(x),))[1]

    d1, d2 = jax.jvp(first, (z[None],), (jnp.ones_like(z[None]),))
    return d1[0], d2[0]
