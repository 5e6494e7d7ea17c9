"""Products and eliminations of small matrices.

XLA on a CPU calls out to LAPACK for every factorisation, which costs more than the arithmetic of a matrix of a dozen
rows or less, and cannot be part of a `region`. The elimination can therefore be written out pivot by pivot, and
products are a broadcast and a sum up to order `FUSED`, so that XLA fuses both.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FUSED = 12


def transpose(matrix: Float[Array, "*b r c"]) -> Float[Array, "*b c r"]:
    """Swap the last two axes."""
    return jnp.swapaxes(matrix, -1, -2)


def symmetrise(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """Symmetric part, so that rounding cannot grow an antisymmetric one."""
    return 0.5 * (matrix + transpose(matrix))


def multiply(left: Float[Array, "*b r k"], right: Float[Array, "*b k c"]) -> Float[Array, "*b r c"]:
    """Matrix product, as a fused broadcast and sum while the inner axis is short."""
    if left.shape[-1] > FUSED:
        return left @ right
    return jnp.sum(left[..., :, :, None] * right[..., None, :, :], -2)


def eliminate(
    matrix: Float[Array, "d d"], coupling: Float[Array, "d c"], shift: Float[Array, " d"], most: int
) -> tuple[Float[Array, "d c"], Float[Array, "d d"], Float[Array, " d"], Float[Array, " d"]]:
    """$M^{-1} C$, $M^{-1}$, $M^{-1} h$ and the pivots of M, whose product is its determinant.

    M is positive definite if and only if all pivots are positive; if not, the rest is meaningless. Up to order `most`
    the elimination is written out, beyond it is LAPACK's Cholesky.
    """
    size, columns = coupling.shape
    if size > most:
        factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
        right = jnp.concatenate([coupling, jnp.eye(size, dtype=matrix.dtype), shift[:, None]], 1)
        half = jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
        right = jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
        return right[:, :columns], symmetrise(right[:, columns:-1]), right[:, -1], jnp.diagonal(factor) ** 2
    # Gauss and Jordan, stable for positive definite matrices; the inverse takes the place of the matrix.
    table, pivots = jnp.concatenate([matrix, coupling, shift[:, None]], 1), []
    for k in range(size):
        pivots.append(table[k, k])
        inverse, column = 1.0 / table[k, k], table[:, k : k + 1]
        here = np.arange(table.shape[1]) == k
        row = jnp.where(here, inverse, table[k] * inverse)
        table = jnp.where(here[:size, None], row, jnp.where(here, 0.0, table) - column * row)
    return table[:, size:-1], symmetrise(table[:, :size]), table[:, -1], jnp.stack(pivots)
