"""Join: Gaussian interfaces of a factor that are projected together, as one edge of vectors.

`join(groups, rules, asked, names) -> groups`. The rule, printed by `describe`: the scalar Gaussian interfaces of a
factor become one edge

- if one variable stands behind two of them: their messages would not be independent;
- if the factor says so (`joins` is "always"): one of more than three unknowns, or with no kernel for each on its own;
- if the variables of two of them are shared by `MANY` factors of the group and more, each: what these say of their
  correlation adds up, and separate edges lose it; or
- if the variables of one are those of another in the next factor, as along a chain `Normal(phi * z, ...)`, and the
  factor says so (`joins` is "chains").

The last two do not hold of factors that are read as the paper does (`joins` is "asked"), nor where more than `MOST`
dimensions are shared, which the core would have to solve for jointly.

Of these, an interface stays on its own where every factor has a variable of its own (`passes.tied`), as a regressor
that is seen with noise: what is shared and each of these make a tree, on which messages are exact but for their
projection. One Gaussian of all of them would not be: with a scale or a slope, the width of the own variable changes.

`joint=[("m", "ls")]` joins the interfaces of these variables wherever they share a factor, whatever the rule says;
`joint=False` joins none.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ngmp_kernels import AbstractProjected, JointFactor
from ngmp_kernels.families import Gaussian
from ngmp_kernels.families.mv_gaussian import MOST_DIMENSIONS

from ..errors import ModelError, Problem, listed
from ..graph.edges import Functional, Link
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from .factorise import Names, touched
from .stack import stacked
from .tied import own_interfaces

MANY = 3  # factors for every variable, on average
MOST = 256  # dimensions that several factors share
Asked = tuple[tuple[str, ...], ...] | bool | None


class Joined(NamedTuple):
    """The interfaces of a group to be joined, and why."""

    members: tuple[int, ...]
    why: str


def join(groups: list[FactorGroup], rules: dict[str, Any], asked: Asked, names: Names) -> list[FactorGroup]:
    """Groups with joint edges; see the module docstring. All errors of `joint=` are raised at once."""
    clusters = asked if isinstance(asked, tuple) else ()
    problems, found = _check_names(clusters, names), {}
    for group in groups:
        if not isinstance(group.factor, AbstractProjected) or group.factor.deterministic:
            continue
        rule, own = rules[group.name], group.factor
        given = [_asked(group, cluster, names) for cluster in clusters]
        given = [members for members in given if len(members) > 1]
        if given:
            members = tuple(sorted(set().union(*given)))
            found[group.name] = Joined(members, "joint= asks for it")
            problems += _check_group(group, members, rule)
        elif asked is not False and rule.joins and (ruled := by_rule(group, groups)) is not None:
            if len(ruled.members) > 1:
                found[group.name] = ruled
        elif own.joins == "always":
            what = f"its {len(group.edges)} unknowns are integrated over together, under NGMP() or EP()"
            works = "leave joint= to its rule; ngmp.factor of up to three unknowns works with any rule"
            problems.append(Problem(group.given.name, None, what, works))
    problems += _check_clusters(clusters, names, groups, found)
    if problems:
        raise ModelError(problems)
    return [_stack(g, found[g.name]) if g.name in found else g for g in groups]


def candidates(group: FactorGroup) -> list[int]:
    """The interfaces that could be joined: scalar functionals of Gaussian variables."""
    return [j for j, e in enumerate(group.edges) if isinstance(e, Functional) and e.family is Gaussian]


def by_rule(group: FactorGroup, groups: list[FactorGroup]) -> Joined | None:
    """The interfaces that are joined by default, and why; see the module docstring. None: all as the paper does."""
    ruled = _together(group)
    if ruled is None or group.factor.joins == "chains" or _twice(group, list(ruled.members)):  # type: ignore[attr-defined]
        return ruled
    own = own_interfaces(group, ruled.members, groups)
    if not own:
        return ruled
    names = ", ".join(group.factor.interfaces[j] for j in sorted(own))
    return Joined(tuple(j for j in ruled.members if j not in own), f"{ruled.why}; {names} is each factor's own")


def _together(group: FactorGroup) -> Joined | None:
    """The interfaces that would be joined whatever their variables are tied to."""
    able = candidates(group)
    if not 2 <= len(able) <= min(MOST_DIMENSIONS, _dimensions(group, able)):
        return None
    joins: str = group.factor.joins  # type: ignore[attr-defined]
    if _twice(group, able):
        return Joined(tuple(able), "one variable stands behind two interfaces")
    if joins == "always":
        return Joined(tuple(able), f"a factor of {len(group.edges)} unknowns is integrated over them together")
    links = [(j, link) for j in able for link in group.edges[j].ends()]
    shared = list(dict.fromkeys(j for j, link in links if _per_variable(link) >= MANY))
    held = {(link.plane, i) for _, link in links if _per_variable(link) >= 2 for i in np.unique(link.index.positions)}
    if joins == "asked" or sum(_size(plane) for plane, _ in held) > MOST:
        return None
    if len(shared) > 1:
        own = " and ".join(group.factor.interfaces[j] for j in shared)
        return Joined(tuple(able), f"many factors share the variables of {own}")
    following = [(i, j) for i, a in links for j, b in links if i < j and _along(a, b)]
    if joins == "chains" and following:
        own = " and ".join(group.factor.interfaces[j] for j in following[0])
        return Joined(tuple(able), f"{own} are neighbours along a chain")
    return None


def _along(a: Link, b: Link) -> bool:
    """Whether the variables of two links are those of chains, or of a grid: most are at either, in other factors."""
    one, other = a.index.positions, b.index.positions
    return a.plane == b.plane and len(one) > 1 and bool(2 * np.isin(one, other).sum() >= len(one))


def _size(plane: Plane) -> int:
    return plane.event_shape[0] if plane.event_shape else 1


def _dimensions(group: FactorGroup, members: Iterable[int]) -> int:
    """Of the variables behind some interfaces of one factor: fewer than interfaces have no joint density."""
    ends = {(end.plane, int(end.index.positions[0])) for j in members for end in group.edges[j].ends()}
    return sum(_size(plane) for plane, _ in ends)


def _per_variable(link: Link) -> float:
    """How many factors see each variable, on average."""
    at = link.index.positions
    return len(at) / max(len(np.unique(at)), 1)


def _twice(group: FactorGroup, able: list[int]) -> bool:
    """Whether one variable stands behind two of the interfaces, in any factor."""
    ends = [(j, end) for j in able for end in group.edges[j].ends()]  # type: ignore[union-attr]
    return any(
        i != j and a.plane == b.plane and bool(np.any(a.index.positions == b.index.positions))
        for k, (i, a) in enumerate(ends)
        for j, b in ends[:k]
    )


# -- what is asked for ------------------------------------------------------------------------------------------------


def _variables(group: FactorGroup, j: int, names: Names) -> frozenset[str]:
    edge = group.edges[j]
    every = () if edge is None else edge.ends()
    return frozenset().union(*(touched(end.plane, end.index.positions, names) for end in every))


def _asked(group: FactorGroup, cluster: tuple[str, ...], names: Names) -> set[int]:
    """The interfaces of a group that touch a variable of a cluster."""
    return {j for j in range(len(group.edges)) if _variables(group, j, names) & set(cluster)}


def _check_names(clusters: tuple[tuple[str, ...], ...], names: Names) -> list[Problem]:
    problems = []
    for cluster in clusters:
        for name in cluster:
            if name not in names:
                problems.append(Problem(name, None, "joint= names no variable", f"there are {listed(names)}"))
            elif names[name][0].family.core != "gaussian":
                given = f"joint= names it, a {names[name][0].family.__name__} variable"
                works = "joint edges are Gaussian: an unknown scale can join as exp(s) of a Gaussian s"
                problems.append(Problem(name, None, given, works))
    return problems


def _check_group(group: FactorGroup, members: tuple[int, ...], rule: Any) -> list[Problem]:
    """Why the interfaces of a group that are asked for cannot be joined."""
    own, site = ", ".join(group.factor.interfaces[j] for j in members), group.given.name
    vectors = [group.factor.interfaces[j] for j in members if j not in candidates(group)]
    if vectors:
        given = f"joint= joins {own}, but {', '.join(vectors)} is no Gaussian number"
        works = "numbers can be joined, also those that are affine in vectors"
    elif not rule.joins:
        given = f"joint= joins {own}, but {type(rule).__name__} has no joint messages"
        works = "NGMP() and EP() have"
    elif _dimensions(group, members) < len(members):
        given, works = f"joint= joins {own}, which are functions of fewer variables", "write it as ngmp.factor of those"
    elif len(members) > MOST_DIMENSIONS:
        given, works = f"joint= joins {len(members)} interfaces, {own}", f"at most {MOST_DIMENSIONS} can be"
    else:
        return []
    return [Problem(site, None, given, works)]


def _check_clusters(
    clusters: tuple[tuple[str, ...], ...], names: Names, groups: list[FactorGroup], found: dict[str, Joined]
) -> list[Problem]:
    """Clusters, or members of them, that share no factor that is not conjugate. Products have them on one edge."""
    problems = []
    for cluster in clusters:
        reached: set[str] = set()
        for group in groups:
            members = found[group.name].members if group.name in found else ()
            own = [_variables(group, j, names) & set(cluster) for j in members]
            reached |= set().union(*own) if sum(map(bool, own)) > 1 else set()
            edges = enumerate(group.edges if group.projected else ())
            vectors = [j for j, edge in edges if isinstance(edge, Functional) and edge.width]
            together = [_variables(group, j, names) & set(cluster) for j in vectors]
            reached |= set().union(*(own for own in together if len(own) > 1))
        lost = [name for name in cluster if name in names and name not in reached]
        if lost and all(names[n][0].family.core == "gaussian" for n in cluster if n in names):
            given = f"joint= joins {', '.join(cluster)}, but {', '.join(lost)} shares no projected factor with the rest"
            works = "name variables behind different interfaces of one factor; conjugate factors are exact as they are"
            problems.append(Problem(", ".join(cluster), None, given, works))
    return problems


# -- stacked functionals ----------------------------------------------------------------------------------------------


def _stack(group: FactorGroup, joined: Joined) -> FactorGroup:
    factor = JointFactor(base=group.factor, members=joined.members)  # type: ignore[call-arg]
    own: list[Any] = [group.edges[j] for j in joined.members]
    edges = (stacked(own, group.n, own[0].offset.dtype), *(group.edges[j] for j in factor.rest))
    return dataclasses.replace(group, factor=factor, edges=edges, constants=(None,) * len(edges), joined=joined.why)
