"""Connected components of the coupled variables of a graph, and the shapes among them that have fast executors."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components


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
    low, high = pairs.min(1), pairs.max(1)
    code, ties = np.unique(low.astype(np.int64) * size + high, return_counts=True)
    edges = np.stack([code // size, code % size], axis=1)
    degree = np.bincount(edges.reshape(-1), minlength=size)
    matrix = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(size, size))
    count, label = connected_components(matrix, directed=False)
    return Components(label, count, edges, ties, degree)


class Shape(NamedTuple):
    """A component: its nodes, and the order along its path if it is one, or its hub if it is a star."""

    nodes: np.ndarray
    path: np.ndarray | None
    hub: int | None


def shapes(found: Components) -> list[Shape]:
    """Every component with more than one node."""
    size = np.bincount(found.label, minlength=found.count)
    tied = np.bincount(found.label[found.edges[:, 0]], minlength=found.count)
    repeated = np.zeros(found.count, bool)
    repeated[found.label[found.edges[found.ties > 1, 0]]] = True
    top = np.zeros(found.count, int)
    np.maximum.at(top, found.label, found.degree)
    order = np.argsort(found.label, kind="stable")
    starts = np.concatenate([[0], np.cumsum(size)])
    by_label = np.argsort(found.label[found.edges[:, 0]], kind="stable")
    edge_starts = np.concatenate([[0], np.cumsum(tied)])
    out = []
    for c in np.flatnonzero(size > 1):
        nodes = order[starts[c] : starts[c + 1]]
        edges = found.edges[by_label[edge_starts[c] : edge_starts[c + 1]]]
        tree = tied[c] == size[c] - 1 and not repeated[c]
        path = _path(nodes, edges, found.degree) if tree and top[c] <= 2 else None
        hub = int(nodes[found.degree[nodes].argmax()]) if tree and top[c] == size[c] - 1 else None
        out.append(Shape(nodes, path, hub))
    return out


def _path(nodes: np.ndarray, edges: np.ndarray, degree: np.ndarray) -> np.ndarray:
    if (edges[:, 1] - edges[:, 0] == 1).all():  # declared in order
        return nodes
    local = np.searchsorted(nodes, edges)
    n = len(nodes)
    matrix = coo_array((np.ones(len(edges), np.int8), (local[:, 0], local[:, 1])), shape=(n, n)).tocsr()
    start = int(np.flatnonzero(degree[nodes] == 1)[0])
    return nodes[breadth_first_order(matrix, start, directed=False, return_predecessors=False)]
