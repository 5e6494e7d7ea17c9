"""Moments of a small dense Gaussian in information form, by one Cholesky factorisation."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .factor import factor

LOG_2PI = math.log(2.0 * math.pi)


class DenseMarginals(NamedTuple):
    """First two moments of a Gaussian vector and its log-integral."""

    mean: Float[Array, " M"]
    covariance: Float[Array, "M M"]
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    jitter: Float[Array, ""]


def dense_gaussian(precision: Float[Array, "M M"], linear: Float[Array, " M"]) -> DenseMarginals:
    """Moments and log-integral of $\\exp\\{-\\tfrac12 x^T \\Lambda x + \\xi^T x\\}$.

    With $\\Lambda = L L^T$,
    $$ \\log Z = \\tfrac12 \\xi^T m - \\sum_i \\log L_{ii} + \\tfrac M2 \\log 2\\pi, \\qquad m = \\Lambda^{-1}\\xi. $$

    Args:
        precision: $\\Lambda$, symmetric; only its symmetric part is used.
        linear: $\\xi$.

    Returns:
        The moments. If the precision is not positive definite, `proper` is False and the other fields hold NaN:
        a caller must look at `proper` before using them.
    """
    size = linear.shape[0]
    chol, jitter = factor(0.5 * (precision + precision.T))
    root = jax.scipy.linalg.solve_triangular(chol, jnp.eye(size, dtype=chol.dtype), lower=True)
    covariance = root.T @ root  # symmetric by construction
    mean = root.T @ (root @ linear)
    log_partition = 0.5 * jnp.vdot(linear, mean) - jnp.sum(jnp.log(jnp.diagonal(chol))) + 0.5 * size * LOG_2PI
    proper = jnp.all(jnp.isfinite(covariance)) & jnp.all(jnp.isfinite(mean)) & jnp.isfinite(log_partition)
    return DenseMarginals(mean, covariance, log_partition, proper, jitter)
