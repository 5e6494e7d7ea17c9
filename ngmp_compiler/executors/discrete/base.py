"""Categorical variables: what every executor of theirs is given and returns.

Tables hold logarithms. A variable of few classes that is stored beside one of many is padded with classes whose unary
log-potential is `FORBIDDEN`: finite, so that no NaN arises, and far below any sum of logarithms of zero (-10^4 each).
"""

import abc
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...graph.planes import Plane
from ..base import AbstractExecutor
from ..merge import together

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
    settled: Bool[Array, ""] | bool = True  # whether an approximation has converged

    @classmethod
    def merged(cls, solutions: "list[DiscreteSolution]", sizes: Mapping[Any, int]) -> "DiscreteSolution":
        """The solution of all parts, of as many variables by plane and tables by group as `sizes` says."""
        found = [{plane: x} for s in solutions for plane, own in s.marginals.items() for x in own]
        joint = [{group: x} for s in solutions for group, own in s.tables.items() for x in own]
        marginals, tables = ({key: [x] for key, x in table.items()} for table in together([found, joint], sizes))
        settled = functools.reduce(jnp.logical_and, [s.settled for s in solutions], jnp.asarray(True))
        return cls(sum(s.log_partition for s in solutions), marginals, tables, settled)  # type: ignore[arg-type]


Unary = dict[Plane, Array]
Tables = dict[int, Array]
Classes = list[tuple[Plane, np.ndarray, Array]]  # plane, positions, (draws, positions)


class DiscreteExecutor(AbstractExecutor):
    """Solves parts of the categorical core. Its class is given `DiscretePart`s."""

    pieces: list[TablePiece]

    @classmethod
    def may_fit(cls, part: Any) -> bool:
        return False  # to find out takes too long to be said unasked

    @abc.abstractmethod
    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:  # type: ignore[override]
        """Log-marginals of all variables and of the tables of the wanted groups, and the log-partition."""

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        """Draws from the joint of all variables."""
        raise NotImplementedError(f"the executor '{self.name}' has no draws; write its method draw")
