"""Time slices of a discrete network: layers such that tables touch one layer or two neighbouring ones, over and over.

Layers are breadth-first distances from an end of the network: a table ties its variables together, so that their
distances differ by one at most. Layers are alike where the same groups have as many tables in each, between variables
in the same places; the longest run of such layers is rolled, and what is left at either end is summed out before and
after it. Variables that are tied to a large share of all others (a class of a whole sequence, say) are in no layer:
they are carried along. Everything here is numpy, with no loop over variables.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

LEAST_STEPS = 4  # fewer are not worth a loop
_HUB = 16  # a variable tied to one in so many of all others is carried along


class Block(NamedTuple):
    """S networks of one shape. Local variables are the ones that come in, then the block's own.

    `ties` are (tie, rows (S,), local variables of the table); rows count the tables of a tie in this part.
    """

    incoming: np.ndarray  # what comes in to the first of them
    own: np.ndarray  # (S, variables)
    ties: list[tuple[int, np.ndarray, tuple[int, ...]]]
    keep: tuple[int, ...]  # what the next block is tied to, in the order in which it comes in there


class Slices(NamedTuple):
    """A network as a head, S equal steps and, unless it is empty, a tail."""

    head: Block
    steps: Block
    tail: Block | None


def slices(planes: np.ndarray, ends: list[np.ndarray]) -> list[Slices]:
    """The layouts found from either end, for n variables.

    Args:
        planes: what kind of variable each is, (n,).
        ends: the variables (tables, sides) of the tables of every tie.
    """
    n = len(planes)
    pairs = [np.stack([e[:, i], e[:, j]], 1) for e in ends for i in range(e.shape[1]) for j in range(i)]
    edges = np.concatenate([p for p in pairs if len(p)])
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    hub = np.bincount(edges.reshape(-1), minlength=n) * _HUB > max(n, 4 * _HUB**2)
    edges = edges[~hub[edges].any(1)]
    if len(edges) == 0:
        return []
    matrix = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
    matrix = matrix + matrix.T

    def layers(start: int) -> np.ndarray:
        return np.where(hub, -1.0, dijkstra(matrix, indices=start, unweighted=True))

    first = layers(int(np.flatnonzero(~hub)[0]))
    if np.isinf(first).any():  # several networks that only hubs tie together
        return []
    out, end = [], int(first.argmax())
    for _ in range(2):
        layer = layers(end).astype(int)
        found = _layout(layer, hub, planes, ends)
        out += [found] if found else []
        end = int(layer.argmax())
    return out


def _layout(layer: np.ndarray, hub: np.ndarray, planes: np.ndarray, ends: list[np.ndarray]) -> Slices | None:
    count = int(layer.max()) + 1
    tops = [layer[e].max(1) if len(e) else np.empty(0, int) for e in ends]
    columns = np.stack([np.bincount(layer[~hub], minlength=count), *(np.bincount(np.maximum(t, 0), minlength=count)
                                                                     for t in tops)])  # fmt: skip
    start, stop = _longest(np.append(False, (columns[:, 1:] == columns[:, :-1]).all(0)), None)
    if stop - start < LEAST_STEPS + 1:
        return None
    # The tables of every layer of the run, (layers, tables), in the order of their rows.
    rows = []
    for t in tops:
        chosen = np.flatnonzero((t >= start) & (t < stop))
        rows.append(chosen[np.argsort(t[chosen], kind="stable")].reshape(stop - start, -1))
    scopes = [e[r] for e, r in zip(ends, rows, strict=True)]  # (layers, tables, sides)
    run = np.arange(start, stop)
    # The variables of a layer, in the order in which its tables name them.
    middle = (stop - start) // 2
    named: dict[int, tuple[int, int, int]] = {}
    for i, scope in enumerate(scopes):
        for j, side in np.ndindex(scope.shape[1:]):
            if layer[scope[middle, j, side]] == run[middle]:
                named.setdefault(int(scope[middle, j, side]), (i, j, side))
    own = np.stack([scopes[i][:, j, side] for i, j, side in named.values()], 1)  # (layers, m)
    place = np.full(len(planes), len(planes))  # of a variable that has none, like no other
    place[own] = np.arange(own.shape[1])
    ordered = (layer[own] == run[:, None]).all(1) & (place[own] == np.arange(own.shape[1])).all(1)
    ordered &= (planes[own] == planes[own[middle]]).all(1)
    place[hub] = -1 - np.arange(hub.sum())  # hubs are told apart too
    alike = ordered & np.append(False, ordered[:-1])
    codes = [np.where(hub[s], place[s], 2 * place[s] + (layer[s] == run[:, None, None])) for s in scopes]
    for code in codes:
        alike &= (code == code[middle]).all((1, 2))
    low, high = _longest(alike, middle)
    out = sorted({int(x) // 2 for code in codes for x in code[middle].flat if x >= 0 and x % 2 == 0})
    high = _end(high, run, own, out, layer, tops, ends)
    if high - low < LEAST_STEPS:
        return None
    carried = np.flatnonzero(hub)
    inside = _local(codes, rows, low, high, middle, out, len(carried))
    steps = Block(
        np.concatenate([carried, own[low - 1, out]]), own[low:high], inside,
        (*range(len(carried)), *(len(carried) + len(out) + i for i in out)),
    )  # fmt: skip
    before, after = int(run[low]) - 1, int(run[high - 1])
    head = _end_block(np.empty(0, int), layer <= before, lambda t: t <= before, tops, ends)
    numbers = {int(x): i for i, x in enumerate(head.own[0])}
    head = head._replace(keep=tuple(numbers[int(x)] for x in steps.incoming))
    arrives = np.concatenate([carried, own[high - 1, out]])
    tail = _end_block(arrives, layer > after, lambda t: t > after, tops, ends) if after < count - 1 else None
    return Slices(head, steps, tail)


def _longest(flags: np.ndarray, around: int | None) -> tuple[int, int]:
    """The run of true flags around a centre; without one the longest, and the element before it."""
    if around is not None:
        bad = np.flatnonzero(~flags)
        low = bad[bad < around].max(initial=-1) + 1
        return int(low), int(bad[bad > around].min(initial=len(flags)))
    bounds = np.flatnonzero(np.concatenate([[True], ~flags[1:], [True]]))
    k = int(np.diff(bounds).argmax())
    return int(bounds[k]), int(bounds[k + 1])


def _end(high: int, run: np.ndarray, own: np.ndarray, out: list[int], layer: np.ndarray, tops: list, ends: list) -> int:
    """One layer less, if later tables are tied to more of the last one than to what steps hand on."""
    last = int(run[high - 1])
    handed = np.zeros(len(layer), bool)
    handed[own[high - 1, out]] = True
    for e, top in zip(ends, tops, strict=True):
        after = e[top > last]
        if ((layer[after] == last) & ~handed[after]).any():
            return high - 1
    return high


def _local(codes: list, rows: list, low: int, high: int, middle: int, out: list[int], hubs: int) -> list:
    """The tables of a step between its local variables."""
    local = {2 * i + 1: hubs + len(out) + i for i in range(1 + max(int(c.max(initial=0)) for c in codes) // 2)}
    local |= {2 * i: hubs + k for k, i in enumerate(out)} | {-1 - k: k for k in range(hubs)}
    return [
        (t, r[low:high, j], tuple(local[int(x)] for x in code[middle, j]))
        for t, (code, r) in enumerate(zip(codes, rows, strict=True))
        for j in range(r.shape[1])
    ]


def _end_block(incoming: np.ndarray, members: np.ndarray, chosen, tops: list, ends: list) -> Block:
    """What lies before or after the steps."""
    own = np.flatnonzero(members)
    number = {int(x): i for i, x in enumerate(np.concatenate([incoming, own]))}
    ties = [
        (t, np.asarray([row]), tuple(number[int(x)] for x in e[row]))
        for t, (e, top) in enumerate(zip(ends, tops, strict=True))
        for row in np.flatnonzero(chosen(top))
    ]
    return Block(incoming, own[None], ties, ())
