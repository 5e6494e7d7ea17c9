"""Layouts of loopy Gaussian parts: along a band, with a border, or as one dense block, whichever costs less.

The variables of a part go in reverse Cuthill-McKee order, and its bandwidth b is the largest distance in dimensions
between variables that one functional ties. Variables with many more neighbours than the rest (an intercept, regression
weights) would make any band as wide as the part, so a few thresholds on the number of neighbours are tried: what is
above it goes to the border. The cost of a sweep, in multiply-adds, is

- dense, M dimensions: 1.7 M^3;
- banded, K blocks of s >= b and a border of k: K (6.2 s^3 + 3.5 s^2 k + s k^2) + 1.7 k^3,

and `STEP` for every block, which is what a step of a loop costs by itself.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ...graph.components import Nodes
from .joint import Layout

DENSE_LIMIT = 4096  # dimensions of a dense matrix
BAND_LIMIT = 2**26  # numbers in the blocks of a band
BLOCK = 16  # smaller ones do not pay for a step of the loop
STEP = 3e4


class Parts(NamedTuple):
    """Loopy parts: nodes (n,) sorted, the part of each, and the ends of functionals as places in `nodes`."""

    nodes: np.ndarray
    label: np.ndarray  # 0, 1, ...
    dims: np.ndarray  # dimensions of each node
    ends: list[np.ndarray]  # (links, rows) of every functional

    @property
    def count(self) -> int:
        return int(self.label.max()) + 1


class Arrangement(NamedTuple):
    """Of every part: K, s and k (0: nothing at the border), its cost, and whether it fits into memory.

    `offset` (n,) is the place of a node in the line of its part, or in its border where `at_border`.
    """

    blocks: np.ndarray
    size: np.ndarray
    border: np.ndarray
    cost: np.ndarray
    fits: np.ndarray
    offset: np.ndarray
    at_border: np.ndarray


def dense(parts: Parts) -> Arrangement:
    """Every part as one block."""
    total = np.bincount(parts.label, parts.dims, parts.count).astype(int)
    offset = _offsets(np.arange(len(parts.nodes)), parts)
    one, none = np.ones(parts.count, int), np.zeros(len(parts.nodes), bool)
    cost = 1.7 * total.astype(float) ** 3 + STEP
    return Arrangement(one, total, 0 * one, cost, total <= DENSE_LIMIT, offset, none)


def banded(parts: Parts) -> Arrangement:
    """Every part along a band, with the border that costs least."""
    pairs = [np.stack([e[i], e[j]], 1) for e in parts.ends for i in range(len(e)) for j in range(i)]
    size = len(parts.nodes)
    every = np.concatenate(pairs) if pairs else np.empty((0, 2), int)
    code = np.unique(every.min(1) * size + every.max(1))
    edges = np.stack([code // size, code % size], 1)
    edges = edges[edges[:, 0] != edges[:, 1]]
    degree = np.bincount(edges.reshape(-1), minlength=size)
    best = _band(parts, edges, np.zeros(size, bool))
    limit = degree.max(initial=0) // 2
    while limit >= 4:
        other = _band(parts, edges, degree > limit)
        better = (other.cost < best.cost) & (other.fits | ~best.fits) | (other.fits & ~best.fits)
        flags = (better,) * 5 + (better[parts.label],) * 2
        best = Arrangement(*(np.where(flag, y, x) for flag, x, y in zip(flags, best, other, strict=True)))
        limit //= 2
    return best


def _band(parts: Parts, edges: np.ndarray, at_border: np.ndarray) -> Arrangement:
    size, count = len(parts.nodes), parts.count
    inside = edges[~at_border[edges].any(1)]
    flags = np.ones(len(inside), np.int8)
    matrix = coo_array((flags, (inside[:, 0], inside[:, 1])), shape=(size, size))
    order = np.asarray(reverse_cuthill_mckee((matrix + matrix.T).tocsr(), symmetric_mode=True))
    line, last = order[~at_border[order]], order[at_border[order]]
    offset = np.zeros(size, int)
    for own in (line, last):
        offset[own] = _offsets(own, parts)[own]
    wide = np.zeros(count, int)
    for e in parts.ends:
        kept = ~at_border[e]
        low = np.where(kept, offset[e], np.iinfo(int).max).min(0)
        high = np.where(kept, offset[e] + parts.dims[e] - 1, -1).max(0)
        np.maximum.at(wide, parts.label[e[0]], np.where(kept.any(0), high - low, 0))
    np.maximum.at(wide, parts.label[line], parts.dims[line] - 1)
    total = np.bincount(parts.label[line], parts.dims[line], count).astype(int)
    k = np.bincount(parts.label[last], parts.dims[last], count).astype(int)
    s = np.maximum(np.maximum(wide, 1), np.minimum(BLOCK, np.maximum(total, 1)))
    blocks = np.maximum(-(-total // s), 1)
    f, g = s.astype(float), k.astype(float)
    cost = blocks * (6.2 * f**3 + 3.5 * f**2 * g + f * g**2 + STEP) + 1.7 * g**3 + STEP * (k > 0)
    fits = (blocks * f * (2 * f + g) <= 2 * BAND_LIMIT) & (k <= DENSE_LIMIT)
    return Arrangement(blocks, s, k, cost, fits, offset, at_border)


def _offsets(order: np.ndarray, parts: Parts) -> np.ndarray:
    """The first dimension, within its part, of every node that `order` lists."""
    order = order[np.argsort(parts.label[order], kind="stable")]
    ends = np.cumsum(parts.dims[order])
    starts = ends - parts.dims[order]
    label = parts.label[order]
    first = np.full(parts.count, 0)
    new = np.flatnonzero(np.diff(label, prepend=-1))
    first[label[new]] = starts[new]
    out = np.zeros(len(parts.nodes), int)
    out[order] = starts - first[label]
    return out


def classes(found: Arrangement, own: np.ndarray) -> list[np.ndarray]:
    """Parts that run side by side: their blocks, sizes and borders are small, or equal up to a factor of two."""
    blocks, size, border = (x[own] for x in found[:3])
    least = np.where(blocks > 1, 4, 1), BLOCK, np.where(border > 0, 4, 1)
    code = [np.ceil(np.log2(np.maximum(x, low))) for x, low in zip((blocks, size, border), least, strict=True)]
    where = np.unique(np.stack(code, 1), axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(where, kind="stable")
    return np.split(own[order], np.flatnonzero(np.diff(where[order])) + 1)


def layout(parts: Parts, found: Arrangement, own: np.ndarray, nodes: Nodes, sizes: dict) -> Layout:
    """The layout of some of the parts, one lane each."""
    blocks, s, k = (int(x[own].max()) for x in found[:3])
    lane = np.full(parts.count, -1)
    lane[own] = np.arange(len(own))
    mine = lane[parts.label]
    at = np.where(found.at_border, len(own) * blocks * s + mine * k, mine * blocks * s) + found.offset
    start = {}
    kept = mine >= 0
    for plane, positions in nodes.split(parts.nodes[kept]).items():
        start[plane] = np.full(sizes[plane], -1)
        start[plane][positions] = at[kept][np.searchsorted(parts.nodes[kept], positions + nodes.offset[plane])]
    return Layout(len(own), blocks, s, k, start)
