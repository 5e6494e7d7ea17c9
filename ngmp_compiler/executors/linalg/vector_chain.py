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

from ._small import multiply, solve_positive, symmetrise, transpose

LOG_2PI = math.log(2.0 * math.pi)


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
    steps = tuple(jnp.broadcast_to(v, (length - 1, *v.shape[1:])) for v in (behind, coupling, link, A, B))

    def forward(carry, step):
        precision, shift = carry
        unary, linear, behind, coupling, link, A, B = step
        pivot = precision + behind
        gain, _ = solve_positive(pivot, coupling)
        rest = A - multiply(B, gain)
        update = multiply(gain.T, multiply(precision, gain)) + multiply(rest.T, multiply(link, rest))
        return (unary + symmetrise(update), linear + jnp.sum(gain * shift[:, None], 0)), (pivot, gain, shift)

    start = symmetrise(unary[0]), linear[0]
    last, (pivots, gains, shifts) = jax.lax.scan(forward, start, (symmetrise(unary[1:]), linear[1:], *steps))
    pivots = jnp.concatenate([pivots, last[0][None]])
    shifts = jnp.concatenate([shifts, last[1][None]])

    # Inverses and log-determinants are not needed inside the loop: one batched solve over all steps gives them.
    eye = jnp.broadcast_to(jnp.eye(size, dtype=pivots.dtype), pivots.shape)
    solved, half_log_det = solve_positive(pivots, jnp.concatenate([eye, shifts[..., None]], -1))
    spread, centre = symmetrise(solved[..., :-1]), solved[..., -1]

    def backward(carry, step):
        mean, covariance = carry
        gain, centre, spread = step
        update = multiply(multiply(gain, covariance), gain.T)
        state = centre + jnp.sum(gain * mean, 1), spread + symmetrise(update)
        return state, state

    end = centre[-1], spread[-1]
    _, (means, covariances) = jax.lax.scan(backward, end, (gains, centre[:-1], spread[:-1]), reverse=True)
    mean, covariance = jnp.concatenate([means, end[0][None]]), jnp.concatenate([covariances, end[1][None]])
    cross = multiply(gains, covariance[1:])
    log_partition = 0.5 * jnp.sum(shifts * centre) - jnp.sum(half_log_det) + 0.5 * length * size * LOG_2PI
    proper = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(covariance)) & jnp.isfinite(log_partition)
    return VectorChainMarginals(mean, covariance, cross, log_partition, proper)
