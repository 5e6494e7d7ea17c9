"""Schedule: an executor for every connected part of the conjugate core, chosen by shape.

`schedule(rolled, groups) -> Plan`. The rule, in order: variables coupled to nothing are solved alone; a path of equal
variables tied once each is a chain; one hub with scalars tied once each is a star; anything else of at most
`DENSE_LIMIT` dimensions is solved jointly. Parts of equal shape share one executor.
"""

from typing import Any, NamedTuple

import numpy as np

from ngmp_kernels.families import Categorical, Gaussian, MvGaussian

from ._components import Shape, components, shapes
from ._errors import ModelError, Problem
from ._expressions import Plane
from ._roll import Rolled
from ._type import FactorGroup, Functional, PairEdge
from .executors import (
    DenseGaussian,
    DiscreteChain,
    DiscreteIndependent,
    Enumeration,
    GaussianExecutor,
    IndependentScalars,
    IndependentVectors,
    PairPiece,
    ScalarChain,
    Star,
    VectorChain,
    restrict,
)

DENSE_LIMIT = 4096
ENUMERATION_LIMIT = 2**16


class Plan(NamedTuple):
    """A scheduled model: everything `emit` needs to write the fixed-point map."""

    planes: dict[Plane, int]
    names: dict[str, tuple[Plane, np.ndarray]]
    groups: list[FactorGroup]
    functionals: list[tuple[int, int, Functional]]  # (group, interface, functional)
    gaussian: list[GaussianExecutor]
    discrete: list[Any]
    dtype: Any


class _Nodes:
    """One numbering for the variables of several planes."""

    def __init__(self, planes: dict[Plane, int], wanted: list[Plane]):
        self.planes = wanted
        self.offset, total = {}, 0
        for plane in wanted:
            self.offset[plane] = total
            total += planes[plane]
        self.size = total
        self.bounds = np.asarray([self.offset[p] for p in wanted] + [total])

    def plane_of(self, nodes: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.bounds, nodes, side="right") - 1

    def split(self, nodes: np.ndarray) -> dict[Plane, np.ndarray]:
        """Positions by plane."""
        which = self.plane_of(nodes)
        return {p: nodes[which == i] - self.offset[p] for i, p in enumerate(self.planes) if (which == i).any()}


def schedule(rolled: Rolled, groups: list[FactorGroup], dtype: Any) -> Plan:
    """Choose the executors; see the module docstring."""
    edges = [(g, j, edge) for g, group in enumerate(groups) for j, edge in enumerate(group.edges)]
    functionals = [(g, j, edge) for g, j, edge in edges if isinstance(edge, Functional)]
    gaussian = _gaussian(rolled.planes, groups, functionals)
    discrete = _discrete(rolled.planes, groups)
    return Plan(rolled.planes, rolled.names, groups, functionals, gaussian, discrete, dtype)


def _gaussian(planes: dict[Plane, int], groups: list[FactorGroup], functionals: list) -> list[GaussianExecutor]:
    nodes = _Nodes(planes, [p for p in planes if p.family in (Gaussian, MvGaussian)])
    if not nodes.size:
        return []
    touched = [
        np.stack([k.index.positions + nodes.offset[k.plane] for k in f.links]) for _, _, f in functionals
    ]  # each (links, n)
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    parts = shapes(found)
    executor = np.full(nodes.size, -1)  # which executor a node belongs to
    plans: list[tuple[str, Any]] = []
    knotted = _knotted_nodes(nodes, touched)
    alone = np.bincount(found.label, minlength=found.count)[found.label] == 1
    for plane, positions in nodes.split(np.flatnonzero(alone & ~knotted)).items():
        executor[positions + nodes.offset[plane]] = len(plans)
        plans.append(("independent", (plane, positions)))
    if (alone & knotted).any():  # tied to themselves
        parts.append(Shape(np.flatnonzero(alone & knotted), None, None))
    wide = _wide_nodes(nodes, functionals, touched)
    chains: dict[Any, list[np.ndarray]] = {}
    for part in parts:
        kind = "dense" if knotted[part.nodes].any() else _classify(part, nodes, wide)
        if kind == "star":
            part = part._replace(hub=_hub(part, nodes))
        if kind == "chain":
            path = part.path
            assert path is not None
            chains.setdefault((int(nodes.plane_of(path[:1])[0]), len(path)), []).append(path)
            continue
        executor[part.nodes] = len(plans)
        plans.append((kind, part))
    for (plane_number, _), paths in chains.items():
        order = np.stack(paths)
        executor[order.reshape(-1)] = len(plans)
        plane = nodes.planes[plane_number]
        plans.append(("chain", (plane, order - nodes.offset[plane])))
    pieces: list[list] = [[] for _ in plans]
    for number, ((_, _, f), t) in enumerate(zip(functionals, touched, strict=True)):
        owner = executor[t[0]]
        for e in np.unique(owner):
            rows = None if (owner == e).all() else np.flatnonzero(owner == e)
            pieces[e].extend(restrict(number, f, r) for r in _directed(t, rows, plans[e], nodes))
    return [_build(plan, p, planes, nodes, groups, functionals) for plan, p in zip(plans, pieces, strict=True)]


def _wide_nodes(nodes: _Nodes, functionals: list, touched: list) -> np.ndarray:
    """Nodes tied by vector-valued functionals, which a star cannot integrate out."""
    wide = np.zeros(nodes.size, bool)
    for (_, _, f), t in zip(functionals, touched, strict=True):
        if len(f.links) > 1 and f.width is not None:
            wide[t.reshape(-1)] = True
    return wide


def _knotted_nodes(nodes: _Nodes, touched: list) -> np.ndarray:
    """Nodes of a functional with three or more ends, or with two ends on one variable: no chain and no star."""
    knotted = np.zeros(nodes.size, bool)
    for t in touched:
        if len(t) > 2:
            knotted[t.reshape(-1)] = True
        elif len(t) == 2:
            knotted[t[0][t[0] == t[1]]] = True
    return knotted


def _hub(part: Shape, nodes: _Nodes) -> int:
    """The hub of a star; of two ends the vector."""
    vectors = [x[0] + nodes.offset[p] for p, x in nodes.split(part.nodes).items() if p.event_shape]
    if vectors:
        return int(vectors[0])
    assert part.hub is not None
    return part.hub


def _classify(part: Shape, nodes: _Nodes, wide: np.ndarray) -> str:
    which = nodes.plane_of(part.nodes)
    if part.path is not None and (which == which[0]).all():
        vector = bool(nodes.planes[which[0]].event_shape)
        # Vector links must all have one width; mixed ones are rare and go to the dense executor.
        if not vector or wide[part.nodes].all() or not wide[part.nodes].any():
            return "chain"
    if part.hub is not None and not wide[part.nodes].any():
        satellites = part.nodes[part.nodes != part.hub]
        if all(not p.event_shape for p in nodes.split(satellites)):
            return "star"
        if len(part.nodes) == 2 and len(set(which)) == 2 and not all(nodes.planes[w].event_shape for w in which):
            return "star"
    return "dense"


def _directed(t: np.ndarray, rows: np.ndarray | None, plan: tuple[str, Any], nodes: _Nodes) -> list[np.ndarray | None]:
    """Split rows by the direction in which they run along a chain, or by the end that is the hub of a star."""
    kind, detail = plan
    if kind == "star":
        every = np.arange(t.shape[1]) if rows is None else rows
        hub = t[:, every] == detail.hub
        where = np.where(hub.any(0), hub.argmax(0), -1)
        return [rows] if (where == where[0]).all() else [every[where == w] for w in np.unique(where)]
    if kind != "chain" or len(t) == 1:
        return [rows]
    plane, order = detail
    local = np.full(nodes.size, -1)
    local[order.reshape(-1) + nodes.offset[plane]] = np.arange(order.size)
    every = np.arange(t.shape[1]) if rows is None else rows
    forward = local[t[0][every]] > local[t[1][every]]
    if forward.all() or not forward.any():
        return [rows]
    return [every[forward], every[~forward]]


def _build(plan: tuple[str, Any], pieces: list, planes: dict, nodes: _Nodes, groups: list, functionals: list) -> Any:
    kind, detail = plan
    if kind == "independent":
        plane, positions = detail
        make = IndependentVectors if plane.event_shape else IndependentScalars
        return make(plane, planes[plane], positions, pieces)
    if kind == "chain":
        plane, order = detail
        make = VectorChain if plane.event_shape else ScalarChain
        return make(plane, planes[plane], order, pieces)
    members = nodes.split(detail.nodes)
    if kind == "star":
        hub = detail.hub
        ((hub_plane, hub_position),) = ((p, int(x[0])) for p, x in nodes.split(np.asarray([hub])).items())
        ((plane, satellites),) = nodes.split(detail.nodes[detail.nodes != hub]).items()
        return Star(planes, (hub_plane, hub_position), (plane, satellites), pieces)
    total = sum(len(x) * (p.event_shape[0] if p.event_shape else 1) for p, x in members.items())
    if total > DENSE_LIMIT:
        sites = sorted({groups[functionals[p.functional][0]].name for p in pieces})
        raise ModelError(
            Problem(
                ", ".join(sites),
                None,
                f"they tie {total} Gaussian dimensions in a shape that is no chain and no star",
                f"joint solution is limited to {DENSE_LIMIT} dimensions; declare the states as vectors or a scan",
            )
        )
    return DenseGaussian(planes, members, pieces, "Gaussian variables tied in a shape that is no chain and no star")


def _discrete(planes: dict[Plane, int], groups: list[FactorGroup]) -> list[Any]:
    nodes = _Nodes(planes, [p for p in planes if p.family is Categorical])
    if not nodes.size:
        return []
    first = [(g, group.edges[0]) for g, group in enumerate(groups) if group.edges]
    ties = [(g, edge) for g, edge in first if isinstance(edge, PairEdge)]
    ends = [
        np.stack([e.index.positions + nodes.offset[e.plane] for e in edge], 1) for _, edge in ties
    ]  # each (n, 2)
    found = components(nodes.size, np.concatenate(ends) if ends else np.empty((0, 2), int))
    executors: list[Any] = []
    lone = np.flatnonzero(np.bincount(found.label, minlength=found.count)[found.label] == 1)
    for plane, positions in nodes.split(lone).items():
        executors.append(DiscreteIndependent(plane, positions))
    chains: dict[Any, list[np.ndarray]] = {}
    for part in shapes(found):
        which = nodes.plane_of(part.nodes)
        if part.path is not None and (which == which[0]).all():
            chains.setdefault((int(which[0]), len(part.path)), []).append(part.path)
            continue
        members = [(p, int(x)) for p, positions in nodes.split(part.nodes).items() for x in positions]
        states = np.prod([float(p.event_shape[0]) for p, _ in members])
        if states > ENUMERATION_LIMIT:
            sites = ", ".join(sorted({groups[g].name for g, _ in ties}))
            limit = f"joint tables are limited to {ENUMERATION_LIMIT} states"
            raise ModelError(Problem(sites, None, f"{len(members)} categorical variables tied in no chain", limit))
        executors.append(Enumeration(members, _pairs(ties, ends, part.nodes, None)))
    for (plane_number, _), paths in chains.items():
        order = np.stack(paths)
        plane = nodes.planes[plane_number]
        local = np.full(nodes.size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        pieces = _pairs(ties, ends, order.reshape(-1), local)
        executors.append(DiscreteChain(plane, planes[plane], order - nodes.offset[plane], pieces))
    return executors


def _pairs(ties: list, ends: list[np.ndarray], members: np.ndarray, local: np.ndarray | None) -> list[PairPiece]:
    """The rows of every pairwise group inside `members`, split by direction along the chain if there is one."""
    out = []
    for (g, edge), end in zip(ties, ends, strict=True):
        inside = np.isin(end[:, 0], members)
        forward = np.ones(len(end), bool) if local is None else local[end[:, 0]] < local[end[:, 1]]
        for keep in (inside & forward, inside & ~forward):
            if keep.any():
                rows = None if keep.all() else np.flatnonzero(keep)
                pick = slice(None) if rows is None else rows
                sides = [(e.plane, e.index.positions[pick]) for e in edge]
                out.append(PairPiece(g, rows, *sides))
    return out
