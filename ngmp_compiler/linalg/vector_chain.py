"""Marginals of a vector Gaussian chain by block elimination.

The density is
$$ p(x) \\propto \\exp\\Big\\{\\sum_k \\big(-\\tfrac12 x_k^T U_k x_k + h_k^T x_k\\big)
   - \\tfrac12 \\sum_k (A_k x_{k+1} - B_k x_k)^T \\Lambda_k (A_k x_{k+1} - B_k x_k)\\Big\\}. $$
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.numerics.special import LOG_2PI

from ._small import multiply, solve, symmetrise, transpose


class VectorChainMarginals(NamedTuple):
    """First two moments of a vector chain and its log-integral."""

    mean: Float[Array, "T d"]
    covariance: Float[Array, "T d d"]
    cross: Float[Array, "T-1 d d"]  # Cov(x_k, x_{k+1}): row = x_k, column = x_{k+1}
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    log_volume: Float[Array, ""]  # the log-integral at h = 0


def vector_chain(
    unary: Float[Array, "T d d"],
    linear: Float[Array, "T d"],
    tie: Float[Array, "steps m m"],
    A: Float[Array, "steps m d"],
    B: Float[Array, "steps m d"],
) -> VectorChainMarginals:
    """Moments and log-integral of the chain (see the module docstring).

    With $S_k = P_k + B_k^T \\Lambda_k B_k$ and $W_k = S_k^{-1} B_k^T \\Lambda_k A_k$, eliminating $x_k$ leaves
    $$ P_{k+1} = U_{k+1} + W_k^T P_k W_k + (A_k - B_k W_k)^T \\Lambda_k (A_k - B_k W_k), \\quad
       g_{k+1} = h_{k+1} + W_k^T g_k, $$
    a sum (Joseph form) where the textbook $A^T(\\Lambda - \\Lambda B S^{-1} B^T \\Lambda)A$ subtracts two nearly equal
    matrices whenever $P_k$ is small against the tie. Backwards,
    $x_k | x_{k+1} \\sim N(S_k^{-1} g_k + W_k x_{k+1}, S_k^{-1})$.

    Args:
        unary: $U_k$, symmetric; single blocks may be indefinite as long as the joint density is proper.
        linear: $h_k$.
        tie: $\\Lambda_k$, symmetric. `tie`, `A` and `B` each have T-1 leading entries, or one shared by all steps.
        A: $A_k$, acting on $x_{k+1}$.
        B: $B_k$, acting on $x_k$.

    Returns:
        The moments. `proper` is False unless every pivot $S_k$ is positive definite and every moment finite;
        the other fields are then meaningless.
    """
    length, size = linear.shape
    mean, covariance, cross, pivots, terms = _sweep(symmetrise(unary), linear, tie, A, B)
    log_volume = 0.5 * length * size * LOG_2PI - 0.5 * jnp.sum(jnp.log(pivots))
    fine = jnp.all(jnp.isfinite(mean), -1) & jnp.all(jnp.isfinite(covariance), (-1, -2))
    proper = jnp.all(fine) & jnp.all(pivots > 0) & jnp.isfinite(log_volume)
    return VectorChainMarginals(mean, covariance, cross, 0.5 * terms + log_volume, proper, log_volume)


class _Tie(NamedTuple):
    """What ties a variable that is eliminated to the next: $B^T \\Lambda B$, $B^T \\Lambda A$, $\\Lambda$, A and B."""

    own: Float[Array, "*b d d"]
    coupling: Float[Array, "*b d d"]
    tie: Float[Array, "*b m m"]
    A: Float[Array, "*b m d"]
    B: Float[Array, "*b m d"]


def _forward(carry: tuple, tie: _Tie, unary: Array, linear: Array) -> tuple[tuple, tuple]:
    """Eliminate a variable of precision P and shift g: precision and shift of the next; and what was eliminated, as
    $S^{-1} (B^T \\Lambda A, I, g)$ side by side, the pivots of S, and $g^T S^{-1} g$. In a loop few arrays are written
    faster.
    """
    precision, shift = symmetrise(carry[0]), carry[1]
    size = shift.shape[-1]
    eye = jnp.broadcast_to(jnp.eye(size, dtype=precision.dtype), precision.shape)
    solved, pivots = solve(precision + tie.own, jnp.concatenate([tie.coupling, eye, shift[..., None]], -1))
    gain = solved[..., :size]
    rest = tie.A - multiply(tie.B, gain)
    update = multiply(transpose(gain), multiply(precision, gain)) + multiply(transpose(rest), multiply(tie.tie, rest))
    moved = unary + update, linear + jnp.sum(gain * shift[..., None], -2)
    return moved, (solved, pivots, jnp.sum(shift * solved[..., -1], -1))


def _backward(next_one: Float[Array, "*b d c"], solved: Float[Array, "*b d e"]) -> tuple[Array, tuple]:
    """Moments of a variable from those of the next, both as (covariance, mean) side by side, and their covariance.

    Not symmetrised, which would cost more than the rest: an antisymmetric part moves as the covariance itself does, so
    that it stays a rounding error, and is removed in the end.
    """
    size = solved.shape[-2]
    gain = solved[..., :size]
    moved = multiply(gain, next_one)
    covariance = solved[..., size:-1] + multiply(moved[..., :size], transpose(gain))
    state = jnp.concatenate([covariance, (solved[..., -1] + moved[..., -1])[..., None]], -1)
    return state, (state, moved[..., :size])


def _sweep(unary, linear, tie, A, B):
    """Moments, cross-covariances, and of all eliminations the pivots and the terms of the quadratic form.

    Both halves of the chain are eliminated at once, from the ends to the middle, and filled in from the middle to the
    ends: on a CPU a step of two lanes costs little more than a step of one.
    """
    length = linear.shape[0]
    steps, even = (length - 1) // 2, length % 2 == 0
    coupling = multiply(transpose(B), multiply(tie, A))
    rightward = _Tie(multiply(transpose(B), multiply(tie, B)), coupling, tie, A, B)
    leftward = _Tie(multiply(transpose(A), multiply(tie, A)), transpose(coupling), tie, B, A)
    shared = [len(x) == len(y) == 1 for x, y in zip(rightward, leftward, strict=True)]
    lanes = [jnp.stack([x[0], y[0]]) if one else _lanes(x, y, length - 1, 0)
             for x, y, one in zip(rightward, leftward, shared, strict=True)]  # fmt: skip
    moving = tuple(x for x, one in zip(lanes, shared, strict=True) if not one)

    def forward(carry, step):
        unary, linear, *own = step
        own = iter(own)
        ties = _Tie(*(x if one else next(own) for x, one in zip(lanes, shared, strict=True)))
        return _forward(carry, ties, unary, linear)

    start = jnp.stack([unary[0], unary[-1]]), jnp.stack([linear[0], linear[-1]])
    along = _lanes(unary, unary, length, 1), _lanes(linear, linear, length, 1), *moving
    (precision, shift), outer = jax.lax.scan(forward, start, along)
    if even:  # the last variable on the left is eliminated into the last one on the right
        between = _Tie(*(x[min(steps, len(x) - 1)] for x in rightward))
        middle, inner = _forward((precision[0], shift[0]), between, precision[1], shift[1])
    else:  # both lanes have arrived at the same variable, and each has counted what it has of its own
        middle = precision[0] + (precision[1] - unary[steps]), shift[0] + (shift[1] - linear[steps])
        inner = None
    eye = jnp.eye(linear.shape[1], dtype=linear.dtype)
    last = solve(symmetrise(middle[0]), jnp.concatenate([eye, middle[1][:, None]], -1))
    found, between = [last[0]], []
    if inner is not None:
        state, (_, covariance) = _backward(found[0], inner[0])
        found, between = [state, *found], [covariance[None]]
    _, (moments, cross) = jax.lax.scan(_backward, jnp.stack([found[0], found[-1]]), outer[0], reverse=True)
    moments = jnp.concatenate([moments[:, 0], jnp.stack(found), moments[::-1, 1]])
    mean, covariance = moments[..., -1], symmetrise(moments[..., :-1])
    cross = jnp.concatenate([cross[:, 0], *between, transpose(cross[::-1, 1])])
    eliminated = [outer, (*last, jnp.sum(middle[1] * last[0][:, -1])), *([] if inner is None else [inner])]
    pivots = jnp.concatenate([x.reshape(-1) for _, x, _ in eliminated])
    return mean, covariance, cross, pivots, sum(jnp.sum(x) for _, _, x in eliminated)


def _lanes(rightward: Array, leftward: Array, count: int, first: int) -> Array:
    """What the two lanes meet on their way to the middle, (steps, 2, ...), the first `first` entries left out."""
    x, y = (jnp.broadcast_to(z, (count, *z.shape[1:])) for z in (rightward, leftward))
    end = first + (count - first) // 2
    return jnp.stack([x[first:end], y[::-1][first:end]], 1)
