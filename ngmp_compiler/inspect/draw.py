"""Draw a plan as SVG: the declared factor graph on the left, its surrogate on the right. No dependency."""

import re
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from ..schedule.choose import Plan
from .diagram import (
    HEAD,
    LEADING,
    MARGIN,
    PAD,
    Box,
    Id,
    Item,
    Point,
    Touch,
    bounding_box,
    find_components,
    find_touches,
    label_box,
    lay_out,
    leaf_item,
    leaf_row,
    leaf_symbol,
    make_items,
    projected_interfaces,
    route,
    steady,
    text_width,
)

INK, SOFT, LINE, FRAME, PAPER = "#1d2733", "#5b6776", "#7b8794", "#b8c2cc", "#f6f8fa"
PROJECTED, TINT = "#c2570c", "#fff1e3"
COMPONENTS = ("#d5e6f7", "#d9efd9", "#e9def5", "#f8e3ea", "#f7eecb", "#d3eeec")
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def _clean(words: str) -> str:
    """Without what XML cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)


def _circle(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{INK}" stroke-width="1.5"/>'


def _text(x: float, y: float, words: str, colour: str = INK, size: float = 12.0, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size:g}"{more}>{escape(_clean(words))}</text>'


def _rect(box: Box, fill: str, stroke: str, radius: float = 0.0, more: str = "") -> str:
    x, y, right, bottom = box
    size = f'x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" height="{bottom - y:.1f}" rx="{radius:g}"'
    return f'<rect {size} fill="{fill}" stroke="{stroke}" stroke-width="1.5"{more}/>'


def _node(plan: Plan, key: Id, item: Item, at: Point, colours: dict[str, str]) -> str:
    (kind, what), (x, y), (w, h) = key, at, item.half
    middle, box, strong = ' text-anchor="middle" font-weight="600"', (x - w, y - h, x + w, y + h), 1
    if kind == "variable":
        name, shape, strong = what, _circle(x, y, w, colours.get(what, "white")), len(item.lines) - 2
        if not strong:
            shape += _text(x, y + 5, name, INK, 14, middle)
    elif kind == "leaf":
        group, j = plan.groups[what[0]], what[1]
        name, shape = group.key(j), _rect(box, TINT, PROJECTED, 3, ' stroke-dasharray="4 3"')
        shape += _text(x, y + 4, leaf_symbol(group, j), PROJECTED, 12, middle)
    elif kind == "data":
        name, shape, strong = plan.groups[what].name, _rect(box, INK, INK, 1), 0
    else:
        group = plan.groups[what]
        name, shape = group.name, _rect(box, *((TINT, PROJECTED) if projected_interfaces(group) else ("white", INK)), 2)
    words = ""
    for i, line in enumerate(item.lines):
        low, bold = y + 4 + LEADING * (i - (len(item.lines) - 1) / 2), i < strong
        words += _text(x + w + 8, low, line, INK if bold else SOFT, 12, ' font-weight="600"' if bold else "")
    return f'<g class="{kind}" data-name={quoteattr(_clean(name))}>{shape}{words}</g>'


def _edges(plan: Plan, touches: list[Touch], surrogate: bool) -> dict[tuple[Id, Id, bool], str]:
    """(factor or leaf, variable, whether it is a loop) -> label."""
    edges: dict[tuple[Id, Id, bool], list[str]] = {}
    for t in touches:
        end, loop, label = ("factor", t.g), bool(t.step), t.loop or t.label
        if surrogate and projected_interfaces(plan.groups[t.g]):
            end = ("leaf", (t.g, t.j))
            if t.base != t.j:  # an edge of two leaves is no loop
                loop, label = False, f"{t.label}, {t.step.split()[0]}" if t.step else t.label
        labels = edges.setdefault((end, ("variable", t.name), loop), [])
        labels += [] if label in labels else [label]
    return {k: ", ".join(v) for k, v in edges.items()}


class _Graph(NamedTuple):
    """What one panel shows: items with their centres, and edges."""

    items: dict[Id, Item]
    at: dict[Id, Point]
    edges: dict[tuple[Id, Id, bool], str]


def _surrogate(plan: Plan, graph: _Graph, touches: list[Touch]) -> _Graph:
    """Every projected factor and its data make room for a row of leaves, in the order of the variables they touch."""
    items, at = dict(graph.items), dict(graph.at)
    for g, group in enumerate(plan.groups):
        mine = [(t.j, at["variable", t.name][0]) for t in touches if t.g == g]
        goal = {j: np.mean([x for i, x in mine if i == j]) for j in projected_interfaces(group)}
        x, y = at["factor", g]
        for i, j in enumerate(sorted(goal, key=lambda j, goal=goal: (goal[j], j))):
            items["leaf", (g, j)] = leaf_item(group, j)
            at["leaf", (g, j)] = (x + (i - (len(goal) - 1) / 2) * leaf_row(group)[0], y)
        if goal:
            items.pop(("data", g), None)
            del items["factor", g]
    return _Graph(items, at, _edges(plan, touches, True))


def _plates(plan: Plan, graph: _Graph, items: dict[Id, Item], block: dict[Id, Id]) -> tuple[list[str], list[Box]]:
    """Frames, each with its count in the corner, and the boxes of these counts and of the borders."""
    out, boxes = [], []
    room = {k: item.room for k, item in items.items()}
    for head in dict.fromkeys(block.values()):
        if items[head].n > 1:
            members = [k for k in items if block[k] == head]
            left, top, right, _ = bounding_box(members, graph.at, room)
            low = bounding_box([k for k in members if k in graph.items or k[0] == "factor"], graph.at, room)[3]
            box = (left - PAD, top - PAD, right + PAD, low + 1.7 * PAD)
            shape = plan.names[head[1]][1].shape if head[0] == "variable" else plan.groups[head[1]].shape
            count = " ".join(f"\N{MULTIPLICATION SIGN} {n}" for n in shape)
            words = _text(box[2] - 12, box[3] - 10, count, SOFT, 12, ' text-anchor="end" font-weight="600"')
            out.append(f'<g class="plate">{_rect(box, PAPER, FRAME, 12)}{words}</g>')
            boxes.append((box[2] - 18 - text_width(steady(count)), box[3] - 24, box[2], box[3]))
            boxes.append((box[0], box[1] - 3, box[2], box[1] + 3))
            boxes += [(x - 2, box[1], x + 2, box[3]) for x in (box[0], box[2])]
    return out, boxes


def _panel(plan: Plan, graph: _Graph, items: dict[Id, Item], block: dict[Id, Id], colours: dict[str, str]) -> str:
    """One of the two graphs; `items` are those of the declared one, which sets the frames."""
    out, frames = _plates(plan, graph, items, block)
    shapes = {k: (*graph.at[k], *item.half) for k, item in graph.items.items()}
    solid = {k: (x - w - 5, y - h - 5, x + w + 5, y + h + 5) for k, (x, y, w, h) in shapes.items()}
    words = []
    for k, item in graph.items.items():
        (x, y), tall = graph.at[k], LEADING / 2 * len(item.lines)
        words.append((x + item.half[0] + 4, y - tall, x + item.half[0] + 8 + item.words, y + tall))
    curves = []
    for (end, variable, loop), label in graph.edges.items():
        others = words + [box for k, box in solid.items() if k not in (end, variable)]
        curves.append(route(shapes[variable], shapes[end], label, loop, others))
    curves += [route(shapes["factor", k[1]], shapes[k], "", False, []) for k in shapes if k[0] == "data"]
    for c in curves:
        start, *rest = (f"{x:.1f},{y:.1f}" for x, y in c.points)
        arrow = ' marker-end="url(#ngmp-arrow)"' if c.arrow else ""
        out.append(f'<path d="M{start} C{" ".join(rest)}" fill="none" stroke="{LINE}" stroke-width="1.5"{arrow}/>')
    out += [_node(plan, k, item, graph.at[k], colours) for k, item in graph.items.items()]
    halo = f' text-anchor="middle" font-style="italic" stroke="{PAPER}" stroke-width="3" paint-order="stroke"'
    taken = [*words, *solid.values(), *frames]
    lines = np.concatenate([c.samples for c in curves] or [np.empty((0, 2))])
    for c in curves:
        if c.label:
            taken.append(label_box(c, lines, taken))
            left, top, right, _ = taken[-1]
            out.append(_text((left + right) / 2, top + 12, c.label, SOFT, 11, halo))
    return "\n".join(out)


def _wrap(words: str, width: float) -> list[str]:
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if text_width(steady(longer)) <= width else [*lines, word]
    return [line for line in lines if line]


def _notes(rows: list[tuple[str, str, tuple[str, ...]]], x: float, y: float, width: float) -> tuple[str, float]:
    """A list of icons (drawn about the origin), each with a heading and paragraphs; and where it ends."""
    out = []
    for icon, heading, paragraphs in rows:
        lines = [line for p in paragraphs for line in _wrap(p, width - 20.0)]
        words = _text(20, 4, heading, INK if lines else SOFT, 12, ' font-weight="600"' if lines else "")
        words += "".join(_text(20, 4 + LEADING * (i + 1), line, SOFT) for i, line in enumerate(lines))
        out.append(f'<g class="note" transform="translate({x + 8:.0f} {y:.0f})">{icon}{words}</g>')
        y += LEADING * len(lines) + (24.0 if lines else 22.0)
    return "\n".join(out), y


def _legend(plan: Plan) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of what occurs in the declared graph."""
    rows = [(_circle(0, 0, 6, "white"), "variable: name, family, shape", ())]
    rows.append((_rect((-6, -6, 6, 6), "white", INK, 1), "factor: site, kernel", ()))
    if any(projected_interfaces(g) for g in plan.groups):
        rows.append((_rect((-6, -6, 6, 6), TINT, PROJECTED, 1), "factor that must be projected", ()))
    if any(g.observed for g in plan.groups):
        rows.append((_rect((-4, -4, 4, 4), INK, INK, 1), "observed data", ()))
    if any(g.n > 1 for g in plan.groups):
        rows.append((_rect((-8, -6, 8, 6), PAPER, FRAME, 3), "plate: its content is repeated", ()))
    return rows


def draw(plan: Plan, name: str) -> str:
    """The factor graph with its plates, and the surrogate, as one SVG document (ASCII).

    Args:
        plan: a scheduled model; no array in it is read.
        name: the title.
    """
    touches = [t for g in range(len(plan.groups)) for t in find_touches(plan, g)]
    items = make_items(plan, touches)
    at, block = lay_out(plan, items, touches)
    declared = _Graph(items, at, _edges(plan, touches, False))
    parts = find_components(plan)
    tint = {n: COMPONENTS[i % len(COMPONENTS)] for i, (_, names, _) in reversed([*enumerate(parts)]) for n in names}
    key = []
    for i, (kind, names, why) in enumerate(parts):
        heading = f"{kind}: {', '.join(names[:6])}{', ...' * (len(names) > 6)}"
        key.append((_circle(0, 0, 6, COMPONENTS[i % len(COMPONENTS)]), heading, why))
    title = "Surrogate: nothing to project"
    if any(projected_interfaces(g) for g in plan.groups):
        title = "Surrogate with projected leaves"
        icon = _rect((-7, -6, 7, 6), TINT, PROJECTED, 2, ' stroke-dasharray="3 2"')
        key.append((icon, "surrogate leaf", ("the projected message of one interface, in its family",)))

    left, top, right, bottom = bounding_box(items, at, {k: item.room for k, item in items.items()})
    width = max(right - left + 2 * PAD + 2 * MARGIN, 450.0)
    foot = HEAD + bottom - top + 2.7 * PAD + 34.0
    legend, low = _notes(_legend(plan), MARGIN, foot, width - 2 * MARGIN)
    components, lower = _notes(key, MARGIN, foot, width - 2 * MARGIN)
    height = max(low, lower) + 8.0
    shift = f"translate({(width - (right - left)) / 2 - left:.0f} {HEAD + PAD - top:.0f})"
    out = []
    for x, panel, heading, graph, notes, colours in (
        (0.0, "declared", "Declared factor graph", declared, legend, {}),
        (width, "surrogate", title, _surrogate(plan, declared, touches), components, tint),
    ):
        words = _text(MARGIN, 70, heading, SOFT, 14, ' font-weight="600"')
        body = _panel(plan, graph, items, block, colours)
        inner = f'{words}\n<g transform="{shift}">\n{body}\n</g>\n{notes}'
        out.append(f'<g class="panel {panel}" transform="translate({x:.0f} 0)">{inner}</g>')
    size = f'viewBox="0 0 {2 * width:.0f} {height:.0f}" width="{2 * width:.0f}" height="{height:.0f}"'
    document = f"""<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">
<title>{escape(_clean(name))}</title>
<defs><marker id="ngmp-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,1 L10,5 L0,9 z" fill="{LINE}"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
{_text(MARGIN, 40, name, INK, 20, ' font-weight="700"')}
<path d="M{width:.0f},60 V{height - 24:.0f}" stroke="{FRAME}"/>
{out[0]}
{out[1]}
</svg>
"""
    return document.encode("ascii", "xmlcharrefreplace").decode()
