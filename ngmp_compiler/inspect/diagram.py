"""What a drawing of a plan shows and where: items, plates, layers and the curves between them.

Only static facts are read (names, classes, positions, shapes): the arrays inside a lowered plan are leaked tracers. A
site and what is tied to it one to one form a *block*, framed as a plate when it is repeated; blocks, and the items
inside each block, are stacked in layers with parents on top. Numbers are given the same room whatever they are, so
the drawing of a model does not depend on how many data there are.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..declare.variables import Variable
from ..executors import DiscreteIndependent, TablePiece
from ..graph.edges import Functional, TableEdge
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from ..schedule.choose import Plan

GAP, PAD, BOW, LEADING, MARGIN, HEAD = 42.0, 20.0, 34.0, 15.0, 28.0, 90.0

Id = tuple[str, Any]  # ("variable", name), ("factor", group), ("data", group), ("leaf", (group, interface))
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


class Item(NamedTuple):
    """A node: how often it occurs, half the size of its shape, the words beside it, and its room about the centre."""

    n: int
    half: Point
    lines: tuple[str, ...]
    words: float  # their width
    room: Box  # left, up, right, down: all positive


class Touch(NamedTuple):
    """Interface `j` of group `g` stands on variables called `name`; `out` if it declares them."""

    g: int
    j: int
    label: str
    name: str
    out: bool
    step: str  # "k-1 -> k" if the group touches the same name elsewhere too: through interface `base`
    base: int

    @property
    def chain(self) -> bool:
        return self.step.startswith("k")

    @property
    def loop(self) -> str:
        return f"{self.label}: {self.step}" if self.step and self.base != self.j else self.step


class _Curve(NamedTuple):
    points: np.ndarray  # (4, 2): a cubic
    label: str
    arrow: bool

    @property
    def samples(self) -> np.ndarray:
        t = np.linspace(0.0, 1.0, 41)[:, None]
        a, b, c, d = self.points
        return (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d


# -- what there is to draw --------------------------------------------------------------------------------------------


def _ends(group: FactorGroup, j: int) -> list[tuple[Plane, np.ndarray, str]]:
    """The variables under one interface: plane, positions (n,) and a label."""
    edge, label = group.edges[j], group.factor.interfaces[j]
    if edge is None:
        return []
    if isinstance(edge, Functional):
        return [(k.plane, k.index.positions, label if k.op == "scale" else f"{label} ({k.op})") for k in edge.links]
    if isinstance(edge, TableEdge):
        parts = zip(edge.sides, label.strip("()").split(", "), strict=True)
        return [(e.plane, e.index.positions, part) for e, part in parts]
    return [(edge.plane, edge.index.positions, label)]


def _inside(positions: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Which positions of a plane belong to the name that holds `at`, a consecutive run."""
    start = at.flat[0] if at.size else 0
    return (positions >= start) & (positions < start + at.size)


def find_touches(plan: Plan, g: int) -> list[Touch]:
    """Every name a group touches, once for each interface and position."""
    group = plan.groups[g]
    out = group.given.arguments.get("out")
    found = []
    for j in range(len(group.edges)):
        for plane, positions, label in _ends(group, j):
            mine = isinstance(out, Variable) and out.plane == plane and bool((positions == out.index).all())
            for name, (held, at) in plan.names.items():
                if held == plane and (inside := _inside(positions, at)).any():
                    found.append((j, label, name, mine, np.where(inside, positions, -1)))
    found.sort(key=lambda f: not f[3])  # what is declared comes first, and others are seen from there
    touches = []
    for j, label, name, mine, positions in found:
        base = next(f for f in found if f[2] == name)
        at = plan.names[name][1]
        step = _step(base[4], positions, at.shape)
        where = _end((positions >= 0).nonzero()[0], group.shape) or _end(np.unique(positions) - at.flat[0], at.shape)
        label += f", {where}" if where and not step else ""
        touches.append(Touch(g, j, label, name, mine, step, base[0]))
    return touches


def _end(index: np.ndarray, shape: tuple[int, ...]) -> str:
    """Whether flat indices are the first or last entries along the leading axis, and no others."""
    if not shape or shape[0] < 2 or len(index) != np.prod(shape[1:]):
        return ""
    return "first" if index[-1] < len(index) else "last" if index[0] == len(index) * (shape[0] - 1) else ""


def _step(base: np.ndarray, positions: np.ndarray, shape: tuple[int, ...]) -> str:
    """How far `positions` lag behind `base` along the leading axis, where both exist (-1 marks where not)."""
    both = (base >= 0) & (positions >= 0)
    lag = np.unique(base[both] - positions[both])
    if lag.tolist() in ([], [0]):
        return ""
    by, rest = divmod(int(lag[0]), int(np.prod(shape[1:])))
    return f"k{-by:+d} \N{RIGHTWARDS ARROW} k".replace("-", "\N{MINUS SIGN}") if len(lag) == 1 and not rest else "i, j"


def projected_interfaces(group: FactorGroup) -> list[int]:
    """The projected interfaces of a group."""
    return [] if group.conjugate else [j for j, edge in enumerate(group.edges) if edge is not None]


def find_components(plan: Plan) -> list[tuple[str, list[str], list[str]]]:
    """Executor, the names it solves and why, executors of one kind over the same names taken together."""
    rows: dict[tuple, list[tuple[str, str]]] = {}
    for executor in (*plan.gaussian, *plan.discrete):
        if isinstance(executor, DiscreteIndependent):
            parts = [(executor.plane, executor.positions)]
        else:
            parts = [
                part
                for piece in executor.pieces
                for part in (piece.sides if isinstance(piece, TablePiece) else [k[:2] for k in piece.links])
            ]
        names = tuple(n for n, (p, at) in plan.names.items() if any(p == q and _inside(x, at).any() for q, x in parts))
        cost = f"{executor.work} a sweep".replace(" x ", " \N{MULTIPLICATION SIGN} ")
        rows.setdefault((executor.name, names), []).append((executor.why, cost.replace(" ", "\N{NO-BREAK SPACE}")))
    for plane in plan.planes:
        if plane.family.core == "product":
            names = tuple(n for n, (p, _) in plan.names.items() if p == plane)
            rows.setdefault(("product", names), []).append(("coupled to nothing, messages are added", ""))
    return [
        (kind, list(names), [why + (f" ({len(found)} such parts)" if len(found) > 1 else ""), cost])
        for (kind, names), ((why, cost), *_) in rows.items()
        for found in [rows[kind, names]]
    ]


# -- room -------------------------------------------------------------------------------------------------------------


def text_width(text: str, size: float = 12.0) -> float:
    narrow, wide = "fijlrt.,:;|!'()[]/ -", "mwMW@%&<>=+~#"
    return size * sum(0.38 if c in narrow else 0.98 if c in wide else 0.75 if c.isupper() else 0.64 for c in text)


def steady(text: str) -> str:
    """Numbers take the room of five digits, so that the layout does not depend on them."""
    return re.sub(r"\d+", "00000", text)


def _item(n: int, half: Point, lines: list[str], left: float = 0.0, right: float = 0.0) -> Item:
    words = max(text_width(steady(line)) for line in lines)
    tall = max(half[1], LEADING / 2 * len(lines))
    return Item(n, half, tuple(lines), words, (max(half[0], left), tall, max(half[0] + 8 + words, right), tall))


def leaf_symbol(group: FactorGroup, j: int) -> str:
    return f"{group.factor.families[j].symbol}*"


def leaf_item(group: FactorGroup, j: int) -> Item:
    return _item(group.n, (max(15.0, text_width(leaf_symbol(group, j)) / 2 + 7), 14.0), [group.key(j)])


def leaf_row(group: FactorGroup) -> tuple[float, float, float]:
    """Room of the row of leaves that replaces a factor: distance of neighbours, left and right of the centre."""
    rooms = [leaf_item(group, j).room for j in projected_interfaces(group)] or [(0.0, 0.0, 0.0, 0.0)]
    left, right = max(r[0] for r in rooms), max(r[2] for r in rooms)
    pitch = left + 20.0 + right
    return pitch, left + pitch * (len(rooms) - 1) / 2, right + pitch * (len(rooms) - 1) / 2


def make_items(plan: Plan, touches: list[Touch]) -> dict[Id, Item]:
    items: dict[Id, Item] = {}
    loops = {t.name: 24.0 + BOW + text_width(t.loop, 11.0) for t in touches if t.step}
    own = {t.g: plan.names[t.name][1].size for t in touches if t.chain}
    for g, group in enumerate(plan.groups):
        site, kernel = group.name, type(group.factor).__name__
        fewer = group.n != own.get(g, group.n)  # a chain stands in the plate of its variables
        words = [site, kernel + (f" \N{MULTIPLICATION SIGN} {group.n}" if fewer else "")]
        items["factor", g] = _item(group.n, (11.0, 11.0), words, *leaf_row(group)[1:])
        if group.observed:
            masked = ", masked" if group.mask is not None else ""
            items["data", g] = _item(group.n, (6.0, 6.0), [f"data {group.shape}{masked}"])
    for name, (plane, at) in plan.names.items():
        beside = [str(plane), f"shape {at.shape}"]
        lines = beside if text_width(name, 14.0) <= 42.0 else [name, *beside]
        items["variable", name] = _item(at.size, (24.0, 24.0), lines, loops.get(name, 0.0))
    return items


# -- layout -----------------------------------------------------------------------------------------------------------


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


def _hierarchy(items: dict[Id, Item], touches: list[Touch], plates: bool) -> tuple[dict, dict]:
    """The stack of every item (a factor over what it declares or observes), and the block of every item.

    With `plates`, repeated neighbours of equal number share a block.
    """
    stack, block = {k: k for k in items}, {k: k for k in items}
    chains = {(t.g, t.name) for t in touches if t.chain}

    def join(group: dict[Id, Id], a: Id, b: Id) -> None:
        old, new = group[a], group[b]
        group.update({k: new for k, v in group.items() if v == old})

    for kind, g in items:
        if kind == "data":
            join(stack, ("data", g), ("factor", g))
            join(block, ("data", g), ("factor", g))
    for t in touches:
        a, b = ("factor", t.g), ("variable", t.name)
        if (t.g, t.name) in chains or (items[a].n == items[b].n and (t.out or (plates and items[a].n > 1))):
            join(block, a, b)
            if t.out and stack[b] == b:
                join(stack, a, b)
    return stack, block


def lay_out(plan: Plan, items: dict[Id, Item], touches: list[Touch]) -> tuple[dict[Id, Point], dict[Id, Id]]:
    """Centres of all items, and their blocks: stacks, blocks and the whole are placed by one rule, inside out."""
    age = {name: i for i, name in enumerate(plan.names)}
    pairs = [(("factor", k[1]), k) for k in items if k[0] == "data"]
    for t in touches:
        factor, variable = ("factor", t.g), ("variable", t.name)
        if t.out:
            pairs.append((factor, variable))
        elif age[t.name] < age.get(plan.groups[t.g].given.name, len(age)):  # others run backwards in time
            pairs.append((variable, factor))
    for plates in (True, False):
        stack, block = _hierarchy(items, touches, plates)
        ties = [_Tie(block[a], block[b], 0.0, 0.0) for a, b in pairs if block[a] != block[b]]
        if _depths(list(dict.fromkeys(block.values())), ties) is not None:
            break
    at = {k: (0.0, 0.0) for k in items}
    inner, room = {k: k for k in items}, {k: item.room for k, item in items.items()}
    for outer in (stack, block, dict.fromkeys(items, ("all", None))):
        wider: dict[Id, Box] = {}
        for head in dict.fromkeys(outer.values()):
            keys = [k for k in items if outer[k] == head]
            nodes = list(dict.fromkeys(inner[k] for k in keys))
            ties = [
                _Tie(inner[a], inner[b], at[a][0] - at[b][0], at[b][1])
                for a, b in pairs
                if outer[a] == outer[b] == head and inner[a] != inner[b]
            ]
            place = _place(nodes, ties, room)
            left, top, right, bottom = bounding_box(nodes, place, room)
            x = place[nodes[0]][0]
            pad = PAD if outer is block and items[head].n > 1 else 0.0
            wider[head] = (x - left + pad, pad, right - x + pad, bottom - top + 1.7 * pad)
            at.update({k: (at[k][0] + place[inner[k]][0] - x, at[k][1] + place[inner[k]][1] - top) for k in keys})
        inner, room = outer, wider
    return at, block


# -- edges ------------------------------------------------------------------------------------------------------------


def _hits(points: np.ndarray, boxes: list[Box]) -> int:
    if not boxes:
        return 0
    left, top, right, bottom = np.asarray(boxes).T[:, :, None]
    x, y = points.T
    return int(((left < x) & (x < right) & (top < y) & (y < bottom)).sum())


def route(a: Box, b: Box, label: str, loop: bool, boxes: list[Box]) -> _Curve:
    """A curve from one node to another (each x, y, half width, half height) that crosses as few boxes as it can."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = (a, b) if loop or a[1] < b[1] else (b, a)
    d = np.asarray([x1 - x0, y1 - y0])
    start = (x0, y0) + d / np.hypot(d[0] / w0, d[1] / h0)
    line = np.asarray([x1, y1]) - d / np.hypot(d[0] / w1, d[1] / h1) - start
    lane = min(x0 - w0, x1 - w1) - BOW
    bow = [(x0 - w0, y0), (lane, y0), (lane, y1), (x1 - w1, y1)]
    if loop or y0 == y1:
        return _Curve(np.asarray(bow), label, loop)
    top, bottom = y0 + h0, y1 - h1
    tries: list[Any] = [[start, start + line / 3, start + 2 * line / 3, start + line]]
    tries += [[(x0, top), (x0, top + u * (bottom - top)), (x1, bottom - v * (bottom - top)), (x1, bottom)]
              for u, v in ((0.5, 0.5), (0.9, 0.2), (0.2, 0.9))]  # fmt: skip
    side = x1 - w1 if x0 < x1 else x1 + w1
    tries += [[(x0, top), (x0, top + 0.7 * (y1 - top)), (x0 + 0.3 * (side - x0), y1), (side, y1)], bow]
    curves = [_Curve(np.asarray(points), label, False) for points in tries]
    free = (c for c in curves if not _hits(c.samples, boxes))
    return next(free, None) or min(curves, key=lambda c: _hits(c.samples, boxes))


def label_box(curve: _Curve, lines: np.ndarray, boxes: list[Box]) -> Box:
    """A free place beside the curve for its label."""
    half, points, best = text_width(curve.label, 11.0) / 2, curve.samples, []
    for i in (20, 16, 24, 12, 28, 9, 31):
        for side in (-1, 1):
            (x, y), (dx, dy) = points[i], points[i + 1] - points[i - 1]
            x += side * (half + 5.0 + 8.0 * min(abs(dx / dy) if dy else 2.0, 2.0))  # further from a flat line
            box = (x - half, y - 8.0, x + half, y + 8.0)
            across, along = np.meshgrid(np.linspace(box[0], box[2], 9), np.linspace(box[1], box[3], 5))
            grid = np.stack([across.reshape(-1), along.reshape(-1)], 1)
            best.append((10 * _hits(grid, boxes) + _hits(lines, [box]), len(best), box))
            if best[-1][0] == 0:
                return box
    return min(best)[2]
