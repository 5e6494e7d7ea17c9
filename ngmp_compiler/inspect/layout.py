"""Where a drawing has its items, the curves between them, and the labels of these.

Blocks, and the items inside each block, are stacked in layers with parents on top. It is our own: plates inside plates
need clusters, which Graphviz has, but that is a program to be installed. Libraries in pure Python were not measured.
"""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

GAP, PAD, BOW, LEADING = 42.0, 20.0, 34.0, 15.0

Id = tuple[str, Any]  # ("variable", name), ("factor", group), ("data", group), ("leaf", (group, interface))
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


def text_width(text: str, size: float = 12.0) -> float:
    narrow, wide = "fijlrt.,:;|!'()[]/ -", "mwMW@%&<>=+~#"
    return size * sum(0.38 if c in narrow else 0.98 if c in wide else 0.75 if c.isupper() else 0.64 for c in text)


# -- layers -----------------------------------------------------------------------------------------------------------


class _Tie(NamedTuple):
    """`below` hangs under `above`, best with its centre `dx` to the right; `y` is how deep inside `below` it hooks."""

    above: Any
    below: Any
    dx: float
    y: float


def _depths(nodes: list[Any], ties: list[_Tie]) -> dict[Any, int] | None:
    """Layers, parents above; a root stands just above the first that needs it. None if there is a cycle."""
    parents = {k: {t.above for t in ties if t.below == k} for k in nodes}
    depth: dict[Any, int] = {}
    while len(depth) < len(nodes):
        ready = [k for k in nodes if k not in depth and parents[k] <= depth.keys()]
        if not ready:
            return None
        depth.update({k: 1 + max((depth[p] for p in parents[k]), default=-1) for k in ready})
    for k in nodes:
        below = [depth[t.below] for t in ties if t.above == k]
        if below and not parents[k]:
            depth[k] = min(below) - 1
    return depth


def _settle(wish: list[float], weight: list[int], gaps: list[float]) -> list[float]:
    """min sum weight (x - wish)^2 with x[i+1] - x[i] >= gaps[i]: isotonic regression, by pooling violators."""
    least = np.concatenate([[0.0], np.cumsum(gaps)])
    pools: list[list[float]] = []  # mean, weight, number
    for u, w in zip(np.asarray(wish) - least, weight, strict=True):
        pools.append([float(u), w, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, v, m), (b, w, n) = pools[-2:]
            pools[-2:] = [[(v * a + w * b) / (v + w), v + w, m + n]]
    return [u + at for u, at in zip([u for u, _, n in pools for _ in range(int(n))], least.tolist(), strict=True)]


def _place(nodes: list[Any], ties: list[_Tie], room: dict[Any, Box]) -> dict[Any, Point]:
    """Layered layout: centres (x, y), everyone as near to straight under their parents as room allows."""
    depth = _depths(nodes, ties)
    assert depth is not None
    rows = [[k for k in nodes if depth[k] == level] for level in range(max(depth.values()) + 1)]
    wants: dict[Any, list[tuple[Any, float]]] = {k: [] for k in nodes}
    for t in ties:
        wants[t.below].append((t.above, t.dx))
        wants[t.above].append((t.below, -t.dx))
    # Of the roots, those needed deepest inside another node stand leftmost: their edges pass where no words are.
    deep = {k: min([(-t.y, -t.dx) for t in ties if t.above == k], default=(0.0, 0.0)) for k in nodes}
    x: dict[Any, float] = {}

    def settle(row: list[Any]) -> None:
        near = {k: [x[p] + dx for p, dx in wants[k] if p in x] or [x.get(k, 0.0)] for k in row}
        wish = {k: float(np.mean(v)) for k, v in near.items()}
        if not x.keys() >= set(row):  # the first time, also find the order
            row.sort(key=lambda k: (wish[k] if any(p in x for p, _ in wants[k]) else np.inf, deep[k]))
        gaps = [room[a][2] + 28.0 + room[b][0] for a, b in zip(row, row[1:], strict=False)]
        x.update(zip(row, _settle([wish[k] for k in row], [len(near[k]) for k in row], gaps), strict=True))

    for _ in range(60):
        before = dict(x)
        for row in rows:
            settle(row)
        if before and max(abs(x[k] - before[k]) for k in nodes) < 0.05:
            break
    at, y = {}, 0.0
    for row in rows:
        y += max(room[k][1] for k in row)
        at.update({k: (x[k], y) for k in row})
        y += max(room[k][3] for k in row) + GAP
    return at


def bounding_box(keys: Iterable[Any], at: dict[Any, Point], room: dict[Any, Box]) -> Box:
    boxes = np.asarray([(x - r[0], y - r[1], x + r[2], y + r[3]) for x, y, r in ((*at[k], room[k]) for k in keys)])
    boxes = boxes if len(boxes) else np.zeros((1, 4))  # a model that declares nothing
    return (*boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist())


def acyclic(levels: list[dict[Id, Id]], pairs: list[tuple[Id, Id]]) -> bool:
    """Whether layers can be found at every level."""
    for inner, outer in zip(levels, levels[1:], strict=False):
        ties = [_Tie(inner[a], inner[b], 0.0, 0.0) for a, b in pairs if inner[a] != inner[b] and outer[a] == outer[b]]
        if _depths(list(dict.fromkeys(inner.values())), ties) is None:
            return False
    return True


def lay_out(
    levels: list[dict[Id, Id]], pairs: list[tuple[Id, Id]], room: dict[Id, Box], framed: set[Id]
) -> dict[Id, Point]:
    """Centres of all items: every level is placed by one rule, inside out.

    Args:
        levels: the head of what each item belongs to, from itself to the whole; equal ones are placed together.
        pairs: items above and below each other.
        room: of every item, about its centre.
        framed: heads that need room for a frame.
    """
    at = {k: (0.0, 0.0) for k in room}
    for inner, outer in zip(levels, levels[1:], strict=False):
        wider: dict[Id, Box] = {}
        for head in dict.fromkeys(outer.values()):
            keys = [k for k in at if outer[k] == head]
            nodes = list(dict.fromkeys(inner[k] for k in keys))
            ties = [
                _Tie(inner[a], inner[b], at[a][0] - at[b][0], at[b][1])
                for a, b in pairs
                if outer[a] == outer[b] == head and inner[a] != inner[b]
            ]
            place = _place(nodes, ties, room)
            left, top, right, bottom = bounding_box(nodes, place, room)
            x = place[nodes[0]][0]
            pad = PAD if head in framed else 0.0
            wider[head] = (x - left + pad, pad, right - x + pad, bottom - top + 1.7 * pad)
            at.update({k: (at[k][0] + place[inner[k]][0] - x, at[k][1] + place[inner[k]][1] - top) for k in keys})
        room = wider
    return at


# -- edges ------------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A cubic between two nodes."""

    points: np.ndarray  # (4, 2)
    label: str
    arrow: bool

    @property
    def samples(self) -> np.ndarray:
        t = np.linspace(0.0, 1.0, 41)[:, None]
        a, b, c, d = self.points
        return (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d


def _hits(points: np.ndarray, boxes: list[Box]) -> int:
    if not boxes:
        return 0
    left, top, right, bottom = np.asarray(boxes).T[:, :, None]
    x, y = points.T
    return int(((left < x) & (x < right) & (top < y) & (y < bottom)).sum())


def route(a: Box, b: Box, label: str, loop: bool, boxes: list[Box]) -> Curve:
    """A curve from one node to another (each x, y, half width, half height) that crosses as few boxes as it can."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = (a, b) if loop or a[1] < b[1] else (b, a)
    d = np.asarray([x1 - x0, y1 - y0])
    start = (x0, y0) + d / np.hypot(d[0] / w0, d[1] / h0)
    line = np.asarray([x1, y1]) - d / np.hypot(d[0] / w1, d[1] / h1) - start
    lanes = [min(x0 - w0, x1 - w1) - far * BOW for far in (1.0, 2.5, 4.5, 7.0)]
    bows = [[(x0 - w0, y0), (lane, y0), (lane, y1), (x1 - w1, y1)] for lane in lanes]
    if loop or y0 == y1:
        return Curve(np.asarray(bows[0]), label, loop)
    top, bottom = y0 + h0, y1 - h1
    tries: list[Any] = [[start, start + line / 3, start + 2 * line / 3, start + line]]
    tries += [[(x0, top), (x0, top + u * (bottom - top)), (x1, bottom - v * (bottom - top)), (x1, bottom)]
              for u, v in ((0.5, 0.5), (0.9, 0.2), (0.2, 0.9))]  # fmt: skip
    side = x1 - w1 if x0 < x1 else x1 + w1
    tries += [[(x0, top), (x0, top + 0.7 * (y1 - top)), (x0 + 0.3 * (side - x0), y1), (side, y1)], *bows]
    if min(w0, w1) < 1.0:  # a bare end of a line: lines meet there without a kink
        tries = tries[1:]
    right = (max(x0 + w0, x1 + w1) + far * BOW for far in (1.0, 2.5, 4.5))
    tries += [[(x0, top), (lane, top + u * (bottom - top)), (lane, bottom - u * (bottom - top)), (x1, bottom)]
              for lane in right for u in (0.0, 0.4)]  # fmt: skip
    curves = [Curve(np.asarray(points), label, False) for points in tries]
    free = (c for c in curves if not _hits(c.samples, boxes))
    return next(free, None) or min(curves, key=lambda c: _hits(c.samples, boxes))


def label_box(curve: Curve, lines: np.ndarray, boxes: list[Box]) -> Box:
    """A free place beside the curve for its label."""
    half, points, best = text_width(curve.label, 11.0) / 2, curve.samples, []
    for away, i in itertools.product((0.0, 7.0, 14.0), (20, 16, 24, 12, 28, 9, 31, 6, 34)):
        for side in (-1, 1):
            dx, dy = (points[i + 1] - points[i - 1]) / np.hypot(*(points[i + 1] - points[i - 1]))
            far = side * (abs(dy) * half + abs(dx) * 6.0 + 5.0 + away)  # until the line has the box on one side
            x, y = points[i, 0] + dy * far, points[i, 1] - dx * far
            box = (x - half, y - 8.0, x + half, y + 8.0)
            across, along = np.meshgrid(np.linspace(box[0], box[2], 9), np.linspace(box[1], box[3], 5))
            grid = np.stack([across.reshape(-1), along.reshape(-1)], 1)
            best.append((10 * _hits(grid, boxes) + _hits(lines, [box]), len(best), box))
            if best[-1][0] == 0:
                return box
    return min(best)[2]
