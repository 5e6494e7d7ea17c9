r"""Misfit: residuals far beyond their noise, where a nonlinear model may have been answered by one of its wrong modes.

A Normal factor of known noise has a residual r with $E[r^2] = \sigma^2$ under its model, so the square of the mean of r
is no more than that over data of the model. Of n of them,

$$ z = \frac{\sum_k \hat r_k^2 / \sigma_k^2 - n}{\sqrt{2 n}} $$

is therefore rarely much above zero. With deterministic nodes there may be several fixed points (a pendulum that turns
over once too often fits half of what is seen of it), and a large z is what tells a wrong one from its marginals alone;
or the noise has been declared too small. Models without such nodes have one answer, whatever their data: none is looked
at.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ngmp_kernels.families import Gaussian

from ..emit.centre import term, value
from ..emit.core import CoreResult, masked
from ..emit.map import Map

_FEWEST = 10  # residuals of a name that say anything


def misfit(map: Map, result: CoreResult) -> dict[str, Array]:
    """By site, z of its residuals; see the module docstring. Empty for models without deterministic nodes."""
    if not any(group.factor.deterministic for group in map.projected):
        return {}
    out = {}
    for group in map.plan.groups:
        edge, factor = group.edges[0] if group.edges else None, group.factor
        plain = group.conjugate and len(group.edges) == 1 and factor.families == (Gaussian,)
        if edge is None or not plain or group.n < _FEWEST:
            continue
        noise: Any = factor.message()[0]  # type: ignore[attr-defined]
        means: dict[Any, Any] = {link.plane: result.planes[link.plane].mean for link in edge.links}  # type: ignore
        squares = (value(edge, term(edge, None), means) - noise.mean) ** 2 / noise.variance
        count = jnp.sum(masked(group, jnp.ones_like(squares)))
        z = (jnp.sum(masked(group, squares)) - count) / jnp.sqrt(2 * jnp.maximum(count, _FEWEST))
        out[group.name] = jax.lax.stop_gradient(z)
    return out
