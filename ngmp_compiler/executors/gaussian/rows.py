"""Rows sorted by the vector they see, at compile time: sums over the rows of a vector become matrix products.

N rows of D features that see B vectors in any order are laid out in blocks (b, width, D), padded with rows of
zeros, so that no N x D x D array is ever made. Vectors seen by very different numbers of rows go to different
blocks: padding at most doubles the rows, and there are at most log2(N) + 1 blocks.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...value import Value

SLICE = 2**20  # numbers in a slice of rows


class Block(NamedTuple):
    """Some vectors and their rows; `rows` (b, width) counts the N rows, and N is a row of padding."""

    vectors: np.ndarray
    rows: np.ndarray


class Rows(Value):
    """The layout of N rows that see `count` vectors; `where` (N,) says which one each row sees."""

    def __init__(self, where: np.ndarray, count: int):
        self.n, self.count = len(where), count
        self.blocks: list[Block] = []
        seen_by = np.bincount(where, minlength=count)
        order, start = np.argsort(where, kind="stable"), np.cumsum(seen_by) - seen_by
        vectors = np.flatnonzero(seen_by)
        if not vectors.size:
            return
        even = len(vectors) * seen_by.max() <= 2 * self.n
        bucket = np.zeros(len(vectors), int) if even else np.ceil(np.log2(seen_by[vectors])).astype(int)
        for b in np.unique(bucket):
            own = vectors[bucket == b]
            at = np.arange(seen_by[own].max())
            rows = order[np.minimum(start[own][:, None] + at, self.n - 1)]
            self.blocks.append(Block(own, np.where(at < seen_by[own][:, None], rows, self.n)))
        flat = np.concatenate([b.rows.reshape(-1) for b in self.blocks])
        self._back = np.empty(self.n + 1, int)
        self._back[flat] = np.arange(len(flat))
        self._back = self._back[: self.n]
        self._in_order = len(flat) == self.n and bool((flat == np.arange(self.n)).all())

    def take(self, values: Float[Array, "N *event"]) -> list[Float[Array, "b width *event"]]:
        """The values of every block, zero where it is padded."""
        event = values.shape[1:]
        if len(self.blocks) == 1 and self._in_order:
            return [values.reshape(*self.blocks[0].rows.shape, *event)]
        if any((b.rows == self.n).any() for b in self.blocks):
            values = jnp.concatenate([values, jnp.zeros((1, *event), values.dtype)])
        return [values[b.rows] for b in self.blocks]

    def put(self, values: list[Float[Array, "b width *event"]]) -> Float[Array, "N *event"]:
        """The inverse of `take`, padding dropped."""
        flat = [x.reshape(-1, *x.shape[2:]) for x in values]
        every = flat[0] if len(flat) == 1 else jnp.concatenate(flat)
        return every if self._in_order else every[self._back]

    def vectors(self, values: Float[Array, "B *event"], block: Block) -> Float[Array, "b *event"]:
        """The values of the vectors of a block."""
        return values if len(block.vectors) == self.count else values[block.vectors]

    def scatter(self, values: list[Float[Array, "b *event"]]) -> Float[Array, "B *event"]:
        """Values of the vectors of every block as values of all vectors, zero where no row sees one."""
        if len(self.blocks) == 1 and len(self.blocks[0].vectors) == self.count:
            return values[0]
        out = jnp.zeros((self.count, *values[0].shape[1:]), values[0].dtype)
        for block, x in zip(self.blocks, values, strict=True):
            out = out.at[block.vectors].set(x)
        return out


def flat(x: Float[Array, "n m d"]) -> Float[Array, "nm d"]:
    """The rows of n matrices as rows of one."""
    return x.reshape(-1, x.shape[-1])


def through(rows: Rows, c: Float[Array, "n m d"], table: Float[Array, "count d e"]) -> Float[Array, "n m e"]:
    """`c @ table[where]` of n matrices, whose rows are the rows, without a copy of the table for each."""
    parts = zip(rows.blocks, rows.take(flat(c)), strict=True)
    found = [jnp.einsum("bnd,bde->bne", x, rows.vectors(table, block)) for block, x in parts]
    return rows.put(found).reshape(*c.shape[:2], table.shape[-1])


def leave_one_out(rows: Rows, parts: list[Float[Array, "n *event"]]) -> list[Float[Array, "n *event"]]:
    """For every row the sum of the others that see the same vector, entry by entry: the cavity at a shared frontier.
    The N rows come in parts, and what is left of them goes in the same.

    `sum - own` loses digits where one row outweighs the rest by many orders. Only the largest can, so the sum of all
    but the largest is formed for it without ever adding it, and for the others subtraction is safe. O(N).
    """
    if rows.count == 1:  # end to end, parts that are split over devices would be sent around
        return _leave_one_out(parts, 0)
    blocks = [_leave_one_out([x], 1)[0] for x in rows.take(jnp.concatenate(parts))]
    return jnp.split(rows.put(blocks), np.cumsum([len(x) for x in parts])[:-1])


def _leave_one_out(parts: list[Array], axis: int) -> list[Array]:
    sizes = [jnp.abs(x) for x in parts]
    top = functools.reduce(jnp.maximum, (jnp.max(s, axis, keepdims=True) for s in sizes))
    largest = [s == top for s in sizes]  # those that tie for it leave each other, exactly
    pairs = list(zip(parts, largest, strict=True))
    rest: Any = sum(jnp.sum(jnp.where(is_top, 0, x), axis, keepdims=True) for x, is_top in pairs)
    peak: Any = sum(jnp.sum(jnp.where(is_top, x, 0), axis, keepdims=True) for x, is_top in pairs)
    return [jnp.where(is_top, rest + (peak - x), (rest - x) + peak) for x, is_top in pairs]


class Slices(NamedTuple):
    """Slices of `rows` rows at `starts`, and where the rest begins."""

    rows: int
    starts: np.ndarray
    rest: int


def slices(features: Float[Array, "b n D"]) -> Slices | None:
    """How to go through many rows of one vector without a second copy of them; None where they are few."""
    b, n, d = features.shape
    # Rows that are split over devices cannot be walked through one slice after the other; each device has few of them.
    if b > 1 or n * d <= 2 * SLICE or jax.device_count() > 1:
        return None
    rows = max(SLICE // d, 1)
    return Slices(rows, rows * np.arange(n // rows), n // rows * rows)


HALVES = 64  # columns from which it pays to compute one of two equal blocks of a product only


def _symmetric_product(weighted: Float[Array, "b n D"], features: Float[Array, "b n D"]) -> Float[Array, "b D D"]:
    """`weighted^T features`, which is symmetric: of two halves of the columns, three of the four products."""
    if features.shape[-1] < HALVES:
        return jnp.einsum("bnd,bne->bde", weighted, features)
    half = features.shape[-1] // 2
    corner = jnp.einsum("bnd,bne->bde", weighted[..., :half], features[..., :half])
    below = jnp.einsum("bnd,bne->bde", weighted[..., half:], features)
    right = jnp.swapaxes(below[..., :half], -1, -2)
    return jnp.concatenate([jnp.concatenate([corner, right], -1), below], -2)


def gram(features: Float[Array, "b n D"], weights: Float[Array, "b n"]) -> Float[Array, "b D D"]:
    """`sum_n weight_n phi_n phi_n^T` for every vector: one matrix product each."""
    cut = slices(features)
    if cut is None:
        weighted = features * weights[..., None]
        if features.shape[1] == 1:  # the outer product of one row is as large as the result
            return weighted[:, 0, :, None] * features[:, 0, None, :]
        return _symmetric_product(weighted, features)
    phi, lam = features[0], weights[0]

    def add(total, at):
        some, weight = (jax.lax.dynamic_slice_in_dim(x, at, cut.rows) for x in (phi, lam))
        return total + (some * weight[:, None]).T @ some, None

    rest = phi[cut.rest :]
    total, _ = jax.lax.scan(add, (rest * lam[cut.rest :, None]).T @ rest, cut.starts)
    return total[None]
