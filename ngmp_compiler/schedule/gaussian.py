"""Schedule of the Gaussian variables: an executor for every part of them that functionals tie together.

Scalars that only one functional of three or more variables ties to others are integrated out of it first (sums). Every
part of what is left is given to the first of `registry.gaussian()` that fits it at the lowest cost (`select`): lone
variables are independent, a path of equal variables tied once each is a chain, a hub with scalars tied once each a
star, other scalars without cycles are a tree; anything else is solved jointly, as one dense matrix or along a band.
Where parts are many and differ, as in ragged collections, they share what any parts can share.
`executors={"x": "banded"}` overrides the choice for the parts that x is in.
"""

import dataclasses

import numpy as np

from ..errors import ContentsError, ModelError
from ..executors import GaussianCore, GaussianExecutor, GaussianPart, Sum, Sums, restrict
from ..executors.gaussian.bands import DENSE_LIMIT
from ..executors.gaussian.dense import too_large
from ..executors.gaussian.driven import refused
from ..executors.gaussian.star import Star
from ..executors.registry import gaussian
from ..graph.components import Nodes, Shape, components, private_nodes, shapes
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from .select import Chosen, Executors, Names, Wishes, build, default, fewer

SPACES = ("weight", "function")  # in which vectors are solved for


def schedule_gaussian(
    planes: dict[Plane, int], groups: list[FactorGroup], functionals: list, names: Names, asked: dict[str, str]
) -> tuple[Sums | None, list[GaussianExecutor]]:
    """Sums and the executors of all Gaussian variables; see the module docstring."""
    nodes, executors = Nodes(planes, [p for p in planes if p.family.core == "gaussian"]), gaussian()
    if not nodes.size:
        return None, []
    wishes = Wishes(nodes, names, asked, executors, "Gaussian", ("sums", *SPACES))
    touched = [
        np.stack([k.index.positions + nodes.offset[k.plane] for k in f.links]) for _, _, f in functionals
    ]  # each (links, n)
    anchored = _anchored_nodes(nodes, groups, functionals, touched)
    free = anchored & _may_be_private(wishes) & ~GaussianCore(planes, nodes, groups, functionals, touched).given
    private = private_nodes(nodes, [f for _, _, f in functionals], touched, free)
    _check_sums(wishes, private)
    sums = None
    if private.any():  # otherwise they are solved jointly
        sums, functionals, touched = _take_sums(planes, nodes, private, functionals, touched)
    core = GaussianCore(planes, nodes, groups, functionals, touched)
    chosen = _choose(core, _parts(core, private, wishes), executors, wishes)
    built = build(fewer(chosen, executors), executors)
    for executor, parts in built:
        _check_space(executor, parts, wishes)
    wishes.raise_all()
    return sums, [executor for executor, _ in built]


def _parts(core: GaussianCore, private: np.ndarray, wishes: Wishes) -> list[GaussianPart]:
    """The parts that functionals tie together, and the variables that none does, by plane and by what is asked for."""
    nodes, touched = core.nodes, core.touched
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    # Whatever an index may pick belongs to one part, with all that may be tied to it.
    pairs += [np.stack([table[:-1], table[1:]], 1) for _, table in core.tables()]
    found = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int))
    alone = np.bincount(found.label, minlength=found.count)[found.label] == 1
    lone = np.flatnonzero(alone & ~core.knotted & ~private)
    out = []
    for plane, positions in nodes.split(lone).items():
        at = positions + nodes.offset[plane]
        wishes.nothing(at, ("independent", *(SPACES if plane.event_shape else ())))
        for i in (-1, *wishes.among(at)):
            mine = at[wishes.of[at] == i]
            if len(mine):
                space = wishes.kinds[i] if i >= 0 and wishes.kinds[i] in SPACES else None
                out.append(GaussianPart(core, Shape(mine, None, None), lone=True, space=space))
    tied = shapes(found)
    if (alone & core.knotted).any():  # to themselves
        tied += [Shape(np.asarray([i]), None, None) for i in np.flatnonzero(alone & core.knotted)]
    core.parts = [GaussianPart(core, shape, number=p) for p, shape in enumerate(tied)]
    return out + core.parts


def _choose(core: GaussianCore, parts: list[GaussianPart], executors: Executors, wishes: Wishes) -> Chosen:
    chosen, problems = [], []
    places: set[int | None] = set()
    for part in parts:
        asked = None
        if not part.lone and wishes.among(part.nodes):
            hub = part.misfit(Star) is None and part.has_vectors
            why = None if hub else "it has no vector at the hub of a star"
            asked = wishes.choose(part, dict.fromkeys(SPACES, why), ("sums",))
        if isinstance(asked, str):
            asked, part.space = Star, asked
        part.asked = asked is not None
        executor = asked or default(part, executors)
        if executor is None:
            problems.append(refused(part) if part.degenerate else too_large(part))
            places |= core.places(part.planes)
        else:
            chosen.append((part, executor))
    wishes.raise_all()
    if problems:
        raise ContentsError(problems, places) if places else ModelError(problems)
    return chosen


def _may_be_private(wishes: Wishes) -> np.ndarray:
    """Nodes that may be integrated out of sums: all but those that something else is asked for."""
    free = np.asarray([kind == "sums" for kind in wishes.kinds] + [True])
    return free[wishes.of]


def _check_sums(wishes: Wishes, private: np.ndarray) -> None:
    for i in wishes.among(np.arange(len(private))):
        if wishes.kinds[i] == "sums" and not private[wishes.of == i].all():
            works = "leave it to the rule; sums take scalars that one functional of three or more variables ties"
            wishes.refuse(i, "another functional ties it, or it has no fixed prior of its own", works)


def _check_space(executor: GaussianExecutor, parts: list[GaussianPart], wishes: Wishes) -> None:
    """Report vectors that function space is asked for if it is not what they have."""
    for part in parts:
        for i in wishes.among(part.nodes) if part.space == "function" != executor.space else ():
            works = "here weight would do; it is the default"
            wishes.refuse(i, "function space needs a fixed prior of every vector, and rows that move", works)


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
            f = dataclasses.replace(f, links=tuple(f.links[i] for i in order))
            sums.append(Sum(restrict(number, f, None), count))
            f, t = dataclasses.replace(f, links=f.links[:count]), t[order[:count]]
        left.append((g, j, f))
        ends.append(t)
    members = nodes.split(np.flatnonzero(private))
    return Sums(planes, members, sums, unary), left, ends
