r"""Skewness: where no Gaussian can be right, and by how much.

With q the Gaussian approximation of a posterior and $d = Cov(z, x) / sd(x)$ the direction in which a variable x moves
all others with it, the first term of the skewness of its marginal is

$$ \gamma(x) = \sum_a E_q[\partial_d^3 \log f_a], $$

the third derivative, in standard deviations of x, of what all factors say together. It is computed once, after a run,
for scalars that all factors of a group share beside other Gaussian unknowns (means, log-scales, coefficients), by
differences of expected log-messages; other variables are heard by few factors, each projected as well as can be.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ngmp_kernels import Quadrature

from ..emit.chunks import by_chunks
from ..emit.core import CoreResult, Leaves, masked
from ..emit.map import Map
from ..graph.edges import Link
from ..graph.groups import FactorGroup

_STEP = 0.5  # standard deviations of x
_TABLE = ((-2.0, -0.5), (-1.0, 1.0), (1.0, -1.0), (2.0, 0.5))  # of a third difference
_MOST = 8  # variables of a group


def skewness(map: Map, leaves: Leaves, result: CoreResult) -> dict[str, Array]:
    """By name: the skewness of shared scalar variables, to first order; see the module docstring."""
    names = {(plane, int(p)): (name, i, at.size) for name, (plane, at) in map.plan.names.items()
             for i, p in enumerate(at.reshape(-1))}  # fmt: skip
    still = jax.lax.stop_gradient
    leaves, result = jax.tree.map(lambda x: still(x) if isinstance(x, jax.Array) else x, (leaves, result))
    found: dict[tuple[Any, int], Array] = {}
    for group in map.projected:
        if group.factor.deterministic or map.rules[group.name].mean_field or not _several(group):
            continue
        for j, edge in enumerate(group.edges):
            for link in _shared(edge, group.n):
                key = link.plane, link.index.start
                found[key] = found.get(key, 0.0) + _share(map, group, j, link, leaves, result)
    out = {}
    for key, value in found.items():
        if key in names:
            name, i, size = names[key]
            out[name if size == 1 else f"{name}[{i}]"] = jax.lax.stop_gradient(value)
    return out


def _several(group: FactorGroup) -> bool:
    """Whether its factors have several Gaussian unknowns: of one alone, a message is as skewed as it is informative."""
    gaussian = [edge for edge in group.edges if edge is not None and edge.family.core == "gaussian"]
    return len(gaussian) > 1 or any(edge.width for edge in gaussian)


def _shared(edge: Any, n: int) -> list[Link]:
    """The scalar variables that all rows of an edge touch, a few."""
    if edge is None or edge.family.core != "gaussian" or n < 2:
        return []
    own = [link for link in edge.links if link.index.kind == "one" and not link.plane.event_shape]
    return own if len(own) <= _MOST else []


def _share(map: Map, group: FactorGroup, j: int, link: Link, leaves: Leaves, result: CoreResult) -> Array:
    """What a group adds to the skewness of a variable that all its factors share."""
    incoming = map.incoming(group, result, leaves)
    q: Any = incoming.marginals[j]
    spread = jnp.sqrt(result.planes[link.plane].variance[link.index.start])
    one = jnp.ones((1,), q.dtype) if link.coefficient is None else jnp.asarray(link.coefficient)
    c = one.reshape(one.shape[0], -1)  # (n|1, k)
    # Cov(r, x) by way of p = c . r, of which x is a part: Cov(r, p) Cov(p, x) / Var(p), with Cov(p, x) = |c|^2 Var(x).
    covariance = q.covariance if q.event_shape else q.variance[:, None, None]
    with_p = jnp.einsum("nij,nj->ni", covariance, c)
    variance = jnp.maximum(jnp.sum(with_p * c, -1, keepdims=True), jnp.finfo(q.dtype).tiny)
    way = with_p * jnp.sum(c * c, -1, keepdims=True) * spread / variance
    cavities, _ = incoming.proper_cavities(1.0)

    def expected(factor: Any, q: Any, way: Array, cavities: Any, t: Array) -> Array:
        moved = q.shifted(t * (way if q.event_shape else way[:, 0]))
        return factor.expected_log_message(j, moved, cavities, Quadrature())

    def at(pair: tuple[Array, Array]) -> Array:
        t, weight = pair
        each = by_chunks(lambda f, q, w, c: expected(f, q, w, c, t), group.n, group.factor, q, way, cavities)
        return weight * each

    table = jnp.asarray(_TABLE, q.dtype)
    values = jax.lax.map(at, (_STEP * table[:, 0], table[:, 1] / _STEP**3))
    third = jnp.broadcast_to(jnp.sum(values, 0), (group.n,))
    return jnp.sum(masked(group, jnp.where(jnp.isfinite(third), third, 0.0)))
