"""Which groups of a model are drawn when: every outcome after the variables that its site depends on."""

from collections import deque
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ngmp_kernels import EnergyOf, GenericDensity, ReportFactor

from ..declare.affine import Affine
from ..declare.expressions import leaves_of
from ..declare.variables import Variable
from ..errors import ModelError, Problem
from ..graph.groups import FactorGroup
from ..pipeline import Front
from .outcomes import unit_rows


class Step(NamedTuple):
    """Groups that are drawn together, and the outcomes (levels, most) of each by level; None: all at once."""

    groups: tuple[int, ...]
    levels: tuple[np.ndarray, ...] | None  # padded with the number of outcomes of the group


def order(front: Front) -> list[Step]:
    """All groups of latent outcomes, each after those it depends on; one error names all that have no direction."""
    latent = [i for i, g in enumerate(front.groups) if not g.observed and not isinstance(g.factor, ReportFactor)]
    latent = [i for i in latent if not _without_variables(front.groups[i])]
    _check(front, latent)
    outs = {i: made(front.groups[i]) for i in latent}
    used = {i: _used(front.groups[i]) for i in latent}
    owner = {plane: np.full(n, -1) for plane, n in front.rolled.planes.items()}
    for i, (plane, at) in outs.items():
        owner[plane][at] = i
    after = {i: {int(j) for plane, at in used[i] for j in np.unique(owner[plane][at]) if j >= 0} for i in latent}
    steps = []
    for together in _sorted(after):
        alone = len(together) == 1 and together[0] not in after[together[0]]
        steps.append(Step(together, None if alone else _levels(front, together)))
    return steps


def _without_variables(group: FactorGroup) -> bool:
    leaves = leaves_of(group.given.arguments).values()
    return not any(isinstance(x, Variable) for own in leaves for x in own)


def _check(front: Front, latent: list[int]) -> None:
    problems, owned = [], {plane: np.zeros(n, int) for plane, n in front.rolled.planes.items()}
    for i in latent:
        group = front.groups[i]
        out = group.given.arguments.get("out")
        distribution = group.given.distribution
        if isinstance(getattr(distribution, "base", distribution), GenericDensity | EnergyOf):
            given = f"an {distribution.label} has no generative direction"
            works = "declare it with ngmp.sample to simulate it"
            problems.append(Problem(group.given.name, None, given, works))
        elif isinstance(out, Affine) and out.terms[0].coefficient.shape[0] < out.terms[0].coefficient.shape[-1]:
            given = "its precision is singular: an improper prior has no draws"
            problems.append(Problem(group.given.name, None, given, "constrain it, or add to the diagonal (ngmp.car)"))
        elif out is not None:
            plane, at = made(group)
            np.add.at(owned[plane], np.unique(at), 1)
    if problems:
        raise ModelError(problems)
    for name, (plane, at, _) in front.rolled.collections.items():
        if (owned[plane][at] > 1).any():
            problems.append(Problem(name, None, "several factors declare it", "a variable with one prior can be drawn"))
    if problems:
        raise ModelError(problems)


def made(group: FactorGroup) -> tuple[Any, np.ndarray]:
    """The variables that the outcomes of a group are, one for each."""
    out = group.given.arguments["out"]
    if isinstance(out, Affine):
        (term,) = out.terms
        return term.variable.plane, np.unique(term.variable.index)
    return out.plane, out.index[unit_rows(group.given)[0]]


def _used(group: FactorGroup) -> list[tuple[Any, np.ndarray]]:
    """The variables that the arguments of a group hold; of an index that is an input, all it may pick."""
    arguments = {k: x for k, x in group.given.arguments.items() if k != "out"}
    found = [x for own in leaves_of(arguments).values() for x in own if isinstance(x, Variable)]
    return [(x.plane, x.frame.source.index if x.picked else x.index) for x in found]


def _sorted(after: dict[int, set[int]]) -> list[tuple[int, ...]]:
    """Groups that depend on each other together, each such set after those it depends on."""
    nodes = sorted(after)
    place = {i: k for k, i in enumerate(nodes)}
    pairs = np.array([(place[i], place[j]) for i in nodes for j in after[i]], int).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(nodes), len(nodes)))
    _, label = connected_components(graph, connection="strong")
    before = {int(k): set() for k in label}
    for i, j in pairs:
        if label[i] != label[j]:
            before[int(label[i])].add(int(label[j]))
    return [tuple(nodes[k] for k in np.flatnonzero(label == own)) for own in TopologicalSorter(before).static_order()]


def _levels(front: Front, together: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The outcomes of groups that depend on each other, by level: (levels, most) for each group, padded."""
    groups = [front.groups[i] for i in together]
    leaves = (x for g in groups for own in leaves_of(g.given.arguments).values() for x in own)
    if any(isinstance(x, Variable) and x.picked for x in leaves):
        given = "an index that is an input picks variables of a chain, along the chain"
        raise ModelError(Problem(groups[0].given.name, None, given, "simulate with the index as a constant"))
    counts = [unit_rows(g.given).shape[1] for g in groups]
    starts = np.cumsum([0, *counts])
    owner = {plane: np.full(n, -1) for plane, n in front.rolled.planes.items()}
    for g, start, count in zip(groups, starts, counts, strict=False):
        plane, at = made(g)
        owner[plane][at] = start + np.arange(count)
    pairs = [np.empty((0, 2), int)]
    for g, start in zip(groups, starts, strict=False):
        rows = unit_rows(g.given)
        unit = np.empty(g.n, int)
        unit[rows] = start + np.arange(rows.shape[1])
        for plane, at in _used(g):
            parent = owner[plane][np.broadcast_to(at, (g.n,))]
            pairs.append(np.stack([parent[parent >= 0], unit[parent >= 0]], 1))
    level = _depths(np.unique(np.concatenate(pairs), axis=0), int(starts[-1]))
    if level is None:
        given = "its factors depend on each other in a circle"
        raise ModelError(Problem(groups[0].given.name, None, given, "a model whose sites are in order can be drawn"))
    return tuple(_by_level(level[a:b], int(level.max()) + 1) for a, b in zip(starts[:-1], starts[1:], strict=True))


def _depths(pairs: np.ndarray, size: int) -> np.ndarray | None:
    """The longest path to every node of a graph of pairs (parent, child); None if there is a circle."""
    children: list[list[int]] = [[] for _ in range(size)]
    left, level = [0] * size, [0] * size
    for parent, child in pairs.tolist():
        children[parent].append(child)
        left[child] += 1
    ready, done = deque(i for i in range(size) if not left[i]), 0
    while ready:
        i = ready.popleft()
        done += 1
        for j in children[i]:
            level[j] = max(level[j], level[i] + 1)
            left[j] -= 1
            if not left[j]:
                ready.append(j)
    return np.asarray(level) if done == size else None


def _by_level(level: np.ndarray, levels: int) -> np.ndarray:
    sorted_ = np.argsort(level, kind="stable")
    counts = np.bincount(level, minlength=levels)
    out = np.full((levels, max(int(counts.max()), 1)), level.size)
    place = np.arange(level.size) - np.repeat(np.cumsum(counts) - counts, counts)
    out[level[sorted_], place] = sorted_
    return out
