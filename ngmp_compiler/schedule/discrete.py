"""Schedule of the categorical variables: an executor for every part of them that tables tie together.

The rule, in order: a variable that no table touches is solved alone; a path of variables with as many classes each is a
chain; what pairwise tables tie without loops is a tree; what repeats over time (coupled chains, `slices`) is a
scan over slices if a step needs at most `SLICE_CELLS` cells; a part of at most `ELIMINATION_VARIABLES` variables whose
elimination, in min-fill order, needs at most `ELIMINATION_CELLS` cells is summed out exactly; anything else is left to
flooding, which is approximate. `executors={"z": "flooding"}` overrides the rule for the part that z is in.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..declare.expressions import Plane
from ..errors import ModelError, Problem, listed
from ..executors import (
    DiscreteChain,
    DiscreteIndependent,
    DiscreteTree,
    Elimination,
    Flooding,
    Network,
    Segment,
    SliceChain,
    TablePiece,
    Tie,
)
from ..passes.lower import FactorGroup, TableEdge
from .components import Nodes, components, shapes
from .slices import Block, Slices, slices

ELIMINATION_VARIABLES = 64  # every variable summed out is a few operations of the program
ELIMINATION_MOST = 1024  # even where it is asked for
ELIMINATION_CELLS = 2**20
ENUMERATION_STATES = 2**16
SLICE_CELLS = 2**18  # of the tables of one step
KINDS = ("chain", "tree", "slices", "elimination", "enumeration", "flooding")
_ASKED = "as asked with executors="

Names = dict[str, tuple[Plane, np.ndarray]]


class _Ties(NamedTuple):
    """The tables of one group: which nodes each touches, (n, sides)."""

    group: int
    edge: TableEdge
    ends: np.ndarray


class _Part(NamedTuple):
    """Variables that tables tie together: sorted nodes, the path if they are one, and the rows of each of the ties."""

    nodes: np.ndarray
    path: np.ndarray | None
    rows: list[np.ndarray]
    loops: bool


def schedule_discrete(
    planes: dict[Plane, int], groups: list[FactorGroup], names: Names, asked: dict[str, str]
) -> list[Any]:
    """The executors of all categorical variables; see the module docstring."""
    nodes = Nodes(planes, [p for p in planes if p.family.core == "categorical"])
    ties = [
        _Ties(g, edge, np.stack([side.index.positions + nodes.offset[side.plane] for side in edge.sides], 1))
        for g, group in enumerate(groups)
        for edge in group.edges  # at most one
        if isinstance(edge, TableEdge)
    ]
    _check_repeats(ties, groups)
    parts, lone = _parts(nodes, ties)
    choices = _overrides(asked, names, nodes, parts, ties)
    executors: list[Any] = [DiscreteIndependent(plane, positions) for plane, positions in nodes.split(lone).items()]
    chosen: dict[str, list[_Part]] = {}
    defaults: dict[Any, str] = {}  # parts of equal shape are judged once
    for number, part in enumerate(parts):
        shape = _shape(part, nodes, ties)
        if number not in choices and shape not in defaults:
            defaults[shape] = _default(part, nodes, ties)
        chosen.setdefault(choices.get(number) or defaults[shape], []).append(part)
    by_hand = {id(parts[number]) for number in choices}
    executors += _chains(chosen.get("chain", []), planes, nodes, ties)
    if trees := chosen.get("tree"):
        members, pieces = _union(trees, nodes, ties)
        executors.append(DiscreteTree(members, pieces, len(trees)))
    executors += _slice_chains(chosen.get("slices", []), by_hand, nodes, ties)
    for kind in ("elimination", "enumeration"):
        executors += _networks(kind, chosen.get(kind, []), by_hand, nodes, ties)
    if loopy := chosen.get("flooding"):
        whys = {_ASKED if id(p) in by_hand else _too_large(p, nodes, ties) for p in loopy}
        executors.append(Flooding(*_union(loopy, nodes, ties), "; ".join(sorted(map(str, whys)))))
    return executors


def _check_repeats(ties: list[_Ties], groups: list[FactorGroup]) -> None:
    problems = []
    for tie in ties:
        ordered = np.sort(tie.ends, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            what, works = "one variable stands in two places of its table", "take the diagonal of the table instead"
            problems.append(Problem(groups[tie.group].given.name, None, what, works))
    if problems:
        raise ModelError(problems)


def _parts(nodes: Nodes, ties: list[_Ties]) -> tuple[list[_Part], np.ndarray]:
    """The connected parts of more than one variable, and the variables on their own."""
    pairs = [t.ends[:, [0, j]] for t in ties for j in range(1, t.ends.shape[1])]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    count = np.bincount(found.label, minlength=found.count)
    edges = np.bincount(found.label[found.edges[:, 0]], minlength=found.count)
    wide = np.zeros(found.count, bool)
    sorted_rows = []
    for t in ties:
        label = found.label[t.ends[:, 0]]
        wide[label] |= t.ends.shape[1] > 2
        order = np.argsort(label, kind="stable")
        sorted_rows.append((order, np.searchsorted(label[order], np.arange(found.count + 1))))
    out = []
    for shape in shapes(found):
        c = found.label[shape.nodes[0]]
        rows = [order[start[c] : start[c + 1]] for order, start in sorted_rows]
        loops = bool(wide[c] or edges[c] >= count[c])
        out.append(_Part(shape.nodes, None if loops else shape.path, rows, loops))
    return out, np.flatnonzero(count[found.label] == 1)


def _shape(part: _Part, nodes: Nodes, ties: list[_Ties]) -> Any:
    """What is equal for parts with the same tables between variables of the same planes."""
    scopes = (np.searchsorted(part.nodes, tie.ends[rows]) for tie, rows in zip(ties, part.rows, strict=True))
    return nodes.plane_of(part.nodes).tobytes(), tuple(scope.tobytes() for scope in scopes)


# -- the rule ---------------------------------------------------------------------------------------------------------


def _default(part: _Part, nodes: Nodes, ties: list[_Ties]) -> str:
    for kind in ("chain", "tree", "slices", "elimination"):
        if _misfit(kind, part, nodes, ties) is None and (kind != "elimination" or not _too_large(part, nodes, ties)):
            return kind
    return "flooding"


def _too_large(part: _Part, nodes: Nodes, ties: list[_Ties]) -> str | None:
    """Why elimination is not the default for a part; None if it is."""
    if len(part.nodes) > ELIMINATION_VARIABLES:
        why = f"loops over more than the {ELIMINATION_VARIABLES} variables that elimination unrolls"
        return f"{why}, and no slices: {_misfit('slices', part, nodes, ties)}"
    return _misfit("elimination", part, nodes, ties)


def _misfit(kind: str, part: _Part, nodes: Nodes, ties: list[_Ties]) -> str | None:
    """Why an executor cannot solve a part; None if it can."""
    which = nodes.plane_of(part.nodes)
    if kind == "chain":
        if part.path is None:
            return "the variables are no path, tied once each"
        return None if (which == which[0]).all() else "the variables differ in their number of classes"
    if kind == "tree":
        return "tables of three or more variables, or loops, are no tree" if part.loops else None
    if kind == "slices":
        layout = _cheapest(part, nodes, ties)
        if layout is None:
            return "no run of equal slices, tied to their neighbours alone"
        _, cells, ends = layout
        if cells > SLICE_CELLS:
            return f"a step over the joint states of a slice needs {cells:.1e} cells, over {SLICE_CELLS}"
        return None if ends <= ELIMINATION_VARIABLES else f"{ends} variables at the ends, over {ELIMINATION_VARIABLES}"
    if kind == "enumeration":
        states = math.prod(nodes.planes[w].event_shape[0] for w in which.tolist())
        return None if states <= ENUMERATION_STATES else f"{states:.1e} joint states exceed {ENUMERATION_STATES}"
    if kind == "elimination":
        if len(part.nodes) > ELIMINATION_MOST:
            return f"elimination would unroll more than {ELIMINATION_MOST} variables"
        network = _network([part], nodes, ties)
        cells = network.cells(network.clusters())
        return None if cells <= ELIMINATION_CELLS else f"elimination needs {cells:.1e} cells, over {ELIMINATION_CELLS}"
    return None


def _overrides(
    asked: dict[str, str], names: Names, nodes: Nodes, parts: list[_Part], ties: list[_Ties]
) -> dict[int, str]:
    """The executor asked for, by part; every name and executor that does not fit is reported."""
    part_of = np.full(nodes.size, -1)
    for number, part in enumerate(parts):
        part_of[part.nodes] = number
    out: dict[int, str] = {}
    problems = []
    for name, kind in asked.items():
        plane, positions = names[name]
        if plane.family.core != "categorical":
            continue
        own = np.unique(part_of[positions.reshape(-1) + nodes.offset[plane]]).tolist()
        given = f"executors= asks for '{kind}'"
        if own == [-1]:
            works = "no table ties it to another variable: there is nothing to choose"
            problems.append(Problem(name, None, given, works))
            continue
        for number in own:
            if number < 0:
                continue
            part = parts[number]
            if kind not in KINDS:
                why = f"the executors are {listed(KINDS)}"
            elif out.setdefault(number, kind) != kind:
                why = f"another name asks for '{out[number]}' for the same variables"
            else:
                why = _misfit(kind, part, nodes, ties)
            if why is not None:
                fit = [k for k in KINDS if _misfit(k, part, nodes, ties) is None]
                works = f"here {', '.join(fit)} would do; {_default(part, nodes, ties)} is the default"
                problems.append(Problem(name, None, f"{given}: {why}", works))
    if problems:
        raise ModelError(problems)
    return out


# -- building ---------------------------------------------------------------------------------------------------------


def _chains(parts: list[_Part], planes: dict[Plane, int], nodes: Nodes, ties: list[_Ties]) -> list[DiscreteChain]:
    """One executor for all chains of equal length and classes."""
    alike: dict[tuple[int, int], list[_Part]] = {}
    for part in parts:
        alike.setdefault((int(nodes.plane_of(part.nodes[:1])[0]), len(part.nodes)), []).append(part)
    out = []
    for (which, _), own in alike.items():
        order = np.stack([part.path for part in own if part.path is not None])
        local = np.full(nodes.size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        plane = nodes.planes[which]
        out.append(DiscreteChain(plane, planes[plane], order - nodes.offset[plane], _pieces(own, ties, local)))
    return out


def _pieces(parts: list[_Part], ties: list[_Ties], local: np.ndarray | None = None) -> list[TablePiece]:
    """The tables of some parts by group; with `local`, split by their direction along the chain."""
    out = []
    for t, tie in enumerate(ties):
        rows = np.sort(np.concatenate([part.rows[t] for part in parts]))
        ends = tie.ends[rows]
        forward = np.ones(len(rows), bool) if local is None else local[ends[:, 0]] < local[ends[:, 1]]
        for keep in (rows[forward], rows[~forward]):
            if len(keep):
                sides = tuple((side.plane, side.index.positions[keep]) for side in tie.edge.sides)
                out.append(TablePiece(tie.group, None if len(keep) == len(tie.ends) else keep, sides))
    return out


def _union(parts: list[_Part], nodes: Nodes, ties: list[_Ties]) -> tuple[dict[Plane, np.ndarray], list[TablePiece]]:
    every = np.sort(np.concatenate([part.nodes for part in parts]))
    return nodes.split(every), _pieces(parts, ties)


def _network(parts: list[_Part], nodes: Nodes, ties: list[_Ties]) -> Network:
    """Parts of equal shape as one batch of networks; variables go by their order in the numbering of nodes."""
    members = np.stack([part.nodes for part in parts])
    found = []
    for t, tie in enumerate(ties):
        rows = np.stack([part.rows[t] for part in parts])  # (B, tables)
        for k in range(rows.shape[1]):
            scope = np.searchsorted(members[0], tie.ends[rows[0, k]])
            found.append(Tie(tie.group, rows[:, k], tuple(scope.tolist())))
    which = nodes.plane_of(members[0])
    planes = tuple(nodes.planes[w] for w in which)
    offsets = np.asarray([nodes.offset[p] for p in planes])
    return Network(planes, members - offsets, found, _pieces(parts, ties))


def _networks(kind: str, parts: list[_Part], by_hand: set[int], nodes: Nodes, ties: list[_Ties]) -> list[Elimination]:
    """One executor for all parts of equal shape: the same tables between variables of the same planes."""
    alike: dict[Any, list[_Part]] = {}
    for part in parts:
        alike.setdefault((_shape(part, nodes, ties), id(part) in by_hand), []).append(part)
    limits = f"at most {ELIMINATION_VARIABLES} variables and {ELIMINATION_CELLS} cells: summed out exactly"
    out = []
    for (_, asked), own in alike.items():
        network = _network(own, nodes, ties)
        found = network.clusters() if kind == "elimination" else None
        out.append(Elimination(network, found, _ASKED if asked else limits))
    return out


def _cheapest(part: _Part, nodes: Nodes, ties: list[_Ties]) -> tuple[Slices, int, int] | None:
    """The layout in slices that needs the fewest cells a step, those cells, and the variables at its ends."""
    scopes = [np.searchsorted(part.nodes, tie.ends[rows]) for tie, rows in zip(ties, part.rows, strict=True)]
    found = []
    for layout in slices(nodes.plane_of(part.nodes), scopes):
        cells = _segment(layout.steps, [part], nodes, ties).cells()
        ends = layout.head.own.size + (0 if layout.tail is None else layout.tail.own.size)
        found.append((layout, cells, ends))
    return min(found, key=lambda x: x[1:], default=None)


def _segment(block: Block, parts: list[_Part], nodes: Nodes, ties: list[_Ties]) -> Segment:
    """A block of the slices of equal parts."""
    members = np.stack([part.nodes for part in parts])  # (B, variables)
    local = np.concatenate([block.incoming, block.own[0]])
    planes = tuple(nodes.planes[w] for w in nodes.plane_of(members[0, local]))
    offsets = np.asarray([nodes.offset[p] for p in planes[len(block.incoming) :]])
    found = []
    for t, rows, scope in block.ties:
        whole = np.stack([part.rows[t] for part in parts])  # (B, tables)
        found.append(Tie(ties[t].group, whole[:, rows].T, scope))
    positions = members[:, block.own].swapaxes(0, 1) - offsets
    return Segment(planes, positions, found, block.keep)


def _slice_chains(parts: list[_Part], by_hand: set[int], nodes: Nodes, ties: list[_Ties]) -> list[SliceChain]:
    """One executor for all parts of equal shape."""
    alike: dict[Any, list[_Part]] = {}
    for part in parts:
        alike.setdefault((_shape(part, nodes, ties), id(part) in by_hand), []).append(part)
    out = []
    for (_, asked), own in alike.items():
        layout = _cheapest(own[0], nodes, ties)
        assert layout is not None
        head, steps, tail = (None if b is None else _segment(b, own, nodes, ties) for b in layout[0])
        assert head is not None and steps is not None
        limit = _ASKED if asked else f"at most {SLICE_CELLS}"
        out.append(SliceChain(head, steps, tail, _pieces(own, ties), limit))
    return out
