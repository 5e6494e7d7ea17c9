"""Block elimination of a scalar Gaussian chain: lanes of consecutive variables, eliminated side by side.

The chain is cut into `LANES` blocks. The first variable of a block is its separator; the others are integrated out one
after the other, in all blocks at once, by the step of `odd_even.reduce`: a variable lies between its separator and the
next variable. What is left is a chain of the separators, solved by a scan, and the way back fills in the blocks. It is
twice the arithmetic of a scan over single variables, in vectors of `LANES`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._region import region
from .odd_even import Chain, Moments

LANES = 64


class Solved(NamedTuple):
    """Moments of a chain, the inverses of all pivots, and the sum of `h^2 / s` over them."""

    moments: Moments
    inverses: Float[Array, " n"]
    quadratic: Float[Array, ""]


def scan(chain: Chain) -> Solved:
    """Eliminate one variable after the other. With $s_k = p_k + l_k b_k^2$,
    $$ p_{k+1} = u_{k+1} + l_k a_k^2 p_k / s_k, \\qquad g_{k+1} = h_{k+1} + l_k a_k b_k g_k / s_k, $$
    and backwards $x_k | x_{k+1} \\sim N((g_k + l_k a_k b_k x_{k+1}) / s_k, 1 / s_k)$; the last pivot is $p_{T-1}$.
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
    return Solved(Moments(mean, variance, gain * variance[1:]), inverse, jnp.sum(shift * centre))


Rows = tuple[Float[Array, "L lanes"], ...]


def lay_out(links: tuple[Float[Array, " T-1"], ...]) -> Rows:
    """The products of the links with the blocks side by side, padded to a multiple of `LANES`."""
    count = LANES - links[0].shape[0] % LANES
    return tuple(jnp.pad(x, (0, count)).reshape(LANES, -1).T for x in links)


def blocked(
    unary: Float[Array, " n"], linear: Float[Array, " n"], links: Rows
) -> tuple[Moments, Float[Array, " n"], Float[Array, ""], Bool[Array, ""]]:
    """Moments, inverse pivots, the sum of `h^2 / s`, and whether pivots are positive and moments finite.

    Args:
        unary, linear: padded to a multiple of `LANES`.
        links: from `lay_out`.
    """
    first, (inverses, quadratic), inside, (inverse, terms), fine = _sweep(
        unary.reshape(LANES, -1), linear.reshape(LANES, -1), *links
    )
    ends = (jnp.concatenate([a[None], b]).T.reshape(-1) for a, b in zip(first, inside, strict=True))
    mean, variance, covariance = ends
    inverses = jnp.append(inverse.reshape(-1), inverses)
    return Moments(mean, variance, covariance[:-1]), inverses, jnp.sum(terms) + quadratic, fine


@region
def _sweep(unary: Float[Array, "lanes L"], linear: Float[Array, "lanes L"], *links: Float[Array, "L lanes"]):
    """Forward and back: moments of the separators (the covariance is the one with the variable that follows), inverse
    pivots and quadratic term of their chain; the same of the variables inside the blocks; whether all is well.
    """
    length = unary.shape[1]

    def forward(carry, i):
        unary_i, linear_i, ahead_i, behind_i, coupling_i, own, pull = carry  # the link is the one from the separator
        ahead, behind, coupling = (jax.lax.dynamic_index_in_dim(x, i, keepdims=False) for x in links)
        after = jnp.minimum(i + 1, length - 1)
        follows = (i + 1 < length).astype(own.dtype)  # after the last comes the separator of the next block
        unary_next, linear_next = (
            follows * jax.lax.dynamic_index_in_dim(x, after, 1, keepdims=False) for x in (unary, linear)
        )
        inverse = 1.0 / (unary_i + ahead_i + behind)
        share, centre = unary_i * inverse, linear_i * inverse
        back, on = coupling_i * inverse, coupling * inverse
        moved = (
            unary_next + ahead * share, linear_next + coupling * centre,
            ahead_i * (ahead * inverse), behind_i * (behind * inverse), coupling_i * on,
            own + behind_i * share, pull + coupling_i * centre,
        )  # fmt: skip
        return moved, (inverse, centre, back, on, linear_i * centre)

    start = unary[:, 1], linear[:, 1], *(x[0] for x in links), unary[:, 0], linear[:, 0]
    end, (inverse, centre, back, on, terms) = jax.lax.scan(forward, start, jnp.arange(1, length))
    unary_last, linear_last, ahead, behind, coupling, own, pull = end
    own, pull = own.at[1:].add(unary_last[:-1]), pull.at[1:].add(linear_last[:-1])
    separators = scan(Chain(own, pull, ahead[:-1], behind[:-1], coupling[:-1]))
    first = separators.moments

    def backward(carry, step):
        # `across` is the covariance of the next variable and the separator
        mean_next, variance_next, across, fine = carry
        inverse, centre, back, on = step
        mean = centre + back * first.mean + on * mean_next
        with_separator = back * first.variance + on * across
        with_next = back * across + on * variance_next
        variance = inverse + back * with_separator + on * with_next
        fine &= (inverse > 0) & jnp.isfinite(mean + variance)
        return (mean, variance, with_separator, fine), (mean, variance, with_next)

    zero = jnp.zeros((1,), own.dtype)
    nexts = (jnp.append(x, zero) for x in (first.mean[1:], first.variance[1:], first.covariance))
    fine = (separators.inverses > 0) & jnp.isfinite(first.mean + first.variance)
    (_, _, second, fine), (mean, variance, covariance) = jax.lax.scan(
        backward, (*nexts, fine), (inverse, centre, back, on), reverse=True
    )
    last = separators.inverses, separators.quadratic
    return (first.mean, first.variance, second), last, (mean, variance, covariance), (inverse, terms), jnp.all(fine)
