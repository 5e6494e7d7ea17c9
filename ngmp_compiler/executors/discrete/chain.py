"""Chains of categorical variables: forward and backward."""

from collections.abc import Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...graph.index import index_map
from ...graph.planes import Plane
from ...linalg import chain_classes, discrete_chain
from .base import Classes, DiscreteExecutor, DiscreteSolution, TablePiece, Tables, Unary
from .part import DiscretePart


class DiscreteChain(DiscreteExecutor):
    """Chains of categorical variables: a hidden Markov model's forward-backward pass.

    Every piece runs along the chains in one direction.
    """

    name = "chain"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        if part.path is None:
            return "the variables are no path, tied once each"
        return None if len(set(part.planes)) == 1 else "the variables differ in their number of classes"

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: DiscretePart) -> Hashable:
        return part.planes[0], len(part.nodes)

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[DiscreteChain]":
        """One executor for all chains of equal length and classes."""
        core, plane = parts[0].core, parts[0].planes[0]
        order = np.stack([part.path for part in parts if part.path is not None])
        local = np.full(core.nodes.size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        return [cls(plane, core.planes[plane], order - core.nodes.offset[plane], core.pieces(parts, local))]

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[TablePiece]):
        self.plane, self.order, self.pieces = plane, order, pieces
        local = np.full(size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        chains, length = order.shape
        self.ties: list[tuple[TablePiece, bool, Any]] = []
        for piece in pieces:
            left, right = (local[positions] for _, positions in piece.sides)
            start = np.minimum(left, right)
            tie = start // length * (length - 1) + start % length
            self.ties.append((piece, bool(left[0] > right[0]), index_map(tie, chains * (length - 1))))
        self.why = f"{chains} chain{'s' * (chains > 1)} of {length} categorical variables"
        self.work = f"O({chains} x {length} x {plane.event_shape[0]}^2)"

    def _system(self, unary: Unary, tables: Tables) -> tuple[Array, Array]:
        """Unary log-potentials (chains, T, K) and ties (chains, T-1|1, K, K)."""
        chains, length = self.order.shape
        k = self.plane.event_shape[0]
        logits = index_map(self.order, unary[self.plane].shape[0]).take(unary[self.plane]).reshape(chains, length, k)
        first = self.pieces[0].take(tables[self.pieces[0].group])
        if len(self.ties) == 1 and first.shape[0] == 1:  # one table shared by all steps
            tie = jnp.broadcast_to(first.swapaxes(1, 2) if self.ties[0][1] else first, (chains, 1, k, k))
        else:
            tie = jnp.zeros((), logits.dtype)
            for piece, reverse, index in self.ties:
                table = piece.take(tables[piece.group])
                table = jnp.broadcast_to(table.swapaxes(1, 2) if reverse else table, (index.n, k, k))
                tie = tie + index.add(table)
            tie = tie.reshape(chains, length - 1, k, k)
        return logits, tie

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        logits, tie = self._system(unary, tables)
        keys = jax.random.split(key, len(self.order))
        found = jax.vmap(lambda u, table, k: chain_classes(u, table, k, count))(logits, tie, keys)
        return [(self.plane, self.order.reshape(-1), jnp.swapaxes(found, 0, 1).reshape(count, -1))]

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        (chains, _), k = self.order.shape, self.plane.event_shape[0]
        logits, tie = self._system(unary, tables)
        forward_backward = partial(discrete_chain, pairs=any(piece.group in wanted for piece in self.pieces))
        if chains == 1:  # plainly: under vmap both branches of a condition run
            result = jax.tree.map(lambda x: x[None], forward_backward(logits[0], tie[0]))
        else:
            result = jax.vmap(forward_backward)(logits, tie)
        marginals = {self.plane: [(self.order.reshape(-1), result.log_probs.reshape(-1, k))]}
        found: dict[int, list] = {}
        for piece, reverse, index in self.ties:
            if piece.group in wanted and result.pair is not None:
                pair = index.take(result.pair.reshape(-1, k, k))
                found.setdefault(piece.group, []).append((piece.rows, pair.swapaxes(1, 2) if reverse else pair))
        return DiscreteSolution(jnp.sum(result.log_partition), marginals, found)
