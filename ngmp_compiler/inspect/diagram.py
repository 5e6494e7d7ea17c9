"""What a drawing of a plan shows: its variables, factors, data and leaves, and what touches what.

Only static facts are read (names, classes, positions, shapes), never an array. Variables of many names that are
stored together (`neuron*/w`) are one item, as in the plan. Numbers are given the same room whatever they are, so the
drawing of a model does not depend on how many data there are.
"""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from ..declare.variables import Variable
from ..executors import DiscreteIndependent, Sums, TablePiece
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from ..schedule.choose import Plan
from .layout import BOW, LEADING, Box, Id, Point, text_width

BARE = 0.01  # half the size of a variable that is but a line
INTEGRATED = "integrated over"
TIMES, ARROW, MINUS = "\N{MULTIPLICATION SIGN}", "\N{RIGHTWARDS ARROW}", "\N{MINUS SIGN}"


class Item(NamedTuple):
    """A node: its shape, half the size of its symbol, the words beside it, and its room about the centre."""

    shape: tuple[int, ...]
    half: Point
    lines: tuple[str, ...]
    words: float  # their width
    room: Box  # left, up, right, down: all positive

    @property
    def n(self) -> int:
        return int(np.prod(self.shape))


class Touch(NamedTuple):
    """Interface `j` of group `g` stands on variables called `name`; `out` if it declares them."""

    g: int
    j: int
    label: str
    name: str
    out: bool
    step: str  # "k-1 -> k" if the group touches the same name elsewhere too: through interface `base`
    base: int
    chain: bool  # the step is the same for all
    owner: np.ndarray  # (n,) which entry of the name each factor touches, -1 where none
    tied: bool  # there are as many factors as entries, and they touch one to one, perhaps some steps back

    @property
    def loop(self) -> str:
        return f"{self.label}: {self.step}" if self.step and self.base != self.j else self.step


# -- the plan: all that is read of edges, families and executors ------------------------------------------------------


def _ends(group: FactorGroup, j: int) -> list[tuple[Plane, np.ndarray, str]]:
    """The variables under one interface: plane, positions (n,) and a label."""
    edge = group.edges[j]
    if edge is None:
        return []
    ends, labels = edge.ends(), edge.labels(group.factor.interfaces[j])
    # Of a joint interface, "(m, ls)", every variable has a matrix: that is ours, not the user's.
    ops = ["" if end.op == "scale" or "," in label else f" ({end.op})" for end, label in zip(ends, labels, strict=True)]
    return [(e.plane, e.index.positions, f"{label}{op}") for e, label, op in zip(ends, labels, ops, strict=True)]


def leaf_symbol(group: FactorGroup, leaf: tuple[int, ...]) -> str:
    return f"{group.factor.families[leaf[0]].symbol}*"


def _solved(executor: Any) -> list[tuple[Plane, np.ndarray]]:
    """The variables of an executor: planes and positions."""
    if isinstance(executor, Sums):
        return list(executor.members.items())
    if isinstance(executor, DiscreteIndependent):
        return [(executor.plane, executor.positions)]
    sides = [p.sides if isinstance(p, TablePiece) else [k[:2] for k in p.links] for p in executor.pieces]
    return [part for piece in sides for part in piece]


def find_components(plan: Plan) -> list[tuple[str, list[str], list[str]]]:
    """Executor, the names it solves and why, executors of one kind over the same names taken together."""
    rows: dict[tuple, list[tuple[str, str]]] = {}
    for executor in (*([plan.sums] if plan.sums else []), *plan.gaussian, *plan.discrete):
        parts, all_names = _solved(executor), plan.collections.items()
        names = tuple(n for n, c in all_names if any(c.plane == p and _entry(x, c.positions)[1] for p, x in parts))
        cost = f"{executor.work} a sweep".replace(" x ", f" {TIMES} ")
        rows.setdefault((executor.name, names), []).append((executor.why, cost.replace(" ", "\N{NO-BREAK SPACE}")))
    for plane in plan.planes:
        if plane.family.core == "product":
            names = tuple(n for n, c in plan.collections.items() if c.plane == plane)
            rows.setdefault(("product", names), []).append(("coupled to nothing, messages are added", ""))
    return [
        (kind, list(names), [why + (f" ({len(found)} such parts)" if len(found) > 1 else ""), cost])
        for (kind, names), found in rows.items()
        for why, cost in found[:1]
    ]


# -- what touches what ------------------------------------------------------------------------------------------------


def _entry(positions: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, bool]:
    """Which entry of the name that holds the run `at` each position is, -1 where it is none; and if any is one."""
    entry = positions - (at.flat[0] if at.size else 0)
    inside = (entry >= 0) & (entry < at.size)
    return np.where(inside, entry, -1), bool(inside.any())


def find_touches(plan: Plan, g: int) -> list[Touch]:
    """Every name a group touches, once for each interface and position."""
    group = plan.groups[g]
    out = group.given.arguments.get("out")
    found = []
    for j in range(len(group.edges)):
        for plane, positions, label in _ends(group, j):
            mine = isinstance(out, Variable) and out.plane == plane and bool((positions == out.index).all())
            for name, c in plan.collections.items():
                if c.plane == plane and (entry := _entry(positions, c.positions))[1]:
                    found.append((j, label, name, mine, entry[0]))
    found.sort(key=lambda f: not f[3])  # what is declared comes first, and others are seen from there
    touches = []
    for j, label, name, mine, owner in found:
        base = next(f for f in found if f[2] == name)
        shape = plan.collections[name].positions.shape
        step, chain = _step(base[4], owner, shape)
        if chain and group.n > np.prod(shape):  # what a longer chain starts from
            step, chain = "", False
        every, there = np.arange(len(owner)), owner >= 0
        each = len(owner) == group.n == np.prod(shape)  # not an energy, one factor of many
        back, late = _step(every, owner, shape) if each else ("", False)
        alike = np.array_equal(owner[there], every[there]) or (mine and np.array_equal(np.sort(owner), every))
        tied = each and (late or alike)
        if [f[2] for f in found].count(name) == 1:
            where = _end(there.nonzero()[0], group.shape) or _end(np.unique(owner), shape)
            label += f": {before(back)}" if late else f", {where}" if where else ""
        touches.append(Touch(g, j, label, name, mine, step, base[0], chain, owner, tied))
    return touches


def before(step: str) -> str:
    """The "k-1" of "k-1 -> k"."""
    return step.split(f" {ARROW}")[0]


def _end(index: np.ndarray, shape: tuple[int, ...]) -> str:
    """Whether flat indices are the first or last entries along the leading axis, and no others."""
    if not shape or shape[0] < 2 or len(index) != np.prod(shape[1:]):
        return ""
    return "first" if index[-1] < len(index) else "last" if index[0] == len(index) * (shape[0] - 1) else ""


def _step(base: np.ndarray, owner: np.ndarray, shape: tuple[int, ...]) -> tuple[str, bool]:
    """How far `owner` lags behind `base` where both exist, along every axis; and whether that is the same for all."""
    both = (base >= 0) & (owner >= 0)
    a, b = base[both], owner[both]
    if (a == b).all() or not np.intersect1d(a, owner).size:
        return "", False  # the same, or others altogether: rows of a table, terms of a sum
    lag = np.unique(np.stack(np.unravel_index(a, shape)) - np.stack(np.unravel_index(b, shape)), axis=1)
    if lag.shape[1] > 1:
        return "i, j", False
    axes = "k" if len(shape) == 1 else "ijklmnopqrstuvwxyz"[: len(shape)]
    late = [k + (f"{-d:+d}".replace("-", MINUS) if d else "") for k, d in zip(axes, lag[:, 0].tolist(), strict=True)]
    return f"{', '.join(late)} {ARROW} {', '.join(axes)}", True


# -- items ------------------------------------------------------------------------------------------------------------


def steady(text: str) -> str:
    """Numbers take the room of five digits, so that the layout does not depend on them."""
    return re.sub(r"\d+", "00000", text)


def _item(shape: tuple[int, ...], half: Point, lines: list[str], left: float = 0.0, right: float = 0.0) -> Item:
    words = max(text_width(steady(line)) for line in lines)
    tall = max(half[1], LEADING / 2 * len(lines))
    return Item(shape, half, tuple(lines), words, (max(half[0], left), tall, max(half[0] + 8 + words, right), tall))


def find_leaves(group: FactorGroup, touches: list[Touch]) -> list[tuple[int, ...]]:
    """The projected interfaces of a group; those of several rows of a table (p0, p1, ...) are one leaf."""
    if not group.projected:
        return []
    alike: dict[Any, list[int]] = {}
    for t in touches:
        js = alike.setdefault((t.name, re.sub(r"\d+$", "", t.label)) if not t.step else t.j, [])
        js += [] if any(t.j in other for other in alike.values()) else [t.j]
    return [tuple(js) for js in alike.values() if js]


def leaf_name(group: FactorGroup, leaf: tuple[int, ...]) -> str:
    return star([group.keys[j] for j in leaf])


def star(names: list[str]) -> str:
    """One name for several: with a star for a number at the end in which alone they differ, or a list."""
    starred = {re.sub(r"\d+$", "*", name) for name in names}
    return starred.pop() if len(starred) == 1 < len(names) else ", ".join(dict.fromkeys(names))


def leaf_item(group: FactorGroup, leaf: tuple[int, ...]) -> Item:
    half = (max(15.0, text_width(leaf_symbol(group, leaf)) / 2 + 7), 14.0)
    return _item(group.shape, half, [leaf_name(group, leaf)])


def leaf_row(group: FactorGroup, touches: list[Touch]) -> tuple[float, float, float]:
    """Room of the row of leaves that replaces a factor: distance of neighbours, left and right of the centre."""
    rooms = [leaf_item(group, leaf).room for leaf in find_leaves(group, touches)] or [(0.0, 0.0, 0.0, 0.0)]
    left, right = max(r[0] for r in rooms), max(r[2] for r in rooms)
    pitch = left + 20.0 + right
    return pitch, left + pitch * (len(rooms) - 1) / 2, right + pitch * (len(rooms) - 1) / 2


def _data_shape(group: FactorGroup) -> tuple[int, ...]:
    """The shape of the outcomes, of which a site that a selector picks has one factor for every class."""
    classes = group.given.distribution.classes
    return group.shape if classes == 1 else tuple(n for n in (group.shape[0] // classes,) if n > 1) + group.shape[1:]


def make_items(plan: Plan, touches: list[Touch], forney: bool, integrated: Collection[str]) -> dict[Id, Item]:
    """All items of the declared graph.

    Short names of variables go inside their circles. In Forney's style there are none: a variable of at most two
    factors is but a line, any other a node of equality.
    """
    items: dict[Id, Item] = {}
    loops = {k: 24.0 + BOW + text_width(t.loop, 11.0) for t in touches if t.step for k in (t.name, t.g)}
    whole = {t.g: plan.collections[t.name].positions.size for t in touches if t.chain}
    for g, group in enumerate(plan.groups):
        fewer = group.n != whole.get(g, group.n)  # a chain stands in the plate of its variables
        words = [group.name, group.given.distribution.label + (f" {TIMES} {group.n}" if fewer else "")]
        _, left, right = leaf_row(group, [t for t in touches if t.g == g])
        items["factor", g] = _item(group.shape, (11.0, 11.0), words, left + loops.get(g, 0.0), right)
        if group.observed:
            masked = ", masked" if group.mask is not None else ""
            what = INTEGRATED if group.given.name in integrated else f"data {_data_shape(group)}{masked}"
            items["data", g] = _item(group.shape, (6.0, 6.0), [what])
    for name, c in plan.collections.items():
        beside = [str(c.plane), f"shape {c.positions.shape}"]
        lines = beside if not forney and text_width(name, 14.0) <= 42.0 else [name, *beside]
        radius = 24.0 if not forney else 9.0 if name in loops or _degree(name, c.positions.size, touches) > 2 else BARE
        items["variable", name] = _item(c.positions.shape, (radius, radius), lines, loops.get(name, 0.0))
    return items


def _degree(name: str, size: int, touches: list[Touch]) -> int:
    """The most factors that one of the variables called `name` touches."""
    owners = [t.owner[t.owner >= 0] for t in touches if t.name == name]
    return int(np.bincount(np.concatenate([*owners, np.empty(0, int)]), minlength=size).max(initial=0))
