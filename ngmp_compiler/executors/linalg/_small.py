"""Products and eliminations of small matrices.

XLA on a CPU calls out to LAPACK for every factorisation, which costs more than the arithmetic of a matrix of a dozen
rows or less. The elimination can therefore be written out pivot by pivot, and products are a broadcast and a sum up to
order `FUSED`, so that XLA fuses both.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

FUSED = 12
WRITTEN_OUT = 8  # the order up to which an elimination written out beats LAPACK


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


class Eliminated(NamedTuple):
    """Of $M$, $C$ and $h$: $M^{-1} C$, $M^{-1}$, $M^{-1} h$ and the pivots of M, whose product is its determinant."""

    gain: Float[Array, "*b d c"]
    inverse: Float[Array, "*b d d"]
    centre: Float[Array, "*b d"]
    pivots: Float[Array, "*b d"]


def eliminate(
    matrix: Float[Array, "*b d d"], coupling: Float[Array, "*b d c"], shift: Float[Array, "*b d"]
) -> Eliminated:
    """Solve with M, written out up to order `WRITTEN_OUT`, beyond it by LAPACK's Cholesky.

    M is positive definite if and only if all pivots are positive; if not, the rest is meaningless.
    """
    size, columns = coupling.shape[-2:]
    eye = jnp.broadcast_to(jnp.eye(size, dtype=matrix.dtype), matrix.shape)
    solve = _by_blocks if size <= WRITTEN_OUT else _by_cholesky
    solved, pivots = solve(matrix, jnp.concatenate([coupling, eye, shift[..., None]], -1))
    return Eliminated(solved[..., :columns], symmetrise(solved[..., columns:-1]), solved[..., -1], pivots)


def information(
    mean: Float[Array, "n d"], covariance: Float[Array, "n d d"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d d"]] | None:
    """$\\Sigma^{-1} m$ and $\\Sigma^{-1}$, written out; None beyond the order where that pays."""
    if mean.shape[-1] > WRITTEN_OUT:
        return None
    found = eliminate(covariance, covariance[..., :0], mean)
    return found.centre, found.inverse


def _by_blocks(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    """$M^{-1} R$ and the pivots: one half of the rows is eliminated, then the other (Schur complement)."""
    size = matrix.shape[-1]
    if size <= 3:
        return _by_rows(matrix, right)
    half = size // 2
    corner, side, rest = matrix[..., :half, :half], matrix[..., :half, half:], matrix[..., half:, half:]
    above, first = _by_blocks(corner, jnp.concatenate([side, right[..., :half, :]], -1))
    left = jnp.concatenate([rest, right[..., half:, :]], -1) - multiply(transpose(side), above)
    below, second = _by_blocks(left[..., : size - half], left[..., size - half :])
    above = above[..., size - half :] - multiply(above[..., : size - half], below)
    return jnp.concatenate([above, below], -2), jnp.concatenate([first, second], -1)


def _by_rows(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    """The same, row by row: $L D L^T$, every entry an array of its own."""
    size = matrix.shape[-1]
    m = [[matrix[..., i, j, None] for j in range(size)] for i in range(size)]
    rows, out = [right[..., i, :] for i in range(size)], [jnp.zeros(())] * size
    for k in range(size):
        for i in range(k + 1, size):
            factor = m[k][i] / m[k][k]
            rows[i] = rows[i] - factor * rows[k]
            m[i] = [m[i][j] - factor * m[k][j] for j in range(size)]
    for k in reversed(range(size)):
        out[k] = (rows[k] - sum(m[k][j] * out[j] for j in range(k + 1, size))) / m[k][k]
    return jnp.stack(out, -2), jnp.concatenate([m[k][k] for k in range(size)], -1)


def _by_cholesky(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    if matrix.ndim > 2:  # one after the other: in a batch LAPACK waits for threads, for ever if there are too few
        solved, pivots = zip(*map(_by_cholesky, matrix, right), strict=True)
        return jnp.stack(solved), jnp.stack(pivots)
    factor = jnp.linalg.cholesky(matrix, symmetrize_input=False)
    half = jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    solved = jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
    return solved, jnp.diagonal(factor) ** 2
