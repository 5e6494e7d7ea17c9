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

from .odd_even import Chain, Moments, expand, pad, reduce

LOG_2PI = math.log(2.0 * math.pi)

# XLA on a CPU compiles a scan over scalars to a tight loop (about 20 ns per variable). Odd-even reduction hardly beats
# it until the arrays outgrow the cache: two levels save 15 to 30 % of the time of 10^5 variables, and each level adds
# 0.1 to 0.4 s of compilation. Up to `LONG` variables the program does not depend on their number.
LONG, LONG_LEVELS = 2**18, 2


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
    *,
    levels: int | None = None,
) -> ChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    Args:
        unary: $u_k$. Single entries of `unary` and `link` may be negative as long as the joint density is proper.
        linear: $h_k$.
        link: $l_k$.
        a: $a_k$, the coefficient of $x_{k+1}$.
        b: $b_k$, the coefficient of $x_k$.
        levels: how many times to halve the chain by odd-even reduction before the scan; by default 0 below
            `LONG` variables and `LONG_LEVELS` from there on. Levels pay for batches under `vmap` and on accelerators.

    Returns:
        The moments. `proper` is True if every pivot of the elimination is positive (the precision matrix is positive
        definite) and every moment finite; otherwise the other fields are meaningless.
    """
    length = unary.shape[0]
    if levels is None:
        levels = LONG_LEVELS if length >= LONG else 0
    chain = Chain(unary, linear, link * a * a, link * b * b, link * a * b)
    chain = pad(chain, (1 - length) % 2**levels)  # every level then has odd length
    quadratic, odds = 0.0, []
    for _ in range(levels):
        chain, odd, term = reduce(chain)
        odds.append(odd)
        quadratic += term
    moments, inverse, term = _scan(chain)
    quadratic += term
    for odd in reversed(odds):
        moments = expand(moments, odd)
    mean, variance, covariance = moments.mean[:length], moments.variance[:length], moments.covariance[: length - 1]
    inverses = jnp.concatenate([inverse, *(odd.inverse for odd in odds)])
    log_partition = 0.5 * (quadratic + jnp.sum(jnp.log(inverses)) + length * LOG_2PI)
    # Not from log_partition: a caller who drops it then does not pay for T logarithms.
    finite = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(variance)) & jnp.isfinite(quadratic)
    return ChainMarginals(mean, variance, covariance, log_partition, finite & jnp.all(inverses > 0))


def _scan(chain: Chain) -> tuple[Moments, Float[Array, " T"], Float[Array, ""]]:
    """Eliminate one variable after the other. With $s_k = p_k + l_k b_k^2$,
    $$ p_{k+1} = u_{k+1} + l_k a_k^2 p_k / s_k, \\qquad g_{k+1} = h_{k+1} + l_k a_k b_k g_k / s_k, $$
    and backwards $x_k | x_{k+1} \\sim N((g_k + l_k a_k b_k x_{k+1}) / s_k, 1 / s_k)$.

    Returns:
        The moments, $1 / s_k$, and $\\sum_k g_k^2 / s_k$, where the last pivot $s_{T-1}$ is $p_{T-1}$.
    """

    def forward(carry, step):
        p, g = carry
        unary, linear, ahead, behind, coupling = step
        inverse = 1.0 / (p + behind)  # one division per step: it is the longest part of the recursion
        return (unary + ahead * (p * inverse), linear + coupling * (g * inverse)), (inverse, g)

    start = chain.unary[0], chain.linear[0]
    (p, g), (inverse, shift) = jax.lax.scan(forward, start, (chain.unary[1:], chain.linear[1:], *chain[2:]))
    inverse, shift = jnp.append(inverse, 1.0 / p), jnp.append(shift, g)
    centre, gain = shift * inverse, chain.coupling * inverse[:-1]

    def backward(carry, step):
        mean, variance = carry
        centre, gain, inverse = step
        state = centre + gain * mean, inverse + gain * (gain * variance)
        return state, state

    end = centre[-1], inverse[-1]
    _, (mean, variance) = jax.lax.scan(backward, end, (centre[:-1], gain, inverse[:-1]), reverse=True)
    mean, variance = jnp.append(mean, end[0]), jnp.append(variance, end[1])
    return Moments(mean, variance, gain * variance[1:]), inverse, jnp.sum(shift * centre)
