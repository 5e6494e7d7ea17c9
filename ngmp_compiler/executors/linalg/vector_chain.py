"""Marginals of a vector Gaussian chain by block elimination.

The density is
$$ p(x) \\propto \\exp\\Big\\{\\sum_k \\big(-\\tfrac12 x_k^T U_k x_k + h_k^T x_k\\big)
   - \\tfrac12 \\sum_k (A_k x_{k+1} - B_k x_k)^T \\Lambda_k (A_k x_{k+1} - B_k x_k)\\Big\\}. $$
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._small import eliminate, multiply, symmetrise, transpose

LOG_2PI = math.log(2.0 * math.pi)
WRITTEN_OUT = 4  # the order up to which an elimination written out beats LAPACK


class VectorChainMarginals(NamedTuple):
    """First two moments of a vector chain and its log-integral."""

    mean: Float[Array, "T d"]
    covariance: Float[Array, "T d d"]
    cross: Float[Array, "T-1 d d"]  # Cov(x_k, x_{k+1}): row = x_k, column = x_{k+1}
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]


def vector_chain(
    unary: Float[Array, "T d d"],
    linear: Float[Array, "T d"],
    link: Float[Array, "steps m m"],
    A: Float[Array, "steps m d"],
    B: Float[Array, "steps m d"],
) -> VectorChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    With $S_k = P_k + B_k^T \\Lambda_k B_k$ and $W_k = S_k^{-1} B_k^T \\Lambda_k A_k$, eliminating $x_k$ leaves
    $$ P_{k+1} = U_{k+1} + W_k^T P_k W_k + (A_k - B_k W_k)^T \\Lambda_k (A_k - B_k W_k), \\quad
       g_{k+1} = h_{k+1} + W_k^T g_k, $$
    a sum (Joseph form) where the textbook $A^T(\\Lambda - \\Lambda B S^{-1} B^T \\Lambda)A$ subtracts two nearly equal
    matrices whenever $P_k$ is small against the link. Backwards,
    $x_k | x_{k+1} \\sim N(S_k^{-1} g_k + W_k x_{k+1}, S_k^{-1})$.

    Args:
        unary: $U_k$, symmetric; single blocks may be indefinite as long as the joint density is proper.
        linear: $h_k$.
        link: $\\Lambda_k$, symmetric. `link`, `A` and `B` each have T-1 leading entries, or one shared by all steps.
        A: $A_k$, acting on $x_{k+1}$.
        B: $B_k$, acting on $x_k$.

    Returns:
        The moments. `proper` is False unless every pivot $S_k$ is positive definite and every moment finite;
        the other fields are then meaningless.
    """
    length, size = linear.shape
    behind = multiply(transpose(B), multiply(link, B))
    coupling = multiply(transpose(B), multiply(link, A))
    mean, covariance, cross, pivots, terms = _sweep(symmetrise(unary), linear, behind, coupling, link, A, B)
    log_partition = 0.5 * jnp.sum(terms) - 0.5 * jnp.sum(jnp.log(pivots)) + 0.5 * length * size * LOG_2PI
    fine = jnp.all(jnp.isfinite(mean), -1) & jnp.all(jnp.isfinite(covariance), (-1, -2)) & jnp.all(pivots > 0, -1)
    proper = jnp.all(fine) & jnp.isfinite(log_partition)
    return VectorChainMarginals(mean, covariance, cross, log_partition, proper)


def _sweep(unary, linear, *links):
    """Forward and back: moments, cross-covariances, the pivots of all eliminations, terms of the quadratic form."""
    shared = [x.shape[0] == 1 for x in links]
    moving = tuple(x for x, one in zip(links, shared, strict=True) if not one)

    def at(step):
        """The matrices of a step: its own, or the ones that all share."""
        own = iter(step)
        return [x[0] if one else next(own) for x, one in zip(links, shared, strict=True)]

    def forward(carry, step):
        precision, shift = carry
        unary, linear, *moving = step
        behind, coupling, link, A, B = at(moving)
        gain, spread, centre, pivots = eliminate(precision + behind, coupling, shift, WRITTEN_OUT)
        rest = A - multiply(B, gain)
        update = multiply(gain.T, multiply(precision, gain)) + multiply(rest.T, multiply(link, rest))
        moved = unary + symmetrise(update), linear + jnp.sum(gain * shift[:, None], 0)
        return moved, (gain, spread, centre, pivots, jnp.sum(shift * centre))

    start = unary[0], linear[0]
    last, (gains, spreads, centres, pivots, terms) = jax.lax.scan(forward, start, (unary[1:], linear[1:], *moving))
    _, spread, centre, pivot = eliminate(last[0], last[0][:, :0], last[1], WRITTEN_OUT)

    def backward(carry, step):
        mean, covariance = carry
        gain, centre, spread = step
        cross = multiply(gain, covariance)
        state = centre + jnp.sum(gain * mean, 1), spread + symmetrise(multiply(cross, gain.T))
        return state, (*state, cross)

    _, (means, covariances, cross) = jax.lax.scan(backward, (centre, spread), (gains, centres, spreads), reverse=True)
    mean, covariance = jnp.concatenate([means, centre[None]]), jnp.concatenate([covariances, spread[None]])
    terms = jnp.append(terms, jnp.sum(last[1] * centre))
    return mean, covariance, cross, jnp.concatenate([pivots, pivot[None]]), terms
