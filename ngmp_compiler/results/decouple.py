r"""Decoupled coordinates: effects freed of the scale that they are drawn with, for chains that move through both.

An effect $x \sim N(m, s^2)$ whose mean or scale are unknown narrows where s is small: a funnel, in which no step fits
everywhere. Let all else that is known of x be about $N(a, 1/k)$. Then

$P = 1/s^2 + k, \qquad x = (m/s^2 + k a)/P + u / \sqrt P$

has u standard normal whatever m and s are. Without data (k = 0) this is the non-centred form; where data are sharp, it
is the centred one. Along a chain m is affine in the effect before, and all effects follow from u by one scan. The
numbers k and a come from draws of the posterior, by the regression of the slope of the other factors' log-density on x;
they need not be right, since the volume $-\tfrac12 \log P$ is counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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


class Coupled(NamedTuple):
    """A group of scalar effects with a normal prior that depends on other unknowns."""

    group: int
    chain: np.ndarray | None  # the effects in order, where each depends on the one before


def coupled(front: Front) -> list[Coupled]:
    """All of them, each after those it depends on; none of a model without such an order (`ngmp.factor`), or with
    improper priors."""
    try:
        steps = order(front)
    except ModelError:
        return []
    found = []
    for step in steps:
        if step.levels is None or (len(step.groups) == 1 and _is_chain(front, step.groups[0], step.levels[0])):
            chain = None if step.levels is None else step.levels[0][:, 0]
            found += [Coupled(i, chain) for i in step.groups if _fits(front, front.groups[i])]
    return found


def _is_chain(front: Front, i: int, levels: np.ndarray) -> bool:
    """Whether every effect of a group depends on the one before only, and that in its mean only."""
    group = front.groups[i]
    out = group.given.arguments.get("out")
    if levels.shape[1] != 1 or not isinstance(out, Variable) or out.picked:
        return False
    before = np.full(front.rolled.planes[out.plane], -1)
    before[out.index[levels[1:, 0]]] = out.index[levels[:-1, 0]]
    for name, own in leaves_of({k: x for k, x in group.given.arguments.items() if k != "out"}).items():
        for x in own:
            if isinstance(x, Variable) and x.plane == out.plane and not x.picked:
                inside = np.isin(x.index, out.index)
                if inside.any() and (name != "mean" or np.any((x.index != before[out.index]) & inside)):
                    return False
    return True


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
        for (i, _), evidence in zip(groups, known, strict=True):
            plane, where = made(model.groups[i])
            mean, root, _ = _given(model, i, planes, evidence)
            new[plane] = new[plane].at[where].set((planes[plane][where] - mean) / root)
        return {**values, **_named(front, new, groups)}

    def out(values: Draws) -> tuple[Draws, Array]:
        model, planes = at(values)
        volume = jnp.zeros((), front.dtype)
        for (i, chain), evidence in zip(groups, known, strict=True):
            plane, where = made(model.groups[i])
            given = _given(model, i, planes, evidence)
            mean, root, logs = given if chain is None else _along(model, i, planes, evidence, chain)
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


def _along(
    front: Front, i: int, planes: Values, evidence: Evidence, chain: np.ndarray
) -> tuple[Array, Array, Array]:
    """The same along a chain, of which the plane holds u: `x_t = slope_t x_{t-1} + rest_t`, all t at once."""
    plane, where = made(front.groups[i])
    u, zero = planes[plane][where], jnp.zeros(len(where), front.dtype)

    def at(x: Array) -> tuple[Array, Array, Array]:
        return _given(front, i, {**planes, plane: planes[plane].at[where].set(x)}, evidence)

    (rest, root, logs), (slope, _, _) = jax.jvp(at, (zero,), (jnp.ones_like(zero),))

    def then(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return b[0] * a[0], b[0] * a[1] + b[1]

    _, x = jax.lax.associative_scan(then, (slope[chain], (rest + root * u)[chain]))
    return zero.at[chain].set(x) - root * u, root, logs


def _slopes(at: Located, groups: list[Coupled], values: Draws) -> tuple[list[Array], list[Array]]:
    """Of the log-density without the priors of a group, at its effects; and the effects."""
    model, planes = at(values)
    rest, effects = [], []
    for i, _ in groups:
        plane, where = made(model.groups[i])

        def others(x: Array, i: int = i, plane: Any = plane, where: Any = where) -> Array:
            now = {**planes, plane: planes[plane].at[where].set(x)}
            mean, precision = _prior(model, i, now)
            return log_joint(model, now) - 0.5 * jnp.sum(jnp.log(precision) - precision * (x - mean) ** 2)

        effects.append(planes[plane][where])
        rest.append(jax.grad(others)(effects[-1]))
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


def _named(front: Front, planes: Values, groups: list[Coupled]) -> Draws:
    """By name, the values of the collections that hold effects of these groups."""
    changed = {made(front.groups[i])[0] for i, _ in groups}
    found = {}
    for name, (plane, at, _) in front.rolled.collections.items():
        if plane in changed:
            found[name] = planes[plane][at.reshape(-1)].reshape(*at.shape, *event_of(plane))
    return found
