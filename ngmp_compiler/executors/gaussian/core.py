"""The Gaussian core as it is before its executors are chosen: its variables, and what of them is special."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...graph.components import Nodes
from ...graph.groups import FactorGroup
from ...graph.index import GivenMap
from ...graph.planes import Plane
from .pieces import Piece, restrict


class Roles(NamedTuple):
    """What functionals are, by number: `fixed` do not move between sweeps, `priors` are proper priors of theirs, and
    `cavities` belong to factors of several interfaces, which look at each other's cavities."""

    fixed: frozenset[int]
    priors: frozenset[int]
    cavities: frozenset[int] = frozenset()


class GaussianCore:
    """All Gaussian variables, numbered, and the functionals of them; `touched` (links, n) are the nodes of each."""

    def __init__(
        self, planes: dict[Plane, int], nodes: Nodes, groups: list[FactorGroup], functionals: list, touched: list
    ):
        self.planes, self.nodes, self.groups = planes, nodes, groups
        self.functionals, self.touched = functionals, touched
        self.parts: list[Any] = []  # the coupled ones, by number

    @cached_property
    def wide(self) -> np.ndarray:
        """Nodes tied by vector-valued functionals, or with one that moves: a star cannot integrate them out."""
        wide = np.zeros(self.nodes.size, bool)
        for (g, _, f), t in zip(self.functionals, self.touched, strict=True):
            if f.width is not None and (len(f.links) > 1 or not self.groups[g].conjugate):
                wide[t.reshape(-1)] = True
        return wide

    @cached_property
    def given(self) -> np.ndarray:
        """Nodes that an index which is an input may pick."""
        given = np.zeros(self.nodes.size, bool)
        for _, nodes in self.tables():
            given[nodes] = True
        return given

    @cached_property
    def degenerate(self) -> np.ndarray:
        """Nodes of functionals whose noise has a singular covariance."""
        found = np.zeros(self.nodes.size, bool)
        for (g, _, _), t in zip(self.functionals, self.touched, strict=True):
            if self.groups[g].factor.degenerate:
                found[t.reshape(-1)] = True
        return found

    def tables(self) -> list[tuple[int, np.ndarray]]:
        """For every link that is given, the functional, and the nodes that it may touch."""
        return [
            (f, k.index.table + self.nodes.offset[k.plane])
            for f, (_, _, functional) in enumerate(self.functionals)
            for k in functional.links
            if isinstance(k.index, GivenMap)
        ]

    def places(self, planes: dict[Plane, np.ndarray]) -> set[int | None]:
        """Of the indices that pick some variables, by plane, the places among the inputs."""
        links = [k for _, _, functional in self.functionals for k in functional.links]
        own = [k for k in links if isinstance(k.index, GivenMap) and k.plane in planes]
        return {k.index.place for k in own if np.isin(k.index.table, planes[k.plane]).any()}

    @cached_property
    def knotted(self) -> np.ndarray:
        """Nodes of a functional with three or more ends, with two ends on one variable, or that stacks scalars; and
        those that an input may pick."""
        knotted = self.given.copy()
        for (_, _, f), t in zip(self.functionals, self.touched, strict=True):
            if len(t) > 2 or (f.width is not None and any(not link.plane.event_shape for link in f.links)):
                knotted[t.reshape(-1)] = True
            elif len(t) == 2:
                knotted[t[0][t[0] == t[1]]] = True
        return knotted

    @cached_property
    def roles(self) -> Roles:
        """Conjugate functionals do not move; of those the unmasked priors of single variables are proper."""
        groups, functionals = self.groups, self.functionals
        fixed = frozenset(f for f, (g, _, _) in enumerate(functionals) if groups[g].conjugate)
        lone = [f for f in fixed if len(functionals[f][2].links) == 1 and functionals[f][2].links[0].op == "scale"]
        own = {f: groups[functionals[f][0]] for f in lone}
        priors = frozenset(f for f in lone if not own[f].observed and own[f].mask is None)
        several = frozenset(f for f, (g, _, _) in enumerate(functionals) if f not in fixed and len(groups[g].edges) > 1)
        return Roles(fixed, priors, several)

    def pieces(self, members: np.ndarray, split: Callable[[np.ndarray], np.ndarray] | None = None) -> list[Piece]:
        """What functionals say of some nodes; with `split`, which labels their rows (links, n), a piece for each."""
        inside, out = np.zeros(self.nodes.size, bool), []
        inside[members] = True
        for number, ((_, _, f), t) in enumerate(zip(self.functionals, self.touched, strict=True)):
            own = inside[t[0]] if len(t) else np.zeros(0, bool)
            if not own.any():
                continue
            rows = None if own.all() else np.flatnonzero(own)
            every = np.arange(t.shape[1]) if rows is None else rows
            label = np.zeros(len(every), int) if split is None else split(t[:, every])
            ways = [rows] if (label == label[0]).all() else [every[label == way] for way in np.unique(label)]
            out.extend(restrict(number, f, way) for way in ways)
        return out

    def sites(self, nodes: np.ndarray) -> dict[str, None]:
        """The sites that tie some nodes."""
        inside = np.zeros(self.nodes.size, bool)
        inside[nodes] = True
        tied = [f for f, t in enumerate(self.touched) if len(t) > 1 and inside[t[0]].any()]
        return dict.fromkeys(self.groups[self.functionals[f][0]].given.name for f in tied)
