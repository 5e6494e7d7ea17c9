"""A few categorical variables tied in any way: exact, by variable elimination or by one table over all of them."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...declare.expressions import Plane
from ...linalg import elimination
from ...value import Value
from .base import DiscreteSolution, TablePiece, Tables, Unary


class Tie(NamedTuple):
    """One table of a network: its group, its row there in each of B equal networks, and its variables."""

    group: int
    rows: np.ndarray  # (B,)
    scope: tuple[int, ...]


class Network(NamedTuple):
    """B networks of the same shape: the plane of every variable and its B positions there, and their tables."""

    planes: tuple[Plane, ...]
    positions: np.ndarray  # (B, variables)
    ties: list[Tie]
    pieces: list[TablePiece]  # the same tables, by group

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(p.event_shape[0] for p in self.planes)

    def clusters(self) -> list[elimination.Cluster]:
        scopes = [tie.scope for tie in self.ties]
        return elimination.clusters(elimination.min_fill(len(self.planes), scopes), scopes)

    def cells(self, found: list[elimination.Cluster]) -> int:
        """The number of cells of all cluster tables of one network."""
        return sum(math.prod(self.sizes[x] for x in c.variables) for c in found)


class Elimination(Value):
    """Equal networks by variable elimination; with a single cluster, by enumeration of their joint states."""

    approximate = False

    def __init__(self, network: Network, found: list[elimination.Cluster] | None, why: str):
        self.network, self.pieces = network, network.pieces
        everything = tuple(range(len(network.planes)))
        self.name = "enumeration" if found is None else "elimination"
        self.clusters = [elimination.Cluster(everything, (), None)] if found is None else found
        width = max(len(c.variables) for c in self.clusters)
        batch = len(network.positions)
        count = f"{batch} networks of " if batch > 1 else ""
        tables = f"{len(self.clusters)} table{'s' * (len(self.clusters) > 1)} of at most {width} variables"
        self.why = f"{count}{len(everything)} categorical variables, {why}; {tables}"
        self.cost = f"O({f'{batch} x ' if batch > 1 else ''}{network.cells(self.clusters)} cells)"

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        network, sizes = self.network, self.network.sizes
        batch = len(network.positions)
        dtype = unary[network.planes[0]].dtype
        sums: list[Array] = [jnp.zeros((batch, *(sizes[x] for x in c.variables)), dtype) for c in self.clusters]
        homes = {x: elimination.home(self.clusters, (x,)) for x in range(len(sizes))}
        for x, plane in enumerate(network.planes):
            sums[homes[x]] += self._place(homes[x], unary[plane][network.positions[:, x]], (x,))
        for tie in network.ties:
            at = elimination.home(self.clusters, tie.scope)
            table = tables[tie.group]
            sums[at] += self._place(at, table if table.shape[0] == 1 else table[tie.rows], tie.scope)
        joints, log_partition = elimination.eliminate(sums, self.clusters)
        marginals: dict[Plane, list] = {}
        for x, plane in enumerate(network.planes):
            at = homes[x]
            found = elimination.marginal(joints[at], self.clusters[at].variables, (x,))
            marginals.setdefault(plane, []).append((network.positions[:, x], found))
        found_tables: dict[int, list] = {}
        for tie in network.ties:
            if tie.group in wanted:
                at = elimination.home(self.clusters, tie.scope)
                found = elimination.marginal(joints[at], self.clusters[at].variables, tie.scope)
                found_tables.setdefault(tie.group, []).append((tie.rows, found))
        return DiscreteSolution(log_partition, marginals, found_tables)

    def _place(self, cluster: int, table: Array, scope: tuple[int, ...]) -> Array:
        return elimination.place(table, scope, self.clusters[cluster].variables)
