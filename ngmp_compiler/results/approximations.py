"""What of an answer is not exact, in words: `post.approximate` and the warnings of `describe` are this one list.

A conjugate model on an exact executor has none. Every group of factors that is not conjugate sends messages projected
on the families of its interfaces, and is one entry, however many factors it has.
"""

import numpy as np

from ..emit.map import Map
from ..errors import listed
from ..graph.groups import FactorGroup


def approximations(map: Map) -> tuple[str, ...]:
    """Executors of the core that are not exact, with the names they solve for, and groups that are projected."""
    out = []
    for executor in map.plan.discrete:
        if executor.approximate:
            members = executor.nodes.members  # type: ignore[attr-defined]
            own = [n for n, (p, at) in map.plan.names.items() if p in members and np.isin(at, members[p]).any()]
            out.append(f"{executor.name} over {listed(own)}")
    return (*out, *(_projected(map, group) for group in map.projected))


def _projected(map: Map, group: FactorGroup) -> str:
    rule, factor = map.rules[group.name], group.factor
    named = {f.__name__: None for f, edge in zip(factor.families, group.edges, strict=False) if edge is not None}
    touched = sum(edge is not None for edge in group.edges)
    several = f" through {touched} interfaces" if touched > 1 else ""
    several += f", {factor.interfaces[0]} jointly" if group.joined else ""
    how = "mean-field messages" if rule.mean_field else "messages"
    return f"{group.name}: {how} of {factor.label} projected on {' and '.join(named)}{several} ({type(rule).__name__})"
