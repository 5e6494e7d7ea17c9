"""Prediction of observed sites: the marginals of the interfaces integrated out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels import JointFactor, SplitFactor
from ngmp_kernels.families import AbstractFamily, Gaussian

from ..emit.core import CoreResult, Leaves
from ..emit.map import Map
from ..errors import ModelError, Problem, listed
from ..graph.groups import FactorGroup, Group
from ..passes.lower import lower_group
from ..schedule.choose import Plan
from .outcome import Outcome, Part
from .posterior import Prediction


def predict(map: Map, site: str, leaves: Leaves) -> Prediction:
    """Predictive moments and log-density of every element of an observed site."""
    plan = map.plan
    found = observed_groups(plan, site)
    wanted = frozenset(f for f, (g, _, edge) in enumerate(plan.functionals) if g in dict(found) and edge.width is None)
    requested = wanted | {f for f, (g, j, _) in enumerate(plan.functionals) if plan.groups[g].keys[j] in leaves}
    result = map.core.run(leaves, requested)
    groups = [group for _, group in found]
    zero = tuple(_part(map, group, None, result, g) for g, group in found)
    mean, epistemic, aleatoric = zip(*(part.moments() for part in zero), strict=True)
    place = element_places(groups, site)
    batch = element_shape(groups[0]) if place is None else place.shape
    event, distribution = mean[0].shape[1:], groups[0].given.distribution.label
    outcome = Outcome(zero, None if place is None else jnp.asarray(place), batch, event, site, distribution)
    densities = [_log_density(map, group, result, g) for g, group in found]
    each = [outcome.gather(list(x)) for x in (mean, epistemic, aleatoric, densities)]
    return Prediction(*each, outcome=outcome)


def observed_groups(plan: Plan, site: str) -> list[tuple[int, FactorGroup]]:
    """The groups that an observed site is in, and their numbers; an error if there is no such site."""
    found = [(g, group) for g, group in enumerate(plan.groups) if site in group.given.names]
    if not found or not found[0][1].observed:
        observed = listed({name for g in plan.groups if g.observed for name in g.given.names})
        raise ModelError(Problem(site, None, "not an observed site of the model", f"those are {observed}"))
    return found


def element_places(groups: list[FactorGroup], site: str) -> np.ndarray | None:
    """Where the elements of a site are, one group after the other, in the order of declaration: where several kinds of
    factors share the name, or a group has several; None where one group is the site."""
    if len(groups) == 1 and set(groups[0].given.names) == {site}:
        return None
    sizes, orders = [g.n // _classes(g) for g in groups], [g.given.order[:: _classes(g)] for g in groups]
    names = [g.given.names[:: _classes(g)] for g in groups]
    offsets = np.cumsum([0, *sizes])
    order = sorted((k, p, i) for p, own in enumerate(orders) for i, k in enumerate(own) if names[p][i] == site)
    each = [
        (offset + np.arange(n)).reshape(len(own), -1, *group.given.inner)
        for offset, n, own, group in zip(offsets, sizes, orders, groups, strict=False)
    ]
    found = np.concatenate([each[p][i] for _, p, i in order])
    return found[0] if len(order) == 1 and len(found) == 1 and len(names[order[0][1]]) > 1 else found


def _classes(group: FactorGroup) -> int:
    """How many factors of a group an element has: one for every class, if a selector picks its parameters."""
    return group.given.distribution.classes


def element_shape(group: FactorGroup) -> tuple[int, ...]:
    """The shape of a site as the user sees it, without the axis of classes."""
    if _classes(group) == 1:
        return group.shape
    repeats, *batch = group.shape
    return (repeats // _classes(group), *batch) if repeats > _classes(group) else tuple(batch)


def _part(map: Map, group: FactorGroup, out: Array | None, result: CoreResult, g: int) -> Part:
    """The factors of a group with another outcome (None: zero, or a valid one near it), and no mask."""
    given = group.given
    placeholder = jnp.asarray(given.distribution.placeholder, map.plan.dtype)
    if out is None:
        out = jnp.broadcast_to(placeholder, _outcomes(map, group).shape)
    lowered = _lowered(map, given, out)
    marginals = (_marginal(map, group, j, e, result, g) for j, e in enumerate(lowered.edges))
    filled = [jax.tree.map(lambda x: jnp.broadcast_to(x, (group.n, *x.shape[1:])), q) for q in marginals]
    classes = given.distribution.classes
    factor = lowered.factor.predictive(len(given.order) // classes)
    return Part(factor, tuple(filled), lowered.constants, group.n // classes)


def _outcomes(map: Map, group: FactorGroup) -> Array:
    out = jnp.asarray(group.given.arguments["out"])
    return jnp.broadcast_to(out, (group.n, *out.shape[1:])).astype(map.plan.dtype)


def _log_density(map: Map, group: FactorGroup, result: CoreResult, g: int) -> Array:
    """That of the outcomes given, NaN where they are not finite."""
    out = _outcomes(map, group)
    known = jnp.isfinite(out)
    part = _part(map, group, jnp.where(known, out, group.given.distribution.placeholder), result, g)
    seen = jnp.all(known.reshape(group.n, -1), axis=1)
    seen = seen.reshape(len(group.given.order) // _classes(group), _classes(group), -1)[:, 0].reshape(-1)
    return jnp.where(seen, part.log_density(), jnp.nan)


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
    if edge.family.core != "gaussian":  # of a table under mean field there is no joint marginal
        return edge.marginal(result.planes, result.tables.get(g))
    if isinstance(group.factor, JointFactor) and j in group.factor.members:
        return _member(map, group, group.factor.members.index(j), edge, result, g)
    pieces = _pieces(group, j)
    original: Any = group.edges[pieces[0]]
    if edge.width is None:
        parts = [result.functionals[f] for f, (k, i, _) in enumerate(map.plan.functionals) if k == g and i in pieces]
        mean, variance = sum(q.mean for q in parts), sum(q.variance for q in parts)  # independent under mean field
        return Gaussian.from_mean_variance(mean + edge.offset - original.offset, variance)
    if group.projected and pieces == [j] and (found := _functional(map, result, g, j)) is not None:
        return found.shifted(jnp.broadcast_to(edge.offset - original.offset, found.mean.shape))
    if len(edge.links) != 1:
        works = "predict vector sites whose mean is an expression of one variable"
        raise ModelError(Problem(group.given.name, None, "its mean joins several vector variables", works))
    return _Vector(*edge.moments(result.planes))


def _functional(map: Map, result: CoreResult, g: int, j: int) -> Any:
    """The joint marginal of a vector functional, where the core was asked for it."""
    return next((result.functionals[f] for f, (k, i, _) in enumerate(map.plan.functionals)
                 if (k, i) == (g, j) and f in result.functionals), None)  # fmt: skip


def _member(map: Map, group: FactorGroup, i: int, edge: Any, result: CoreResult, g: int) -> Gaussian:
    """Entry i of a joint edge: predictions integrate over the product of the marginals, with or without one."""
    q = _functional(map, result, g, 0)
    original: Any = group.edges[0]
    return Gaussian.from_mean_variance(q.mean[:, i] + edge.offset - original.offset[:, i], q.variance[:, i])


class _Vector(NamedTuple):
    """Moments of a vector functional; its covariance may be singular, so it has no natural parameters."""

    mean: Array
    covariance: Array


def _pieces(group: FactorGroup, j: int) -> list[int]:
    """The interfaces that a mean-field rule made of interface j, or where it stands after a joint edge."""
    if isinstance(group.factor, JointFactor):
        return [1 + group.factor.rest.index(j)]
    if not isinstance(group.factor, SplitFactor):
        return [j]
    start = sum(group.factor.parts[:j])
    return list(range(start, start + group.factor.parts[j]))
