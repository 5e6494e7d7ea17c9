"""Categorical variables: alone, in chains (forward-backward), or few enough to enumerate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._expressions import Plane
from .._index import index_map
from .linalg import discrete_chain


class PairPiece(NamedTuple):
    """The rows of a pairwise factor group that belong to an executor; `left` and `right` are plane positions."""

    group: int
    rows: np.ndarray | None
    left: tuple[Plane, np.ndarray]
    right: tuple[Plane, np.ndarray]


class DiscreteSolution(NamedTuple):
    """Log-marginals by plane, (positions, (n, K) log-probabilities), and the log-partition."""

    log_partition: Float[Array, ""]
    marginals: dict[Plane, tuple[np.ndarray, Array]]


def _rows(table: Array, piece: PairPiece) -> Array:
    return table if piece.rows is None or table.shape[0] == 1 else table[piece.rows]


class DiscreteIndependent:
    """Categorical variables that no pairwise factor touches."""

    name = "star"

    def __init__(self, plane: Plane, positions: np.ndarray):
        self.plane, self.positions = plane, positions
        self.why, self.cost = "categorical variables coupled to no other", f"O({len(positions)})"

    def solve(self, unary: dict[Plane, Array], tables: dict[int, Array]) -> DiscreteSolution:
        del tables
        logits = index_map(self.positions, unary[self.plane].shape[0]).take(unary[self.plane])
        norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return DiscreteSolution(jnp.sum(norm), {self.plane: (self.positions, logits - norm)})


class DiscreteChain:
    """Chains of categorical variables: a hidden Markov model's forward-backward pass."""

    name = "chain"

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[PairPiece]):
        self.plane, self.order, self.pieces = plane, order, pieces
        local = np.full(size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        chains, length = order.shape
        self.links = []
        for piece in pieces:
            left, right = local[piece.left[1]], local[piece.right[1]]
            start = np.minimum(left, right)
            link = start // length * (length - 1) + start % length
            self.links.append((piece, bool(left[0] > right[0]), index_map(link, chains * (length - 1))))
        self.why = f"{chains} chain{'s' * (chains > 1)} of {length} categorical variables"
        self.cost = f"O({chains} x {length} x {plane.event_shape[0]}^2)"

    def solve(self, unary: dict[Plane, Array], tables: dict[int, Array]) -> DiscreteSolution:
        chains, length = self.order.shape
        k = self.plane.event_shape[0]
        logits = index_map(self.order, unary[self.plane].shape[0]).take(unary[self.plane]).reshape(chains, length, k)
        first = _rows(tables[self.pieces[0].group], self.pieces[0])
        if len(self.links) == 1 and first.shape[0] == 1:  # one table shared by all steps
            link = jnp.broadcast_to(first.swapaxes(1, 2) if self.links[0][1] else first, (chains, 1, k, k))
        else:
            link = jnp.zeros((), logits.dtype)
            for piece, reverse, index in self.links:
                table = _rows(tables[piece.group], piece)
                table = jnp.broadcast_to(table.swapaxes(1, 2) if reverse else table, (index.n, k, k))
                link = link + index.add(table)
            link = link.reshape(chains, length - 1, k, k)
        result = jax.vmap(discrete_chain)(logits, link)
        marginals = {self.plane: (self.order.reshape(-1), result.log_probs.reshape(-1, k))}
        return DiscreteSolution(jnp.sum(result.log_partition), marginals)


class Enumeration:
    """A few categorical variables tied in any way: the joint table over all of them."""

    name = "enumeration"

    def __init__(self, members: list[tuple[Plane, int]], pieces: list[PairPiece]):
        self.members, self.pieces = members, pieces
        self.shape = tuple(p.event_shape[0] for p, _ in members)
        self.axis = {m: i for i, m in enumerate(members)}
        self.why = f"{len(members)} categorical variables tied in a tree or loop, small enough to enumerate"
        self.cost = f"O({int(np.prod(self.shape))})"

    def _place(self, table: Array, *axes: int) -> Array:
        order = [int(a) for a in np.argsort(axes)]
        shape = [1] * len(self.shape)
        for a in axes:
            shape[a] = self.shape[a]
        return jnp.transpose(table, order).reshape(shape)

    def solve(self, unary: dict[Plane, Array], tables: dict[int, Array]) -> DiscreteSolution:
        joint = jnp.zeros(self.shape, next(iter(unary.values())).dtype)
        for axis, (plane, position) in enumerate(self.members):
            joint = joint + self._place(unary[plane][position], axis)
        for piece in self.pieces:
            table = _rows(tables[piece.group], piece)
            for i in range(len(piece.left[1])):  # at most a handful of factors: bounded by the table's size
                axes = [self.axis[p, int(x[i])] for p, x in (piece.left, piece.right)]
                joint = joint + self._place(table[i if table.shape[0] > 1 else 0], *axes)
        log_partition = jax.nn.logsumexp(joint)
        marginals: dict[Plane, tuple[list, list]] = {}
        for axis, (plane, position) in enumerate(self.members):
            others = tuple(a for a in range(len(self.shape)) if a != axis)
            where, values = marginals.setdefault(plane, ([], []))
            where.append(position)
            values.append(jax.nn.logsumexp(joint, axis=others) - log_partition)
        return DiscreteSolution(log_partition, {p: (np.asarray(w), jnp.stack(v)) for p, (w, v) in marginals.items()})
