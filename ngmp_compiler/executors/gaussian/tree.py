"""Forests of scalars tied pairwise, of any depth and shape: independent sets of nodes eliminated in O(log n) rounds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels.families import Gaussian

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ...linalg import tree_draws, tree_gaussian, tree_order
from ..base import members
from .base import Draws, GaussianExecutor, Leaf, Solution, numbered, offset, potential, scale
from .part import GaussianPart
from .pieces import Piece


class ScalarTree(GaussianExecutor):
    """All the trees of a model at once; see `linalg.scalar_tree`."""

    name = "tree"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        fits = part.shape.tree and not part.knotted and not part.has_vectors
        return None if fits else "the variables are no tree of scalars"

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[ScalarTree]":
        core, own = parts[0].core, members(parts)
        return [cls(core.planes, core.nodes.split(own), core.pieces(own))]

    def __init__(self, sizes: dict[Plane, int], where: dict[Plane, np.ndarray], pieces: list[Piece]):
        self.members, self.pieces = where, pieces
        self.number, total = numbered(sizes, where)
        self.total = total
        self.ends = [[self._index(p, j) for j in range(len(p.links))] for p in pieces]
        ties = [np.stack([i.positions for i in ends], 1) for ends in self.ends if len(ends) == 2]
        self.order = tree_order(total, np.concatenate(ties))
        rounds = sum(len(stage.node) for stage in self.order.stages)
        self.why = f"{total} scalars in trees, eliminated in {rounds} rounds of independent sets"
        self.work = f"O({total})"

    def _index(self, piece: Piece, link: int) -> IndexMap:
        return index_map(self.number[piece.links[link].plane][piece.links[link].positions], self.total)

    def _system(self, leaves: list[Leaf]) -> tuple[Array, Array, Array, Array]:
        """Own precisions and linear coefficients of the nodes; blocks and couplings of the edges."""
        dtype = leaves[self.pieces[0].functional].dtype
        own, linear = jnp.zeros(self.total, dtype), jnp.zeros(self.total, dtype)
        blocks, couplings = [], []
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            lam, e = potential(piece, leaves)
            a = [jnp.broadcast_to(scale(link.coefficient), (piece.n,)) for link in piece.links]
            for index, coefficient in zip(ends, a, strict=True):
                linear += index.add(e * coefficient)
            if len(ends) == 1:
                own += ends[0].add(lam * a[0] ** 2)
            else:
                blocks.append(jnp.stack([lam * a[0] ** 2, lam * a[1] ** 2]))
                couplings.append(lam * a[0] * a[1])
        return own, linear, jnp.concatenate(blocks, axis=1), jnp.concatenate(couplings)

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        own, _, blocks, couplings = self._system(leaves)
        noise = jax.random.normal(key, (count, self.total), own.dtype)
        found = tree_draws(self.order, own, blocks, couplings, noise)
        return {plane: (at, found[:, self.number[plane][at]]) for plane, at in self.members.items()}

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        result = tree_gaussian(self.order, *self._system(leaves))
        functionals, start = {}, 0
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            between = result.covariance[start : start + piece.n]
            start += piece.n if len(ends) == 2 else 0
            if piece.functional not in requested:
                continue
            a = [scale(link.coefficient) for link in piece.links]
            mean = sum(c * i.take(result.mean) for c, i in zip(a, ends, strict=True)) + offset(piece, leaves)
            variance = sum(c**2 * i.take(result.variance) for c, i in zip(a, ends, strict=True))
            if len(ends) == 2:
                variance += 2 * a[0] * a[1] * between
            functionals[piece.functional] = (piece.rows, mean, variance)
        marginals, means = {}, {}
        for plane, positions in self.members.items():
            at = index_map(self.number[plane][positions], self.total)
            means[plane] = (positions, at.take(result.mean))
            marginals[plane] = (positions, Gaussian.from_mean_variance(means[plane][1], at.take(result.variance)))
        return Solution(result.log_volume, result.proper, marginals, functionals, means=means)
