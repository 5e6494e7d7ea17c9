"""Draw a plan as SVG: the declared factor graph on the left, its surrogate on the right.

Plain strings, no dependency. Only static facts are read (names, classes, positions, shapes): the arrays inside a
lowered plan are leaked tracers. A site and what is tied to it one to one form a *block*, framed as a plate when it is
repeated; blocks, and the items inside each block, are stacked in layers with parents on top. Numbers are given the same
room whatever they are, so the drawing of a model does not depend on how many data there are.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from ._expressions import Plane, Variable
from ._schedule import Plan
from ._type import FactorGroup, Functional, PairEdge
from .executors import DiscreteIndependent, PairPiece

INK, SOFT, LINE, FRAME, PAPER, PROJECTED, TINT = "#1d2733", "#5b6776", "#7b8794", "#b8c2cc", "#f6f8fa", "#c2570c", "#fff1e3"
COMPONENTS = ("#d5e6f7", "#d9efd9", "#e9def5", "#f8e3ea", "#f7eecb", "#d3eeec")
SYMBOLS = {"Gaussian": "N*", "MvGaussian": "N*"}
GAP, PAD, BOW, LEADING = 42.0, 20.0, 34.0, 15.0
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"

Id = tuple[str, Any]  # ("variable", name), ("factor", group), ("data", group), ("leaf", (group, interface))
Box = tuple[float, float, float, float]  # left, top, right, bottom


class _Item(NamedTuple):
    """A node: how often it occurs, half the size of its shape, the words beside it, and its room about the centre."""

    n: int
    half: tuple[float, float]
    lines: tuple[str, ...]
    room: Box  # left, up, right, down: all positive


class _Touch(NamedTuple):
    """Interface `j` of group `g` stands on variables called `name`; `out` if it declares them."""

    g: int
    j: int
    label: str
    name: str
    out: bool
    step: str  # "k-1 -> k" if the group touches the same name at another position too


class _Curve(NamedTuple):
    points: np.ndarray  # (4, 2): a cubic
    label: str
    arrow: bool

    @property
    def samples(self) -> np.ndarray:
        t = np.linspace(0.0, 1.0, 41)[:, None]
        a, b, c, d = self.points
        return (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d


# -- what there is to draw ----------------------------------------------------------------------------------------------


def _ends(group: FactorGroup, j: int) -> list[tuple[Plane, np.ndarray, str]]:
    """The variables under one interface: plane, positions (n,) and a label."""
    edge, label = group.edges[j], group.factor.interfaces[j]
    if edge is None:
        return []
    if isinstance(edge, Functional):
        return [(k.plane, k.index.positions, label if k.op == "scale" else f"{label} ({k.op})") for k in edge.links]
    if isinstance(edge, PairEdge):
        return [(e.plane, e.index.positions, part) for e, part in zip(edge, label.strip("()").split(", "), strict=True)]
    return [(edge.plane, edge.index.positions, label)]


def _touches(plan: Plan, g: int) -> list[_Touch]:
    """Every name a group touches, once for each interface and position."""
    group = plan.groups[g]
    out = group.given.arguments.get("out")
    found = []
    for j in range(len(group.edges)):
        for plane, positions, label in _ends(group, j):
            mine = isinstance(out, Variable) and out.plane == plane and bool((positions == out.index).all())
            for name, (held, at) in plan.names.items():
                if held == plane and at.size:
                    inside = (positions >= at.flat[0]) & (positions < at.flat[0] + at.size)
                    if inside.any():
                        found.append((j, label, name, mine, np.where(inside, positions, -1)))
    touches = []
    for j, label, name, mine, positions in sorted(found, key=lambda f: not f[3]):
        base = next(f[4] for f in sorted(found, key=lambda f: not f[3]) if f[2] == name)
        if group.n > 1 and (positions >= 0).nonzero()[0].tolist() == [0]:
            label += ", k = 1"
        touches.append(_Touch(g, j, label, name, mine, _step(base, positions, plan.names[name][1].shape)))
    return touches


def _step(base: np.ndarray, positions: np.ndarray, shape: tuple[int, ...]) -> str:
    """How far `positions` lag behind `base` along the leading axis, where both exist (-1 marks where not)."""
    both = (base >= 0) & (positions >= 0)
    lag = np.unique(base[both] - positions[both])
    if lag.tolist() in ([], [0]):
        return ""
    by, rest = divmod(int(lag[0]), int(np.prod(shape[1:])))
    return f"k{-by:+d} \N{RIGHTWARDS ARROW} k".replace("-", "\N{MINUS SIGN}") if len(lag) == 1 and not rest else "i, j"


def _leaves(group: FactorGroup) -> list[int]:
    """The projected interfaces of a group."""
    return [] if group.conjugate else [j for j, edge in enumerate(group.edges) if edge is not None]


def _components(plan: Plan) -> list[tuple[str, list[str], list[str]]]:
    """Executor, the names it solves and why, executors of one kind over the same names taken together."""
    rows: dict[tuple, list[tuple[str, str]]] = {}
    for executor in (*plan.gaussian, *plan.discrete):
        if isinstance(executor, DiscreteIndependent):
            parts = [(executor.plane, executor.positions)]
        else:
            parts = [
                part
                for piece in executor.pieces
                for part in (piece[2:4] if isinstance(piece, PairPiece) else [k[:2] for k in piece.links])
            ]
        names = tuple(n for n, (p, at) in plan.names.items() if any(p == q and np.isin(at, x).any() for q, x in parts))
        rows.setdefault((executor.name, names), []).append((executor.why, f"{executor.cost} a sweep".replace(" x ", " \N{MULTIPLICATION SIGN} ")))
    for plane in plan.planes:
        if plane.family.kind in ("gamma", "beta", "dirichlet", "bernoulli"):
            names = tuple(n for n, (p, _) in plan.names.items() if p == plane)
            rows.setdefault(("product", names), []).append(("coupled to nothing", "messages are added"))
    return [
        (kind, list(names), [why + (f" ({len(found)} such parts)" if len(found) > 1 else ""), cost])
        for (kind, names), ((why, cost), *_) in rows.items()
        for found in [rows[kind, names]]
    ]


# -- room ---------------------------------------------------------------------------------------------------------------


def _width(text: str, size: float = 12.0) -> float:
    narrow, wide = "fijlrt.,:;|!'()[]/ -", "mwMW@%"
    return size * sum(0.38 if c in narrow else 0.98 if c in wide else 0.75 if c.isupper() else 0.64 for c in text)


def _steady(text: str) -> str:
    """Numbers take the room of five digits, so that the layout does not depend on them."""
    return re.sub(r"\d+", "00000", text)


def _item(n: int, half: tuple[float, float], lines: list[str], left: float = 0.0, right: float = 0.0) -> _Item:
    words = max(_width(_steady(line)) for line in lines) + 8.0
    tall = max(half[1], LEADING / 2 * len(lines))
    return _Item(n, half, tuple(lines), (max(half[0], left), tall, max(half[0] + words, right), tall))


def _symbol(group: FactorGroup, j: int) -> str:
    family = group.factor.families[j].__name__
    return SYMBOLS.get(family, f"{family}*")


def _leaf_item(group: FactorGroup, j: int) -> _Item:
    return _item(group.n, (max(15.0, _width(_symbol(group, j)) / 2 + 7), 14.0), [group.key(j)])


def _row(group: FactorGroup) -> tuple[float, float, float]:
    """Room of the row of leaves that replaces a factor: distance of neighbours, left and right of the centre."""
    rooms = [_leaf_item(group, j).room for j in _leaves(group)] or [(0.0, 0.0, 0.0, 0.0)]
    left, right = max(r[0] for r in rooms), max(r[2] for r in rooms)
    pitch = left + 20.0 + right
    return pitch, left + pitch * (len(rooms) - 1) / 2, right + pitch * (len(rooms) - 1) / 2


def _items(plan: Plan, touches: list[_Touch]) -> dict[Id, _Item]:
    items: dict[Id, _Item] = {}
    loops = {t.name: 24.0 + BOW + _width(t.step, 11.0) for t in touches if t.step}
    own = {name: at.size for name, (_, at) in plan.names.items()}
    for g, group in enumerate(plan.groups):
        site, kernel = group.name, type(group.factor).__name__
        size = own.get(group.given.name, group.n)
        words = [site, kernel + (f" \N{MULTIPLICATION SIGN} {group.n}" if 1 < group.n != size else "")]
        items["factor", g] = _item(group.n, (11.0, 11.0), words, *_row(group)[1:])
        if group.observed:
            masked = ", masked" if group.mask is not None else ""
            items["data", g] = _item(group.n, (6.0, 6.0), [f"data {group.shape}{masked}"])
    for name, (plane, at) in plan.names.items():
        beside = [str(plane), f"shape {at.shape}"]
        lines = beside if _width(name, 14.0) <= 42.0 else [name, *beside]
        items["variable", name] = _item(own[name], (24.0, 24.0), lines, loops.get(name, 0.0))
    return items


# -- layout -------------------------------------------------------------------------------------------------------------


def _order(nodes: Iterable[Any], parents: dict[Any, set]) -> list[Any] | None:
    """Parents first, otherwise as given; None if there is a cycle."""
    waiting, done, out = list(nodes), set(), []
    while waiting:
        ready = [k for k in waiting if parents[k] <= done]
        if not ready:
            return None
        out += ready
        done |= set(ready)
        waiting = [k for k in waiting if k not in done]
    return out


def _blocks(items: dict[Id, _Item], touches: list[_Touch], plates: bool) -> dict[Id, Id]:
    """The block of every item, named by one of its items; with `plates`, repeated neighbours of equal number join."""
    block = {k: k for k in items}

    def join(a: Id, b: Id) -> None:
        old, new = block[a], block[b]
        block.update({k: new for k, v in block.items() if v == old})

    for kind, key in items:
        if kind == "data":
            join((kind, key), ("factor", key))
    for t in touches:
        a, b = ("factor", t.g), ("variable", t.name)
        same = items[a].n == items[b].n
        if t.step or (same and (t.out or (plates and items[a].n > 1))):
            join(a, b)
    return block


def _place(nodes: list[Any], parents: dict[Any, set], room: dict[Any, Box], rank: dict[Any, float]) -> dict[Any, tuple]:
    """Layered layout: centres (x, y), parents above, children under the mean of their parents."""
    ordered = _order(nodes, parents)
    assert ordered is not None
    depth: dict[Any, int] = {}
    for k in ordered:
        depth[k] = 1 + max((depth[p] for p in parents[k]), default=-1)
    for k in nodes:  # a root moves down to the first that needs it
        children = [depth[c] for c in nodes if k in parents[c]]
        if not parents[k] and children:
            depth[k] = min(children) - 1
    at: dict[Any, tuple] = {}
    y = 0.0
    for level in range(max(depth.values(), default=-1) + 1):
        row = [k for k in nodes if depth[k] == level]
        wish = {k: float(np.mean([at[p][0] for p in parents[k]])) for k in row if parents[k]}
        row.sort(key=lambda k: (wish.get(k, np.inf), -rank.get(k, 0.0)))
        xs: list[float] = []
        for i, k in enumerate(row):
            xs.append(xs[-1] + room[row[i - 1]][2] + 28.0 + room[k][0] if i else 0.0)
        shift = float(np.mean([wish[k] - x for k, x in zip(row, xs, strict=True) if k in wish])) if wish else 0.0
        y += max(room[k][1] for k in row)
        at.update({k: (x + shift, y) for k, x in zip(row, xs, strict=True)})
        y += max(room[k][3] for k in row) + GAP
    return at


def _bounds(keys: Iterable[Any], at: dict[Any, tuple], room: dict[Any, Box]) -> Box:
    boxes = np.asarray([(x - r[0], y - r[1], x + r[2], y + r[3]) for x, y, r in ((*at[k], room[k]) for k in keys)])
    return (*boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist())


def _layout(plan: Plan, items: dict[Id, _Item], touches: list[_Touch]) -> tuple[dict[Id, tuple], dict[Id, Id]]:
    """Centres of all items, and their blocks."""
    age = {name: i for i, name in enumerate(plan.names)}
    parents: dict[Id, set] = {k: {("factor", k[1])} if k[0] == "data" else set() for k in items}
    for t in touches:
        declared = plan.groups[t.g].given.name
        if t.out:
            parents["variable", t.name].add(("factor", t.g))
        elif age[t.name] < age.get(declared, len(age)):  # the rest runs backwards, as in a loop over two states
            parents["factor", t.g].add(("variable", t.name))
    for plates in (True, False):
        block = _blocks(items, touches, plates)
        heads = list(dict.fromkeys(block.values()))
        above = {b: {block[p] for k in items if block[k] == b for p in parents[k]} - {b} for b in heads}
        if _order(heads, above) is not None:
            break
    room = {k: item.room for k, item in items.items()}
    inner: dict[Id, dict] = {}
    outer: dict[Id, Box] = {}
    for b in heads:
        members = [k for k in items if block[k] == b]
        inside = {k: {p for p in parents[k] if block[p] == b} for k in members}
        at = _place(members, inside, room, {})
        entry = [k for k in members if parents[k] - inside[k]] or [k for k in members if not inside[k]]
        x = float(np.mean([at[k][0] for k in entry]))
        left, top, right, bottom = _bounds(members, at, room)
        pad = PAD if items[b].n > 1 else 0.0
        outer[b] = (x - left + pad, pad, right - x + pad, bottom - top + (1.7 * pad))
        inner[b] = {k: (kx - x, ky - top) for k, (kx, ky) in at.items()}
    # Of the roots, those needed deepest inside another block stand leftmost: their edges pass where no words are.
    rank = {b: max([inner[block[k]][k][1] for k in items for p in parents[k] if block[p] == b != block[k]], default=0.0)
            for b in heads}  # fmt: skip
    base = _place(heads, above, outer, rank)
    return {k: (base[b][0] + x, base[b][1] + y) for b in heads for k, (x, y) in inner[b].items()}, block


# -- edges --------------------------------------------------------------------------------------------------------------


def _hits(points: np.ndarray, boxes: list[Box]) -> int:
    if not boxes:
        return 0
    b, p = np.asarray(boxes)[:, None], points[None]
    return int(((p[..., 0] > b[..., 0]) & (p[..., 0] < b[..., 2]) & (p[..., 1] > b[..., 1]) & (p[..., 1] < b[..., 3])).sum())


def _route(a: Box, b: Box, label: str, loop: bool, boxes: list[Box]) -> _Curve:
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
    return min(curves, key=lambda c: _hits(c.samples, boxes))


def _label_box(curve: _Curve, curves: list[_Curve], boxes: list[Box]) -> Box:
    """A free place beside the curve for its label."""
    half, points, best = _width(curve.label, 11.0) / 2, curve.samples, []
    for i in (20, 16, 24, 12, 28, 9, 31):
        for side in (-1, 1):
            (x, y), (dx, dy) = points[i], points[i + 1] - points[i - 1]
            x += side * (half + 5.0 + 8.0 * min(abs(dx / dy) if dy else 2.0, 2.0))  # further from a flat line
            box = (x - half, y - 8.0, x + half, y + 8.0)
            grid = np.stack(np.meshgrid(np.linspace(box[0], box[2], 9), np.linspace(box[1], box[3], 5)), -1).reshape(-1, 2)
            crossed = sum(_hits(other.samples, [box]) for other in curves)
            best.append((10 * _hits(grid, boxes) + crossed, len(best), box))
    return min(best)[2]


# -- SVG ----------------------------------------------------------------------------------------------------------------


def _text(x: float, y: float, words: str, colour: str = INK, size: float = 12.0, more: str = "") -> str:
    words = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)  # what XML cannot hold
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size:g}"{more}>{escape(words)}</text>'


def _rect(box: Box, fill: str, stroke: str, radius: float = 0.0, more: str = "") -> str:
    x, y, right, bottom = box
    size = f'x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" height="{bottom - y:.1f}" rx="{radius:g}"'
    return f'<rect {size} fill="{fill}" stroke="{stroke}" stroke-width="1.5"{more}/>'


def _node(plan: Plan, key: Id, item: _Item, at: tuple, colours: dict[str, str]) -> str:
    (kind, what), (x, y), (w, h) = key, at, item.half
    middle, box = ' text-anchor="middle" font-weight="600"', (x - w, y - h, x + w, y + h)
    lines = [(line, SOFT) for line in item.lines]
    if kind == "variable":
        name, shape = what, f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{w:g}" fill="{colours.get(what, "white")}" stroke="{INK}" stroke-width="1.5"/>'  # noqa: E501
        if len(lines) == 2:
            shape += _text(x, y + 5, what, INK, 14, middle)
        else:
            lines[0] = (what, INK)
    elif kind == "leaf":
        group = plan.groups[what[0]]
        name = group.key(what[1])
        shape = _rect(box, TINT, PROJECTED, 3, ' stroke-dasharray="4 3"') + _text(x, y + 4, _symbol(group, what[1]), PROJECTED, 12, middle)
        lines[0] = (name, INK)
    else:
        group = plan.groups[what]
        name = group.name
        projected = bool(_leaves(group))
        shape = _rect(box, TINT if projected else "white", PROJECTED if projected else INK, 2)
        if kind == "data":
            shape = _rect(box, INK, INK, 1)
        else:
            lines[0] = (name, INK)
    words = "".join(
        _text(x + w + 8, y + 4 + LEADING * (i - (len(lines) - 1) / 2), line, colour, 12, ' font-weight="600"' * (colour == INK))
        for i, (line, colour) in enumerate(lines)
    )
    return f'<g class="{kind}" data-name={quoteattr(name)}>{shape}{words}</g>'


def _edges(plan: Plan, touches: list[_Touch], surrogate: bool) -> dict[tuple[Id, Id, str], list[str]]:
    """(factor or leaf, variable, step) -> interface labels."""
    edges: dict[tuple[Id, Id, str], list[str]] = {}
    for t in touches:
        leaf = surrogate and _leaves(plan.groups[t.g])
        end: Id = ("leaf", (t.g, t.j)) if leaf else ("factor", t.g)
        labels = edges.setdefault((end, ("variable", t.name), t.step), [])
        labels += [] if t.label in labels else [t.label]
    return edges


def _panel(plan: Plan, items: dict[Id, _Item], centres: dict, block: dict, touches: list[_Touch], colours: dict | None) -> str:
    """One of the two graphs; the surrogate if there are `colours` for its components."""
    at = dict(centres)
    edges = _edges(plan, touches, colours is not None)
    shown = dict(items)
    for g, group in enumerate(plan.groups if colours is not None else []):
        targets = {j: [centres["variable", t.name][0] for t in touches if (t.g, t.j) == (g, j)] for j in _leaves(group)}
        for i, j in enumerate(sorted(targets, key=lambda j: (np.mean(targets[j] or 0.0), j))):
            key, (x, y) = ("leaf", (g, j)), centres["factor", g]
            shown[key] = _leaf_item(group, j)
            at[key] = (x + (i - (len(targets) - 1) / 2) * _row(group)[0], y)
        if targets:
            shown.pop(("data", g), None)
            del shown["factor", g]
    out, boxes, borders = [], [], []
    room = {k: item.room for k, item in (items | shown).items()}
    for b in dict.fromkeys(block.values()):
        members = [k for k in items if block[k] == b]
        left, top, right, _ = _bounds(members, at, room)
        kept = [k for k in members if k in shown or k[0] == "factor"]
        bottom = _bounds(kept, at, room)[3]
        if items[b].n > 1:
            box = (left - PAD, top - PAD, right + PAD, bottom + 1.7 * PAD)
            shape = plan.names[b[1]][1].shape if b[0] == "variable" else plan.groups[b[1]].shape
            badge = "".join(f"\N{MULTIPLICATION SIGN} {n} " for n in shape).strip()
            words = _text(box[2] - 12, box[3] - 10, badge, SOFT, 12, ' text-anchor="end" font-weight="600"')
            out.append(f'<g class="plate">{_rect(box, PAPER, FRAME, 12)}{words}</g>')
            boxes.append((box[2] - 18 - _width(_steady(badge)), box[3] - 24, box[2], box[3]))
            borders.append((box[0], box[1] - 3, box[2], box[1] + 3))
    shapes = {k: (*at[k], *item.half) for k, item in shown.items()}
    for k, item in shown.items():
        x, y = at[k]
        tall = LEADING / 2 * len(item.lines)
        boxes.append((x + item.half[0] + 4, y - tall, x + item.room[2], y + tall))
    solid = {k: (x - w, y - h, x + w, y + h) for k, (x, y, w, h) in shapes.items()}
    curves = []
    for (end, variable, step), labels in edges.items():
        others = boxes + [box for k, box in solid.items() if k not in (end, variable)]
        label = step or ", ".join(labels)
        curves.append(_route(shapes[variable], shapes[end], label, bool(step), others))
    curves += [_route(shapes["factor", k[1]], shapes[k], "", False, []) for k in shown if k[0] == "data"]
    boxes += [*solid.values(), *borders]
    for c in curves:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in c.points)
        start, rest = points.split(" ", 1)
        arrow = ' marker-end="url(#ngmp-arrow)"' if c.arrow else ""
        out.append(f'<path d="M{start} C{rest}" fill="none" stroke="{LINE}" stroke-width="1.5"{arrow}/>')
    out += [_node(plan, k, item, at[k], colours or {}) for k, item in shown.items()]
    halo = f' text-anchor="middle" font-style="italic" stroke="{PAPER}" stroke-width="3" paint-order="stroke"'
    for c in curves:
        if c.label:
            box = _label_box(c, curves, boxes)
            boxes.append(box)
            out.append(_text((box[0] + box[2]) / 2, box[1] + 12, c.label, SOFT, 11, halo))
    return "\n".join(out)


def _wrap(words: str, width: float) -> list[str]:
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if _width(_steady(longer)) <= width else [*lines, word]
    return lines


def _legend(plan: Plan) -> list[tuple[str, str]]:
    """Icon (about the origin) and meaning, of what occurs."""
    circle = f'<circle r="6" fill="white" stroke="{INK}" stroke-width="1.5"/>'
    rows = [(circle, "variable: name, family, shape"), (_rect((-6, -6, 6, 6), "white", INK, 1), "factor: site, kernel")]
    if any(_leaves(g) for g in plan.groups):
        rows.append((_rect((-6, -6, 6, 6), TINT, PROJECTED, 1), "factor without a conjugate kernel, to be projected"))
    if any(g.observed for g in plan.groups):
        rows.append((_rect((-4, -4, 4, 4), INK, INK, 1), "observed data"))
    if any(g.n > 1 for g in plan.groups):
        rows.append((_rect((-8, -6, 8, 6), PAPER, FRAME, 3), "plate: repeated so many times"))
    return rows


def draw(plan: Plan, name: str) -> str:
    """The factor graph with its plates, and the surrogate, as one SVG document (ASCII).

    Args:
        plan: a scheduled model; no array in it is read.
        name: the title.
    """
    touches = [t for g in range(len(plan.groups)) for t in _touches(plan, g)]
    items = _items(plan, touches)
    centres, block = _layout(plan, items, touches)
    components = _components(plan)
    colours = {n: COMPONENTS[i % len(COMPONENTS)] for i, (_, names, _) in reversed([*enumerate(components)]) for n in names}
    box = _bounds(items, centres, {k: i.room for k, i in items.items()}) if items else (0.0, 0.0, 0.0, 0.0)
    left, top, right, bottom = box[0] - PAD, box[1] - PAD, box[2] + PAD, box[3] + 1.7 * PAD
    margin, head = 28.0, 84.0
    width = max(right - left + 2 * margin, 430.0)
    foot = head + bottom - top + 34.0
    notes: list[list[str]] = [[], []]
    y = foot
    for icon, words in _legend(plan):
        notes[0].append(f'<g transform="translate({margin + 8:.0f} {y:.0f})">{icon}{_text(18, 4, words, SOFT)}</g>')
        y += 22.0
    low = y
    y = foot
    rows = [(f'<circle r="6" fill="{COMPONENTS[i % len(COMPONENTS)]}" stroke="{INK}" stroke-width="1.5"/>', f"{kind}: {', '.join(names[:6])}{', ...' * (len(names) > 6)}", why)
            for i, (kind, names, why) in enumerate(components)]  # fmt: skip
    if any(_leaves(g) for g in plan.groups):
        icon = _rect((-7, -6, 7, 6), TINT, PROJECTED, 2, ' stroke-dasharray="3 2"')
        rows.append((icon, "surrogate leaf", ["the projected message of one interface"]))
    for icon, title, why in rows:
        lines = [line for part in why for line in _wrap(part, width - 2 * margin - 30)]
        words = _text(18, 4, title, INK, 12, ' font-weight="600"')
        words += "".join(_text(18, 4 + LEADING * (i + 1), line, SOFT) for i, line in enumerate(lines))
        notes[1].append(f'<g class="note" transform="translate({margin + 8:.0f} {y:.0f})">{icon}{words}</g>')
        y += LEADING * len(lines) + 24.0
    low = max(low, y)
    total_width, total_height = 2 * width, low + 8.0
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width:.0f} {total_height:.0f}" width="{total_width:.0f}" height="{total_height:.0f}" font-family="{FONT}">',
        f"<title>{escape(name)}</title>",
        '<defs><marker id="ngmp-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,1 L10,5 L0,9 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="100%" height="100%" fill="white"/>',
        _text(margin, 40, name, INK, 20, ' font-weight="700"'),
    ]
    for i, (title, tint) in enumerate((("Declared factor graph", None), ("Surrogate", colours))):
        shift = (width - (right - left)) / 2 - left
        out.append(f'<g class="panel" id="{"surrogate" if i else "declared"}" transform="translate({i * width:.0f} 0)">')
        out.append(_text(margin, 70, title, SOFT, 14, ' font-weight="600"'))
        out.append(f'<g class="graph" transform="translate({shift:.0f} {head - top:.0f})">')
        out.append(_panel(plan, items, centres, block, touches, tint))
        out += ["</g>", *notes[i], "</g>"]
    out.append(f'<path d="M{width:.0f},60 V{total_height - 24:.0f}" stroke="{FRAME}"/>')
    return "\n".join([*out, "</svg>\n"]).encode("ascii", "xmlcharrefreplace").decode()
