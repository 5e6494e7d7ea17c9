"""The categorical core as executors see it when they are chosen: parts, and the tables that tie their variables."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...graph.components import Nodes
from ...graph.edges import TableEdge
from ...graph.planes import Plane
from ..base import AbstractPart, members
from .base import TablePiece


class Ties(NamedTuple):
    """The tables of one group: which nodes each touches, (n, sides)."""

    group: int
    edge: TableEdge
    ends: np.ndarray


class DiscreteCore(NamedTuple):
    """All categorical variables, numbered, and the tables between them."""

    planes: dict[Plane, int]
    nodes: Nodes
    ties: list[Ties]

    def pieces(self, parts: "list[DiscretePart]", local: np.ndarray | None = None) -> list[TablePiece]:
        """The tables of some parts by group; with `local`, split by their direction along the chain."""
        out = []
        for t, tie in enumerate(self.ties):
            rows = np.sort(np.concatenate([part.rows[t] for part in parts]))
            ends = tie.ends[rows]
            forward = np.ones(len(rows), bool) if local is None else local[ends[:, 0]] < local[ends[:, 1]]
            for keep in (rows[forward], rows[~forward]):
                if len(keep):
                    sides = tuple((side.plane, side.index.positions[keep]) for side in tie.edge.sides)
                    out.append(TablePiece(tie.group, None if len(keep) == len(tie.ends) else keep, sides))
        return out

    def union(self, parts: "list[DiscretePart]") -> tuple[dict[Plane, np.ndarray], list[TablePiece]]:
        """Positions by plane, and tables, of some parts."""
        return self.nodes.split(members(parts)), self.pieces(parts)


@dataclass(eq=False)
class DiscretePart(AbstractPart):
    """Variables that tables tie together, or those of one plane that none does (`lone`).

    Sorted nodes, the path if they are one, and the rows of each of the ties.
    """

    core: DiscreteCore
    nodes: np.ndarray
    path: np.ndarray | None
    rows: list[np.ndarray]
    loops: bool
    lone: bool = False
    asked: bool = False

    @cached_property
    def planes(self) -> list[Plane]:
        """Of every node."""
        return [self.core.nodes.planes[w] for w in self.core.nodes.plane_of(self.nodes).tolist()]

    @cached_property
    def scopes(self) -> list[np.ndarray]:
        """The variables (tables, sides) of the tables of every tie, numbered within the part."""
        return [
            np.searchsorted(self.nodes, tie.ends[rows]) for tie, rows in zip(self.core.ties, self.rows, strict=True)
        ]

    @cached_property
    def signature(self) -> Any:
        """What is equal for parts with the same tables between variables of the same planes."""
        return self.core.nodes.plane_of(self.nodes).tobytes(), tuple(scope.tobytes() for scope in self.scopes)
