"""Draws from the model as declared, the data included: every site after those it depends on.

Groups are drawn whole, one after the other. Where the factors of some groups depend on each other (a chain, two chains
that feed each other), they are drawn level by level in one loop, a level being all whose parents are known: the program
is as long as the list of groups, whatever the number of data.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from ..declare.affine import Affine
from ..emit.surrogate import Values
from ..graph.groups import FactorGroup
from ..pipeline import Front
from .density import event_of
from .evaluate import Rows, evaluate, reported, rows_of
from .order import Step, made, order
from .outcomes import outcomes, unit_rows
from .pointwise import gather, sites


def drawn_numbers(
    front: Front, at: Callable[[Array], Front], key: PRNGKeyArray, slots: int
) -> tuple[dict[str, Array], Array]:
    """Draws of the integrated sites, each given those before it, and all of them in the places of their coordinates.

    Args:
        front: the model at any coordinates.
        at: the model at values of the integrated sites.
        key: a jax random key.
        slots: how many places there are.
    """
    values: dict[str, Array] = {}
    v = jnp.zeros(slots, front.dtype)
    for number, (name, site) in enumerate(front.integrated.items()):
        (group,) = (g for g in at(v).groups if g.given.name == name)
        drawn = outcomes(group, {}, jax.random.fold_in(key, number), front.dtype)
        values[name] = drawn.reshape(jnp.shape(site.value))
        own = values[name].reshape(-1)[: max(site.size, 1)]  # of proportions all but the last
        v = jax.lax.dynamic_update_slice(v, own.astype(v.dtype), (site.start,))
    return values, v


def simulated(front: Front, key: PRNGKeyArray) -> dict[str, Array]:
    """One draw of all variables, reported expressions and observed sites, by name."""
    values: Values = {}
    for plane, n in front.rolled.planes.items():
        dtype = int if plane.family.core == "categorical" else front.dtype
        values[plane] = jnp.zeros((n, *event_of(plane)), dtype)
    for number, step in enumerate(order(front)):
        own = jax.random.fold_in(key, number)
        values = _whole(front, step, values, own) if step.levels is None else _looped(front, step, values, own)
    out = {}
    for name, (plane, at, _) in front.rolled.collections.items():
        out[name] = values[plane][at.reshape(-1)].reshape(*at.shape, *event_of(plane))
    out |= reported(front.groups, values)
    last = jax.random.fold_in(key, len(front.groups))
    for number, (name, groups) in enumerate(sites(front).items()):
        keys = jax.random.split(jax.random.fold_in(last, number), len(groups))
        drawn = [outcomes(g, values, k, front.dtype) for g, k in zip(groups, keys, strict=True)]
        out[name] = gather(groups, name, drawn)
    return out


def _whole(front: Front, step: Step, values: Values, key: PRNGKeyArray) -> Values:
    """All outcomes of a group at once."""
    group = front.groups[step.groups[0]]
    plane, at = made(group)
    new = _new(front, group, values, key, None)
    return {**values, plane: values[plane].at[at].set(new.astype(values[plane].dtype))}


def _looped(front: Front, step: Step, values: Values, key: PRNGKeyArray) -> Values:
    """Groups that depend on each other, level by level."""
    assert step.levels is not None
    groups = [front.groups[i] for i in step.groups]
    planes = [made(g) for g in groups]
    tables = [jnp.asarray(table) for table in step.levels]

    def body(level: Array, now: Values) -> Values:
        own, new = jax.random.split(jax.random.fold_in(key, level), len(groups)), dict(now)
        for group, (plane, at), table, k in zip(groups, planes, tables, own, strict=True):
            units = table[level]
            drawn = _new(front, group, now, k, jnp.minimum(units, len(at) - 1)).astype(now[plane].dtype)
            where = jnp.where(units < len(at), jnp.asarray(at)[jnp.minimum(units, len(at) - 1)], now[plane].shape[0])
            new[plane] = new[plane].at[where].set(drawn, mode="drop")
        return new

    return jax.lax.fori_loop(0, len(step.levels[0]), body, values)


def _new(front: Front, group: FactorGroup, values: Values, key: PRNGKeyArray, units: Rows) -> Array:
    """New values of the variables that a group declares, or of some of them."""
    if group.factor.deterministic:
        rows = None if units is None else jnp.asarray(unit_rows(group.given)[0])[units]
        factor: Any = group.factor
        factor = dataclasses.replace(factor, constants=tuple(rows_of(c, rows) for c in factor.constants))
        return factor(evaluate(group.given.arguments["x"], values, rows))
    drawn = outcomes(group, values, key, front.dtype, units)
    out = group.given.arguments["out"]
    return _solved(out, drawn) if isinstance(out, Affine) else drawn


def _solved(out: Affine, drawn: Array) -> Array:
    """Of a structured precision, whose site is k numbers `L x + c`: the x that has them, (1, width)."""
    (term,) = out.terms
    rows = jnp.broadcast_to(jnp.asarray(term.coefficient), (drawn.shape[0], jnp.shape(term.coefficient)[-1]))
    right = drawn if out.offset is None else drawn - jnp.asarray(out.offset)
    return jnp.linalg.solve(rows, right)[None]
