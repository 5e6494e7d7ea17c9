"""A few categorical variables tied in any way: exact, by variable elimination or by one table over all of them."""

import abc
import math
from collections.abc import Hashable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ...graph.planes import Plane
from ...linalg import elimination, network_classes
from ..base import ASKED
from .base import Classes, DiscreteExecutor, DiscreteSolution, TablePiece, Tables, Unary
from .part import DiscretePart

UNROLLED = 64  # variables: every one summed out is a few operations of the program
ELIMINATION_MOST = 1024  # even where it is asked for
ELIMINATION_CELLS = 2**20
ENUMERATION_STATES = 2**16


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


class _Eliminating(DiscreteExecutor):
    """Equal networks, their variables summed out cluster by cluster."""

    def __init__(self, network: Network, found: list[elimination.Cluster], why: str):
        self.network, self.pieces, self.clusters = network, network.pieces, found
        width = max(len(c.variables) for c in found)
        batch = len(network.positions)
        count = f"{batch} networks of " if batch > 1 else ""
        tables = f"{len(found)} table{'s' * (len(found) > 1)} of at most {width} variables"
        self.why = f"{count}{len(network.planes)} categorical variables, {why}; {tables}"
        self.work = f"O({f'{batch} x ' if batch > 1 else ''}{network.cells(found)} cells)"

    @classmethod
    def alike(cls, part: DiscretePart) -> Hashable:
        return part.signature

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[_Eliminating]":
        """One executor for all parts of equal shape: the same tables between variables of the same planes."""
        limits = f"at most {UNROLLED} variables and {ELIMINATION_CELLS} cells: summed out exactly"
        network = _network(parts)
        return [cls(network, cls.arrange(network), ASKED if parts[0].asked else limits)]

    @classmethod
    @abc.abstractmethod
    def arrange(cls, network: Network) -> list[elimination.Cluster]:
        """The clusters that are summed out."""

    def _sums(self, unary: Unary, tables: Tables) -> list[Array]:
        """The sum of the tables at home in each cluster."""
        network, sizes = self.network, self.network.sizes
        batch = len(network.positions)
        dtype = unary[network.planes[0]].dtype
        sums: list[Array] = [jnp.zeros((batch, *(sizes[x] for x in c.variables)), dtype) for c in self.clusters]
        homes = self._homes()
        for x, plane in enumerate(network.planes):
            sums[homes[x]] += self._place(homes[x], unary[plane][network.positions[:, x]], (x,))
        for tie in network.ties:
            at = elimination.home(self.clusters, tie.scope)
            table = tables[tie.group]
            sums[at] += self._place(at, table if table.shape[0] == 1 else table[tie.rows], tie.scope)
        return sums

    def _homes(self) -> dict[int, int]:
        return {x: elimination.home(self.clusters, (x,)) for x in range(len(self.network.planes))}

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        found = network_classes(self._sums(unary, tables), self.clusters, key, count)
        return [(p, self.network.positions[:, x], found[x]) for x, p in enumerate(self.network.planes)]

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        network, homes, sums = self.network, self._homes(), self._sums(unary, tables)
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


class Elimination(_Eliminating):
    """By variable elimination in min-fill order."""

    name = "elimination"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        if part.lone or len(part.nodes) > ELIMINATION_MOST:
            return f"elimination would unroll more than {ELIMINATION_MOST} variables"
        cells = _cells(part)
        return None if cells <= ELIMINATION_CELLS else f"elimination needs {cells:.1e} cells, over {ELIMINATION_CELLS}"

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return _cells(part) if len(part.nodes) <= UNROLLED else math.inf

    @classmethod
    def arrange(cls, network: Network) -> list[elimination.Cluster]:
        return network.clusters()


class Enumeration(_Eliminating):
    """By one table over all joint states; only where it is asked for."""

    name = "enumeration"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        states = math.inf if part.lone else math.prod(plane.event_shape[0] for plane in part.planes)
        return None if states <= ENUMERATION_STATES else f"{states:.1e} joint states exceed {ENUMERATION_STATES}"

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return math.inf

    @classmethod
    def arrange(cls, network: Network) -> list[elimination.Cluster]:
        return [elimination.Cluster(tuple(range(len(network.planes))), (), None)]


def _cells(part: DiscretePart) -> int:
    if "_cells" not in part.__dict__:
        network = _network([part])
        part.__dict__["_cells"] = network.cells(network.clusters())
    return part.__dict__["_cells"]


def _network(parts: list[DiscretePart]) -> Network:
    """Parts of equal shape as one batch of networks; variables go by their order in the numbering of nodes."""
    core, members = parts[0].core, np.stack([part.nodes for part in parts])
    found = []
    for t, tie in enumerate(core.ties):
        rows = np.stack([part.rows[t] for part in parts])  # (B, tables)
        for k in range(rows.shape[1]):
            found.append(Tie(tie.group, rows[:, k], tuple(parts[0].scopes[t][k].tolist())))
    planes = tuple(parts[0].planes)
    offsets = np.asarray([core.nodes.offset[p] for p in planes])
    return Network(planes, members - offsets, found, core.pieces(parts))
