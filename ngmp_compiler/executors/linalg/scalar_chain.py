"""Marginals of a scalar Gaussian chain in O(T), without subtractive cancellation.

The density is
$$ p(x) \\propto \\exp\\Big\\{\\sum_k \\big(-\\tfrac12 u_k x_k^2 + h_k x_k\\big)
   - \\tfrac12 \\sum_k l_k (a_k x_{k+1} - b_k x_k)^2\\Big\\}. $$
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LOG_2PI = math.log(2.0 * math.pi)


class ChainMarginals(NamedTuple):
    """First two moments of a scalar chain and its log-integral."""

    mean: Float[Array, " T"]
    variance: Float[Array, " T"]
    covariance: Float[Array, " T-1"]  # Cov(x_k, x_{k+1})
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]


def scalar_chain(
    unary: Float[Array, " T"],
    linear: Float[Array, " T"],
    link: Float[Array, " T-1"],
    a: Float[Array, " T-1"],
    b: Float[Array, " T-1"],
) -> ChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    Single entries of `unary` and `link` may be negative as long as the joint density is proper.
    """
    return scalar_chain_scan(unary, linear, link, a, b)


def scalar_chain_scan(unary, linear, link, a, b) -> ChainMarginals:
    """One elimination step per variable. With $s_k = p_k + l_k b_k^2$,
    $$ p_{k+1} = u_{k+1} + l_k a_k^2 p_k / s_k, \\qquad g_{k+1} = h_{k+1} + l_k a_k b_k g_k / s_k, $$
    and backwards $x_k | x_{k+1} \\sim N((g_k + l_k a_k b_k x_{k+1}) / s_k, 1 / s_k)$.
    """
    ahead, behind, coupling = link * a * a, link * b * b, link * a * b

    def forward(carry, step):
        p, g = carry
        ahead, behind, coupling, unary, linear = step
        s = p + behind
        return (unary + ahead * p / s, linear + coupling * g / s), (s, g)

    last, (pivots, shifts) = jax.lax.scan(
        forward, (unary[0], linear[0]), (ahead, behind, coupling, unary[1:], linear[1:])
    )
    pivots, shifts = jnp.append(pivots, last[0]), jnp.append(shifts, last[1])
    inverse = 1.0 / pivots
    gains, centres = coupling * inverse[:-1], shifts * inverse

    def backward(carry, step):
        mean, variance = carry
        gain, centre, inverse = step
        state = centre + gain * mean, inverse + gain * gain * variance
        return state, (*state, gain * variance)

    _, (means, variances, covariance) = jax.lax.scan(
        backward, (centres[-1], inverse[-1]), (gains, centres[:-1], inverse[:-1]), reverse=True
    )
    mean, variance = jnp.append(means, centres[-1]), jnp.append(variances, inverse[-1])
    log_partition = 0.5 * jnp.sum(shifts * centres - jnp.log(pivots) + LOG_2PI)
    proper = jnp.all(pivots > 0) & jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(variance))
    return ChainMarginals(mean, variance, covariance, log_partition, proper & jnp.isfinite(log_partition))
