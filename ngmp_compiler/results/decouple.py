r"""Decoupled coordinates: effects freed of the scale that they are drawn with, for chains that move through both.

An effect $x \sim N(m, s^2)$ whose mean or scale are unknown narrows where s is small: a funnel, in which no step fits
everywhere. Let all else that is known of x be about $N(a, 1/k)$. Then

$P = 1/s^2 + k, \qquad x = (m/s^2 + k a)/P + u / \sqrt P$

has u standard normal whatever m and s are. Without data (k = 0) this is the non-centred form; where data are sharp, it
is the centred one. The numbers k and a come from draws of the posterior, by the regression of the slope of the other
factors' log-density on x; they need not be right, since the volume $-\tfrac12 \log P$ is counted.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..declare.expressions import leaves_of
from ..declare.variables import Variable
from ..emit.surrogate import Values
from ..errors import ModelError
from ..graph.groups import FactorGroup
from ..pipeline import Front
from .density import event_of, log_joint
from .order import made, order
from .outcomes import conditional

_DRAWS = 400  # for the regression
Draws = dict[str, Array]
Located = Callable[[Draws], tuple[Front, Values]]  # the model at the values of its integrated sites; others by plane


class Evidence(NamedTuple):
    """What is known of the outcomes of a group beside their own prior: precisions, and these times means."""

    k: Float[Array, " n"]
    ka: Float[Array, " n"]


class Decoupled(NamedTuple):
    """The two maps, of values by name; the second also says the logarithm of the volume that it takes."""

    into: Callable[[Draws], Draws]
    out: Callable[[Draws], tuple[Draws, Array]]


def coupled(front: Front) -> list[int]:
    """The groups of scalar effects with a normal prior that depends on other unknowns, in the order of declaration.

    Chains are left as they are; so is a model that has no such order (`ngmp.factor`), or improper priors.
    """
    try:
        steps = order(front)
    except ModelError:
        return []
    return [i for step in steps if step.levels is None for i in step.groups if _fits(front, front.groups[i])]


def _fits(front: Front, group: FactorGroup) -> bool:
    given = group.given
    out = given.arguments.get("out")
    if group.factor.deterministic or not isinstance(out, Variable) or out.plane.event_shape or out.picked:
        return False
    if out.plane.family.core != "gaussian" or given.distribution.classes > 1:
        return False
    leaves = leaves_of({k: x for k, x in given.arguments.items() if k != "out"}).values()
    depends = any(isinstance(x, Variable) for own in leaves for x in own)
    shapes = jax.eval_shape(lambda: conditional(given, _zeros(front), front.dtype))
    return (depends or bool(front.integrated)) and shapes is not None


def _zeros(front: Front) -> Values:
    planes = front.rolled.planes.items()
    return {p: jnp.zeros((n, *event_of(p)), int if p.family.core == "categorical" else front.dtype) for p, n in planes}


def decoupled(front: Front, at: Located, draws: Draws) -> Decoupled:
    """The maps of a model.

    Args:
        front: the model at any values of its integrated sites.
        at: the model at those of given values.
        draws: of the posterior, by name, with a leading axis.
    """
    groups = coupled(front)
    if not groups:
        return Decoupled(lambda values: values, lambda values: (values, jnp.zeros((), front.dtype)))
    some = jax.tree.map(lambda x: x[:_DRAWS], draws)
    slopes, effects = jax.lax.map(lambda values: _slopes(at, groups, values), some, batch_size=64)
    known = [_regressed(g, x) for g, x in zip(slopes, effects, strict=True)]

    def into(values: Draws) -> Draws:
        model, planes = at(values)
        new = dict(planes)
        for i, evidence in zip(groups, known, strict=True):
            plane, where = made(model.groups[i])
            mean, root, _ = _given(model, i, planes, evidence)
            new[plane] = new[plane].at[where].set((planes[plane][where] - mean) / root)
        return {**values, **_named(front, new, groups)}

    def out(values: Draws) -> tuple[Draws, Array]:
        model, planes = at(values)
        volume = jnp.zeros((), front.dtype)
        for i, evidence in zip(groups, known, strict=True):
            plane, where = made(model.groups[i])
            mean, root, logs = _given(model, i, planes, evidence)
            planes = {**planes, plane: planes[plane].at[where].set(mean + root * planes[plane][where])}
            volume += jnp.sum(logs)
        return {**values, **_named(front, planes, groups)}, volume

    return Decoupled(into, out)


def _prior(front: Front, i: int, planes: Values) -> tuple[Array, Array]:
    """Means and precisions of the effects of a group, given all that they depend on."""
    group = front.groups[i]
    found = conditional(group.given, planes, front.dtype)
    assert found is not None  # `_fits`
    mean, variance = found
    return jnp.broadcast_to(mean, (group.n,)), jnp.broadcast_to(1.0 / variance, (group.n,))


def _given(front: Front, i: int, planes: Values, evidence: Evidence) -> tuple[Array, Array, Array]:
    """Means and standard deviations of effects, given what they depend on and the evidence; logarithms of these."""
    mean, precision = _prior(front, i, planes)
    both = precision + evidence.k
    return (mean * precision + evidence.ka) / both, jax.lax.rsqrt(both), -0.5 * jnp.log(both)


def _slopes(at: Located, groups: list[int], values: Draws) -> tuple[list[Array], list[Array]]:
    """Of the log-density without the own prior of every effect, and the effects."""
    model, planes = at(values)
    gaussian = {p: x for p, x in planes.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    slope = jax.grad(lambda x: log_joint(model, {**planes, **x}))(gaussian)
    rest, effects = [], []
    for i in groups:
        plane, where = made(model.groups[i])
        mean, precision = _prior(model, i, planes)
        x = planes[plane][where]
        rest.append(slope[plane][where] + precision * (x - mean))
        effects.append(x)
    return rest, effects


def _regressed(slope: Float[Array, "d n"], x: Float[Array, "d n"]) -> Evidence:
    """`slope = k (a - x)`, by least squares over the draws."""
    centre = jnp.mean(x, 0)
    off = x - centre
    spread = jnp.sum(off**2, 0)
    k = jnp.where(spread > 0, -jnp.sum(off * slope, 0) / jnp.where(spread > 0, spread, 1.0), 0.0)
    k = jnp.where(jnp.isfinite(k), jnp.maximum(k, 0.0), 0.0)
    level = jnp.mean(slope, 0)
    return Evidence(k, jnp.where(jnp.isfinite(level), level, 0.0) + k * centre)


def _named(front: Front, planes: Values, groups: list[int]) -> Draws:
    """By name, the values of the collections that hold effects of these groups."""
    changed = {made(front.groups[i])[0] for i in groups}
    found = {}
    for name, (plane, at, _) in front.rolled.collections.items():
        if plane in changed:
            found[name] = planes[plane][at.reshape(-1)].reshape(*at.shape, *event_of(plane))
    return found
