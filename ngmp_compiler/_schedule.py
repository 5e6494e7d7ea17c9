"""Schedule: an executor for every connected part of the conjugate core, chosen by shape.

`schedule(rolled, groups) -> Plan`. The rule, in order: variables coupled to nothing are solved alone; a path of equal
variables tied once each is a chain; a hub with scalars tied once each is a star; other scalars without cycles are
a tree; anything else of at most `DENSE_LIMIT` dimensions is solved jointly. Parts of equal shape share one executor.
Before that, scalars that only one functional of three or more variables ties to others are integrated out of it.
"""

from typing import Any, NamedTuple

import numpy as np

from ngmp_kernels.families import Categorical, Gaussian, MvGaussian

from ._components import Nodes, Shape, components, private_nodes, shapes
from ._errors import ModelError, Problem, listed
from ._expressions import Plane
from ._roll import Collection, Rolled
from ._schedule_discrete import schedule_discrete
from ._type import FactorGroup, Functional
from .executors import (
    DenseGaussian,
    GaussianExecutor,
    IndependentScalars,
    IndependentVectors,
    Roles,
    ScalarChain,
    ScalarTree,
    Star,
    Sum,
    Sums,
    VectorChain,
    restrict,
)

DENSE_LIMIT = 4096


class Plan(NamedTuple):
    """A scheduled model: everything `emit` needs to write the fixed-point map."""

    planes: dict[Plane, int]
    names: dict[str, tuple[Plane, np.ndarray]]
    collections: dict[str, Collection]  # the same names, as they are stored
    groups: list[FactorGroup]
    functionals: list[tuple[int, int, Functional]]  # (group, interface, functional)
    sums: Sums | None
    gaussian: list[GaussianExecutor]
    discrete: list[Any]
    dtype: Any


def schedule(rolled: Rolled, groups: list[FactorGroup], dtype: Any, executors: dict[str, str]) -> Plan:
    """Choose the executors, or the ones asked for by the name of a variable; see the module docstring."""
    _check_names(executors, rolled.names)
    edges = [(g, j, edge) for g, group in enumerate(groups) for j, edge in enumerate(group.edges)]
    functionals = [(g, j, edge) for g, j, edge in edges if isinstance(edge, Functional)]
    sums, gaussian = _gaussian(rolled.planes, groups, functionals)
    discrete = schedule_discrete(rolled.planes, groups, rolled.names, executors)
    return Plan(rolled.planes, rolled.names, rolled.collections, groups, functionals, sums, gaussian, discrete, dtype)


def _check_names(executors: dict[str, str], names: dict[str, tuple[Plane, np.ndarray]]) -> None:
    problems = []
    for name in executors:
        if name not in names:
            problems.append(Problem(name, None, "executors= names no variable", f"there are {listed(names)}"))
        elif names[name][0].family is not Categorical:
            given = f"executors= names it, a {names[name][0].family.__name__} variable"
            problems.append(Problem(name, None, given, "only the executors of categorical variables can be chosen"))
    if problems:
        raise ModelError(problems)


def _gaussian(
    planes: dict[Plane, int], groups: list[FactorGroup], functionals: list
) -> tuple[Sums | None, list[GaussianExecutor]]:
    nodes = Nodes(planes, [p for p in planes if p.family in (Gaussian, MvGaussian)])
    if not nodes.size:
        return None, []
    touched = [
        np.stack([k.index.positions + nodes.offset[k.plane] for k in f.links]) for _, _, f in functionals
    ]  # each (links, n)
    anchored = _anchored_nodes(nodes, groups, functionals, touched)
    private = private_nodes(nodes, [f for _, _, f in functionals], touched, anchored)
    sums = None
    if private.any():
        sums, functionals, touched = _take_sums(planes, nodes, private, functionals, touched)
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    parts = shapes(found)
    trees: list[np.ndarray] = []
    executor = np.full(nodes.size, -1)  # which executor a node belongs to
    plans: list[tuple[str, Any]] = []
    knotted = _knotted_nodes(nodes, touched)
    alone = np.bincount(found.label, minlength=found.count)[found.label] == 1
    for plane, positions in nodes.split(np.flatnonzero(alone & ~knotted & ~private)).items():
        executor[positions + nodes.offset[plane]] = len(plans)
        plans.append(("independent", (plane, positions)))
    if (alone & knotted).any():  # tied to themselves
        parts.append(Shape(np.flatnonzero(alone & knotted), None, None))
    wide = _wide_nodes(nodes, groups, functionals, touched)
    chains: dict[Any, list[np.ndarray]] = {}
    stars: dict[Any, list[tuple[int, np.ndarray]]] = {}  # hub and members
    for part in parts:
        kind = "dense" if knotted[part.nodes].any() else _classify(part, nodes, wide)
        if kind == "star":
            hub = _hub(part, nodes)
            stars.setdefault(int(nodes.plane_of(np.asarray([hub]))[0]), []).append((hub, part.nodes))
            continue
        if kind == "chain":
            path = part.path
            assert path is not None
            chains.setdefault((int(nodes.plane_of(path[:1])[0]), len(path)), []).append(path)
            continue
        if kind == "tree":
            trees.append(part.nodes)
            continue
        executor[part.nodes] = len(plans)
        plans.append((kind, part))
    if trees:  # all at once
        part = Shape(np.sort(np.concatenate(trees)), None, None)
        executor[part.nodes] = len(plans)
        plans.append(("tree", part))
    for alike in stars.values():
        hubs, members = np.sort([hub for hub, _ in alike]), np.sort(np.concatenate([own for _, own in alike]))
        executor[members] = len(plans)
        plans.append(("star", (hubs, members)))
    for (plane_number, _), paths in chains.items():
        order = np.stack(paths)
        executor[order.reshape(-1)] = len(plans)
        plane = nodes.planes[plane_number]
        plans.append(("chain", (plane, order - nodes.offset[plane])))
    pieces: list[list] = [[] for _ in plans]
    for number, ((_, _, f), t) in enumerate(zip(functionals, touched, strict=True)):
        owner = executor[t[0]] if len(t) else np.empty(0, int)
        for e in np.unique(owner[owner >= 0]):  # none: integrated out
            rows = None if (owner == e).all() else np.flatnonzero(owner == e)
            pieces[e].extend(restrict(number, f, r) for r in _directed(t, rows, plans[e], nodes))
    return sums, [_build(plan, p, planes, nodes, groups, functionals) for plan, p in zip(plans, pieces, strict=True)]


def _anchored_nodes(nodes: Nodes, groups: list[FactorGroup], functionals: list, touched: list) -> np.ndarray:
    """Nodes with a precision of their own that does not come from a sum; in parts too large for a joint solution, one
    that moves must do."""
    fixed, moving = np.zeros(nodes.size, bool), np.zeros(nodes.size, bool)
    for (g, _, _), t in zip(functionals, touched, strict=True):
        if len(t) == 1:
            which = fixed if groups[g].conjugate and groups[g].mask is None else moving
            which[t[0]] = True
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    label = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int)).label
    return fixed | (moving & (np.bincount(label)[label] > DENSE_LIMIT))


def _take_sums(
    planes: dict[Plane, int], nodes: Nodes, private: np.ndarray, functionals: list, touched: list
) -> tuple[Sums, list, list]:
    """Integrate the private scalars out: the functionals without them."""
    sums, unary, left, ends = [], [], [], []
    for number, ((g, j, f), t) in enumerate(zip(functionals, touched, strict=True)):
        own = private[t]
        if len(t) == 1:
            rows = None if own[0].all() else np.flatnonzero(own[0])
            unary += [restrict(number, f, rows)] if own.any() else []
        elif own.any():  # the same links in every row
            order = [i for i in range(len(t)) if not own[i].any()]
            count = len(order)
            order += [i for i in range(len(t)) if own[i].any()]
            f = f._replace(links=tuple(f.links[i] for i in order))
            sums.append(Sum(restrict(number, f, None), count))
            f, t = f._replace(links=f.links[:count]), t[order[:count]]
        left.append((g, j, f))
        ends.append(t)
    members = nodes.split(np.flatnonzero(private))
    return Sums(planes, members, sums, unary), left, ends


def _wide_nodes(nodes: Nodes, groups: list[FactorGroup], functionals: list, touched: list) -> np.ndarray:
    """Nodes tied by vector-valued functionals, or with one that moves: a star cannot integrate them out."""
    wide = np.zeros(nodes.size, bool)
    for (g, _, f), t in zip(functionals, touched, strict=True):
        if f.width is not None and (len(f.links) > 1 or not groups[g].conjugate):
            wide[t.reshape(-1)] = True
    return wide


def _knotted_nodes(nodes: Nodes, touched: list) -> np.ndarray:
    """Nodes of a functional with three or more ends, or with two ends on one variable: no chain and no star."""
    knotted = np.zeros(nodes.size, bool)
    for t in touched:
        if len(t) > 2:
            knotted[t.reshape(-1)] = True
        elif len(t) == 2:
            knotted[t[0][t[0] == t[1]]] = True
    return knotted


def _hub(part: Shape, nodes: Nodes) -> int:
    """The hub of a star; of two ends the vector."""
    vectors = [x[0] + nodes.offset[p] for p, x in nodes.split(part.nodes).items() if p.event_shape]
    if vectors:
        return int(vectors[0])
    assert part.hub is not None
    return part.hub


def _classify(part: Shape, nodes: Nodes, wide: np.ndarray) -> str:
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
    if part.tree and not any(nodes.planes[w].event_shape for w in set(which)):
        return "tree"
    return "dense"


def _directed(t: np.ndarray, rows: np.ndarray | None, plan: tuple[str, Any], nodes: Nodes) -> list[np.ndarray | None]:
    """Split rows by the direction in which they run along a chain, or by the end that is the hub of a star."""
    kind, detail = plan
    if kind == "star":
        every = np.arange(t.shape[1]) if rows is None else rows
        hub = np.isin(t[:, every], detail[0])
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


def _roles(groups: list[FactorGroup], functionals: list) -> Roles:
    """Conjugate functionals do not move; of those the unmasked priors of single variables are proper."""
    fixed = frozenset(f for f, (g, _, _) in enumerate(functionals) if groups[g].conjugate)
    lone = (f for f in fixed if len(functionals[f][2].links) == 1 and functionals[f][2].links[0].op == "scale")
    return Roles(fixed, frozenset(f for f in lone if _declares(groups[functionals[f][0]])))


def _declares(group: FactorGroup) -> bool:
    return not group.observed and group.mask is None


def _build(plan: tuple[str, Any], pieces: list, planes: dict, nodes: Nodes, groups: list, functionals: list) -> Any:
    kind, detail = plan
    if kind == "independent":
        plane, positions = detail
        if not plane.event_shape:
            return IndependentScalars(plane, planes[plane], positions, pieces)
        return IndependentVectors(plane, planes[plane], positions, pieces, _roles(groups, functionals))
    if kind == "chain":
        plane, order = detail
        make = VectorChain if plane.event_shape else ScalarChain
        return make(plane, planes[plane], order, pieces)
    if kind == "star":
        hubs, members = detail
        (centre,) = nodes.split(hubs).items()
        (satellites,) = nodes.split(members[~np.isin(members, hubs)]).items()
        return Star(planes, centre, satellites, pieces, _roles(groups, functionals))
    members = nodes.split(detail.nodes)
    if kind == "tree":
        return ScalarTree(planes, members, pieces)
    total = sum(len(x) * (p.event_shape[0] if p.event_shape else 1) for p, x in members.items())
    if total > DENSE_LIMIT:
        sites = sorted({groups[functionals[p.functional][0]].name for p in pieces})
        raise ModelError(
            Problem(
                ", ".join(sites),
                None,
                f"they tie {total} Gaussian dimensions in a shape that is no chain, star or tree",
                f"joint solution is limited to {DENSE_LIMIT} dimensions; declare the states as vectors or a scan",
            )
        )
    return DenseGaussian(planes, members, pieces, "Gaussian variables tied in cycles")
