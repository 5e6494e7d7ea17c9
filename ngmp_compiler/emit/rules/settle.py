"""Unary factors solved on their edges: many projections in the place of one, the cavity held fixed."""

from typing import Any

import jax

from ngmp_kernels import AbstractProjected
from ngmp_kernels.families import AbstractFamily

from ..chunks import by_chunks
from .base import AbstractRule, Incoming, select


def settled(rule: AbstractRule, factor: AbstractProjected, once: AbstractFamily, incoming: Incoming) -> AbstractFamily:
    """One projection, `once`; or what it comes to on the edge of a unary factor that knows it, the cavity held fixed.

    The fixed points are the same, and so are their derivatives: those of `once` stand for both.
    """
    if len(incoming.marginals) != 1 or not rule.settles:
        return once

    def settle(factor: AbstractProjected, marginal: Any, leaf: Any, once: Any) -> Any:
        cavity = marginal - leaf
        proper = cavity.is_proper()
        return select(proper, factor.settle(marginal, select(proper, cavity, marginal), leaf, once), once)

    n = jax.tree.leaves(once)[0].shape[0]
    fixed = jax.lax.stop_gradient((incoming.marginals[0], incoming.leaves[0], once))
    return _instead(by_chunks(settle, n, factor, *fixed), once)


@jax.custom_jvp
def _instead(value: Any, once: Any) -> Any:
    """A value, with the derivatives of another; that one is not computed where no derivatives are."""
    del once
    return value


@_instead.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]
