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

class ChainMarginals(NamedTuple):
    """First two moments of a scalar chain and its log-integral."""

    mean: Float[Array, " T"]
    variance: Float[Array, " T"]
    covariance: Float[Array, " T-1"]  # Cov(x_k, x_{k+1})
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]


Links = tuple[Float[Array, " T-1"], Float[Array, " T-1"], Float[Array, " T-1"]]


def chain_links(link: Float[Array, " T-1"], a: Float[Array, " T-1"], b: Float[Array, " T-1"]) -> Links:
    """Links as `solve_chain` wants them, $l a^2$, $l b^2$ and $l a b$; for the arguments see `scalar_chain`."""
    return link * a * a, link * b * b, link * a * b


def scalar_chain(
    unary: Float[Array, " T"],
    linear: Float[Array, " T"],
    link: Float[Array, " T-1"],
    a: Float[Array, " T-1"],
    b: Float[Array, " T-1"],
    *,
    levels: int = 0,
) -> ChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    Args:
        unary: $u_k$. Single entries of `unary` and `link` may be negative as long as the joint density is proper.
        linear: $h_k$.
        link: $l_k$.
        a: $a_k$, the coefficient of $x_{k+1}$.
        b: $b_k$, the coefficient of $x_k$.
        levels: how many times to halve the chain by odd-even reduction before a scan, which pays on accelerators; XLA
            on a CPU compiles a scan over scalars to one loop, 17 to 25 ns a variable.

    Returns:
        The moments. `proper` is True if every pivot of the elimination is positive (the precision matrix is positive
        definite) and every moment finite; otherwise the other fields are meaningless.
    """
    return solve_chain(unary, linear, chain_links(link, a, b), levels)


def solve_chain(unary: Float[Array, " T"], linear: Float[Array, " T"], links: Links, levels: int = 0) -> ChainMarginals:
    """`scalar_chain` for links that were prepared, because they stay the same from one call to the next."""
    length = unary.shape[0]
    chain = pad(Chain(unary, linear, *links), (1 - length) % 2**levels)  # odd lengths on every level
    terms, odds = [], []
    for _ in range(levels):
        chain, odd, term = reduce(chain)
        odds.append(odd)
        terms.append(term)
    moments, inverse, term = _scan(chain)
    for odd in reversed(odds):
        moments = expand(moments, odd)
    inverses, quadratic = jnp.concatenate([inverse, *(odd.inverse for odd in odds)]), sum(terms, term)
    fine = jnp.all(jnp.isfinite(moments.mean + moments.variance) & (inverses > 0))
    mean, variance, covariance = moments.mean[:length], moments.variance[:length], moments.covariance[: length - 1]
    log_partition = 0.5 * (quadratic + jnp.sum(jnp.log(inverses)) + length * LOG_2PI)
    # Not from log_partition: a caller who drops it then does not pay for T logarithms.
    return ChainMarginals(mean, variance, covariance, log_partition, fine & jnp.isfinite(quadratic))


class _Solved(NamedTuple):
    """Moments of a chain, the inverses of all pivots, and the sum of `h^2 / s` over them."""

    moments: Moments
    inverses: Float[Array, " n"]
    quadratic: Float[Array, ""]


def _scan(chain: Chain) -> _Solved:
    """Eliminate one variable after the other. With $s_k = p_k + l_k b_k^2$,
    $$ p_{k+1} = u_{k+1} + l_k a_k^2 p_k / s_k, \\qquad g_{k+1} = h_{k+1} + l_k a_k b_k g_k / s_k, $$
    and backwards $x_k | x_{k+1} \\sim N((g_k + l_k a_k b_k x_{k+1}) / s_k, 1 / s_k)$; the last pivot is $p_{T-1}$.
    """

    # The last variable has a link of zeros, so that no array is cut or put together in between.
    ahead, behind, coupling = (jnp.append(x, jnp.zeros(1, x.dtype)) for x in chain[2:])

    def forward(carry, step):
        unary, linear, ahead, behind, coupling = step
        p, g = unary + carry[0], linear + carry[1]
        inverse = 1.0 / (p + behind)  # one division per step: it is the longest part of the recursion
        return (ahead * (p * inverse), coupling * (g * inverse)), (inverse, g)

    def backward(carry, step):
        mean, variance = carry
        centre, gain, inverse = step
        state = centre + gain * mean, inverse + gain * (gain * variance)
        return state, state

    zero = jnp.zeros((), chain.unary.dtype)
    steps = chain.unary, chain.linear, ahead, behind, coupling
    _, (inverse, shift) = jax.lax.scan(forward, (zero, zero), steps, unroll=2)
    centre, gain = shift * inverse, coupling * inverse
    _, (mean, variance) = jax.lax.scan(backward, (zero, zero), (centre, gain, inverse), reverse=True, unroll=2)
    return _Solved(Moments(mean, variance, gain[:-1] * variance[1:]), inverse, jnp.sum(shift * centre))
