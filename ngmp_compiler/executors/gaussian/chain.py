"""Chains: variables in a line, neighbours tied by one functional each. Forward elimination, backward substitution."""

from collections.abc import Hashable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels.families import Gaussian, MvGaussian

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ...linalg import information
from .base import GaussianExecutor, Solution
from .part import GaussianPart, only
from .pieces import Piece
from .ties import Tie


class Chain(GaussianExecutor):
    """Chains of equal length of variables of one plane."""

    name = "chain"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        wide = part.core.wide[part.nodes]
        # Vector ties must all have one width; mixed ones are rare and solved jointly.
        mixed = part.has_vectors and wide.any() and not wide.all()
        if part.lone or part.knotted or part.shape.path is None or len(part.planes) > 1 or mixed:
            return "the variables are no path of equal ones, tied once each"
        return None

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: GaussianPart) -> Hashable:
        return only(part.planes)[0], len(part.nodes)

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[Chain]":
        core, plane = parts[0].core, only(parts[0].planes)[0]
        order = np.stack([part.shape.path for part in parts if part.shape.path is not None])
        local = np.full(core.nodes.size, -1)
        local[order.reshape(-1)] = np.arange(order.size)

        def backward(t: np.ndarray) -> np.ndarray:
            return local[t[0]] < local[t[-1]] if len(t) > 1 else np.zeros(t.shape[1], bool)

        from .scalar_chain import ScalarChain  # which derive from this class
        from .vector_chain import VectorChain

        pieces = core.pieces(order.reshape(-1), backward)
        given = plane, core.planes[plane], order - core.nodes.offset[plane], pieces
        return [VectorChain(*given) if plane.event_shape else ScalarChain(*given, core.roles)]

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[Piece]):
        self.plane, self.order, self.pieces = plane, order, pieces
        local = np.full(size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        self.unary: list[tuple[Piece, IndexMap]] = []
        self.ties: list[Tie] = []
        for piece in pieces:
            if len(piece.links) == 1:
                self.unary.append((piece, index_map(local[piece.links[0].positions], order.size)))
            else:
                self.ties.append(Tie(piece, local, order.shape))
        chains, length = order.shape
        self.why = f"{chains} chain{'s' * (chains > 1)} of {length} variables, neighbours tied once"
        self.work = f"O({chains} x {length}" + (f" x {plane.event_shape[0]}^3)" if plane.event_shape else ")")

    def _solution(self, result, mean, spread, cross, functionals, cavities=None) -> Solution:
        log_volume = jnp.sum(result.log_volume)
        at = self.order.reshape(-1)
        return Solution(
            log_volume, jnp.all(result.proper), {self.plane: (at, self._family(mean, spread))}, functionals,
            ((self.plane, self.order, cross),), cavities=cavities or {}, means={self.plane: (at, mean)},
        )  # fmt: skip

    def _family(self, mean: Array, spread: Array) -> Gaussian | MvGaussian:
        if not self.plane.event_shape:
            return Gaussian.from_mean_variance(mean, spread)
        found = information(mean, spread)
        return MvGaussian.from_mean_covariance(mean, spread) if found is None else MvGaussian.from_information(*found)
