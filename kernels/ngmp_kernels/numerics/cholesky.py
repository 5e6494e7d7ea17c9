r"""Cholesky factors and triangular solves, of one matrix or of many, that never wait for a thread.

On a CPU jax hands both to LAPACK, which shares a factorisation of 120 rows or more, and a solve of 8 columns or more,
among threads that spin while they wait for each other; and a batch waits for threads of the pool that it runs on. So
LAPACK is called for one matrix at a time, below those sizes. What is larger is cut in halves, and the solves between
them are products with inverses of triangles of at most `BLOCK` rows, which run in XLA's own threads.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.lax.linalg import triangular_solve
from jaxtyping import Array, Float

from .lanes import one_by_one

# jaxlib 0.10.2, two busy cores, 64 solves of 64 x 100: 1256 ms, not 12. Remove when LAPACK's threads do not spin.
ALONE, NARROW = 112, 7  # rows that LAPACK factorises, columns that it solves for, in the thread that calls it
BLOCK = 192  # rows of a triangle that is inverted as a whole
LEAVES = 8  # into how many diagonal blocks a matrix is cut at most, so that programs stay small
WRITTEN_OUT = 8  # rows up to which many matrices are factorised side by side, column by column


@jax.custom_jvp
def cholesky(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """The lower factor L of $A = L L^T$, from the lower triangle of A; NaN throughout where there is none."""
    chol = _each(_factorise, matrix)
    pivots = jnp.diagonal(chol, axis1=-2, axis2=-1)
    found = jnp.all((pivots > 0) & jnp.isfinite(pivots), -1)
    return jnp.where(found[..., None, None], chol, jnp.nan)


@cholesky.defjvp
def _cholesky_jvp(primals, tangents):
    """`dL = L P(L^-1 dA L^-T)`, P the lower triangle with half the diagonal."""
    chol, (moved,) = cholesky(*primals), tangents
    root = inverse_factor(chol)
    inner = root @ (0.5 * (moved + _transposed(moved))) @ _transposed(root)
    return chol, chol @ (jnp.tril(inner) / (1 + jnp.eye(chol.shape[-1], dtype=chol.dtype)))


def whiten(chol: Float[Array, "*b d d"], right: Float[Array, "*b d n"]) -> Float[Array, "*b d n"]:
    """$L^{-1} R$."""
    return _solve(False, chol, right)


def unwhiten(chol: Float[Array, "*b d d"], right: Float[Array, "*b d n"]) -> Float[Array, "*b d n"]:
    """$L^{-T} R$."""
    return _solve(True, chol, right)


def whiten_rows(chol: Float[Array, "*b d d"], rows: Float[Array, "*b n d"]) -> Float[Array, "*b n d"]:
    """$R L^{-T}$: `whiten` of every row."""
    return _transposed(whiten(chol, _transposed(rows)))


def log_det(chol: Float[Array, "*b d d"]) -> Float[Array, "*b"]:
    """$\\log\\det L L^T$."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(chol, axis1=-2, axis2=-1)), axis=-1)


def inverse(chol: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """$(L L^T)^{-1}$; written as $W^T W$, hence exactly symmetric."""
    root = inverse_factor(chol)
    return _transposed(root) @ root


@jax.custom_jvp
def inverse_factor(chol: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    r"""$W = L^{-1}$. With the inverses of two diagonal blocks at hand, that of both is a product:

    $$ \begin{pmatrix} A & \\ C & B \end{pmatrix}^{-1} = \begin{pmatrix} A^{-1} & \\ -B^{-1} C A^{-1} & B^{-1}
    \end{pmatrix}, $$ for all pairs of blocks at once, which double in size until there is one.
    """
    return _each(_invert, chol)


@inverse_factor.defjvp
def _inverse_factor_jvp(primals, tangents):
    root = inverse_factor(*primals)
    return root, -root @ jnp.tril(tangents[0]) @ root


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(transposed: bool, chol, right):
    return _each(partial(_substitute, transposed), chol, right)


def _solve_jvp(transposed, primals, tangents):
    """`d(L^-1 R) = L^-1 (dR - dL L^-1 R)`, in products that can be transposed."""
    chol, (d_chol, d_right) = primals[0], tangents
    out = _solve(transposed, *primals)
    flip = _transposed if transposed else lambda x: x
    moved = jnp.zeros_like(out) if isinstance(d_right, SymbolicZero) else d_right
    if not isinstance(d_chol, SymbolicZero):
        moved = moved - flip(jnp.tril(d_chol)) @ out
    return out, flip(inverse_factor(chol)) @ moved


_solve.defjvp(_solve_jvp, symbolic_zeros=True)


def _transposed(matrix: Float[Array, "*b r c"]) -> Float[Array, "*b c r"]:
    return jnp.swapaxes(matrix, -1, -2)


def _each(function: Callable[..., Array], *matrices: Float[Array, "*b r c"]) -> Float[Array, "*b r c"]:
    """`function` of every matrix, or of every pair of them."""
    batch = jnp.broadcast_shapes(*(x.shape[:-2] for x in matrices))
    if math.prod(batch) == 1:
        return function(*(x.reshape(x.shape[-2:]) for x in matrices)).reshape(*batch, *matrices[-1].shape[-2:])
    flat = [jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in matrices]
    return jax.vmap(function)(*flat).reshape(*batch, *matrices[-1].shape[-2:])


# -- one matrix, batched by vmap ------------------------------------------------------------------------------------


def _factorise(matrix: Float[Array, "d d"], leaf: int | None = None) -> Float[Array, "d d"]:
    size = matrix.shape[0]
    leaf = leaf or max(ALONE, -(-size // LEAVES))
    if size <= ALONE:
        most = 1 if size <= WRITTEN_OUT else None
        return one_by_one(_by_lapack, most, partial(_by_panels, WRITTEN_OUT, _by_columns))(matrix)
    if size <= leaf:
        return _by_panels(ALONE, _factorise, matrix)
    half = size // 2
    first = _factorise(matrix[:half, :half], leaf)
    below = _substitute(False, first, matrix[half:, :half].T).T
    return _two_by_two(first, below, _factorise(matrix[half:, half:] - below @ below.T, leaf))


def _by_lapack(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


def _by_columns(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Column by column, written out: column j of what is left of A, over the root of its pivot."""
    columns: list[Array] = []
    for j in range(matrix.shape[0]):
        left = matrix[j:, j] - sum((x[j] * x[j:] for x in columns), jnp.zeros((), matrix.dtype))
        columns.append(jnp.pad(left / jnp.sqrt(left[0]), (j, 0)))
    return jnp.stack(columns, -1)


def _by_panels(width: int, factorise: Callable[[Array], Array], matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Panels of `width` columns one after the other, in a loop, the diagonal block of each by `factorise`."""
    size = matrix.shape[0]
    if size <= width:
        return factorise(matrix)
    matrix, count = _padded(matrix, -size % width), -(-size // width)
    rows = jnp.arange(matrix.shape[0])[:, None]

    def panel(k: Array, chol: Array) -> Array:
        start = k * width
        own = jax.lax.dynamic_slice_in_dim(chol, start, width)
        left = jax.lax.dynamic_slice_in_dim(matrix, start, width, 1) - chol @ own.T
        top = factorise(jax.lax.dynamic_slice_in_dim(left, start, width))
        left = jnp.where(rows < start + width, 0, left @ _invert(top).T)
        left = jax.lax.dynamic_update_slice_in_dim(left, top, start, 0)
        return jax.lax.dynamic_update_slice_in_dim(chol, left, start, 1)

    return jax.lax.fori_loop(0, count, panel, jnp.zeros_like(matrix))[:size, :size]


def _substitute(
    transposed: bool, chol: Float[Array, "d d"], right: Float[Array, "d n"], leaf: int | None = None
) -> Float[Array, "d n"]:
    """$L^{-1} R$ or $L^{-T} R$, in two halves until a triangle can be inverted."""
    size, columns = right.shape
    leaf = leaf or max(BLOCK, -(-size // LEAVES))
    if columns <= NARROW:
        solve = partial(triangular_solve, left_side=True, lower=True, transpose_a=transposed)
        return one_by_one(solve, together=partial(_by_inverse, transposed))(chol, right)
    if size <= leaf:
        return _by_inverse(transposed, chol, right)
    half = size // 2
    low, high, below = chol[:half, :half], chol[half:, half:], chol[half:, :half]
    if transposed:
        second = _substitute(True, high, right[half:], leaf)
        return jnp.concatenate([_substitute(True, low, right[:half] - below.T @ second, leaf), second])
    first = _substitute(False, low, right[:half], leaf)
    return jnp.concatenate([first, _substitute(False, high, right[half:] - below @ first, leaf)])


def _by_inverse(transposed: bool, chol: Float[Array, "d d"], right: Float[Array, "d n"]) -> Float[Array, "d n"]:
    root = _invert(chol)
    return (root.T if transposed else root) @ right


def _invert(chol: Float[Array, "d d"], small: int = 32) -> Float[Array, "d d"]:
    """$L^{-1}$ from the inverses of `2^k` diagonal blocks of at most `small` rows; see `inverse_factor`."""
    size = chol.shape[0]
    doublings = max(0, math.ceil(math.log2(size / small)))
    width = -(-size // 2**doublings)
    chol = _padded(chol, width * 2**doublings - size)
    root = _invert_by_rows(_blocks(chol, width, 0, 1))
    while root.shape[0] > 1:
        first, second = root[::2], root[1::2]
        below = -(second @ (_blocks(chol, width, 1, 2) @ first))
        root = jax.vmap(_two_by_two)(first, below, second)
        width *= 2
    return root[0, :size, :size]


def _invert_by_rows(chol: Float[Array, "k w w"]) -> Float[Array, "k w w"]:
    """Row i of every inverse: $(e_i - \\sum_{j<i} L_{ij} W_j) / L_{ii}$."""
    entries = jnp.arange(chol.shape[-1])

    def row(i: Array, root: Array) -> Array:
        line = jax.lax.dynamic_index_in_dim(chol, i, 1, keepdims=False)
        done = jnp.sum(jnp.where(entries < i, line, 0)[..., None] * root, 1)
        unit = (entries == i).astype(chol.dtype)
        new = (unit - done) / jax.lax.dynamic_index_in_dim(line, i, 1)
        return jax.lax.dynamic_update_index_in_dim(root, new, i, 1)

    return jax.lax.fori_loop(0, chol.shape[-1], row, jnp.zeros_like(chol))


def _blocks(matrix: Float[Array, "d d"], width: int, below: int, step: int) -> Float[Array, "k w w"]:
    """Every `step`-th block of the diagonal, or those `below` it."""
    count = matrix.shape[0] // width
    across = np.arange(0, count, step)
    return matrix.reshape(count, width, count, width)[across + below, :, across, :]


def _padded(matrix: Float[Array, "d d"], more: int) -> Float[Array, "e e"]:
    """The matrix and, after it, the identity of `more` rows."""
    if not more:
        return matrix
    unit = np.diag(np.arange(matrix.shape[0] + more) >= matrix.shape[0])
    return jnp.pad(matrix, ((0, more), (0, more))) + jnp.asarray(unit, matrix.dtype)


def _two_by_two(first: Float[Array, "r r"], below: Float[Array, "s r"], second: Float[Array, "s s"]) -> Array:
    """The lower triangular matrix of three blocks."""
    return jnp.block([[first, jnp.zeros_like(below.T)], [below, second]])
