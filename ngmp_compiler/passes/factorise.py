"""Factorise: under a mean-field rule, take apart what belongs to different clusters.

VMP, NCVMP and PVMP assume a product of clusters. By default every variable, element by element, is a cluster of its
own, so a functional of several variables becomes a sum of independent parts with a leaf each. With
`factorise=[(("z0", "z"), "tau")]` the variables z0 and z stay joint (structured VMP): a chain stays a chain in the
core, with the expected parameters of the others.
"""

import dataclasses
from typing import Any

import numpy as np

from ngmp_kernels import SplitFactor, SplitTable

from ..errors import ModelError, Problem, listed
from ..graph.edges import AbstractEdge, Link, TableEdge
from ..graph.groups import FactorGroup
from ..graph.planes import Plane

Names = dict[str, tuple[Plane, np.ndarray]]


def touched(plane: Plane, positions: np.ndarray, names: Names) -> frozenset[str]:
    """Names of the variables at some positions of a plane."""
    if not positions.size:
        return frozenset()
    low, high = int(positions.min()), int(positions.max())
    found = set()
    for name, (own, where) in names.items():
        if own == plane and where.size:
            first, last = int(where.reshape(-1)[0]), int(where.reshape(-1)[-1])
            if first <= high and low <= last and np.any((positions >= first) & (positions <= last)):
                found.add(name)
    return frozenset(found)


def check_clusters(clusters: list[tuple[str, ...]], names: Names, groups: list[FactorGroup]) -> list[Problem]:
    """Unknown names, overlapping clusters, clusters of unlike families, clusters that no factor connects."""
    problems, seen = [], set()
    ties = [_variables(g, names) for g in groups]
    for cluster in clusters:
        for name in cluster:
            if name not in names:
                problems.append(Problem(name, None, "factorise= names no variable", f"there are {listed(names)}"))
            if name in seen:
                problems.append(Problem(name, None, "factorise= names it in two clusters", "clusters are disjoint"))
            seen.add(name)
        if len(cluster) < 2 or any(n not in names for n in cluster):
            continue
        # Vectors and scalars share the Gaussian core.
        if len({f.kind if f.core == "product" else f.core for f in (names[n][0].family for n in cluster)}) > 1:
            kinds = ", ".join(f"{n}: {names[n][0].family.__name__}" for n in cluster)
            works = "the core keeps Gaussian or categorical variables joint; across families use NGMP() or EP()"
            problems.append(Problem(", ".join(cluster), None, f"factorise= joins unlike families ({kinds})", works))
        reached = {cluster[0]}
        for _ in cluster:
            reached |= {n for t in ties if t & reached for n in t if n in cluster}
        if reached != set(cluster):
            lost = ", ".join(sorted(set(cluster) - reached))
            what = f"factorise= joins variables that no factor connects ({lost})"
            problems.append(Problem(", ".join(cluster), None, what, "leave unconnected variables out"))
    return problems


def _variables(group: FactorGroup, names: Names) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for edge in group.edges:
        for end in edge.ends() if edge is not None else ():
            found |= touched(end.plane, end.index.positions, names)
    return found


def separated(group: FactorGroup, clusters: list[tuple[str, ...]], names: Names) -> bool:
    """Whether a factor stands between two of the named clusters."""
    own = _variables(group, names)
    return sum(bool(own & set(cluster)) for cluster in clusters) > 1


def factorise(groups: list[FactorGroup], rules: dict[str, Any], clusters: list[tuple[str, ...]], names: Names) -> list:
    """Split the groups whose rule is a mean-field one; the others are left as they are."""
    problems = check_clusters(clusters, names, groups)
    out = []
    for group in groups:
        if not rules[group.name].mean_field:
            out.append(group)
            continue
        split = _inseparable(group, clusters, names) or _split(group, clusters, names)
        out.append(split)
        if isinstance(split, Problem):
            problems.append(split)
    if problems:
        raise ModelError(problems)
    return out


def _inseparable(group: FactorGroup, clusters: list[tuple[str, ...]], names: Names) -> Problem | None:
    """Clusters that a factor cannot keep: across its interfaces, or of only some of the variables in one place."""
    places = [
        [] if edge is None else [touched(end.plane, end.index.positions, names) for end in edge.ends()]
        for edge in group.edges
    ]
    for cluster in map(set, clusters):
        for own in places:
            astride = [p for p in own if p & cluster and p - cluster]
            if astride and sum(bool(p & cluster) for p in own) > 1:
                lost = ", ".join(sorted(astride[0] - cluster))
                given = f"factorise= joins {', '.join(sorted(cluster))}, but {lost} stands in the same place of it"
                return Problem(group.given.name, None, given, f"name {lost} in the cluster too")
        apart = [set().union(*own) & cluster for own in places]
        if sum(bool(a) for a in apart) > 1 and len(set().union(*apart)) > 1:
            given = f"factorise= joins {', '.join(sorted(set().union(*apart)))}, which are different interfaces of it"
            works = "mean-field rules keep the interfaces of a factor independent; NGMP() and EP() do not"
            return Problem(group.given.name, None, given, works)
    return None


def _together(a: frozenset[str], b: frozenset[str], clusters: list[tuple[str, ...]]) -> bool:
    return any(a | b <= set(cluster) for cluster in clusters)


def _parts(edge: AbstractEdge, clusters: list[tuple[str, ...]], names: Names) -> list[list[Link]]:
    """The ends of an edge, by cluster."""
    parts: list[tuple[frozenset[str], list[Link]]] = []
    for link in edge.ends():
        own = touched(link.plane, link.index.positions, names)
        for i, (other, links) in enumerate(parts):
            if _together(own, other, clusters):
                parts[i] = (own | other, [*links, link])
                break
        else:
            parts.append((own, [link]))
    return [links for _, links in parts]


def _split_table(
    group: FactorGroup, edge: TableEdge, clusters: list[tuple[str, ...]], names: Names
) -> FactorGroup | Problem:
    """A table with all classes in one cluster stays; one with all classes apart gets an interface for each."""
    sides = [touched(side.plane, side.index.positions, names) for side in edge.sides]
    if any(frozenset().union(*sides) <= set(cluster) for cluster in clusters):
        return group
    works = f"keep its classes joint, factorise=[({tuple(sorted(frozenset().union(*sides)))}, ...)], or use NGMP()"
    if not group.conjugate:
        return Problem(group.given.name, None, "mean field between the classes of a learned table has no kernel", works)
    if any(_together(a, b, clusters) for i, a in enumerate(sides) for b in sides[:i]):
        return Problem(group.given.name, None, "factorise= joins some of the classes of its table but not all", works)
    factor: Any = SplitTable(base=group.factor)  # type: ignore[call-arg]
    return dataclasses.replace(group, factor=factor, edges=edge.sides, constants=(None,) * len(sides))


def _split(group: FactorGroup, clusters: list[tuple[str, ...]], names: Names) -> FactorGroup | Problem:
    first = group.edges[0] if group.edges else None
    if isinstance(first, TableEdge):
        return _split_table(group, first, clusters, names)
    edges, counts = [], []
    for edge in group.edges:
        parts = [[]] if edge is None else _parts(edge, clusters, names)
        counts.append(len(parts))
        if len(parts) == 1:
            edges.append(edge)
            continue
        whole: Any = edge  # a functional: all else has one end, or is a table
        offsets = [whole.offset, *(whole.offset * 0 for _ in parts[1:])]
        edges += [dataclasses.replace(whole, links=tuple(p), offset=c) for p, c in zip(parts, offsets, strict=True)]
    if all(c == 1 for c in counts):
        return group
    factor = SplitFactor(base=group.factor, parts=tuple(counts))  # type: ignore[call-arg]
    return dataclasses.replace(group, factor=factor, edges=tuple(edges), constants=(None,) * len(edges))
