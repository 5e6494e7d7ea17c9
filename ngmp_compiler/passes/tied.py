"""Tied: which interfaces of a group stand on variables that every factor has for itself.

`own_interfaces(group, members, groups) -> interfaces`. A variable that many factors share is a hub (`HUB` factors of a
group for every variable, on average). An interface is the factors' own if it stands on a variable of which every factor
of the group has another, and if, hubs apart, nothing ties these variables to each other, as neighbours along a chain
are. Maps that are inputs tie everything.

`crossed(group)`: whether unknowns of one joint edge cross, as loadings and factors, or slopes of items and abilities of
persons do. Such posteriors are curved, and no Gaussian follows: widths came out 9 to 18 % too small (`benchmarks/
accuracy.py`: one factor, two factors, 2PL), while they are right where one of the two is each factor's own.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from ..graph.components import Nodes, components
from ..graph.edges import Functional, Link
from ..graph.groups import FactorGroup
from ..graph.index import GivenMap

HUB = 3


def own_interfaces(group: FactorGroup, members: Iterable[int], groups: list[FactorGroup]) -> frozenset[int]:
    """Those of `members`; none if that were all of them. See the module docstring."""
    members = tuple(members)
    own = {j: links for j in members if (links := [x for x in group.edges[j].ends() if _single(x)])}
    if not own or len(own) == len(members):
        return frozenset()
    sizes = {link.plane: link.index.size for g in groups for link in _links(g)}
    nodes = Nodes(sizes, list(sizes))

    def at(link: Link) -> np.ndarray:
        return nodes.offset[link.plane] + link.index.positions

    pairs = [np.empty((0, 2), int)]
    for g in groups:
        ties = [link for link in _links(g) if not _hub(link)]
        if g is group:  # its own variables are tied by what is neither theirs alone nor a hub's
            first = [link for links in own.values() for link in links]
            ties = [link for link in ties if not _single(link)]
            pairs += [np.stack([at(a), at(b)], 1) for a in first for b in ties]
        else:
            pairs += [np.stack([at(ties[0]), at(b)], 1) for b in ties[1:]]
    label = components(nodes.size, np.concatenate(pairs)).label
    free = set(own)
    for j, links in own.items():
        rest = [at(link) for i, other in own.items() for link in other if i != j]
        mine = np.concatenate([label[at(link)] for link in links])
        beside = label[np.concatenate(rest)] if rest else mine[:0]
        if len(np.unique(mine)) < len(mine) or np.isin(mine, beside).any():
            free.discard(j)
    given = any(isinstance(link.index, GivenMap) for g in groups for link in _links(g))
    return frozenset() if given else frozenset(free)


def _links(group: FactorGroup) -> Iterator[Link]:
    return (link for edge in group.edges if edge is not None for link in edge.ends())


def _single(link: Link) -> bool:
    """Whether every factor has a variable of its own there."""
    return len(link.index.positions) > 1 and len(np.unique(link.index.positions)) == len(link.index.positions)


def _hub(link: Link) -> bool:
    at = link.index.positions
    return len(at) >= HUB * max(len(np.unique(at)), 1)


def crossed(group: FactorGroup) -> bool:
    """Whether variables in different entries of a vector edge are each shared by several factors, each time beside
    others."""
    product = getattr(group.factor, "matches", "") == "jointly"
    for edge in group.edges:
        links = edge.links if isinstance(edge, Functional) and edge.width is not None else ()
        several = [link for link in links if not isinstance(link.index, GivenMap) and not _single(link)]
        for a, b in itertools.combinations(several, 2):
            pairs = a.index.positions * b.index.size + b.index.positions
            most = max(len(np.unique(x.index.positions)) for x in (a, b))
            if not _together(a, b, product) and len(np.unique(pairs)) > most:
                return True
    return False


def _together(a: Link, b: Link, product: bool) -> bool:
    """Whether two links meet in an entry of a vector functional. Where their coefficients are not known, those of the
    two sides of a product do not."""
    if not all(isinstance(link.coefficient, np.ndarray) and link.coefficient.ndim == 3 for link in (a, b)):
        return not product
    one, other = (np.any(link.coefficient != 0, axis=(0, 2)) for link in (a, b))
    return bool(np.any(one & other))
