"""Checks of values: data and parameters that no posterior can be computed from.

They are computed inside the program, as one boolean, because inputs are traced. A call with concrete inputs
raises; under `jit` or `vmap` the result carries `converged=False` and the reason.
"""

import functools
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ._expressions import Affine, Exp, Take, Variable
from ._roll import Group
from ._schedule import Plan


def _finite(value: Any) -> Any:
    """Where an argument is finite, (n|1,), or None if it holds no numbers."""
    if value is None or isinstance(value, Variable):
        return None
    if isinstance(value, Exp):
        return _finite(value.inner)
    if isinstance(value, Take):
        return _finite(value.table)
    if isinstance(value, Affine):
        parts = [_finite(t.coefficient) for t in value.terms] + [_finite(value.offset)]
        parts = [p for p in parts if p is not None]
        return functools.reduce(operator.and_, parts) if parts else None
    if not jnp.issubdtype(np.asarray(value).dtype if isinstance(value, (int, float)) else value.dtype, jnp.inexact):
        return None
    ok = jnp.isfinite(jnp.asarray(value))
    return jnp.all(ok, axis=tuple(range(1, ok.ndim))) if ok.ndim else ok[None]


def _seen(group: Group, ok: Array) -> Bool[Array, ""]:
    """Whether a condition holds for every element that is not masked."""
    return jnp.all(ok if group.mask is None else ok | ~group.mask)


def checks(plan: Plan) -> list[tuple[str, Bool[Array, ""]]]:
    """Every condition of a plan, in words, and whether it holds."""
    out = []
    for lowered in plan.groups:
        group = lowered.given
        for name, value in group.arguments.items():
            ok = _finite(value)
            if ok is not None:
                what = "obs has values that are" if name == "out" else f"{name} is"
                hint = "; mark missing values with mask=" if name == "out" else ""
                out.append((f"site '{group.name}': {what} NaN or infinite{hint}", _seen(group, ok)))
        for text, ok in lowered.factor.checks().items():
            out.append((f"site '{group.name}': {text}", _seen(group, ok)))
    return out
