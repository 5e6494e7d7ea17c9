"""Marginals of a scalar Gaussian chain in O(T), without subtractive cancellation.

The density is
$$ p(x) \\propto \\exp\\Big\\{\\sum_k \\big(-\\tfrac12 u_k x_k^2 + h_k x_k\\big)
   - \\tfrac12 \\sum_k l_k (a_k x_{k+1} - b_k x_k)^2\\Big\\}. $$
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._region import ENABLED
from .blocked import LANES, Rows, blocked, lay_out, scan
from .odd_even import Chain, expand, pad, reduce

LOG_2PI = math.log(2.0 * math.pi)

# XLA on a CPU compiles a scan over scalars to a tight loop, 17 ns per variable, most of it the latency of a division.
# Block elimination takes 6 ns in return for a second of compilation, so short chains are scanned; from there on
# the program does not depend on the number of variables.
BLOCKED = 256


class ChainMarginals(NamedTuple):
    """First two moments of a scalar chain and its log-integral."""

    mean: Float[Array, " T"]
    variance: Float[Array, " T"]
    covariance: Float[Array, " T-1"]  # Cov(x_k, x_{k+1})
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]


class Links(NamedTuple):
    """The links of a chain: `products` are $l a^2$, $l b^2$, $l a b$, and `rows` the same laid out in blocks."""

    products: tuple[Float[Array, " T-1"], Float[Array, " T-1"], Float[Array, " T-1"]]
    rows: Rows | None


def chain_links(
    link: Float[Array, " T-1"], a: Float[Array, " T-1"], b: Float[Array, " T-1"], levels: int | None = None
) -> Links:
    """Links as `solve_chain` wants them; for the arguments see `scalar_chain`."""
    products = link * a * a, link * b * b, link * a * b
    is_blocked = ENABLED and levels is None and link.shape[0] + 1 >= BLOCKED  # in single kernels a scan is faster
    return Links(products, lay_out(products) if is_blocked else None)


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
        levels: how many times to halve the chain by odd-even reduction before a scan, which pays on accelerators. By
            default chains from `BLOCKED` variables on are cut into blocks, and shorter ones scanned.

    Returns:
        The moments. `proper` is True if every pivot of the elimination is positive (the precision matrix is positive
        definite) and every moment finite; otherwise the other fields are meaningless.
    """
    return solve_chain(unary, linear, chain_links(link, a, b, levels), levels or 0)


def solve_chain(unary: Float[Array, " T"], linear: Float[Array, " T"], links: Links, levels: int = 0) -> ChainMarginals:
    """`scalar_chain` for links that were prepared, because they stay the same from one call to the next."""
    length = unary.shape[0]
    if links.rows is not None:
        count = -length % LANES
        unary, linear = jnp.pad(unary, (0, count), constant_values=1.0), jnp.pad(linear, (0, count))
        moments, inverses, quadratic, fine = blocked(unary, linear, links.rows)
    else:
        chain = pad(Chain(unary, linear, *links.products), (1 - length) % 2**levels)  # odd lengths on every level
        terms, odds = [], []
        for _ in range(levels):
            chain, odd, term = reduce(chain)
            odds.append(odd)
            terms.append(term)
        moments, inverse, term = scan(chain)
        for odd in reversed(odds):
            moments = expand(moments, odd)
        inverses, quadratic = jnp.concatenate([inverse, *(odd.inverse for odd in odds)]), sum(terms, term)
        fine = jnp.all(jnp.isfinite(moments.mean + moments.variance) & (inverses > 0))
    mean, variance, covariance = moments.mean[:length], moments.variance[:length], moments.covariance[: length - 1]
    log_partition = 0.5 * (quadratic + jnp.sum(jnp.log(inverses)) + length * LOG_2PI)
    # Not from log_partition: a caller who drops it then does not pay for T logarithms.
    return ChainMarginals(mean, variance, covariance, log_partition, fine & jnp.isfinite(quadratic))
