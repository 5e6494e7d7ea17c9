"""Categorical variables that no table touches: every one is normalised alone."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ...graph.index import index_map
from ...graph.planes import Plane
from ...linalg import pick
from ..base import COUPLED, members
from .base import Classes, DiscreteExecutor, DiscreteSolution, Tables, Unary
from .part import DiscretePart


class DiscreteIndependent(DiscreteExecutor):
    """Categorical variables that no table touches."""

    name = "independent"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        return None if part.lone else COUPLED

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return 0.0

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[DiscreteIndependent]":
        found = parts[0].core.nodes.split(members(parts))
        return [cls(plane, positions) for plane, positions in found.items()]

    def __init__(self, plane: Plane, positions: np.ndarray):
        self.plane, self.positions, self.pieces = plane, positions, []
        self.why, self.work = "categorical variables coupled to no other", f"O({len(positions)})"

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        logits = index_map(self.positions, unary[self.plane].shape[0]).take(unary[self.plane])
        return [(self.plane, self.positions, pick(key, jnp.broadcast_to(logits, (count, *logits.shape))))]

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        logits = index_map(self.positions, unary[self.plane].shape[0]).take(unary[self.plane])
        norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        return DiscreteSolution(jnp.sum(norm), {self.plane: [(self.positions, logits - norm)]}, {})
