"""Shared frontiers: a variable that N factors touch is a sum of N messages, and the cavity of each leaves one out.

Gaussian frontiers belong to their executors; here are the planes whose marginals are sums of messages and nothing else.
"""

from typing import NamedTuple

import jax
import numpy as np

from ngmp_kernels.families import AbstractFamily

from ..executors import Rows, leave_one_out
from ..graph.planes import Plane
from ..schedule.choose import Plan


class Frontier(NamedTuple):
    """The projected interfaces on the variables of a plane: their leaves' keys and positions, end to end."""

    plane: Plane
    keys: tuple[str, ...]
    positions: tuple[np.ndarray, ...]
    rows: Rows

    def cavities(
        self, totals: dict[Plane, AbstractFamily], leaves: dict[str, AbstractFamily]
    ) -> dict[str, AbstractFamily]:
        """For every leaf the sum of the fixed messages and of all other leaves."""
        if any(key not in leaves for key in self.keys):
            return {}
        parts = [jax.tree.leaves(leaves[key]) for key in self.keys]
        fixed = jax.tree.leaves(totals[self.plane])
        entries = [
            [x + total[at] for x, at in zip(leave_one_out(self.rows, list(each)), self.positions, strict=True)]
            for each, total in zip(zip(*parts, strict=True), fixed, strict=True)
        ]
        tree = jax.tree.structure(totals[self.plane])
        return {key: jax.tree.unflatten(tree, x) for key, *x in zip(self.keys, *entries, strict=True)}


def frontiers(plan: Plan) -> list[Frontier]:
    """The planes of which factors of several interfaces, which look at each other's cavities, touch a variable; but
    for those with an index that is an input, whose rows cannot be sorted while compiling."""
    ends: dict[Plane, list[tuple[str, np.ndarray]]] = {}
    wanted, given = set(), set()
    for group in plan.groups:
        for key, edge in zip(group.keys, group.edges, strict=True) if group.projected else ():
            if edge.plane is not None and edge.family.core == "product":
                ends.setdefault(edge.plane, []).append((key, edge.index.positions))
                wanted |= {edge.plane} if len(group.edges) > 1 else set()
                given |= {edge.plane} if edge.index.kind == "given" else set()
    out = []
    for plane in (p for p in ends if p in wanted - given):
        keys, positions = zip(*ends[plane], strict=True)
        out.append(Frontier(plane, keys, positions, Rows(np.concatenate(positions), plan.planes[plane])))
    return out
