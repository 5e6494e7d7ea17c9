"""Categorical variables: what every executor of theirs is given and returns, and the two simplest, alone and in chains.

Tables hold logarithms. A variable of few classes that is stored beside one of many is padded with classes whose unary
log-potential is `FORBIDDEN`: finite, so that no NaN arises, and far below any sum of logarithms of zero (-10^4 each).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...declare.expressions import Plane
from ...graph.index import index_map
from ...linalg import discrete_chain
from ...value import Value

FORBIDDEN = -1e30


class TablePiece(NamedTuple):
    """The rows of a group of table factors that belong to an executor; every side is a plane and positions in it."""

    group: int
    rows: np.ndarray | None  # None: all of the group
    sides: tuple[tuple[Plane, np.ndarray], ...]

    @property
    def n(self) -> int:
        return len(self.sides[0][1])

    def take(self, table: Float[Array, "#N *classes"]) -> Float[Array, "#n *classes"]:
        """The rows of this piece of the tables of the whole group; one table may be shared by all."""
        return table if self.rows is None or table.shape[0] == 1 else table[self.rows]


class DiscreteSolution(NamedTuple):
    """Log-marginals of variables by plane, and of the cells of tables by group, each with the rows they belong to."""

    log_partition: Float[Array, ""]
    marginals: dict[Plane, list[tuple[np.ndarray, Array]]]  # positions, (n, K)
    tables: dict[int, list[tuple[np.ndarray | None, Array]]]  # rows of the group, (n, *classes); of wanted groups
    settled: Bool[Array, ""] | None = None  # whether an approximation has converged; None: exact


Unary = dict[Plane, Array]
Tables = dict[int, Array]


class DiscreteIndependent(Value):
    """Categorical variables that no table touches."""

    name = "star"
    approximate = False

    def __init__(self, plane: Plane, positions: np.ndarray):
        self.plane, self.positions = plane, positions
        self.why, self.cost = "categorical variables coupled to no other", f"O({len(positions)})"

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        del tables, wanted
        logits = index_map(self.positions, unary[self.plane].shape[0]).take(unary[self.plane])
        norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return DiscreteSolution(jnp.sum(norm), {self.plane: [(self.positions, logits - norm)]}, {})


class DiscreteChain(Value):
    """Chains of categorical variables: a hidden Markov model's forward-backward pass.

    Every piece runs along the chains in one direction.
    """

    name = "chain"
    approximate = False

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[TablePiece]):
        self.plane, self.order, self.pieces = plane, order, pieces
        local = np.full(size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        chains, length = order.shape
        self.links: list[tuple[TablePiece, bool, Any]] = []
        for piece in pieces:
            left, right = (local[positions] for _, positions in piece.sides)
            start = np.minimum(left, right)
            link = start // length * (length - 1) + start % length
            self.links.append((piece, bool(left[0] > right[0]), index_map(link, chains * (length - 1))))
        self.why = f"{chains} chain{'s' * (chains > 1)} of {length} categorical variables"
        self.cost = f"O({chains} x {length} x {plane.event_shape[0]}^2)"

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        chains, length = self.order.shape
        k = self.plane.event_shape[0]
        logits = index_map(self.order, unary[self.plane].shape[0]).take(unary[self.plane]).reshape(chains, length, k)
        first = self.pieces[0].take(tables[self.pieces[0].group])
        if len(self.links) == 1 and first.shape[0] == 1:  # one table shared by all steps
            link = jnp.broadcast_to(first.swapaxes(1, 2) if self.links[0][1] else first, (chains, 1, k, k))
        else:
            link = jnp.zeros((), logits.dtype)
            for piece, reverse, index in self.links:
                table = piece.take(tables[piece.group])
                table = jnp.broadcast_to(table.swapaxes(1, 2) if reverse else table, (index.n, k, k))
                link = link + index.add(table)
            link = link.reshape(chains, length - 1, k, k)
        forward_backward = partial(discrete_chain, pairs=any(piece.group in wanted for piece in self.pieces))
        if chains == 1:  # plainly: under vmap both branches of a condition run
            result = jax.tree.map(lambda x: x[None], forward_backward(logits[0], link[0]))
        else:
            result = jax.vmap(forward_backward)(logits, link)
        marginals = {self.plane: [(self.order.reshape(-1), result.log_probs.reshape(-1, k))]}
        found: dict[int, list] = {}
        for piece, reverse, index in self.links:
            if piece.group in wanted and result.pair is not None:
                pair = index.take(result.pair.reshape(-1, k, k))
                found.setdefault(piece.group, []).append((piece.rows, pair.swapaxes(1, 2) if reverse else pair))
        return DiscreteSolution(jnp.sum(result.log_partition), marginals, found)
