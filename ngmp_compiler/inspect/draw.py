"""Draw a plan as SVG: the declared factor graph on the left, its surrogate on the right. No dependency.

Two styles: in "bipartite" variables are circles and factors squares; in "forney" factors are nodes and variables the
lines between them, joined at a node of equality where more than two factors share one.
"""

from collections.abc import Collection
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from ..schedule.choose import Plan
from .diagram import (
    INTEGRATED,
    TIMES,
    Item,
    Touch,
    before,
    find_components,
    find_leaves,
    find_touches,
    leaf_item,
    leaf_name,
    leaf_row,
    leaf_symbol,
    make_items,
    star,
    steady,
)
from .layout import LEADING, PAD, Box, Id, Point, bounding_box, label_box, route, text_width
from .plates import Plates, arrange
from .svg import (
    COMPONENTS,
    FRAME,
    HEAD,
    INK,
    LINE,
    MARGIN,
    PAPER,
    PROJECTED,
    SOFT,
    TINT,
    circle,
    clean,
    diamond,
    document,
    notes,
    rect,
    size,
    text,
)

STYLES = ("bipartite", "forney")


class _Graph(NamedTuple):
    """What one panel shows: items with their centres, edges, and the colours of variables."""

    plan: Plan
    items: dict[Id, Item]
    at: dict[Id, Point]
    edges: dict[tuple[Id, Id, bool], str]
    colours: dict[str, str]
    forney: bool


def _variable(graph: _Graph, name: str, box: Box, inside: bool) -> str:
    """The symbol of a variable: a circle, a node of equality, or nothing but a ground for its name."""
    (x, y), colour = graph.at["variable", name], graph.colours.get(name)
    middle = ' text-anchor="middle" font-weight="600"'
    if not graph.forney:
        return circle(x, y, box[2] - x, colour or "white") + (text(x, y + 5, name, INK, 14, middle) if inside else "")
    high = y + 4 - LEADING * 1.75
    ground = (box[2] + 4, high, box[2] + 12 + 1.08 * text_width(name), high + LEADING)
    shape = f'<rect {size(ground)} rx="4" fill="{colour}"/>' if colour else ""
    return shape + (rect(box, colour or "white", INK, 2) + text(x, y + 5, "=", INK, 14, middle)) * (box[2] - x > 1.0)


def _node(graph: _Graph, key: Id, item: Item) -> str:
    (kind, what), (x, y), (w, h) = key, graph.at[key], item.half
    plan, box, strong = graph.plan, (x - w, y - h, x + w, y + h), 1
    if kind == "variable":
        strong = len(item.lines) - 2
        name, shape = what, _variable(graph, what, box, not strong)
    elif kind == "leaf":
        group, leaf = plan.groups[what[0]], what[1]
        name, shape = leaf_name(group, leaf), rect(box, TINT, PROJECTED, 3, ' stroke-dasharray="4 3"')
        shape += text(x, y + 4, leaf_symbol(group, leaf), PROJECTED, 12, ' text-anchor="middle" font-weight="600"')
    elif kind == "data":
        name, strong = plan.groups[what].name, 0
        shape = diamond(x, y, w) if item.lines[0] == INTEGRATED else rect(box, INK, INK, 1)
    else:
        group = plan.groups[what]
        name, shape = group.name, rect(box, *((TINT, PROJECTED) if group.projected else ("white", INK)), 2)
    words = ""
    for i, line in enumerate(item.lines):
        low, bold = y + 4 + LEADING * (i - (len(item.lines) - 1) / 2), i < strong
        words += text(x + w + 8, low, line, INK if bold else SOFT, 12, ' font-weight="600"' if bold else "")
    return f'<g class="{kind}" data-name={quoteattr(clean(name))}>{shape}{words}</g>'


_Leaves = dict[tuple[int, int], tuple[int, ...]]  # group and interface -> interfaces of the leaf it belongs to


def _edges(touches: list[Touch], leaves: _Leaves) -> dict[tuple[Id, Id, bool], str]:
    """(factor or leaf, variable, whether it is a loop) -> label."""
    edges: dict[tuple[Id, Id, bool], list[str]] = {}
    for t in touches:
        end, loop, label = ("factor", t.g), bool(t.step), t.loop or t.label
        if (t.g, t.j) in leaves:
            end = ("leaf", (t.g, leaves[t.g, t.j]))
            if t.base != t.j:  # an edge of two leaves is no loop
                loop, label = False, f"{t.label}: {before(t.step)}" if t.step else t.label
        edges.setdefault((end, ("variable", t.name), loop), []).append(label)
    return {k: star(v) for k, v in edges.items()}


def _surrogate(graph: _Graph, touches: list[Touch], colours: dict[str, str]) -> _Graph:
    """Every projected factor and its data make room for a row of leaves, in the order of the variables they touch."""
    plan, items, at, leaves = graph.plan, dict(graph.items), dict(graph.at), {}
    for g, group in enumerate(plan.groups):
        mine = [t for t in touches if t.g == g]
        found = find_leaves(group, mine)
        goal = {js: np.mean([at["variable", t.name][0] for t in mine if t.j in js]) for js in found}
        x, y = at["factor", g]
        for i, js in enumerate(sorted(goal, key=lambda js, goal=goal: (goal[js], js))):
            items["leaf", (g, js)] = leaf_item(group, js)
            at["leaf", (g, js)] = (x + (i - (len(goal) - 1) / 2) * leaf_row(group, mine)[0], y)
            leaves.update({(g, j): js for j in js})
        if goal:
            items.pop(("data", g), None)
            del items["factor", g]
    return _Graph(plan, items, at, _edges(touches, leaves), colours, graph.forney)


def _plates(graph: _Graph, items: dict[Id, Item], plates: Plates) -> tuple[list[str], list[Box], list[Box]]:
    """Frames, outer ones first, each with its count in the corner; their boxes, and those of counts and borders."""
    out, frames, boxes = [], {}, []
    paths = {k: plates.path(k) for k in items}
    room = {k: item.room for k, item in items.items()}
    heads = {head: i for path in paths.values() for i, head in enumerate(path) if items[head].n > 1}
    for head in sorted(heads, key=lambda k: -heads[k]):  # inner ones first
        members = [k for k in items if plates.block[k] == head]
        inside = [frames[k] for k in frames if plates.around.get(k) == head]
        left, top, right, _ = bounding_box(members, graph.at, room)
        low = bounding_box([k for k in members if k in graph.items or k[0] == "factor"], graph.at, room)[3]
        spans = np.asarray([(left, top, right, low), *inside])
        left, top, right, low = (*spans[:, :2].min(0).tolist(), *spans[:, 2:].max(0).tolist())
        frames[head] = (left - PAD, top - PAD, right + PAD, low + 1.7 * PAD)
    for head, box in reversed(frames.items()):
        count = _count(items[head].shape, items[plates.around[head]].shape if head in plates.around else ())
        words = text(box[2] - 12, box[3] - 10, count, SOFT, 12, ' text-anchor="end" font-weight="600"')
        out.append(f'<g class="plate">{rect(box, PAPER, FRAME, 12)}{words}</g>')
        boxes.append((box[2] - 18 - text_width(steady(count)), box[3] - 24, box[2], box[3]))
        boxes.append((box[0], box[1] - 3, box[2], box[1] + 3))
        boxes += [(x - 2, box[1], x + 2, box[3]) for x in (box[0], box[2])]
    return out, list(frames.values()), boxes


def _count(shape: tuple[int, ...], outer: tuple[int, ...]) -> str:
    """How often a plate is repeated, inside one of shape `outer`."""
    shape, outer = (tuple(n for n in s if n > 1) for s in (shape, outer))
    rest = shape[len(outer) :] if shape[: len(outer)] == outer else (int(np.prod(shape) // np.prod(outer)),)
    return " ".join(f"{TIMES} {n}" for n in rest)


def _panel(graph: _Graph, items: dict[Id, Item], plates: Plates) -> tuple[str, Box]:
    """One of the two graphs, and its bounds; `items` are those of the declared one, which sets the frames."""
    out, frames, borders = _plates(graph, items, plates)
    shapes = {k: (*graph.at[k], *item.half) for k, item in graph.items.items()}
    solid = {k: (x - w - 5, y - h - 5, x + w + 5, y + h + 5) for k, (x, y, w, h) in shapes.items()}
    words = []
    for k, item in graph.items.items():
        (x, y, w, _), tall = shapes[k], LEADING / 2 * len(item.lines)
        words.append((x + w + 4, y - tall, x + w + 8 + item.words, y + tall))
    curves = []
    for (end, variable, loop), label in graph.edges.items():
        others = words + [box for k, box in solid.items() if k not in (end, variable)]
        curves.append(route(shapes[variable], shapes[end], label, loop, others))
    curves += [route(shapes["factor", k[1]], shapes[k], "", False, []) for k in shapes if k[0] == "data"]
    for c in curves:
        start, *rest = (f"{x:.1f},{y:.1f}" for x, y in c.points)
        arrow = ' marker-end="url(#ngmp-arrow)"' if c.arrow else ""
        out.append(f'<path d="M{start} C{" ".join(rest)}" fill="none" stroke="{LINE}" stroke-width="1.5"{arrow}/>')
    out += [_node(graph, k, item) for k, item in graph.items.items()]
    taken, slanted = [*words, *solid.values(), *borders], ' text-anchor="middle" font-style="italic"'
    lines = np.concatenate([c.samples for c in curves] or [np.empty((0, 2))])
    for c in curves:
        if c.label:
            taken.append(label_box(c, lines, taken))
            left, top, right, _ = taken[-1]
            out.append(text((left + right) / 2, top + 12, c.label, SOFT, 11, slanted))
    spans = np.asarray([*taken, *frames, *np.tile(lines, 2), (0.0,) * 4])
    return "\n".join(out), (*spans[:, :2].min(0).tolist(), *spans[:, 2:].max(0).tolist())


def _legend(plan: Plan, forney: bool, integrated: Collection[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of what occurs in the declared graph."""
    rows = [(circle(0, 0, 6, "white"), "variable: name, family, shape", ())]
    if forney:
        equal = rect((-6, -6, 6, 6), "white", INK, 1) + text(0, 4, "=", INK, 11, ' text-anchor="middle"')
        rows = [(f'<path d="M-8,0 H8" stroke="{LINE}" stroke-width="1.5"/>', "variable: name, family, shape", ())]
        rows.append((equal, "variable of more than two factors", ()))
    rows.append((rect((-6, -6, 6, 6), "white", INK, 1), "factor: site, distribution", ()))
    if any(group.projected for group in plan.groups):
        rows.append((rect((-6, -6, 6, 6), TINT, PROJECTED, 1), "factor that must be projected", ()))
    if any(g.observed and g.given.name not in integrated for g in plan.groups):
        rows.append((rect((-4, -4, 4, 4), INK, INK, 1), "observed data", ()))
    if integrated:
        rows.append((diamond(0, 0, 5), "number that is integrated over", ()))
    if any(g.n > 1 for g in plan.groups):
        rows.append((rect((-8, -6, 8, 6), PAPER, FRAME, 3), "plate: its content is repeated", ()))
    return rows


def _key(plan: Plan) -> tuple[dict[str, str], list[tuple[str, str, tuple[str, ...]]]]:
    """The colour of every variable by the executor that solves it, and what the colours mean."""
    colours, rows = {}, []
    for i, (kind, names, why) in enumerate(find_components(plan)):
        colour = COMPONENTS[i % len(COMPONENTS)]
        colours = dict.fromkeys(names, colour) | colours  # the first that has it
        rows.append((circle(0, 0, 6, colour), f"{kind}: {', '.join(names[:6])}{', ...' * (len(names) > 6)}", why))
    if any(group.projected for group in plan.groups):
        icon = rect((-7, -6, 7, 6), TINT, PROJECTED, 2, ' stroke-dasharray="3 2"')
        rows.append((icon, "surrogate leaf", ("the projected message of one interface, in its family",)))
    return colours, rows


def draw(plan: Plan, name: str, style: str = "bipartite", integrated: Collection[str] = ()) -> str:
    """The factor graph with its plates, and the surrogate, as one SVG document (ASCII).

    Args:
        plan: a scheduled model; no array in it is read.
        name: the title.
        style: "bipartite" or "forney"; see the module docstring.
        integrated: the sites that stand as numbers.
    """
    if style not in STYLES:
        raise ValueError(f"draw: style={style!r} is not known; give one of {', '.join(map(repr, STYLES))}")
    forney = style == "forney"
    touches = [t for g in range(len(plan.groups)) for t in find_touches(plan, g)]
    items = make_items(plan, touches, forney, integrated)
    at, plates = arrange(plan, items, touches)
    colours, key = _key(plan)
    declared = _Graph(plan, items, at, _edges(touches, {}), {}, forney)
    graphs = (declared, _surrogate(declared, touches, colours))
    bodies, spans = zip(*(_panel(graph, items, plates) for graph in graphs), strict=True)
    left, top, right, bottom = (f(s) for f, s in zip((min, min, max, max), zip(*spans, strict=True), strict=True))
    width = max(right - left + 2 * MARGIN, 450.0)
    foot = HEAD + bottom - top + 34.0
    below = [notes(rows, MARGIN, foot, width - 2 * MARGIN) for rows in (_legend(plan, forney, integrated), key)]
    height = max(low for _, low in below) + 8.0
    some = any(group.projected for group in plan.groups)
    titles = ("Declared factor graph", f"Surrogate{' with projected leaves' if some else ': nothing to project'}")
    panels = []
    for i, panel in enumerate(("declared", "surrogate")):
        shift = f"translate({(width - (right - left)) / 2 - left:.0f} {HEAD - top:.0f})"
        words = text(MARGIN, 70, titles[i], SOFT, 14, ' font-weight="600"')
        inner = f'{words}\n<g transform="{shift}">\n{bodies[i]}\n</g>\n{below[i][0]}'
        panels.append(f'<g class="panel {panel}" transform="translate({i * width:.0f} 0)">{inner}</g>')
    return document(name, 2 * width, height, "\n".join(panels))
