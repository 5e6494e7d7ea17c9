r"""Marginals of a vector Gaussian chain that is driven by noise of any rank, by elimination of the noise.

The chain is $x_{k+1} = A_k x_k + b_k + L_k w_k$ with standard normal $w_k$, seen through
$\exp\{-\tfrac12 x_k^T U_k x_k + h_k^T x_k\}$; no $L_k L_k^T$ need be regular, nor $A_k$. From the last variable on,
what all later factors say of a variable is $(\Lambda, \lambda)$, as of a precision and a linear coefficient. With
$u = A x + b$, the noise that leads to $u + L w$ is eliminated by its own precision $S = I + L^T \Lambda L$:

$$ W = S^{-1} L^T \Lambda, \quad G = I - L W, \quad \Gamma = G^T \Lambda G + W^T W, \qquad
   \Lambda' = U + A^T \Gamma A, \quad \lambda' = h + A^T (G^T \lambda - \Gamma b), $$

sums where the textbook subtracts. Forwards, $x_{k+1} = G (A x_k + b) + L S^{-1} L^T \lambda$ with the covariance
$L S^{-1} L^T$: moments and draws need no inverse of what may be singular.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.numerics.cholesky import cholesky
from ngmp_kernels.numerics.special import LOG_2PI

from ._small import multiply, solve, symmetrise, transpose


class Driven(NamedTuple):
    """What drives a chain. `start` is the mean (d,) and a root (d, r) of the covariance of the first variable; None
    where its precision is among the unary ones. `A` and `root` have T - 1 leading entries, or one for all steps."""

    start: tuple[Float[Array, " d"], Float[Array, "d r"]] | None
    A: Float[Array, "#steps d d"]
    shift: Float[Array, "steps d"]
    root: Float[Array, "#steps d k"]


class DrivenMarginals(NamedTuple):
    """First two moments of a driven chain, and its log-integral at h = b = 0 with a noise of volume one."""

    mean: Float[Array, "T d"]
    covariance: Float[Array, "T d d"]
    cross: Float[Array, "T-1 d d"]  # Cov(x_k, x_{k+1}): row = x_k, column = x_{k+1}
    log_volume: Float[Array, ""]
    proper: Bool[Array, ""]


class _Steps(NamedTuple):
    """`x_{k+1} = turn x_k + move + L z`, z of the given covariance: the chain as it is given what all factors say."""

    turn: Float[Array, "steps d d"]
    move: Float[Array, "steps d"]
    covariance: Float[Array, "steps k k"]


def driven_chain(unary: Float[Array, "T d d"], linear: Float[Array, "T d"], driven: Driven) -> DrivenMarginals:
    """Moments and log-integral; see the module docstring.

    `proper` is False unless all that is eliminated has a positive precision and every moment is finite; the other
    fields are then meaningless.
    """
    (precision, pull), steps, pivots = _backward(unary, linear, driven)
    mean, covariance, log_volume, first = _first(precision, pull, driven)

    def forward(carry: tuple, step: tuple) -> tuple[tuple, tuple]:
        mean, covariance = carry
        turn, move, noise, root = step
        cross = multiply(covariance, transpose(turn))
        covariance = symmetrise(multiply(turn, cross) + multiply(root, multiply(noise, transpose(root))))
        mean = multiply(turn, mean[:, None])[:, 0] + move
        return (mean, covariance), (mean, covariance, cross)

    roots = jnp.broadcast_to(driven.root, (len(steps.turn), *driven.root.shape[1:]))
    _, (means, covariances, cross) = jax.lax.scan(forward, (mean, covariance), (*steps, roots))
    means, covariances = jnp.concatenate([mean[None], means]), jnp.concatenate([covariance[None], covariances])
    log_volume -= 0.5 * jnp.sum(jnp.log(pivots))
    proper = jnp.all(first > 0) & jnp.all(pivots > 0) & jnp.isfinite(log_volume)
    proper &= jnp.all(jnp.isfinite(means)) & jnp.all(jnp.isfinite(covariances))
    return DrivenMarginals(means, covariances, cross, log_volume, proper)


def driven_draws(
    unary: Float[Array, "T d d"],
    driven: Driven,
    first: Float[Array, "draws r"],
    noise: Float[Array, "T-1 draws k"],
) -> Float[Array, "draws T d"]:
    """Deviations from the mean, of standard normal numbers; `first` has as many as the root of the first variable has
    columns, or d."""
    (precision, pull), steps, _ = _backward(unary, jnp.zeros(unary.shape[:2], unary.dtype), driven)
    if driven.start is None:
        root = cholesky(_first(precision, pull, driven)[1])
    else:
        root = driven.start[1]
        root = root @ cholesky(_own(precision, pull, root)[1])

    def forward(x: Array, step: tuple) -> tuple[Array, Array]:
        turn, spread, z = step
        x = x @ turn.T + z @ spread.T
        return x, x

    start = first @ root.T
    spread = driven.root @ cholesky(steps.covariance)
    _, rest = jax.lax.scan(forward, start, (steps.turn, spread, noise))
    return jnp.swapaxes(jnp.concatenate([start[None], rest]), 0, 1)


def _own(precision: Array, pull: Array, root: Array) -> tuple[Array, Array, Array, Array]:
    """`L^T Lambda`, `S^{-1}`, `S^{-1} L^T (Lambda, lambda)` side by side, and the pivots of S."""
    seen = multiply(transpose(root), precision)
    eye = jnp.eye(root.shape[-1], dtype=root.dtype)
    right = jnp.concatenate([eye, seen, multiply(transpose(root), pull[:, None])], -1)
    solved, pivots = solve(eye + symmetrise(multiply(seen, root)), right)
    size = root.shape[-1]
    return seen, symmetrise(solved[:, :size]), solved[:, size:], pivots


def _backward(
    unary: Array, linear: Array, driven: Driven
) -> tuple[tuple[Array, Array], _Steps, Float[Array, "steps k"]]:
    """What all factors say of the first variable, its own included, and the steps from there; pivots of all S."""
    count, eye = unary.shape[0] - 1, jnp.eye(unary.shape[-1], dtype=unary.dtype)
    shared = len(driven.A) == 1 < count and len(driven.root) == 1

    def backward(carry: tuple, step: tuple) -> tuple[tuple, tuple]:
        precision, pull = carry
        own, h, b = step[:3]
        A, root = (driven.A[0], driven.root[0]) if shared else step[3:]
        _, covariance, solved, pivots = _own(precision, pull, root)
        gain = solved[:, :-1]
        rest = eye - multiply(root, gain)
        seen = multiply(transpose(rest), multiply(precision, rest)) + multiply(transpose(gain), gain)
        turn = multiply(rest, A)
        move = multiply(rest, b[:, None])[:, 0] + multiply(root, solved[:, -1:])[:, 0]
        back = multiply(transpose(rest), pull[:, None]) - multiply(seen, b[:, None])
        before = symmetrise(own + multiply(transpose(A), multiply(seen, A))), h + multiply(transpose(A), back)[:, 0]
        return before, (turn, move, covariance, pivots)

    along = unary[:-1], linear[:-1], driven.shift
    if not shared:
        along += tuple(jnp.broadcast_to(x, (count, *x.shape[1:])) for x in (driven.A, driven.root))
    last = symmetrise(unary[-1]), linear[-1]
    first, (turn, move, covariance, pivots) = jax.lax.scan(backward, last, along, reverse=True)
    return first, _Steps(turn, move, covariance), pivots


def _first(precision: Array, pull: Array, driven: Driven) -> tuple[Array, Array, Array, Array]:
    """Mean and covariance of the first variable, its log-integral, and pivots."""
    if driven.start is None:
        eye = jnp.eye(len(pull), dtype=pull.dtype)
        solved, pivots = solve(precision, jnp.concatenate([eye, pull[:, None]], -1))
        log_volume = 0.5 * len(pull) * LOG_2PI - 0.5 * jnp.sum(jnp.log(pivots))
        return solved[:, -1], symmetrise(solved[:, :-1]), log_volume, pivots
    mean, root = driven.start
    _, covariance, _, pivots = _own(precision, pull, root)
    covariance = symmetrise(multiply(root, multiply(covariance, transpose(root))))
    mean = mean + multiply(covariance, (pull - precision @ mean)[:, None])[:, 0]
    return mean, covariance, -0.5 * jnp.sum(jnp.log(pivots)), pivots
