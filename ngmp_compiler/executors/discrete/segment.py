"""Segments of coupled chains: equal networks, one after the other, that a few variables tie to their neighbours."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ...graph.index import index_map
from ...graph.planes import Plane
from ...linalg import elimination, network_classes
from ...linalg.elimination import Cluster
from .base import Classes, Tables, Unary
from .elimination import Tie

Scope = tuple[int, ...]
Inputs = tuple[list[Array], list[Array]]  # unary log-potentials (S, B, K) of own variables, tables (S|1, B|1, *classes)


class Segment(NamedTuple):
    """S networks of one shape, in B copies: local variables are those that come in, then the segment's own."""

    planes: tuple[Plane, ...]  # of all local variables
    positions: np.ndarray  # (S, B, own)
    ties: list[Tie]  # rows (S, B)
    keep: Scope

    @property
    def incoming(self) -> Scope:
        return tuple(range(len(self.planes) - self.positions.shape[-1]))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(p.event_shape[0] for p in self.planes)

    def clusters(self, root: Scope | None) -> list[Cluster]:
        """Clusters of all tables and messages; the last one is over the variables of `root`, if one is given."""
        scopes = [tie.scope for tie in self.ties] + [self.incoming, self.keep]
        scopes = [scope for scope in scopes if scope]
        found = elimination.clusters(elimination.min_fill(len(self.planes), scopes, root or ()), scopes)
        if root is None:
            return found
        first = len(found) - len(root)
        inner = [c._replace(parent=first if c.parent is None else min(c.parent, first)) for c in found[:first]]
        return [*inner, Cluster(root, (), None)]

    def cells(self) -> int:
        """The cells of all clusters of one network."""
        return sum(math.prod(self.sizes[x] for x in c.variables) for c in self.clusters(self.keep))

    def inputs(self, unary: Unary, tables: Tables) -> Inputs:
        """What the tables of all S networks are made of."""
        lead, own = self.positions.shape[:2], self.planes[len(self.incoming) :]
        stacked = []
        for i, plane in enumerate(own):
            found = index_map(self.positions[..., i], unary[plane].shape[0]).take(unary[plane])
            stacked.append(found.reshape(*lead, -1))
        picked = []
        for tie in self.ties:
            table = tables[tie.group]
            shared = table.shape[0] == 1
            found = table if shared else index_map(tie.rows, table.shape[0]).take(table)
            picked.append(found.reshape(*((1, 1) if shared else lead), *table.shape[1:]))
        return stacked, picked

    def _sums(self, found: list[Cluster], inputs: Inputs, messages: list[tuple[Scope, Array]]) -> list[Array]:
        """The sum of the tables at home in each cluster, for one of the S networks; (B, *classes)."""
        unary, tables = inputs
        parts = [((len(self.incoming) + i,), u) for i, u in enumerate(unary)]
        parts += [(tie.scope, table) for tie, table in zip(self.ties, tables, strict=True)]
        sizes, batch, dtype = self.sizes, self.positions.shape[1], unary[0].dtype
        sums: list[Array] = [jnp.zeros((batch, *(sizes[x] for x in c.variables)), dtype) for c in found]
        for scope, table in (*parts, *messages):
            at = elimination.home(found, scope)
            sums[at] += elimination.place(table, scope, found[at].variables)
        return sums

    def send(self, scope: Scope, inputs: Inputs, messages: list[tuple[Scope, Array]]) -> Array:
        """The log-sum over all variables but those of `scope`, (B, *classes)."""
        found = self.clusters(scope)
        return elimination.collect(self._sums(found, inputs, messages), found)[0][-1]

    def read(self, inputs: Inputs, messages: list[tuple[Scope, Array]], wanted: frozenset[int]) -> list[Array]:
        """Log-marginals of own variables and of the wanted tables, in their order."""
        found = self.clusters(None)
        joints, _ = elimination.eliminate(self._sums(found, inputs, messages), found)
        scopes = [(i,) for i in range(len(self.incoming), len(self.planes))]
        scopes += [tie.scope for tie in self.ties if tie.group in wanted]
        homes = [elimination.home(found, scope) for scope in scopes]
        marginals = (elimination.marginal(joints[h], found[h].variables, s) for h, s in zip(homes, scopes, strict=True))
        return list(marginals)

    def draw(
        self, root: Scope | None, inputs: Inputs, messages: list[tuple[Scope, Array]], given: dict[int, Array],
        key: PRNGKeyArray, count: int,
    ) -> dict[int, Int[Array, "draws B"]]:  # fmt: skip
        """Classes of all local variables, those of the root given."""
        found = self.clusters(root)
        return network_classes(self._sums(found, inputs, messages), found, key, count, given)

    def classes(self, drawn: dict[int, Int[Array, "S draws B"]]) -> Classes:
        """Draws of own variables by plane."""
        first = len(self.incoming)
        every = ((i, jnp.moveaxis(drawn[i], 1, 0)) for i in range(first, len(self.planes)))
        return [
            (self.planes[i], self.positions[..., i - first].reshape(-1), x.reshape(x.shape[0], -1)) for i, x in every
        ]
