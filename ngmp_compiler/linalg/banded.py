r"""Moments of a Gaussian whose precision is block tridiagonal, with a few dense rows and columns at its border.

The density of $x = (x_1, \dots, x_K)$, blocks of s, and of the k variables $w$ of the border is

$$ p(x, w) \propto \exp\Big\{-\tfrac12 \begin{pmatrix} x \\ w \end{pmatrix}^T
   \begin{pmatrix} T & C \\ C^T & H \end{pmatrix} \begin{pmatrix} x \\ w \end{pmatrix} + h^T x + t^T w\Big\}, $$

T with blocks $D_k$ on its diagonal and $E_k$ beside it. Elimination runs along the blocks, $S_{k+1} = D_{k+1} -
E_k^T S_k^{-1} E_k$, and the border comes last. Backwards, the blocks of $T^{-1}$ on and beside the diagonal follow from
those after them (Takahashi, 1973): $\Sigma_k = S_k^{-1} + G_k \Sigma_{k+1} G_k^T$ and $\Sigma_{k,k+1} = -G_k
\Sigma_{k+1}$, with $G_k = S_k^{-1} E_k$. With the border, $\operatorname{Cov}(x) = T^{-1} + R B^{-1} R^T$, where
$R = T^{-1} C$ and B is the precision of w once x is integrated out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.numerics.cholesky import inverse_factor, unwhiten, whiten
from ngmp_kernels.numerics.special import LOG_2PI

from ._small import symmetrise, transpose
from .factor import factor


class BandedMarginals(NamedTuple):
    """First moments, the parts that second moments are made of (see the module docstring), and the log-integral."""

    mean: Float[Array, "K s"]
    covariance: Float[Array, "K s s"]  # blocks of T^-1: the covariance given the border
    after: Float[Array, "K-1 s s"]  # blocks of T^-1 beside the diagonal: row = x_k, column = x_{k+1}
    response: Float[Array, "K s k"]  # R = T^-1 C
    border: Float[Array, " k"]  # the mean of w
    chol: Float[Array, "k k"]  # of B, the precision of w
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    jitter: Float[Array, ""]
    log_volume: Float[Array, ""]  # the log-integral at h = 0 and t = 0
    white: Float[Array, "K s s"]  # the inverses of the Cholesky factors of the blocks


def banded_gaussian(
    diagonal: Float[Array, "K s s"],
    beside: Float[Array, "K-1 s s"],
    across: Float[Array, "K s k"],
    corner: Float[Array, "k k"],
    linear: Float[Array, "K s"],
    tail: Float[Array, " k"],
) -> BandedMarginals:
    """Moments and log-integral of the density of the module docstring.

    Args:
        diagonal: $D_k$, symmetric; only their lower triangles are read.
        beside: $E_k$, rows of block k and columns of block k + 1.
        across: C.
        corner: H, symmetric.
        linear: h.
        tail: t.

    Returns:
        The moments. `proper` is False if the joint precision is not positive definite; the rest is meaningless then.
    """
    count, size = linear.shape
    right = jnp.concatenate([linear[..., None], across], -1)
    scale = jnp.diagonal(diagonal, axis1=-2, axis2=-1)

    end, before = (diagonal[0], right[0]), None
    if count > 1:
        steps = scale[:-1], beside, diagonal[1:], right[1:]
        end, before = jax.lax.scan(forward, end, steps)
    chol, jitter = (x[None] for x in factor(end[0], scale[-1]))
    white = whiten(chol, end[1][None])
    if before is not None:
        chol, jitter, white = (jnp.concatenate(x) for x in zip(before[:3], (chol, jitter, white), strict=True))
    inverse = inverse_factor(chol)
    covariance, answer, after = transpose(inverse) @ inverse, transpose(inverse) @ white, beside
    if before is not None:
        steps = transpose(inverse[:-1]) @ before[3], covariance[:-1], answer[:-1]
        last = covariance[-1], answer[-1]
        _, (*found, after) = jax.lax.scan(_backward, last, steps, reverse=True)
        covariance, answer = (jnp.concatenate([x, y[None]]) for x, y in zip(found, last, strict=True))
    jitter = jnp.max(jitter)
    log_det = jnp.sum(jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)))
    shift, through = white[..., 0], white[..., 1:]
    quadratic, log_volume = 0.5 * jnp.sum(shift**2), 0.5 * count * size * LOG_2PI - log_det
    mean, response = answer[..., 0], answer[..., 1:]
    border, root = tail, corner
    if corner.shape[-1]:
        rest = corner - jnp.einsum("nsk,nsl->kl", through, through)
        root, more = factor(rest, jnp.diagonal(corner))
        jitter = jnp.maximum(jitter, more)
        half = whiten(root, (tail - jnp.einsum("nsk,ns->k", through, shift))[:, None])
        border = unwhiten(root, half)[:, 0]
        mean -= response @ border
        quadratic += 0.5 * jnp.sum(half**2)
        log_volume += 0.5 * corner.shape[-1] * LOG_2PI - jnp.sum(jnp.log(jnp.diagonal(root)))
    proper = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(covariance)) & jnp.isfinite(log_volume)
    proper &= jnp.all(jnp.isfinite(border))
    moments = mean, covariance, after, response, border, root
    return BandedMarginals(*moments, quadratic + log_volume, proper, jitter, log_volume, inverse)


def forward(carry, step):
    """Eliminate a block: its Cholesky factor L, jitter, $L^{-1} [h, C]$ and $L^{-1} E$."""
    pivot, own = carry
    scale, beside, diagonal, right = step
    chol, jitter = factor(pivot, scale)
    gain, white = whiten(chol, beside), whiten(chol, own)
    return (diagonal - gain.T @ gain, right - gain.T @ white), (chol, jitter, white, gain)


def _backward(carry, step):
    """The blocks of $T^{-1}$ and $T^{-1} [h, C]$ from the ones after them."""
    covariance, answer = carry
    gain, spread, own = step
    after = -gain @ covariance
    state = spread - symmetrise(after @ gain.T), own - gain @ answer
    return state, (*state, after)
