"""Expressions at values of the variables: what the arguments of a site are, once everything before it is known."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Int

from ngmp_kernels import ReportFactor

from ..declare.affine import Affine
from ..declare.compound import Exp, Take
from ..declare.links import InverseLink
from ..declare.multiple import Multiple
from ..declare.variables import Variable
from ..emit.surrogate import Values
from ..graph.groups import FactorGroup
from ..graph.index import given_map

Rows = Int[Array, " m"] | np.ndarray | None  # of a group, those that are asked for; None: all

_LINKS = {"sigmoid": jax.nn.sigmoid, "phi": ndtr, "cloglog": lambda z: -jnp.expm1(-jnp.exp(z))}


def rows_of(x: Any, rows: Rows) -> Array:
    """Some rows of an array (n|1, ...); one that all share stays as it is."""
    x = jnp.asarray(x)
    return x if rows is None or x.shape[0] == 1 else x[rows]


def positions(x: Variable, rows: Rows) -> Any:
    """Which variables of its plane these are."""
    if not x.picked:
        return x.index if rows is None else jnp.asarray(x.index)[rows]
    table = x.frame.source.index
    return given_map(table, rows_of(x.frame.at, rows), int(table.max()) + 1, 0).given


@functools.singledispatch
def evaluate(x: Any, values: Values, rows: Rows = None) -> Array:
    """An argument of a group, (m|1, *event): a constant, or an expression at values of its variables."""
    return rows_of(x, rows)


@evaluate.register
def _(x: Variable, values: Values, rows: Rows = None) -> Array:
    return values[x.plane][positions(x, rows)]


@evaluate.register
def _(x: Affine, values: Values, rows: Rows = None) -> Array:
    total: Any = 0.0 if x.offset is None else rows_of(x.offset, rows)
    for variable, op, c in x.terms:
        z = evaluate(variable, values, rows)
        if c is not None:
            c = rows_of(c, rows)
            if op == "scale":
                z = c.reshape(-1, *(1,) * (z.ndim - 1)) * z
            elif op == "dot":
                z = jnp.sum(c * z, -1)
            else:
                z = jnp.einsum("...md,...d->...m", c, z if variable.plane.event_shape else z[..., None])
        total = total + z
    return total


@evaluate.register
def _(x: Exp, values: Values, rows: Rows = None) -> Array:
    return jnp.exp(evaluate(x.inner, values, rows))


@evaluate.register
def _(x: Multiple, values: Values, rows: Rows = None) -> Array:
    return rows_of(x.scale, rows) * evaluate(x.variable, values, rows)


@evaluate.register
def _(x: InverseLink, values: Values, rows: Rows = None) -> Array:
    return _LINKS[x.name](evaluate(x.inner, values, rows))


@evaluate.register
def _(x: Take, values: Values, rows: Rows = None) -> Array:
    at = [evaluate(z, values, rows).astype(int) for z in x.indices]
    if not x.random:
        table = rows_of(x.table, rows)
        return table[(0 if table.shape[0] == 1 else jnp.arange(table.shape[0]), *at)]
    cell = jnp.zeros_like(at[0])
    for k, z in zip(at, x.indices, strict=True):
        cell = cell * z.plane.event_shape[0] + k
    entries = [evaluate(e, values, rows) for e in x.table]
    stacked = jnp.stack([jnp.broadcast_to(e, (len(cell), *e.shape[1:])) for e in entries])
    return stacked[cell, jnp.arange(len(cell))]


def reported(groups: list[FactorGroup], values: Values) -> dict[str, Array]:
    """The expressions that a model reports, `ngmp.deterministic`, at values of the variables."""
    out = {}
    for group in groups:
        if isinstance(group.factor, ReportFactor):
            x = evaluate(group.given.arguments["x"], values)
            out[group.given.name] = jnp.broadcast_to(x, (group.n, *x.shape[1:])).reshape(*group.shape, *x.shape[1:])
    return out
