"""What ties the neighbours of a chain, and how many chains run side by side."""

import jax
import jax.numpy as jnp
import numpy as np

from ...graph.index import index_map
from ...value import Value
from .pieces import Piece
from .rows import Rows
from .vectors import Term


class Tie(Value):
    """A piece that ties neighbours: which end of each link is the later variable, and where the link goes."""

    def __init__(self, piece: Piece, local: np.ndarray, shape: tuple[int, int]):
        ends = np.stack([local[k.positions] for k in piece.links])  # (2, n), numbers b * T + t
        self.piece = piece
        later = ends.argmax(0)
        # All rows of a functional must run the same way; the scheduler splits those that do not.
        self.later = int(later[0])
        start = ends.min(0)
        self.index = index_map(start // shape[1] * (shape[1] - 1) + start % shape[1], shape[0] * (shape[1] - 1))
        size = shape[0] * shape[1]
        self.ends = (index_map(ends[1 - self.later], size), index_map(ends[self.later], size))


def row_moments(term: Term, mean, covariance):
    """Mean and variance of `phi . x` for rows that see the vectors in any order."""
    rows = Rows(term.index.positions, term.index.size)
    means, variances = [], []
    for block, phi in zip(rows.blocks, rows.take(term.features()), strict=True):
        means.append(jnp.einsum("bnd,bd->bn", phi, rows.vectors(mean, block)))
        variances.append(jnp.sum(jnp.einsum("bnd,bde->bne", phi, rows.vectors(covariance, block)) * phi, -1))
    return rows.put(means), rows.put(variances)


def matrix(piece: Piece, link: int, d: int, dtype):
    """The coefficient of a link as matrices (n|1, m, D)."""
    op, c = piece.links[link].op, piece.links[link].coefficient
    if op == "dot":
        return c[:, None, :]
    if op == "matmul":
        return jnp.asarray(c)
    eye = jnp.eye(d, dtype=dtype)[None]
    return eye if c is None else jnp.asarray(c)[:, None, None] * eye


def each(function, arguments):
    """Run one chain plainly and several under vmap: a scan over scalars is much faster than one over vectors."""
    if jax.tree.leaves(arguments)[0].shape[0] == 1:
        result = function(*jax.tree.map(lambda x: x[0], arguments))
        return jax.tree.map(lambda x: x[None], result)
    return jax.vmap(function)(*arguments)
