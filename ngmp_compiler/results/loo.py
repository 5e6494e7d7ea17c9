r"""Leave-one-out: how well every observation is predicted by all others, without a refit.

At the fixed point the cavity of a factor is what all other factors say of its interfaces, so that

$$ \log p(y_n \mid y_{-n}) = \log \int f_n(z) \prod_j q_{c_{nj}}(z_j)\, dz. $$

It is exact where the model is conjugate. Elsewhere the messages of all others were projected at marginals that row n is
part of, and the error grows with the square of its weight: how much of the precision of an interface comes from this
one row. The weights of all rows add up to the number of unknowns at most, so that few are heavy; an eager call runs
again without each of those (`without`), from where it was. Of rows whose unknowns no other message is projected on
(those of their own step of a chain) only surprising ones are heavy. Where hyperparameters were integrated, a node
weighs less without an observation that it predicts well:
$p(y_n \mid y_{-n})^{-1} = \sum_m w_m\, p_m(y_n \mid y_{-n})^{-1}$.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels import SplitFactor
from ngmp_kernels.families import MvGaussian

from ..emit.core import CoreResult, Leaves, masked
from ..emit.map import Map
from ..emit.rules import select
from ..errors import ModelError, Problem
from ..graph.groups import FactorGroup
from ..graph.index import GivenMap
from ..pipeline import Front
from .outcome import Outcome, Part
from .predict import element_places, element_shape, observed_groups

HEAVY = 0.035
"""A weight from which on cavities alone may be off by more than 0.02."""
MOST = 128  # elements that are refitted
_DIGITS = 0.6  # of those of a precision: what is left of a cavity below is rounding


class LeaveOneOut(eqx.Module):
    """`log p(y_n | y_-n)` of every element of a site, NaN where it is masked; their sum, and its standard error.

    `weight` is the part of what is known of the unknowns of an element, from 0 to 1, that it told itself. Heavy ones
    are not to be believed where nothing was run again without them, that is where `refitted` is false.
    """

    log_density: Float[Array, "*shape"]
    weight: Float[Array, "*shape"]
    refitted: Bool[Array, "*shape"]

    @property
    def doubtful(self) -> Bool[Array, "*shape"]:
        """The elements that are heavy, and were not refitted."""
        return (self.weight > HEAVY) & ~self.refitted & ~jnp.isnan(self.log_density)

    @property
    def elpd(self) -> Float[Array, ""]:
        """The sum over all elements that were seen."""
        return jnp.nansum(self.log_density)

    @property
    def se(self) -> Float[Array, ""]:
        """The standard error of `elpd`, as of a sum of independent terms."""
        return jnp.sqrt(jnp.sum(~jnp.isnan(self.log_density)) * jnp.nanvar(self.log_density))

    def __repr__(self) -> str:
        doubtful, again = int(jnp.sum(self.doubtful)), int(jnp.sum(self.refitted))
        more = f", {again} refitted" * bool(again) + f", {doubtful} heavy and DOUBTFUL" * bool(doubtful)
        size = self.log_density.size
        return f"LeaveOneOut(elpd={float(self.elpd):.2f}, se={float(self.se):.2f}, {size} elements{more})"


def leave_one_out(
    map: Map, site: str, leaves: Leaves
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"], Bool[Array, "*shape"]]:
    """`log p(y_n | y_-n)` of every element of an observed site; its weight, none where all is exact; and where rounding
    has left nothing of its cavity."""
    plan = map.plan
    found = observed_groups(plan, site)
    own = {g for g, _ in found}
    wanted = frozenset(f for f, (g, j, edge) in enumerate(plan.functionals)
                       if plan.groups[g].keys[j] in leaves or (g in own and edge.width is None))  # fmt: skip
    result = map.core.run(leaves, wanted)
    densities, weights, lost = zip(*(_log_densities(map, g, group, result, leaves) for g, group in found), strict=True)
    groups = [group for _, group in found]
    place = element_places(groups, site)
    batch = element_shape(groups[0]) if place is None else place.shape
    where = None if place is None else jnp.asarray(place)
    outcome = Outcome((), where, batch, (), site, "")
    density, weight, none = (outcome.gather(list(x)) for x in (densities, weights, lost))
    return density, weight if map.projected else jnp.where(none, 1.0, 0.0), none


def mixed_leave_one_out(weights: Float[Array, " m"], each: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """By all nodes, of those by each; and the effect that an element has on the nodes is part of its weight.

    Nodes that know nothing of an element but what it told itself, at a noise of nearly zero, are left out.
    """
    density, weight, lost = each
    none = lost | (weights == 0).reshape(-1, *(1,) * (density.ndim - 1))
    logs = jnp.log(weights).reshape(-1, *(1,) * (density.ndim - 1))
    logs, density = jnp.where(none, -jnp.inf, logs), jnp.where(none, 0.0, density)
    whole = logsumexp(logs, axis=0)
    mixed = logs - density
    total = logsumexp(mixed, axis=0)  # the weights of the nodes without the element are exp(mixed - total)
    # Kish's number of nodes without the element, over that with it: nodes are points of a sum, and no draws.
    fewer = jnp.exp(2 * total - logsumexp(2 * mixed, axis=0)) * jnp.sum(weights**2)
    inside = jnp.tensordot(weights, jnp.where(none, 0.0, weight), axes=1)
    doubtful = (fewer < 0.1) | (whole < np.log(1 - HEAVY))
    return whole - total, jnp.maximum(inside, jnp.where(doubtful, 1.0, 0.0))


def _log_densities(
    map: Map, g: int, group: FactorGroup, result: CoreResult, leaves: Leaves
) -> tuple[Float[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
    """Of the elements of a group, their weights, and where cavities are lost."""
    classes = group.given.distribution.classes
    factor: Any = group.factor
    weight, lost = jnp.zeros(group.n, map.plan.dtype), jnp.zeros(group.n, bool)
    if group.constant:
        found = jnp.broadcast_to(jnp.asarray(factor.log_density(*group.constants)), (group.n,))
    elif group.conjugate and group.edges[0].event_shape and group.edges[0].family is MvGaussian:
        found, weight, lost = _vector(group, result)
    else:
        cavities, weight, lost = _cavities(map, g, group, result, leaves)
        if isinstance(factor, SplitFactor):
            factor, cavities = factor.base, list(factor._sums(tuple(cavities)))
        whole = factor.predictive(len(group.given.order) // classes)
        found = Part(whole, tuple(cavities), group.constants, group.n // classes).log_density()
    weight, lost = (jnp.max(x.reshape(len(group.given.order) // classes, classes, -1), 1).reshape(-1)
                    for x in (weight, lost))  # fmt: skip
    if group.mask is None:
        return found, weight, lost
    seen = group.mask.reshape(len(group.given.order) // classes, classes, -1)[:, 0].reshape(-1)
    return jnp.where(seen, found, jnp.nan), jnp.where(seen, weight, 0.0), lost & seen


def _weight(marginal: Any, cavity: Any, n: int, shared: np.ndarray) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    r"""$w = 1 - Var_q / Var_c$: the part of what is known of an interface that its own factor told; one, if all; and
    whether rounding has left nothing of the cavity, which is a difference.

    Where no other message is projected on the same variables, what it told reaches others through the core, and theirs
    comes back: $w^2 z^2$, if z < 1 is by how many standard deviations the mean has moved.
    """
    (mean, own), (before, other) = (q.location_scale() for q in (marginal, cavity))
    each = (jnp.broadcast_to(x, (n, *x.shape[1:])).reshape(n, -1) for x in (mean, own, before, other))
    mean, own, before, other = each
    wide = jnp.where(other > 0, other, 1.0)
    part = jnp.clip(jnp.max(jnp.where(other > 0, 1 - own / wide, 0.0), -1), 0.0, 1.0)
    moved = jnp.max(jnp.where(other > 0, (mean - before) ** 2 / wide, 0.0), -1)
    same = _same(marginal, cavity, n)
    lost = same | (part > 1 - float(jnp.finfo(part.dtype).eps) ** _DIGITS)
    weight = jnp.where(shared, part, part**2 * jnp.minimum(moved, 1.0))
    return jnp.where(same, 1.0, weight), lost


def _cavities(
    map: Map, g: int, group: FactorGroup, result: CoreResult, leaves: Leaves
) -> tuple[list[Any], Float[Array, " n"], Bool[Array, " n"]]:
    """What all other factors say of the interfaces, where that is improper the marginals; the weights; what is lost."""
    if group.projected:
        incoming = map.incoming(group, result, leaves)
        marginals, messages, found = incoming.marginals, incoming.leaves, list(incoming.proper_cavities()[0])
    else:
        q, message = _conjugate(map, g, group, result)
        marginals, messages, found = (q,), (message,), [_without(q, message)]
    if group.given.distribution.classes > 1:  # a selector hears of one outcome from the gates of all of its classes
        found[-1] = _without(marginals[-1], jax.tree.map(lambda x: _all_classes(group, x), messages[-1]))
    edges = [e for e in group.edges if e is not None]
    pairs = [(q, c) for q, c in zip(marginals, found, strict=True) if q is not None and c is not None]
    every = [_weight(q, c, group.n, _shared(map, e)) for e, (q, c) in zip(edges, pairs, strict=True)]
    full = [jax.tree.map(lambda x: jnp.broadcast_to(x, (group.n, *x.shape[1:])), q) for q in found]
    weight, lost = jnp.zeros(group.n, map.plan.dtype), jnp.zeros(group.n, bool)
    for own, none in every:
        weight, lost = jnp.maximum(weight, own), lost | none
    return full, weight, lost


def _shared(map: Map, edge: Any) -> np.ndarray:
    """Where an edge stands on a variable that messages of several factors are projected on."""
    out = np.zeros(edge.n, bool)
    for end in edge.ends():
        count = np.zeros(map.plan.planes[end.plane], int)
        for group in map.projected:
            for other in (o for e in group.edges if e is not None for o in e.ends() if o.plane == end.plane):
                if isinstance(other.index, GivenMap):
                    count[other.index.table] += 2  # which are picked is not known
                else:
                    np.add.at(count, other.index.positions, 1)
        out |= True if isinstance(end.index, GivenMap) else count[end.index.positions] > 1
    return out


def _same(marginal: Any, cavity: Any, n: int) -> Bool[Array, " n"]:
    """Where the marginal stands for a cavity that is improper: all that is known came from the factor itself."""
    pairs = zip(jax.tree.leaves(marginal), jax.tree.leaves(cavity), strict=True)
    alike = [jnp.all((a == b).reshape(a.shape[0], -1), -1) & jnp.any((a != 0).reshape(a.shape[0], -1), -1)
             for a, b in pairs]  # fmt: skip
    return jnp.broadcast_to(functools.reduce(jnp.logical_and, alike), (n,))


def _conjugate(map: Map, g: int, group: FactorGroup, result: CoreResult) -> tuple[Any, Any]:
    """The marginal of the interface of a conjugate factor, and its message."""
    edge: Any = group.edges[0]
    if edge.family.core == "gaussian":
        (f,) = (f for f, (k, _, _) in enumerate(map.plan.functionals) if k == g)
        q = result.functionals[f]
    else:
        q = edge.marginal(result.planes, result.tables.get(g))
    message = group.factor.message()[0]  # type: ignore[attr-defined]
    return q, jax.tree.map(lambda x, like: masked(group, x).reshape(like.shape), message, q)


def _without(q: Any, message: Any) -> Any:
    cavity = q - message
    return select(cavity.is_proper(), cavity, q)


def _all_classes(group: FactorGroup, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """The sum over the classes of an outcome, whose rows are (repeats, classes, size)."""
    classes = group.given.distribution.classes
    rows = x.reshape(len(group.given.order) // classes, classes, -1, *x.shape[1:])
    return jnp.broadcast_to(jnp.sum(rows, 1, keepdims=True), rows.shape).reshape(x.shape)


def _vector(
    group: FactorGroup, result: CoreResult
) -> tuple[Float[Array, " n"], Float[Array, " n"], Bool[Array, " n"]]:
    """Of vectors with known noise, whose functional may be of fewer dimensions: with mean m, covariance V and noise
    precision L, the cavity has mean $(I - V L)^{-1} m$ and covariance $(I - V L)^{-1} V$."""
    edge: Any = group.edges[0]
    if len(edge.links) != 1:
        works = "leave out elements of vector sites whose mean is an expression of one variable"
        raise ModelError(Problem(group.given.name, None, "its mean joins several vector variables", works))
    mean, spread = edge.moments(result.planes)
    noise = masked(group, -2 * group.factor.message()[0].eta2)  # type: ignore[attr-defined]
    eye = jnp.eye(edge.width, dtype=noise.dtype)
    left = eye - spread @ noise
    before = jnp.diagonal(spread, axis1=-2, axis2=-1)
    mean, spread = jnp.linalg.solve(left, mean[..., None])[..., 0], jnp.linalg.solve(left, spread)
    after = jnp.diagonal(spread, axis1=-2, axis2=-1)
    weight = jnp.max(1 - before / jnp.where(after > 0, after, 1.0), -1)
    total = spread + jnp.linalg.inv(-2 * group.factor.message()[0].eta2)  # type: ignore[attr-defined]
    found = MvGaussian.from_mean_covariance(mean, total).log_density(jnp.zeros_like(mean))
    lost = jnp.any(after <= 0, -1) | (weight > 1 - float(jnp.finfo(weight.dtype).eps) ** _DIGITS)
    return found, jnp.broadcast_to(weight, found.shape), jnp.broadcast_to(lost, found.shape)


def without(front: Front, site: str, element: Int[Array, ""], outcome: Outcome) -> Front:
    """The model with one element of an observed site masked; `outcome` tells where its elements are."""
    hot = jnp.ones(int(np.prod(outcome.batch)), bool).at[element].set(False).reshape(outcome.batch)
    own = [g for g, group in enumerate(front.groups) if site in group.given.names]
    groups = list(front.groups)
    for g, keep in zip(own, outcome.scatter(hot), strict=True):
        group = groups[g]
        classes = group.given.distribution.classes
        rows = keep.astype(bool).reshape(len(group.given.order) // classes, 1, -1)
        rows = jnp.broadcast_to(rows, (rows.shape[0], classes, rows.shape[2])).reshape(-1)
        groups[g] = dataclasses.replace(group, mask=rows if group.mask is None else rows & group.mask)
    return Front(front.rolled, groups, front.dtype, front.integrated)
