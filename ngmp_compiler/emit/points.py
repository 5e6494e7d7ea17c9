r"""Functionals that are constants: rows of zero coefficients, known when the program runs or not before.

The marginal of such an interface is a point mass. In place of its variance, zero, it gets one that is small against
those of its neighbours, $\epsilon^{3/4}$ of their geometric mean: small enough that no kernel can tell, large enough
that the nodes of a quadrature stay apart. Its leaf acts on nothing, so its cavity is its marginal; the leaf itself is
the limit of the projection at a point, the message with the same two derivatives there.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..graph.edges import Functional


def may_vanish(functional: Functional) -> bool:
    """Whether a row of a functional can be a constant: not if a coefficient is one, or known not to be zero."""
    sure = [_nonzero(link.coefficient, link.op) for link in functional.links]
    return not np.all(functools.reduce(np.logical_or, sure, np.asarray(False)))


def _nonzero(c: Any, op: str) -> Any:
    """Where a coefficient, or a row of one, is known not to be zero."""
    if c is None:
        return np.asarray(True)
    if not isinstance(c, np.ndarray):
        return np.asarray(False)
    return c != 0 if op == "scale" else np.any(c, -1)


def widen(
    mean: Float[Array, "n *width"], spread: Float[Array, "n *width width"]
) -> tuple[Float[Array, "n *width width"], Bool[Array, " n"]]:
    """Variances (or covariances) with those that are zero, to rounding, replaced; and which rows are points."""
    variance = spread if mean.ndim == 1 else jnp.diagonal(spread, axis1=-2, axis2=-1)
    fixed, centre = jax.lax.stop_gradient((variance, mean))
    floor = float(jnp.finfo(variance.dtype).eps) ** 0.75 * _typical(fixed, centre)
    flat = jnp.abs(fixed) <= floor  # not if it is negative by more: that is improper
    if mean.ndim == 1:
        return jnp.where(flat, floor, variance), flat
    missing = jnp.where(flat, floor - fixed, 0)
    return spread + missing[..., None] * jnp.eye(missing.shape[-1], dtype=missing.dtype), jnp.all(flat, -1)


def _typical(variance: Array, mean: Array) -> Float[Array, ""]:
    """The geometric mean of the positive variances, the mean square of the values if there are none, or else one."""
    positive = variance > 0
    count = jnp.sum(positive)
    logs = jnp.sum(jnp.log(jnp.where(positive, variance, 1)))
    square = jnp.mean(mean**2)
    return jnp.where(count > 0, jnp.exp(logs / jnp.maximum(count, 1)), jnp.where(square > 0, square, 1))
