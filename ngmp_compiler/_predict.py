"""Prediction of observed sites: the marginals of the interfaces integrated out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels import AbstractConjugate, Quadrature, SplitFactor, nodes
from ngmp_kernels.families import AbstractFamily, Dirichlet, Gaussian, MvGaussian

from ._core import CoreResult, Leaves
from ._emit import Map
from ._errors import ModelError, Problem
from ._posterior import Prediction
from ._roll import Group
from ._type import FactorGroup, Functional, PlaneEdge, lower_group


def predict(map: Map, site: str, leaves: Leaves) -> Prediction:
    """Predictive moments and log-density of every element of an observed site."""
    plan = map.plan
    found = [(g, group) for g, group in enumerate(plan.groups) if group.given.name == site]
    if not found or not found[0][1].observed:
        observed = sorted({g.given.name for g in plan.groups if g.observed})
        raise ModelError(Problem(site, None, "not an observed site of the model", f"those are {observed}"))
    wanted = frozenset(f for f, (g, _, edge) in enumerate(plan.functionals) if g in dict(found) and edge.width is None)
    requested = wanted | {f for f, (g, j, _) in enumerate(plan.functionals) if plan.groups[g].key(j) in leaves}
    result = map.core.run(leaves, requested)
    parts = [_predict_group(map, group, result, g) for g, group in found]
    if len(parts) == 1:
        return parts[0]
    # Several kinds of factors share the name: back to the order of declaration.
    order = sorted((k, p, i) for p, (_, group) in enumerate(found) for i, k in enumerate(group.given.order))

    def merge(*arrays: Array) -> Array:
        each = []
        for x, (_, group) in zip(arrays, found, strict=True):
            event = x.shape[len(group.shape) :]
            each.append(x.reshape(len(group.given.order), -1, *group.given.inner, *event))
        return jnp.concatenate([each[p][i] for _, p, i in order])

    return jax.tree.map(merge, *parts)


def _predict_group(map: Map, group: FactorGroup, result: CoreResult, g: int) -> Prediction:
    plan, given = map.plan, group.given
    out = jnp.asarray(given.arguments["out"])
    out = jnp.broadcast_to(out, (group.n, *out.shape[1:])).astype(plan.dtype)
    known = jnp.isfinite(out)
    seen = _lowered(map, given, jnp.where(known, out, given.distribution.placeholder))
    zero = _lowered(map, given, jnp.zeros_like(out) + given.distribution.placeholder)
    at_data = [_marginal(map, group, j, e, result, g) for j, e in enumerate(seen.edges)]
    at_zero = [_marginal(map, group, j, e, result, g) for j, e in enumerate(zero.edges)]
    mean, variance = _moments(zero, at_zero, _projection(map, group))
    density = jnp.broadcast_to(_log_density(seen, at_data, _projection(map, group)), (group.n,))
    known = jnp.all(known.reshape(group.n, -1), axis=1)
    shape = group.shape
    return Prediction(
        jnp.broadcast_to(mean, (group.n, *mean.shape[1:])).reshape(*shape, *mean.shape[1:]),
        jnp.broadcast_to(variance, (group.n, *mean.shape[1:])).reshape(*shape, *mean.shape[1:]),
        jnp.where(known, density, jnp.nan).reshape(shape),
    )


def _lowered(map: Map, given: Group, out: Array) -> FactorGroup:
    """The group again, with another outcome and no mask."""
    arguments = {**given.arguments, "out": out}
    lowered = lower_group(given._replace(arguments=arguments, mask=None), map.plan.planes, map.plan.dtype)
    assert isinstance(lowered, FactorGroup)
    return lowered


def _marginal(
    map: Map, group: FactorGroup, j: int, edge, result: CoreResult, g: int
) -> "AbstractFamily | _Vector | None":
    """The marginal of an interface; a functional whose offset changed has a shifted mean."""
    if edge is None:
        return None
    if isinstance(edge, PlaneEdge):
        return jax.tree.map(edge.index.take, result.planes[edge.plane])
    if not isinstance(edge, Functional):
        raise ModelError(Problem(group.given.name, None, "its interface is a pair of latent variables", "not observed"))
    pieces = _pieces(group, j)
    original = group.edges[pieces[0]]
    assert isinstance(original, Functional)
    if edge.width is None:
        parts = [result.functionals[f] for f, (k, i, _) in enumerate(map.plan.functionals) if k == g and i in pieces]
        mean, variance = sum(q.mean for q in parts), sum(q.variance for q in parts)  # independent under mean field
        return Gaussian.from_mean_variance(mean + edge.offset - original.offset, variance)
    if len(edge.links) != 1:
        works = "predict vector sites whose mean is an expression of one variable"
        raise ModelError(Problem(group.given.name, None, "its mean joins several vector variables", works))
    plane, index, op, c = edge.links[0]
    q = jax.tree.map(index.take, result.planes[plane])
    mean, covariance = q.mean, q.covariance  # type: ignore[attr-defined]
    if op == "matmul":
        c = jnp.broadcast_to(c, (edge.n, *c.shape[1:]))
        mean = jnp.einsum("nmd,nd->nm", c, mean)
        covariance = jnp.einsum("nmd,nde,nke->nmk", c, covariance, c)
    elif c is not None:
        c = jnp.reshape(c, (-1, 1))
        mean, covariance = c * mean, (c**2)[..., None] * covariance
    return _Vector(mean + edge.offset, covariance)


class _Vector(NamedTuple):
    """Moments of a vector functional; its covariance may be singular, so it has no natural parameters."""

    mean: Array
    covariance: Array

    def log_density(self, message: MvGaussian) -> Array:
        """`log E[exp(eta . T)]` by `det(I + Lambda C)`, with Lambda the precision of the message."""
        precision = jnp.broadcast_to(message.precision, self.covariance.shape)
        gain = jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype) + precision @ self.covariance
        force = message.eta1 - jnp.einsum("nij,nj->ni", precision, self.mean)
        quadratic = jnp.einsum("ni,nij,nj->n", force, self.covariance, jnp.linalg.solve(gain, force[..., None])[..., 0])
        at_mean = jnp.sum(self.mean * (message.eta1 - 0.5 * jnp.einsum("nij,nj->ni", precision, self.mean)), -1)
        return at_mean + 0.5 * quadratic - 0.5 * jnp.linalg.slogdet(gain)[1]


def _pieces(group: FactorGroup, j: int) -> list[int]:
    """The interfaces that a mean-field rule made of interface j."""
    if not isinstance(group.factor, SplitFactor):
        return [j]
    start = sum(group.factor.parts[:j])
    return list(range(start, start + group.factor.parts[j]))


def _projection(map: Map, group: FactorGroup):
    return getattr(map.rules[group.name], "projection", Quadrature())


def _log_density(group: FactorGroup, marginals: list, rule) -> Array:
    """`log ∫ f(z) Π q_j(z_j) dz`."""
    factor = group.factor
    if all(q is None for q in marginals):
        return jnp.asarray(factor.log_density(*group.constants))
    if isinstance(factor, AbstractConjugate):
        message, log_scale = factor.message()
        q = marginals[0]
        message = jax.tree.map(lambda x: jnp.broadcast_to(x, (group.n, *x.shape[1:])), message)
        if isinstance(q, _Vector):
            return q.log_density(message) + log_scale
        return (q + message).log_partition() - q.log_partition() + log_scale
    if len(marginals) == 1:
        z, log_weights = nodes(rule, marginals[0])
        return jax.nn.logsumexp(log_weights + factor.log_density(z), axis=0)
    return factor.log_evidence(tuple(marginals), rule)  # type: ignore[attr-defined]


def _moments(group: FactorGroup, marginals: list, rule) -> tuple[Array, Array]:
    """`E[mean]` and `E[variance] + Var[mean]` of the outcome, on the product of the nodes of the interfaces."""
    factor = group.factor
    if all(q is None for q in marginals):
        return factor.moments(*group.constants)
    if isinstance(marginals[0], (_Vector, Dirichlet)):  # the outcome is linear in the interface
        mean, variance = factor.moments(marginals[0].mean)
        spread = jnp.diagonal(marginals[0].covariance, axis1=1, axis2=2) if isinstance(marginals[0], _Vector) else 0.0
        return mean, variance + spread
    d = len(marginals)
    z, weights = [], 0.0
    for j, q in enumerate(marginals):
        points, log_weights = nodes(rule, q)
        place = tuple(slice(None) if i == j else None for i in range(d))
        z.append(points[place])
        weights = weights + log_weights[place]
    mean, variance = factor.moments(*z)
    weights = jnp.exp(weights)
    axes = tuple(range(d))
    extra = np.ndim(mean) - weights.ndim
    weights = weights.reshape(weights.shape + (1,) * extra)
    centre = jnp.sum(weights * mean, axes)
    return centre, jnp.sum(weights * (variance + (mean - centre) ** 2), axes)
