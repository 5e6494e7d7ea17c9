"""Kinds: short groups that differ in nothing but their rows, projected in one call.

XLA takes about as long for a kernel of ten rows as for one of a thousand. Three groups of effects with a precision
each, say, are one kind, and its kernels are compiled, and started in every sweep, once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ngmp_kernels import AbstractProjected

from ..graph.groups import FactorGroup
from .rules import AbstractRule, Incoming

SHORT = 1024  # rows; a longer group is computed in chunks that fit the cache, and what all its rows share stays one row


class Kind(NamedTuple):
    """Groups with the rows of all: their factors as one, what stands around it, and the rule."""

    groups: list[FactorGroup]
    factor: AbstractProjected
    incoming: Incoming
    rule: AbstractRule

    @property
    def n(self) -> int:
        return sum(group.n for group in self.groups)

    def split(self, tree: Any) -> list[Any]:
        """Values (n|1, ...) of all rows, group by group."""
        if len(self.groups) == 1:
            return [tree]
        tree, out, start = _filled(tree, self.n), [], 0
        for group in self.groups:
            out.append(jax.tree.map(lambda x, a=start, b=start + group.n: x[a:b], tree))
            start += group.n
        return out


def kinds(groups: list[FactorGroup], incomings: list[Incoming], rules: list[AbstractRule]) -> list[Kind]:
    """Groups by kind, in the order in which the first of each was declared."""
    keys: list[Any] = []
    members: list[list[int]] = []
    for i, (group, incoming, rule) in enumerate(zip(groups, incomings, rules, strict=True)):
        key = _key(group, incoming, rule)
        at = next((k for k, other in enumerate(keys) if key is not None and key == other), None)
        if at is None:
            keys.append(key)
            members.append([i])
        else:
            members[at].append(i)
    return [_together([groups[i] for i in own], [incomings[i] for i in own], rules[own[0]]) for own in members]


def _key(group: FactorGroup, incoming: Incoming, rule: AbstractRule) -> Any:
    """What groups of one kind have in common; None for a group that stays alone."""
    whole = all(edge is not None and edge.n == group.n for edge in group.edges)
    arrays = jax.tree.leaves(group.factor)
    if group.n > SHORT or not whole or not all(jnp.ndim(x) and jnp.shape(x)[0] in (1, group.n) for x in arrays):
        return None
    around = (group.factor, incoming)
    words, shape = jax.tree.flatten(rule)
    if not all(isinstance(x, (bool, int, float)) for x in words):
        return None
    rows = [(jnp.shape(x)[1:], jnp.result_type(x)) for x in jax.tree.leaves(around)]
    return jax.tree.structure(around), rows, shape, words


def _together(groups: list[FactorGroup], incomings: list[Incoming], rule: AbstractRule) -> Kind:
    around: list[Any] = [(group.factor, incoming) for group, incoming in zip(groups, incomings, strict=True)]
    if len(groups) > 1:
        filled = [_filled(own, group.n) for own, group in zip(around, groups, strict=True)]
        around = [jax.tree.map(lambda *x: jnp.concatenate(x), *filled)]
    factor, incoming = around[0]
    return Kind(groups, factor, incoming, rule)


def _filled(tree: Any, n: int) -> Any:
    """Arrays (n|1, ...) with all of their rows."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x)[1:])), tree)
