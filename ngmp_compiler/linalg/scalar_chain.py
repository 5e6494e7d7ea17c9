"""Marginals of a scalar Gaussian chain in O(T), without subtractive cancellation.

The density is
$$ p(x) \\propto \\exp\\Big\\{\\sum_k \\big(-\\tfrac12 u_k x_k^2 + h_k x_k\\big)
   - \\tfrac12 \\sum_k l_k (a_k x_{k+1} - b_k x_k)^2\\Big\\}. $$
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.numerics.special import LOG_2PI

from .odd_even import Chain, Moments, expand, pad, reduce


class ChainMarginals(NamedTuple):
    """First two moments of a scalar chain and its log-integral."""

    mean: Float[Array, " T"]
    variance: Float[Array, " T"]
    covariance: Float[Array, " T-1"]  # Cov(x_k, x_{k+1})
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    log_volume: Float[Array, ""]  # the log-integral at h = 0


Ties = tuple[Float[Array, " T-1"], Float[Array, " T-1"], Float[Array, " T-1"]]


def chain_ties(tie: Float[Array, " T-1"], a: Float[Array, " T-1"], b: Float[Array, " T-1"]) -> Ties:
    """Ties as `solve_chain` wants them, $l a^2$, $l b^2$ and $l a b$ (module docstring)."""
    return tie * a * a, tie * b * b, tie * a * b


def solve_chain(unary: Float[Array, " T"], linear: Float[Array, " T"], ties: Ties, levels: int = 0) -> ChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    Args:
        unary: $u_k$. Single entries of it and of the ties may be negative as long as the joint density is proper.
        linear: $h_k$.
        ties: `chain_ties`, prepared, because they stay the same from one call to the next. Those of length one stand
            for T-1 equal ones with $l a^2 > 0$; nothing as long as the chain is then kept of them.
        levels: how many times to halve the chain by odd-even reduction before a scan, which pays on accelerators; XLA
            on a CPU compiles a scan over scalars to one loop, 17 to 25 ns a variable.

    Returns:
        The moments. `proper` is True if every pivot of the elimination is positive (the precision matrix is positive
        definite) and every moment finite; otherwise the other fields are meaningless. It does not look at the
        log-partition: a caller who drops that does not pay for T logarithms.
    """
    length = unary.shape[0]
    if levels:
        ties = jax.tree.map(lambda x: jnp.broadcast_to(x, (length - 1,)), ties)
    chain = pad(Chain(unary, linear, *ties), (1 - length) % 2**levels)  # odd lengths on every level
    terms, odds = [], []
    for _ in range(levels):
        chain, odd, term = reduce(chain)
        odds.append(odd)
        terms.append(term)
    moments, logs, term, positive = _scan(chain)
    for odd in reversed(odds):
        moments = expand(moments, odd)
        positive &= jnp.all(jnp.isfinite(odd.centre) & (odd.inverse > 0))
    mean, variance, covariance = moments.mean[:length], moments.variance[:length], moments.covariance[: length - 1]
    logs = sum((jnp.sum(jnp.log(odd.inverse)) for odd in odds), logs)
    log_volume = 0.5 * (logs + length * LOG_2PI)
    log_partition = 0.5 * sum(terms, term) + log_volume
    return ChainMarginals(mean, variance, covariance, log_partition, positive, log_volume)


class ChainMessages(NamedTuple):
    """What every variable is told by all on one side of it: precisions and linear coefficients, from the left and from
    the right."""

    precision: Float[Array, "2 T"]
    linear: Float[Array, "2 T"]


def chain_messages(
    unary: Float[Array, " T"], linear: Float[Array, " T"], ties: Ties, later: Float[Array, " T-1"],
    earlier: Float[Array, " T-1"],
) -> ChainMessages:  # fmt: skip
    """What both sides of every variable say of it. With $P_k$ and $G_k$ all that $x_k$ is told but from its right, and
    a tie that pulls its ends by $e_k a_k$ and $-e_k b_k$, the right neighbour hears
    $$ l_k a_k^2 P_k / (P_k + l_k b_k^2), \\qquad (e_k a_k P_k + l_k a_k b_k G_k) / (P_k + l_k b_k^2). $$
    Nothing is subtracted, so sums of messages are cavities, however strong the tie that is left out. One scan as long
    as the chain.

    Args:
        unary: $u_k$.
        linear: $h_k$, without what ties pull by.
        ties: as in `solve_chain`.
        later: $e_k a_k$.
        earlier: $-e_k b_k$.
    """
    ahead, behind, coupling = (jnp.broadcast_to(x, later.shape) for x in ties)
    pairs = (unary[:-1], unary[1:]), (linear[:-1], linear[1:]), (ahead, behind), (behind, ahead), (later, earlier)

    def onward(told: tuple[Array, Array], step: tuple[Array, ...]) -> tuple[Any, Any]:
        unary, linear, onward, own, pull, coupling = step
        p, g = told[0] + unary, told[1] + linear
        inverse = 1.0 / (p + own)
        told = onward * (p * inverse), (pull * p + coupling * g) * inverse
        return told, told

    along = (*(_fold(left, right) for left, right in pairs), _fold(coupling, coupling))
    zero = jnp.zeros(2, unary.dtype)
    _, told = jax.lax.scan(onward, (zero, zero), along)  # unrolled, XLA takes ten times as long
    end = zero[:1]
    return ChainMessages(*(
        jnp.stack([jnp.concatenate([end, x[:, 0]]), jnp.concatenate([x[::-1, 1], end])]) for x in told
    ))  # fmt: skip


class _Solved(NamedTuple):
    """Moments of a chain; the sums of `-log s` and `h^2 / s` over its pivots; and whether all is proper."""

    moments: Moments
    logs: Float[Array, ""]
    quadratic: Float[Array, ""]
    proper: Bool[Array, ""]


def _scan(chain: Chain) -> _Solved:
    """Eliminate one variable after the other, from both ends to the middle. From the left, with
    $s_k = p_k + l_k b_k^2$,
    $$ p_{k+1} = u_{k+1} + l_k a_k^2 p_k / s_k, \\qquad g_{k+1} = h_{k+1} + l_k a_k b_k g_k / s_k, $$
    and backwards $x_k | x_{k+1} \\sim N((g_k + l_k a_k b_k x_{k+1}) / s_k, 1 / s_k)$; from the right, a and b change
    places.

    The two ends are the two lanes of one scan: a step waits for its division, in which another one has room.
    """
    length = chain.unary.shape[0]
    shared = chain.coupling.shape[0] == 1 < length - 1
    # XLA on a CPU makes one function of a scan whose steps touch less than a kilobyte; longer ones would not be.
    unroll = (2, 4) if shared else (2, 2)
    steps = -(-(length - 1) // (2 * unroll[1])) * unroll[1]  # of each end, so that unrolled scans leave no remainder
    extra = 2 * steps + 1 - length
    if shared:  # flat variables beyond the end of the chain say nothing of the others
        unary, linear = jnp.pad(chain.unary, (0, extra)), jnp.pad(chain.linear, (0, extra))
        ahead, behind, coupling = (x[0] for x in chain[2:])
        ties = jnp.stack([ahead, behind]), jnp.stack([behind, ahead]), coupling
    else:
        unary, linear, ahead, behind, coupling = pad(chain, extra)
        pairs = (ahead, behind), (behind, ahead), (coupling, coupling)
        ties = tuple(_fold(left[:steps], right[steps:]) for left, right in pairs)
    middle = unary[steps], linear[steps]
    unary, linear = _fold(unary[:steps], unary[steps + 1 :]), _fold(linear[:steps], linear[steps + 1 :])
    along, fixed = ((), ties) if shared else (ties, ())  # ties that are read in every step, or not

    def inward(carry, step):
        p, g, lowest = carry
        unary, linear, onward, own, coupling = (*step, *fixed)
        inverse = 1.0 / ((unary + own) + p)  # one division a step, and nothing before it but a sum
        p, g = unary + p, linear + g
        return ((onward * p) * inverse, (coupling * inverse) * g, jnp.minimum(lowest, inverse)), (inverse, g)

    def outward(carry, step):
        mean, variance = carry
        inverse, g, coupling = (*step, *fixed[2:])
        gain = coupling * inverse
        state = g * inverse + gain * mean, inverse + (gain * gain) * variance
        return state, state

    zero = jnp.zeros(2, chain.unary.dtype)
    begin, potentials = (zero, zero, zero + 1.0), (unary, linear, *along)
    (p, g, lowest), (inverse, shift) = jax.lax.scan(inward, begin, potentials, unroll=unroll[0])
    # Both lanes go on from the middle; pairs are kept as pairs, since XLA calls a kernel for every cut.
    centre_inverse, centre_shift = 1.0 / (middle[0] + (p + p[::-1])), middle[1] + (g + g[::-1])
    start = centre_shift * centre_inverse, centre_inverse
    conditionals = inverse, shift, *along[2:]
    ends, (mean, variance) = jax.lax.scan(outward, start, conditionals, reverse=True, unroll=unroll[1])
    # What is not finite stays so to the end of its lane: no pass over all moments is needed to find it.
    left, right = ((lowest[i] > 0) & jnp.isfinite(ends[0][i] + ends[1][i]) for i in (0, 1))
    proper = left & right & (centre_inverse[0] > 0)
    inner = jnp.concatenate([variance[1:], centre_inverse[None]])[: len(variance)]  # of the neighbour further in
    moments = Moments(
        _unfold(mean, start[0][0])[:length], _unfold(variance, start[1][0])[:length],
        _unfold(ties[2] * inverse * inner)[: length - 1],
    )  # fmt: skip
    quadratic = jnp.sum(shift * shift * inverse) + (centre_shift * start[0])[0]
    logs = jnp.sum(jnp.log(inverse)) + jnp.log(centre_inverse[0])
    if shared:  # the integral over a flat variable at the end of a tie is that of the tie
        logs += extra * jnp.log(chain.ahead[0])
    return _Solved(moments, logs, quadratic, proper)


def _fold(left: Float[Array, " n"], right: Float[Array, " n"]) -> Float[Array, "n 2"]:
    """The two halves of a chain as lanes that both run to the middle."""
    return jnp.stack([left, right[::-1]], 1)


def _unfold(lanes: Float[Array, "n 2"], *middle: Float[Array, ""]) -> Float[Array, " 2n+m"]:
    return jnp.concatenate([lanes[:, 0], *(x[None] for x in middle), lanes[::-1, 1]])
