"""Trees of categorical variables, any number of them and however deep: rake and compress."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...graph.index import index_map
from ...graph.planes import Plane
from ...linalg import discrete_tree, plan_rounds, tree_classes
from ...value import Value
from .base import FORBIDDEN, Classes, DiscreteExecutor, DiscreteSolution, TablePiece, Tables, Unary
from .part import DiscretePart


class PaddedNodes(Value):
    """Categorical variables of one or several planes in one array (n, K), padded to the largest number of classes."""

    def __init__(self, members: dict[Plane, np.ndarray]):
        self.members = members
        self.classes = max(p.event_shape[0] for p in members)
        starts = np.cumsum([0, *(len(x) for x in members.values())])
        self.n = int(starts[-1])
        self._start = dict(zip(members, starts, strict=False))

    def number(self, plane: Plane, positions: np.ndarray) -> np.ndarray:
        """The rows of some variables of a plane."""
        return self._start[plane] + np.searchsorted(self.members[plane], positions)

    def stack(self, unary: Unary) -> Float[Array, "n K"]:
        """Unary log-potentials; classes that a variable does not have are forbidden."""
        parts = [self._pad(index_map(x, unary[p].shape[0]).take(unary[p]), FORBIDDEN) for p, x in self.members.items()]
        return jnp.concatenate(parts) if len(parts) > 1 else parts[0]

    def _pad(self, x: Array, fill: float) -> Array:
        missing = [(0, self.classes - size) for size in x.shape[1:]]
        return x if not any(m for _, m in missing) else jnp.pad(x, [(0, 0), *missing], constant_values=fill)

    def pad_table(self, table: Float[Array, "m *classes"]) -> Float[Array, "m K K"]:
        """Tables need not forbid anything: the unary potentials do."""
        return self._pad(table, 0.0)

    def split(self, log_probs: Float[Array, "n K"]) -> dict[Plane, list[tuple[np.ndarray, Array]]]:
        """Log-marginals by plane."""
        out = {}
        for plane, positions in self.members.items():
            start = self._start[plane]
            out[plane] = [(positions, log_probs[start : start + len(positions), : plane.event_shape[0]])]
        return out

    def columns(self, classes: Int[Array, "draws n"]) -> Classes:
        """Draws by plane."""
        starts = self._start.items()
        return [(p, self.members[p], classes[:, start : start + len(self.members[p])]) for p, start in starts]


class DiscreteTree(DiscreteExecutor):
    """A forest of categorical variables tied by pairwise tables, several of which may tie the same two variables."""

    name = "tree"

    @classmethod
    def misfit(cls, part: DiscretePart) -> str | None:
        return "tables of three or more variables, or loops, are no tree" if part.loops or part.lone else None

    @classmethod
    def cost(cls, part: DiscretePart) -> float:
        return 0.0

    @classmethod
    def build(cls, parts: list[DiscretePart]) -> "list[DiscreteTree]":
        return [cls(*parts[0].core.union(parts), len(parts))]

    def __init__(self, members: dict[Plane, np.ndarray], pieces: list[TablePiece], trees: int):
        self.nodes, self.pieces = PaddedNodes(members), pieces
        n, k = self.nodes.n, self.nodes.classes
        ends = [np.stack([self.nodes.number(*side) for side in piece.sides], 1) for piece in pieces]
        code = [e.min(1) * n + e.max(1) for e in ends]
        distinct, inverse = np.unique(np.concatenate(code), return_inverse=True)
        self.rounds = plan_rounds(n, np.stack([distinct // n, distinct % n], 1))
        where = np.split(inverse.reshape(-1), np.cumsum([len(e) for e in ends])[:-1])
        self.ties = [
            (piece, index_map(at, len(distinct)), end[:, 0] > end[:, 1])
            for piece, at, end in zip(pieces, where, ends, strict=True)
        ]
        count = f"{trees} tree{'s' * (trees > 1)} of {n} categorical variables"
        self.why = f"{count}, summed out in {len(self.rounds)} rounds"
        self.work = f"O({n} x {k}^3)"

    def _tables_of_ties(self, unary: Unary, tables: Tables) -> Float[Array, "edges K K"]:
        """The sum of the tables on every edge."""
        k = self.nodes.classes
        tie = jnp.zeros((), unary[next(iter(self.nodes.members))].dtype)
        for piece, index, reverse in self.ties:
            table = self.nodes.pad_table(piece.take(tables[piece.group]))
            table = _turn(jnp.broadcast_to(table, (piece.n, k, k)), reverse)
            tie = tie + index.add(table)
        return tie

    def draw(self, unary: Unary, tables: Tables, key: PRNGKeyArray, count: int) -> Classes:
        found = tree_classes(self.nodes.stack(unary), self._tables_of_ties(unary, tables), self.rounds, key, count)
        return self.nodes.columns(found)

    def solve(self, unary: Unary, tables: Tables, wanted: frozenset[int]) -> DiscreteSolution:
        found = discrete_tree(self.nodes.stack(unary), self._tables_of_ties(unary, tables), self.rounds)
        pairs: dict[int, list] = {}
        for piece, index, reverse in self.ties:
            if piece.group in wanted:
                rows, columns = (plane.event_shape[0] for plane, _ in piece.sides)
                joint = _turn(index.take(found.pairs), reverse)[:, :rows, :columns]
                pairs.setdefault(piece.group, []).append((piece.rows, joint))
        return DiscreteSolution(found.log_partition, self.nodes.split(found.log_probs), pairs)


def _turn(tables: Float[Array, "m K K"], reverse: np.ndarray) -> Float[Array, "m K K"]:
    """Transpose the tables that run against their edge."""
    if not reverse.any():
        return tables
    turned = tables.swapaxes(1, 2)
    return turned if reverse.all() else jnp.where(reverse[:, None, None], turned, tables)
