"""Checks of values: data and parameters that no posterior can be computed from.

They are computed inside the program, as one boolean, because inputs are traced. A call with concrete inputs
raises; under `jit` or `vmap` the result carries `converged=False` and the reason.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..declare.expressions import leaves_of
from ..graph.groups import Group
from ..graph.index import GivenMap
from ..schedule.choose import Plan
from ..value import Value


def _finite(leaves: tuple[Any, ...]) -> Any:
    """Where an argument is finite, (n|1,), or None if it holds no numbers."""
    parts = []
    for x in leaves:
        if getattr(x, "is_expression", False) or not jnp.issubdtype(getattr(x, "dtype", type(x)), jnp.inexact):
            continue
        ok = jnp.isfinite(jnp.asarray(x))
        parts.append(jnp.all(ok, axis=tuple(range(1, ok.ndim))) if ok.ndim else ok[None])
    return functools.reduce(operator.and_, parts) if parts else None


def _seen(group: Group, ok: Array) -> Bool[Array, " #n"]:
    """Where a condition holds, or does not matter because the element is masked."""
    return jnp.asarray(ok) if group.mask is None else ok | ~group.mask


class Check(NamedTuple):
    """A condition on data or parameters, in words, and where it holds."""

    text: str
    ok: Bool[Array, " #n"]
    group: Group


def checks(plan: Plan) -> list[Check]:
    """Every condition of a plan."""
    out = []
    given = [leaves_of(lowered.given.arguments) for lowered in plan.groups]
    for lowered, arguments in zip(plan.groups, given, strict=True):
        group = lowered.given
        for name, leaves in arguments.items():
            ok = _finite(leaves)
            if ok is not None:
                what = "obs has values that are" if name == "out" else f"{name} is"
                hint = "; mark missing values with mask=" if name == "out" else ""
                text = f"site '{group.name}': {what} NaN or infinite{hint}"
                out.append(Check(text, _seen(group, ok), group))
        for text, ok in lowered.factor.checks().items():
            out.append(Check(f"site '{group.name}': {text}", _seen(group, ok), group))
        ends = [end.index for edge in lowered.edges if edge is not None for end in edge.ends()]
        for index in (index for index in ends if isinstance(index, GivenMap)):
            text = f"site '{group.name}': an index is outside of its plate of {len(index.table)}"
            out.append(Check(text, _seen(group, index.ok), group))
    return out


class Failure(Value):
    """Where a condition does not hold: in words and by shape, how often, where first, and what was given there."""

    def __init__(self, check: Check):
        first = jnp.argmin(check.ok)
        self.text, self.shape, self.size = check.text, check.group.shape, check.ok.size
        self.count, self.first, self.given = jnp.sum(~check.ok), first, _given(check.group, first)


def _given(group: Group, row: Array) -> dict[str, Array]:
    """The constants of one element of a group, by the names the user gave them."""
    constants = {("obs" if k == "out" else k): v for k, v in group.arguments.items() if hasattr(v, "dtype")}
    return {k: jnp.asarray(v)[jnp.minimum(row, v.shape[0] - 1)] for k, v in constants.items()}


def failures(plan: Plan) -> list[Failure]:
    """Every condition of a plan, with how often it fails."""
    return [Failure(c) for c in checks(plan) if c.ok.size]


def explain(found: list[Failure]) -> str:
    """Every condition that does not hold, in words."""
    lines = []
    for f in found:
        if not f.count:
            continue
        index = ", ".join(str(i) for i in np.unravel_index(int(f.first), f.shape)) if f.size > 1 else ""
        where = f" ({int(f.count)} of {f.size} elements, the first at [{index}])" if f.size > 1 else ""
        values = ", ".join(f"{k}={np.array2string(np.asarray(v), threshold=6)}" for k, v in f.given.items())
        lines.append(f"  {len(lines) + 1}. {f.text}{where}" + (f"; given {values}" if values else ""))
    return "no posterior can be computed:\n" + "\n".join(lines)
