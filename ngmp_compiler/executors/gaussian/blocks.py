"""Which variables of a part with given indices are eliminated first, and where everything stands then."""

from typing import Any, NamedTuple

import numpy as np

from ...graph.index import GivenMap
from ...graph.planes import Plane
from .part import GaussianPart


class Blocks(NamedTuple):
    """`count` blocks of `size` dimensions and a `border`; by plane and position, the block of a variable, -1 at the
    border, and its first dimension in the block or the border.

    Entries of the joint precision have addresses: those of all blocks, then those between blocks and border, then those
    of the border. Dimensions are numbered in the same order.
    """

    count: int
    size: int
    border: int
    block: dict[Plane, np.ndarray]
    first: dict[Plane, np.ndarray]

    @property
    def bounds(self) -> list[int]:
        inner = self.count * self.size**2
        return [inner, inner + self.count * self.size * self.border]

    @property
    def total(self) -> int:
        return self.bounds[1] + self.border**2

    @property
    def dimensions(self) -> int:
        return self.count * self.size + self.border

    def dimension(self, end: Any) -> Any:
        """The dimensions (n|1, d) of an end of a piece: of variables with a `block`, `first`, `d` and `inside`."""
        start = end.block * self.size if end.inside else self.count * self.size
        return (start + end.first)[:, None] + np.arange(end.d)

    def address(self, one: Any, other: Any) -> Any:
        """The addresses (n|1, d, e) of products of two ends; not of border and block in this order."""
        row = (one.first[:, None] + np.arange(one.d))[:, :, None]
        column = (other.first[:, None] + np.arange(other.d))[:, None]
        if not one.inside:
            return self.bounds[1] + row * self.border + column
        block = one.block[:, None, None]
        if other.inside:
            return (block * self.size + row) * self.size + column
        return self.bounds[0] + (block * self.size + row) * self.border + column

    def own(self, plane: Plane, positions: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
        """The dimensions (n, d) of some variables, and the addresses (n, d, d) of their own covariances."""
        block, first = self.block[plane][positions], self.first[plane][positions]
        inside = (block >= 0)[:, None, None]
        at = first[:, None] + np.arange(d)
        row, column = at[:, :, None], at[:, None]
        deep = (block[:, None, None] * self.size + row) * self.size + column
        outer = self.bounds[1] + row * self.border + column
        start = np.where(block >= 0, block * self.size, self.count * self.size)
        return start[:, None] + at, np.where(inside, deep, outer)


def arrange(part: GaussianPart) -> Blocks:
    """The blocks of a part: those of the largest plate that can be eliminated, and of others that go with it."""
    if "_blocks" not in part.__dict__:
        part.__dict__["_blocks"] = _arrange(part)
    return part.__dict__["_blocks"]


def _sizes(part: GaussianPart) -> np.ndarray:
    nodes = part.core.nodes
    sizes = np.asarray([p.event_shape[0] if p.event_shape else 1 for p in nodes.planes])
    return sizes[nodes.plane_of(np.arange(nodes.size))]


def _arrange(part: GaussianPart) -> Blocks:
    core, sizes = part.core, _sizes(part)
    inside = np.zeros(core.nodes.size, bool)
    inside[part.nodes] = True
    found = {table.tobytes(): table for _, table in core.tables() if inside[table[0]]}
    tables = sorted(found.values(), key=lambda t: -int(sizes[t].sum()))
    best = np.full(core.nodes.size, -1)
    for table in tables:
        block = np.full(core.nodes.size, -1)
        for other in (table, *tables):
            trial = block.copy()
            trial[other] = np.arange(len(other))
            new = len(other) == len(table) and len(np.unique(other)) == len(other) and (block[other] < 0).all()
            if new and _apart(core, trial):
                block = trial
            elif other is table:
                break
        if sizes[block >= 0].sum() > sizes[best >= 0].sum():
            best = block
    return _laid_out(part, best, sizes)


def _apart(core: Any, block: np.ndarray) -> bool:
    """Whether no functional ties variables of different blocks."""
    for (_, _, f), touched in zip(core.functionals, core.touched, strict=True):
        known, given = [], set()
        for link, t in zip(f.links, touched, strict=True):
            if not isinstance(link.index, GivenMap):
                known.append(block[t])
            elif (block[link.index.table + core.nodes.offset[link.plane]] >= 0).any():
                given.add(link.index.number)
        some = [b for b in known if (b >= 0).any()]
        if len(given) > 1 or (given and some):
            return False
        for i, one in enumerate(some):
            if any(((one >= 0) & (other >= 0) & (one != other)).any() for other in some[:i]):
                return False
    return True


def _laid_out(part: GaussianPart, block: np.ndarray, sizes: np.ndarray) -> Blocks:
    """Dimensions of the variables of a block, and of the border, one after the other."""
    nodes = part.core.nodes
    first = np.zeros(nodes.size, int)
    own = part.nodes[block[part.nodes] >= 0]
    order = own[np.argsort(block[own], kind="stable")]
    count = int(block.max()) + 1
    if count:
        within = order.reshape(count, -1)  # every block has one variable of each plate
        first[within] = np.cumsum(sizes[within], 1) - sizes[within]
    rest = np.sort(part.nodes[block[part.nodes] < 0])
    first[rest] = np.cumsum(sizes[rest]) - sizes[rest]
    by_plane = {p: slice(nodes.offset[p], nodes.offset[p] + part.core.planes[p]) for p in part.planes}
    size = int(sizes[within[0]].sum()) if count else 0
    return Blocks(
        count, size, int(sizes[rest].sum()), {p: block[x] for p, x in by_plane.items()},
        {p: first[x] for p, x in by_plane.items()},
    )  # fmt: skip
