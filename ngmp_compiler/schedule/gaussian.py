"""Schedule of the Gaussian variables: an executor for every part of them that functionals tie together.

The rule, in order: scalars that only one functional of three or more variables ties to others are integrated out of it
(sums); variables coupled to nothing are solved alone; a path of equal variables tied once each is a chain; a hub with
scalars tied once each is a star; other scalars without cycles are a tree; anything else is solved jointly, as one dense
matrix or along a band, whichever costs less (`bands`). Parts of equal shape share one executor; where parts are
many and differ (`FEW`), as in ragged collections, chains of scalars become trees, those of vectors joint, in lanes.
`executors={"x": "banded"}` overrides the rule for the parts that x is in.
"""

from typing import Any, NamedTuple

import numpy as np

from ..declare.expressions import Plane
from ..executors import (
    GaussianExecutor,
    IndependentScalars,
    IndependentVectors,
    JointGaussian,
    Roles,
    ScalarChain,
    ScalarTree,
    Star,
    Sum,
    Sums,
    VectorChain,
    restrict,
)
from ..passes.lower import FactorGroup
from .bands import DENSE_LIMIT
from .components import Nodes, Shape, components, private_nodes, shapes
from .joint import Joint
from .requests import SPACES, Names, Wishes

FEW = 4  # executors of one kind that differ in size only


class _Plan(NamedTuple):
    """An executor to be built: its kind, what it is of, the executors that would do too, and a space asked for."""

    kind: str
    detail: Any
    others: tuple[str, ...]
    space: str | None = None


class _Part(NamedTuple):
    """Variables that functionals tie together, the executors that suit their shape, and the one that was chosen."""

    shape: Shape
    fit: tuple[str, ...]
    kind: str
    asked: bool = False
    space: str | None = None


def schedule_gaussian(
    planes: dict[Plane, int], groups: list[FactorGroup], functionals: list, names: Names, asked: dict[str, str]
) -> tuple[Sums | None, list[GaussianExecutor]]:
    """Sums and the executors of all Gaussian variables; see the module docstring."""
    nodes = Nodes(planes, [p for p in planes if p.family.core == "gaussian"])
    if not nodes.size:
        return None, []
    wishes = Wishes(nodes, names, asked)
    touched = [
        np.stack([k.index.positions + nodes.offset[k.plane] for k in f.links]) for _, _, f in functionals
    ]  # each (links, n)
    anchored = _anchored_nodes(nodes, groups, functionals, touched)
    private = private_nodes(nodes, [f for _, _, f in functionals], touched, anchored & wishes.private())
    wishes.check_sums(private)
    sums = None
    if private.any():  # otherwise they are solved jointly
        sums, functionals, touched = _take_sums(planes, nodes, private, functionals, touched)
    plans = _plan(planes, nodes, groups, functionals, touched, private, wishes)
    executor = np.full(nodes.size, -1)  # which executor a node belongs to
    for e, plan in enumerate(plans):
        executor[_members(plan, nodes)] = e
    pieces: list[list] = [[] for _ in plans]
    for number, ((_, _, f), t) in enumerate(zip(functionals, touched, strict=True)):
        owner = executor[t[0]] if len(t) else np.empty(0, int)
        for e in np.flatnonzero(np.bincount(owner[owner >= 0])):  # none: integrated out
            rows = None if (owner == e).all() else np.flatnonzero(owner == e)
            pieces[e].extend(restrict(number, f, r) for r in _directed(t, rows, plans[e], nodes))
    roles = _roles(groups, functionals)
    built = [_build(plan, p, planes, nodes, roles) for plan, p in zip(plans, pieces, strict=True)]
    for plan, executor in zip(plans, built, strict=True):
        executor.others = plan.others
        if getattr(executor, "vectors", None) is not None:
            wishes.check_space(_members(plan, nodes), executor.vectors.in_function_space)
    wishes.raise_all()
    return sums, built


# -- the rule ---------------------------------------------------------------------------------------------------------


def _plan(
    planes: dict[Plane, int], nodes: Nodes, groups: list[FactorGroup], functionals: list, touched: list,
    private: np.ndarray, wishes: Wishes,
) -> list[_Plan]:  # fmt: skip
    """The executors to be built."""
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    knotted = _knotted_nodes(nodes, functionals, touched)
    alone = np.bincount(found.label, minlength=found.count)[found.label] == 1
    plans = _lone(nodes, np.flatnonzero(alone & ~knotted & ~private), wishes)
    parts = shapes(found)
    if (alone & knotted).any():  # tied to themselves
        parts += [Shape(np.asarray([i]), None, None) for i in np.flatnonzero(alone & knotted)]
    wide = _wide_nodes(nodes, groups, functionals, touched)
    joint = Joint(nodes, parts, touched)
    chosen = [_choose(part, _fit(part, nodes, wide, knotted), p, joint, wishes) for p, part in enumerate(parts)]
    wishes.raise_all()
    kinds: dict[str, list[int]] = {}
    for p, part in enumerate(_few(chosen, joint)):
        chosen[p] = part
        kinds.setdefault(part.kind, []).append(p)
    stars: dict[Any, list[tuple[int, _Part]]] = {}
    for part in (chosen[p] for p in kinds.get("star", [])):
        hub = _hub(part.shape, nodes)
        satellite = part.shape.nodes[part.shape.nodes != hub][:1]
        stars.setdefault((*nodes.plane_of(np.append(satellite, hub)), part.space), []).append((hub, part))
    for (*_, space), own in stars.items():
        hubs, parts = np.sort([hub for hub, _ in own]), [part for _, part in own]
        members = np.sort(np.concatenate([part.shape.nodes for part in parts]))
        plans.append(_Plan("star", (members, hubs), _others(parts, joint), space))
    if trees := [chosen[p] for p in kinds.get("tree", [])]:  # all at once
        every = np.sort(np.concatenate([part.shape.nodes for part in trees]))
        plans.append(_Plan("tree", Shape(every, None, None), _others(trees, joint)))
    for own in _alike([chosen[p] for p in kinds.get("chain", [])], nodes):
        order = np.stack([part.shape.path for part in own if part.shape.path is not None])
        plane = nodes.planes[int(nodes.plane_of(order[0, :1])[0])]
        plans.append(_Plan("chain", (plane, order - nodes.offset[plane]), _others(own, joint)))
    for kind in ("dense", "banded"):
        own = kinds.get(kind, [])
        joint.check(kind, own, functionals, groups)
        for some, made in joint.layouts(kind, own, planes):
            parts = [chosen[p] for p in some]
            why = joint.why(kind, some, made, any(part.asked for part in parts))
            members = np.sort(np.concatenate([part.shape.nodes for part in parts]))
            plans.append(_Plan("joint", (members, kind, made, why), _others(parts, joint)))
    return plans


def _lone(nodes: Nodes, lone: np.ndarray, wishes: Wishes) -> list[_Plan]:
    """Variables coupled to no other; vectors that a space is asked for are apart."""
    plans = []
    for plane, positions in nodes.split(lone).items():
        at = positions + nodes.offset[plane]
        own = wishes.among(at)
        for i in own:
            if not np.isin(np.flatnonzero(wishes.of == i), lone).all():
                continue  # others of that name are coupled, and it is they that are meant
            if plane.event_shape and wishes.kinds[i] not in SPACES:
                wishes.refuse(i, "it is coupled to no other Gaussian variable", "here weight, function would do")
            elif not plane.event_shape:
                wishes.refuse(i, "it is coupled to no other Gaussian variable", "there is nothing to choose")
        for i in (-1, *own):
            mine = positions if not own else positions[wishes.of[at] == i]
            if len(mine):
                space = wishes.kinds[i] if i >= 0 and wishes.kinds[i] in SPACES else None
                plans.append(_Plan("independent", (plane, mine), (), space))
    return plans


def _fit(part: Shape, nodes: Nodes, wide: np.ndarray, knotted: np.ndarray) -> tuple[str, ...]:
    """The executors that suit the shape of a part, the preferred first; joint ones, which always do, left out."""
    if knotted[part.nodes].any():
        return ()
    which = nodes.plane_of(part.nodes)
    every = np.flatnonzero(np.bincount(which))
    out = []
    if part.path is not None and len(every) == 1:
        vector = bool(nodes.planes[which[0]].event_shape)
        # Vector links must all have one width; mixed ones are rare and solved jointly.
        if not vector or wide[part.nodes].all() or not wide[part.nodes].any():
            out.append("chain")
    if part.hub is not None and not wide[part.nodes].any():
        satellites = part.nodes[part.nodes != part.hub]
        pair = len(part.nodes) == 2 and len(every) == 2 and not all(nodes.planes[w].event_shape for w in every)
        if pair or all(not p.event_shape for p in nodes.split(satellites)):
            out.append("star")
    if part.tree and not any(nodes.planes[w].event_shape for w in every):
        out.append("tree")
    return tuple(out)


def _choose(part: Shape, fit: tuple[str, ...], p: int, joint: Joint, wishes: Wishes) -> _Part:
    asked = None
    if wishes.among(part.nodes):
        vector = any(plane.event_shape for plane in joint.nodes.split(part.nodes))
        spaces = SPACES if "star" in fit and vector else ()
        asked = wishes.choose(part.nodes, (*fit, *joint.fit(p), *spaces), joint.misfits(p))
    if asked is not None:
        return _Part(part, fit, "star" if asked in SPACES else asked, True, asked if asked in SPACES else None)
    return _Part(part, fit, fit[0] if fit else joint.best(p))


def _few(parts: list[_Part], joint: Joint) -> list[_Part]:
    """Chains of many lengths become trees, or joint where they hold vectors: programs stay small.

    What has half of their variables or more keeps its own executor.
    """
    chains = _alike([p for p in parts if p.kind == "chain"], joint.nodes)
    if len(chains) <= FEW:
        return parts
    sizes = [sum(len(p.shape.nodes) for p in own) for own in chains]
    pairs = zip(chains, sizes, strict=True)
    minor = {id(p) for own, size in pairs if 2 * size < sum(sizes) for p in own if not p.asked}
    out = []
    for p, part in enumerate(parts):
        if id(part) in minor:
            part = part._replace(kind="tree" if "tree" in part.fit else joint.best(p))
        out.append(part)
    return out


def _alike(parts: list[_Part], nodes: Nodes) -> list[list[_Part]]:
    """Parts with as many variables of the same plane."""
    out: dict[Any, list[_Part]] = {}
    for part in parts:
        out.setdefault((int(nodes.plane_of(part.shape.nodes[:1])[0]), len(part.shape.nodes)), []).append(part)
    return list(out.values())


def _others(parts: list[_Part], joint: Joint) -> tuple[str, ...]:
    """The executors that all of some parts could have instead; whether a band is too wide is only seen when asked."""
    own = parts[0].kind
    shared = [kind for kind in ("chain", "star", "tree") if all(kind in part.fit for part in parts)]
    small = all(joint.dimensions(part.shape) <= DENSE_LIMIT for part in parts)
    return tuple(kind for kind in (*shared, *("dense",) * small, "banded") if kind != own)


# -- what nodes are ---------------------------------------------------------------------------------------------------


def _anchored_nodes(nodes: Nodes, groups: list[FactorGroup], functionals: list, touched: list) -> np.ndarray:
    """Nodes with a precision of their own that does not come from a sum; in parts too large for a joint solution, one
    that moves must do. None if there are no sums to take them out of."""
    if all(len(t) < 3 for t in touched):
        return np.zeros(nodes.size, bool)
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


def _knotted_nodes(nodes: Nodes, functionals: list, touched: list) -> np.ndarray:
    """Nodes of a functional with three or more ends, with two ends on one variable, or that stacks scalars: no chain
    and no star."""
    knotted = np.zeros(nodes.size, bool)
    for (_, _, f), t in zip(functionals, touched, strict=True):
        if len(t) > 2 or (f.width is not None and any(not link.plane.event_shape for link in f.links)):
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


# -- building ---------------------------------------------------------------------------------------------------------


def _members(plan: _Plan, nodes: Nodes) -> np.ndarray:
    """The nodes of an executor."""
    if plan.kind in ("independent", "chain"):
        plane, positions = plan.detail
        return positions.reshape(-1) + nodes.offset[plane]
    return plan.detail[0] if plan.kind in ("joint", "star") else plan.detail.nodes


def _directed(t: np.ndarray, rows: np.ndarray | None, plan: _Plan, nodes: Nodes) -> list[np.ndarray | None]:
    """Split rows by the direction in which they run along a chain, or by the end that is the hub of a star."""
    if plan.kind == "star":
        every = np.arange(t.shape[1]) if rows is None else rows
        hub = np.isin(t[:, every], plan.detail[1])
        where = np.where(hub.any(0), hub.argmax(0), -1)
        return [rows] if (where == where[0]).all() else [every[where == w] for w in np.unique(where)]
    if plan.kind != "chain" or len(t) == 1:
        return [rows]
    plane, order = plan.detail
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
    priors = frozenset(f for f in lone if _declares(groups[functionals[f][0]]))
    several = frozenset(f for f, (g, _, _) in enumerate(functionals) if f not in fixed and len(groups[g].edges) > 1)
    return Roles(fixed, priors, several)


def _declares(group: FactorGroup) -> bool:
    return not group.observed and group.mask is None


def _build(plan: _Plan, pieces: list, planes: dict, nodes: Nodes, roles: Roles) -> Any:
    kind, detail, _, space = plan
    if kind == "independent":
        plane, positions = detail
        if not plane.event_shape:
            return IndependentScalars(plane, planes[plane], positions, pieces, roles)
        return IndependentVectors(plane, planes[plane], positions, pieces, roles, space)
    if kind == "chain":
        plane, order = detail
        make = VectorChain if plane.event_shape else ScalarChain
        return make(plane, planes[plane], order, pieces)
    if kind == "joint":
        members, name, made, why = detail
        return JointGaussian(name, nodes.split(members), pieces, made, why)
    if kind == "star":
        members, hubs = detail
        (centres,) = nodes.split(hubs).items()
        (satellites,) = nodes.split(members[~np.isin(members, hubs)]).items()
        return Star(planes, centres, satellites, pieces, roles, space)
    return ScalarTree(planes, nodes.split(detail.nodes), pieces)
