"""Cholesky factors that survive rounding, and say so."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.numerics.cholesky import cholesky, inverse_factor

_LEVELS = 3
_THIN = 1e-10  # the least eigenvalue of correlations, about, below which a covariance has no precision


def factor(
    matrix: Float[Array, "*b d d"], scale: Float[Array, "*b d"] | None = None
) -> tuple[Float[Array, "*b d d"], Float[Array, "*b"]]:
    r"""The lower Cholesky factor of $A + j \operatorname{diag} A$ and the relative jitter $j$, zero if none is needed.

    Whether rounding breaks a factorisation depends on the matrix scaled to a unit diagonal, and it can only where the
    smallest eigenvalue of that is below a few $d\,\epsilon$ (Demmel, 1989). So $j$ grows from a tenth of $d\,\epsilon$
    to ten times it and no further: a matrix that is indefinite by more is improper, and its factor NaN. So is one with
    a diagonal entry that is not positive, whatever its size.

    Only the lower triangle is read. The derivative is that of the factor at a constant $j$. A pivot of a larger matrix
    is given with the diagonal that it had in that matrix as `scale`, by which its rounding is measured instead.
    """
    return _factor(matrix, jnp.diagonal(matrix, axis1=-2, axis2=-1) if scale is None else scale)


@jax.custom_jvp
def _factor(matrix, scale):
    hopeful = jnp.all(scale > 0, -1) & jnp.all(jnp.isfinite(scale), -1)
    first = 0.1 * max(matrix.shape[-1], 10) * float(jnp.finfo(matrix.dtype).eps)

    def broken(chol):
        return hopeful & ~jnp.isfinite(chol[..., 0, 0])  # a factorisation that failed is NaN throughout

    def more(carry):
        level, chol, _ = carry
        return jnp.any(broken(chol)) & (level < _LEVELS)

    def retry(carry):
        level, chol, jitter = carry
        amount = (first * 10.0**level).astype(matrix.dtype)
        again = cholesky(matrix + (amount * scale)[..., None] * jnp.eye(matrix.shape[-1], dtype=matrix.dtype))
        bad = broken(chol)
        return level + 1, jnp.where(bad[..., None, None], again, chol), jnp.where(bad, amount, jitter)

    # A loop that runs no step when all is well, also under vmap, where a conditional would run both branches.
    start = (jnp.zeros((), int), cholesky(matrix), jnp.zeros(matrix.shape[:-2], matrix.dtype))
    _, chol, jitter = jax.lax.while_loop(more, retry, start)
    return chol, jnp.where(jnp.isfinite(chol[..., 0, 0]), jitter, 0)


@_factor.defjvp
def _factor_jvp(primals, tangents):
    """`dL = L P(L^-1 dA L^-T)`, P the lower triangle with half the diagonal."""
    moved, _ = tangents
    chol, jitter = _factor(*primals)
    moved = 0.5 * (moved + jnp.swapaxes(moved, -1, -2))
    root = inverse_factor(chol)
    inner = root @ moved @ jnp.swapaxes(root, -1, -2)
    size = moved.shape[-1]
    return (chol, jitter), (chol @ (jnp.tril(inner) / (1 + jnp.eye(size, dtype=chol.dtype))), jnp.zeros_like(jitter))


def add_jitter(matrix: Float[Array, "*b d d"], jitter: Float[Array, "*b"]) -> Float[Array, "*b d d"]:
    """The matrix that `factor` factorised: `A + j diag A`, j a constant."""
    diagonal = jax.lax.stop_gradient(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    return matrix + (jitter[..., None] * diagonal)[..., None] * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)


def regular(covariance: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """Covariances that have a precision: themselves, or where they are singular with correlations that are smaller by
    the square root of a rounding unit. For marginals, which are kept by their precision; nothing is computed from them.
    """
    variance, unit = jnp.diagonal(covariance, axis1=-2, axis2=-1), jnp.finfo(covariance.dtype).eps
    most = jnp.max(variance, -1, keepdims=True)
    known = variance <= unit**2 * most
    variance = jnp.where(known, unit * most, variance)
    scale = jnp.sqrt(variance[..., :, None] * variance[..., None, :])
    eye = jnp.eye(covariance.shape[-1], dtype=covariance.dtype)
    inner = jnp.where(eye > 0, 1.0, covariance / scale)
    thin = ~jnp.isfinite(cholesky(inner - _THIN * eye)[..., :1, :1])
    found = scale * jnp.where(thin & (eye == 0), inner * (1.0 - unit**0.5), inner)
    return jnp.where(thin | jnp.any(known, -1)[..., None, None], found, covariance)
