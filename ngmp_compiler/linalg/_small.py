"""Products and eliminations of small matrices.

XLA on a CPU calls out to LAPACK for every factorisation, which costs more than the arithmetic of a matrix of a dozen
rows or less. The elimination can therefore be written out pivot by pivot, and products are a broadcast and a sum up to
order `FUSED`, so that XLA fuses both.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.numerics.cholesky import cholesky, inverse_factor

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


def solve(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    """$M^{-1} R$ and the pivots of M, written out up to order `WRITTEN_OUT`, beyond it by Cholesky.

    M is positive definite if and only if all pivots are positive; if not, the rest is meaningless. Their product is the
    determinant.
    """
    return (_by_pairs if matrix.shape[-1] <= WRITTEN_OUT else _by_cholesky)(matrix, right)


def information(
    mean: Float[Array, "n d"], covariance: Float[Array, "n d d"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d d"]] | None:
    """$\\Sigma^{-1} m$ and $\\Sigma^{-1}$, written out entry by entry; None beyond the order where that pays.

    Every entry is an array (n,), so that all n are computed side by side. Pivot by pivot the triangle of the matrix is
    replaced by that of minus its inverse (the sweep operator).
    """
    size = mean.shape[-1]
    if size > WRITTEN_OUT:
        return None
    entry = {(i, j): covariance[..., i, j] for i in range(size) for j in range(i + 1)}
    for k in range(size):
        scale = 1.0 / entry[k, k]
        column = {i: entry[max(i, k), min(i, k)] for i in range(size) if i != k}
        row = {i: scale * x for i, x in column.items()}
        entry = {(i, j): x - row[i] * column[j] if k not in (i, j) else row[i + j - k] if i != j else -scale
                 for (i, j), x in entry.items()}  # fmt: skip
    precision = [[-entry[max(i, j), min(i, j)] for j in range(size)] for i in range(size)]
    linear = [sum(x * mean[..., j] for j, x in enumerate(row)) for row in precision]
    return jnp.stack(linear, -1), jnp.stack([jnp.stack(row, -1) for row in precision], -2)


def _by_pairs(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    """$M^{-1} R$ and the pivots: two rows at a time are eliminated, then filled in from the last.

    In a loop XLA takes as long for every operation, however small, so that rows by pairs take half the time.
    """
    size = matrix.shape[-1]
    rest, above, pivots = jnp.concatenate([matrix, right], -1), [], []
    for _ in range((size - 1) // 2):
        rows, found = _solve_two(rest[..., :2, :2], rest[..., :2, 2:])
        rest = rest[..., 2:, 2:] - multiply(rest[..., 2:, :2], rows)
        above.append(rows)
        pivots.append(found)
    last = rest.shape[-2]
    out, found = _solve_two(rest[..., :last], rest[..., last:])
    for rows in reversed(above):
        done = out.shape[-2]
        out = jnp.concatenate([rows[..., done:] - multiply(rows[..., :done], out), out], -2)
    return out, jnp.concatenate([*pivots, found], -1)


def _solve_two(matrix: Float[Array, "*b k k"], right: Float[Array, "*b k c"]) -> tuple[Array, Array]:
    """The same for a matrix of one or two rows, by $L D L^T$: with its inverse, digits would be lost."""
    a, first = matrix[..., :1, :1], right[..., :1, :]
    if matrix.shape[-1] == 1:
        return first / a, a[..., 0]
    b, c = matrix[..., :1, 1:], matrix[..., 1:, 1:]
    # 1/a and the reciprocal of the second pivot, c - b^2/a, in one operation.
    inverse = jnp.concatenate([jnp.ones_like(a), a], -1) / jnp.concatenate([a, a * c - b * b], -1)
    factor = b * inverse[..., :1]
    second = (right[..., 1:, :] - factor * first) * inverse[..., 1:]
    solved = jnp.concatenate([first * inverse[..., :1] - factor * second, second], -2)
    return solved, jnp.concatenate([a, c - factor * b], -1)[..., 0, :]


def _by_cholesky(matrix: Float[Array, "*b d d"], right: Float[Array, "*b d c"]) -> tuple[Array, Array]:
    if matrix.ndim > 2:  # a chain's two ends: written one after the other, without a loop
        solved, pivots = zip(*map(_by_cholesky, matrix, right), strict=True)
        return jnp.stack(solved), jnp.stack(pivots)
    factor = cholesky(matrix)
    root = inverse_factor(factor)  # there are more columns than rows
    return root.T @ (root @ right), jnp.diagonal(factor) ** 2
