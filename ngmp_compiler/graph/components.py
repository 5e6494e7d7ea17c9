"""Connected components of the coupled variables of a graph, and the shapes among them that have fast executors."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components


class Nodes:
    """One numbering for the variables of several planes."""

    def __init__(self, planes: dict[Any, int], wanted: list[Any]):
        self.planes = wanted
        self.offset, total = {}, 0
        for plane in wanted:
            self.offset[plane] = total
            total += planes[plane]
        self.size = total
        self.bounds = np.asarray([self.offset[p] for p in wanted] + [total])

    def plane_of(self, nodes: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def split(self, nodes: np.ndarray) -> dict[Any, np.ndarray]:
        """Positions by plane."""
        which = self.plane_of(nodes)
        return {p: nodes[which == i] - self.offset[p] for i, p in enumerate(self.planes) if (which == i).any()}


class Components(NamedTuple):
    """`label[i]` is the component of node i; `edges` are the distinct coupled pairs, `ties` how often each occurs."""

    label: np.ndarray
    count: int
    edges: np.ndarray  # (E, 2), smaller node first
    ties: np.ndarray  # (E,)
    degree: np.ndarray  # distinct neighbours of each node


def components(size: int, pairs: np.ndarray) -> Components:
    """Components of `size` nodes under coupled pairs (m, 2)."""
    if len(pairs) == 0:
        return Components(np.arange(size), size, np.empty((0, 2), int), np.empty(0, int), np.zeros(size, int))
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    if (high - low == 1).all() and (low[1:] > low[:-1]).all():
        return _runs(size, low)
    code = low.astype(np.int64) * size + high
    if (code[1:] > code[:-1]).all():  # as in a chain; sorting a million pairs takes as long as all else here
        ties = np.ones(len(code), int)
    else:
        code, ties = np.unique(code, return_counts=True)
    edges = np.stack([code // size, code % size], axis=1)
    degree = np.bincount(edges.reshape(-1), minlength=size)
    matrix = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(size, size))
    count, label = connected_components(matrix, directed=False)
    return Components(label, count, edges, ties, degree)


def _runs(size: int, low: np.ndarray) -> Components:
    """Components where nodes are tied to the next one only, as in chains declared in order: no search is needed."""
    tied = np.zeros(size + 1, bool)
    tied[low + 1] = True  # to the one before
    label = np.cumsum(~tied[:-1]) - 1
    degree = tied[:-1].astype(int) + tied[1:]
    return Components(label, int(label[-1]) + 1, np.stack([low, low + 1], 1), np.ones(len(low), int), degree)


def private_nodes(nodes: Nodes, functionals: list[Any], touched: list[np.ndarray], anchored: np.ndarray) -> np.ndarray:
    """Scalars that one functional of three or more variables ties to others, and no other functional does.

    They must be `anchored` and stand in the same places of all its rows, each in one; then they can be integrated out
    of it together.
    """
    count = np.zeros(nodes.size, int)  # in how many places of functionals of several variables
    for t in touched:
        if len(t) > 1:
            count += np.bincount(t.reshape(-1), minlength=nodes.size)
    private = np.zeros(nodes.size, bool)
    for f, t in zip(functionals, touched, strict=True):
        if len(t) < 3 or f.width is not None:
            continue
        for link, at in zip(f.links, t, strict=True):
            if not link.plane.event_shape and (count[at] == 1).all() and anchored[at].all():
                private[at] = True
    return private


class Shape(NamedTuple):
    """A component: its nodes, and the order along its path if it is one, or its hub if it is a star."""

    nodes: np.ndarray
    path: np.ndarray | None
    hub: int | None
    tree: bool = False  # no cycles, every pair tied once


def shapes(found: Components) -> list[Shape]:
    """Every component with more than one node."""
    size = np.bincount(found.label, minlength=found.count)
    tied = np.bincount(found.label[found.edges[:, 0]], minlength=found.count)
    repeated = np.zeros(found.count, bool)
    repeated[found.label[found.edges[found.ties > 1, 0]]] = True
    order = np.argsort(found.label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(size)])
    top = np.maximum.reduceat(found.degree[order], starts[:-1])
    by_label = np.argsort(found.label[found.edges[:, 0]], kind="stable")
    edge_starts = np.concatenate([[0], np.cumsum(tied)])
    out = []
    for c in np.flatnonzero(size > 1):
        nodes = order[starts[c] : starts[c + 1]]
        edges = found.edges[by_label[edge_starts[c] : edge_starts[c + 1]]]
        tree = tied[c] == size[c] - 1 and not repeated[c]
        path = _path(nodes, edges, found.degree) if tree and top[c] <= 2 else None
        hub = int(nodes[found.degree[nodes].argmax()]) if tree and top[c] == size[c] - 1 else None
        out.append(Shape(nodes, path, hub, bool(tree)))
    return out


def _path(nodes: np.ndarray, edges: np.ndarray, degree: np.ndarray) -> np.ndarray:
    if (edges[:, 1] - edges[:, 0] == 1).all():  # declared in order
        return nodes
    local = np.searchsorted(nodes, edges)
    n = len(nodes)
    matrix = coo_array((np.ones(len(edges), np.int8), (local[:, 0], local[:, 1])), shape=(n, n)).tocsr()
    start = int(np.flatnonzero(degree[nodes] == 1)[0])
    return nodes[breadth_first_order(matrix, start, directed=False, return_predecessors=False)]
