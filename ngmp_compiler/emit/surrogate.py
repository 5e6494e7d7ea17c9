"""The surrogate: the joint density that the conjugate core is under given leaves. Draws from it, and its logarithm.

Gaussian variables are drawn part by part by their executors, categorical ones likewise; those of other families are
independent of each other, and are drawn from their marginals.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..executors.merge import assemble
from ..graph.planes import Plane
from .centre import centre, exponent, term, value
from .core import Core, Leaves

Values = dict[Plane, Array]  # of all variables of a plane, (n, *event); of classes (n,) integers


def draw(core: Core, leaves: Leaves, key: PRNGKeyArray, count: int) -> Values:
    """Draws from the joint, with a leading axis of length `count`."""
    gaussian, discrete, product = jax.random.split(key, 3)
    totals, out = core._totals(leaves), _gaussian(core, leaves, gaussian, count)
    unary, tables, _ = core.tables_of(totals, leaves)
    parts: dict[Plane, list[tuple[Any, Array]]] = {}
    for executor, own in zip(core.plan.discrete, jax.random.split(discrete, len(core.plan.discrete)), strict=True):
        for plane, at, classes in executor.draw(unary, tables, own, count):
            parts.setdefault(plane, []).append((at, classes))
    out |= {plane: _assembled(core, plane, found) for plane, found in parts.items()}
    others = [plane for plane in totals if plane.family.core == "product"]
    for plane, own in zip(others, jax.random.split(product, len(others)), strict=True):
        out[plane] = totals[plane].sample(own, (count,))
    return out


def _gaussian(core: Core, leaves: Leaves, key: PRNGKeyArray, count: int) -> Values:
    stage, sums, plan = core._stage(leaves, None), core.plan.sums, core.plan
    reduced = None if sums is None else sums.reduce(stage.given)
    given = stage.given if reduced is None else reduced.leaves
    means = core._gaussian(stage, frozenset()).means
    parts: dict[Plane, list[tuple[Any, Array]]] = {}
    keys = jax.random.split(key, len(plan.gaussian) + 1)
    for executor, prepared, own in zip(plan.gaussian, stage.prepared, keys, strict=False):
        solved = executor.solve(prepared, given, frozenset())
        for plane, found in executor.draw(prepared, given, solved, own, count).items():
            parts.setdefault(plane, []).append(found)
    if sums is not None and reduced is not None:
        shapes = {plane: (count, *mean.shape) for plane, (_, mean) in means.items()}
        others = {p: _assembled(core, p, parts[p]) if p in parts else jnp.zeros(shapes[p], plan.dtype) for p in shapes}
        for plane, found in sums.draw(reduced, others, keys[-1], count).items():
            parts.setdefault(plane, []).append(found)
    return {plane: means[plane][1] + _assembled(core, plane, found) for plane, found in parts.items()}


def _assembled(core: Core, plane: Plane, parts: list[tuple[Any, Array]]) -> Array:
    """Draws of all variables of a plane, of those that executors have made; zero where there are none."""
    where = [at for at, _ in parts]

    def one(*rows: Array) -> Array:
        return assemble(core.plan.planes[plane], list(zip(where, rows, strict=True)))[0]

    return jax.vmap(one)(*(x for _, x in parts))


def log_density(core: Core, leaves: Leaves) -> Callable[[Values], Float[Array, ""]]:
    """The logarithm of the joint density, as a function of the values of all variables."""
    functionals = [edge for _, _, edge in core.plan.functionals]
    stage, totals = core._stage(leaves, None), core._totals(leaves)
    solved = core._gaussian(stage, frozenset())
    means = {plane: mean for plane, (_, mean) in solved.means.items()}
    unary, tables, _ = core.tables_of(totals, leaves)
    edges = {g: edge for g, _, edge in core.direct if edge.plane is None}
    norm = solved.log_volume + core._discrete(totals, leaves).log_partition
    at_mean = [value(edge, term(edge, None), means) for edge in functionals]
    about = [centre(leaf, r) for leaf, r in zip(stage.stacked, at_mean, strict=True)]

    def log_joint(values: Values) -> Float[Array, ""]:
        total = -jnp.asarray(norm, core.plan.dtype)
        for edge, r, leaf in zip(functionals, at_mean, about, strict=True):
            total += jnp.sum(exponent(leaf, value(edge, term(edge, None), values) - r))
        for plane, logits in unary.items():
            total += jnp.sum(jnp.take_along_axis(logits, values[plane][:, None], 1))
        for g, table in tables.items():
            edge = edges.get(g, core.plan.groups[g].edges[0])
            sides = [side.index.take(values[side.plane]) for side in edge.sides]
            rows = 0 if table.shape[0] == 1 else jnp.arange(len(sides[0]))
            total += jnp.sum(table[(rows, *sides)])
        for plane, q in totals.items():
            if plane.family.core == "product":
                total += jnp.sum(q.log_density(values[plane]))
        return total

    return log_joint
