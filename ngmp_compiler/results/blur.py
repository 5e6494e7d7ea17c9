r"""Blur: what rounding alone makes of an answer in single precision, estimated; double precision is not looked at.

- A vector with $P m = \xi$: rounding units $\epsilon$ of the terms, each on its own, take its mean away by a
  Mahalanobis norm of about $\epsilon \, (\sum_j v_j \, (|P| |m|)_j^2)^{1/2}$. Those of the entries of P change the
  variance, $v_j = C_{jj}$ with $C = P^{-1}$, by about $\epsilon \, (\sum_{ik} (C_{ji} P_{ik} C_{kj})^2)^{1/2}$; so
  they do the scale $C$ of a Wishart variable, whose inverse scale P is the sum of a prior and of squares of data.
- Data far from what the model says of them: a leaf on a functional r pulls by $g = \xi - \Lambda \hat r$, and its
  rounding moves the means by a norm of about $\epsilon \, (\sum_f g_f^2 v_f)^{1/2}$.
- A functional of variables that are tied: where an executor finds its variance $v_f$ as a difference of theirs, it is
  off by about $\epsilon \, (\sum_i |a_i| \sigma_i)^2 / v_f$ of itself.
- A cavity $\lambda - \eta$ that is found by a subtraction: of its precision some units of that of $\lambda$ are noise.
  The messages of its factor are found once more with so much added; what they make of the marginals is what counts.

Less than what rounding makes of a mean as it is written down counts as nothing.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import AbstractFamily, Gaussian, MvGaussian, Wishart

from ..emit.centre import Term, term, value
from ..emit.core import Core, CoreResult, Leaves
from ..emit.map import Map
from ..emit.rules import select
from ..graph.edges import Functional
from ..graph.planes import Plane
from ..solve.moves import moved_by, places_of

_BLURRED = 0.03  # standard deviations that rounding may take a mean, and part of a variance
_DIFFERENCE = 0.01  # part of the variance of a difference: those of a whole chain are off in the same direction
_ROUNDING = 8.0  # rounding units of a mean that count as nothing
_SUBTRACTED = 2.0  # rounding units of the precision of a marginal that are noise in that of a cavity
_DOUBTED = 0.01  # standard deviations that this may move a marginal in a sweep


def blurred(q: AbstractFamily) -> Bool[Array, ""]:
    """Whether rounding takes the means of vectors, their variances, or those of matrices."""
    if q.dtype != jnp.float32:
        return jnp.asarray(False)
    unit = jnp.finfo(q.dtype).eps
    if isinstance(q, Wishart):
        return jnp.any(~(unit * _changed(q.inverse_scale, q.scale) <= _BLURRED))
    if not isinstance(q, MvGaussian):
        return jnp.asarray(False)
    mean, variance = jnp.abs(q.mean), q.variance
    terms = jnp.einsum("...ij,...j->...i", jnp.abs(q.precision), mean)
    error = unit * jnp.sqrt(jnp.sum(variance * terms**2, -1))
    written = _ROUNDING * unit * jnp.max(mean / jnp.sqrt(variance), -1)
    return jnp.any((error > _BLURRED + written) | (unit * _changed(q.precision, q.covariance) > _BLURRED))


def unusable(q: AbstractFamily) -> Bool[Array, ""]:
    """Whether a marginal is improper, or has no location or scale; classes may be impossible."""
    bad = jnp.any(~q.is_proper()) if q.core != "categorical" else jnp.asarray(False)
    for x in q.location_scale():
        bad |= jnp.any(~jnp.isfinite(x))
    return bad


def _changed(matrix: Float[Array, "*b d d"], inverse: Float[Array, "*b d d"]) -> Float[Array, " *b"]:
    """What one unit in every entry of a matrix makes of the diagonal of its inverse, in parts of itself, at most."""
    scale = jnp.sqrt(jnp.diagonal(inverse, axis1=-2, axis2=-1))
    scale = scale[..., :, None] * scale[..., None, :]  # in units of standard deviations no square overflows
    ties, own = (inverse / scale) ** 2, (matrix * scale) ** 2
    return jnp.sqrt(jnp.max(jnp.sum(ties * (own @ ties), -2), -1))


def strained(core: Core, leaves: Leaves, result: CoreResult) -> Bool[Array, ""]:
    """Whether data so far away, or differences so small, are asked of the Gaussian core that rounding takes them."""
    plan, no = core.plan, jnp.asarray(False)
    if plan.dtype != jnp.float32 or not plan.functionals:
        return no
    planes: dict[Plane, Any] = {link.plane: None for _, _, edge in plan.functionals for link in edge.links}
    means, spreads = ({p: getattr(result.planes[p], k) for p in planes} for k in ("mean", "std"))
    differences = {p.functional for e in plan.gaussian if e.subtracts for p in e.pieces if len(p.links) > 1}
    unit, pull, lost = jnp.finfo(plan.dtype).eps, jnp.zeros((), plan.dtype), no
    for f, ((_, _, edge), leaf) in enumerate(zip(plan.functionals, core.stacked(leaves), strict=True)):
        if edge.width is not None:
            continue
        most = value(edge, _sizes(edge), spreads) ** 2
        if f in result.functionals and f in differences:
            lost |= jnp.any(unit * most > _DIFFERENCE * result.functionals[f].variance)
        precision = -2 * leaf.eta2
        variance = jnp.where(precision * most > 1, 1 / precision, most)
        gradient = leaf.eta1 - precision * value(edge, term(edge, None), means)
        pull += jnp.sum(gradient**2 * variance)
    written = [_ROUNDING * unit * jnp.min(jnp.abs(means[p]) / spreads[p]) for p in planes]
    return lost | (unit * jnp.sqrt(pull) > _BLURRED + jnp.min(jnp.stack(written)))


def _sizes(edge: Functional) -> Term:
    """The numbers of a functional as sizes, for a sum of standard deviations."""
    sizes = (None if k.coefficient is None else jnp.abs(k.coefficient) for k in edge.links)
    return Term(None, jnp.zeros_like(edge.offset), tuple(sizes))


def doubted(map: Map, leaves: Leaves, result: CoreResult) -> Bool[Array, ""]:
    """Whether marginals hang on digits that cavities, found by subtraction, do not have."""
    if map.plan.dtype != jnp.float32:
        return jnp.asarray(False)
    more, moved = 1 + _SUBTRACTED * float(jnp.finfo(jnp.float32).eps), dict(leaves)
    for group in map.projected:
        incoming = map.incoming(group, result, leaves)
        known = incoming.known or (None,) * len(group.keys)
        noisy = [x is None and isinstance(q, (Gaussian, MvGaussian))
                 for q, x in zip(incoming.marginals, known, strict=True)]  # fmt: skip
        pairs: Any = zip(incoming.marginals, noisy, strict=True)
        raised = incoming._replace(marginals=tuple(type(q)(q.eta1, more * q.eta2) if x else q for q, x in pairs))
        for j, key in enumerate(group.keys):
            if any(noisy[:j] + noisy[j + 1 :]):
                eta, exists = map.target(group, j, raised)
                moved[key] = select(exists, eta, leaves[key])
    if all(moved[key] is leaf for key, leaf in leaves.items()):
        return jnp.asarray(False)
    after = map.core.run(map.masked(moved))
    return ~(moved_by(places_of(result.edges), places_of(after.edges)) <= _DOUBTED)
