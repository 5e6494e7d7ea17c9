"""Restarts: one model from many random starts at once, for graphs whose fixed points depend on where they start.

A start pulls every variable away from its initial marginal by a random conjugate message, the `kick` of its family,
shared out among the leaves that touch it. Families without one are left where they are: they follow the ones they are
tied to.
"""

import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..emit.core import Leaves, expand, masked
from ..emit.map import Map
from ..emit.rules import select
from ..graph.groups import FactorGroup
from ..graph.index import IndexMap
from ..graph.planes import Plane
from ..ladder import climb
from ..pipeline import Static
from ..program import Program
from .infer import infer
from .posterior import Posterior


class Restarts(NamedTuple):
    """The best of several runs, and what each of them ended with: equal free energies are (almost surely) one fixed
    point, and the least is the one to trust."""

    best: Posterior
    free_energies: Float[Array, " starts"]
    converged: Bool[Array, " starts"]


def restarts(program: Program, key: PRNGKeyArray, starts: int, /, *, spread: float = 1.0, **inputs: Any) -> Restarts:
    """Run a program from many random starts, all at once; see the module docstring.

    Args:
        program: a compiled model.
        key: a jax random key.
        starts: how many; the first is the program's own start, so the best is never worse than `program(**inputs)`.
        spread: the size of the random messages, relative to those.
        inputs: of the model function.

    Returns:
        A `Restarts`: the run of least free energy among the ones that converged (among all, if none did).
    """
    try:
        starts = operator.index(starts)
    except TypeError:
        raise TypeError(f"starts={starts!r} is no integer: give how many runs to make, e.g. 8") from None
    if starts < 1:
        raise ValueError(f"starts={starts}: there must be at least one run")
    program._needs_state("ngmp.restarts")
    static, dynamic = program._split((), inputs)
    found = program._jitted(_run, static, dynamic, program, starts)(dynamic, key, spread)
    best = program._checked(static, dynamic, climb(program, static, dynamic, found.best))
    return Restarts(best, found.free_energies, found.converged)


def _run(static: Static, program: Program, starts: int, dynamic: list[Any], key: PRNGKeyArray, spread: Any) -> Restarts:
    specialised = program._build(static, dynamic)
    spreads = jnp.where(jnp.arange(starts) == 0, 0.0, spread).astype(specialised.plan.dtype)

    def one(key: PRNGKeyArray, spread: Array) -> Posterior:
        return infer(specialised, specialised.solver.init(random_leaves(specialised.map, key, spread)))

    posts = jax.vmap(one)(jax.random.split(key, starts), spreads)
    energy = posts.free_energy
    usable = jnp.isfinite(energy) & (posts.converged | ~jnp.any(posts.converged))
    best = jnp.argmin(jnp.where(usable, energy, jnp.inf))
    # A posterior has static parts, which are the same in all runs.
    picked = jax.tree.map(lambda x: x[best], posts)
    return Restarts(picked, energy, posts.converged)


def random_leaves(map: Map, key: PRNGKeyArray, spread: Float[Array, ""]) -> Leaves:
    """The initial leaves of a map, each with its share of the pull on the variable that it touches."""
    leaves = map.initial()
    marginals = map.core.run(leaves).planes
    touched = _touched(map)
    pulls = {}
    for plane in sorted(touched, key=str):
        key, own = jax.random.split(key)
        q = marginals[plane]
        pull = q.kick(own, spread)
        if pull is not None:
            flat = jax.tree.map(jnp.zeros_like, pull)
            pulls[plane] = select(q.is_proper(), pull, flat)
    counts = {plane: np.zeros(map.plan.planes[plane]) for plane in pulls}
    for plane, places in touched.items():
        for _, _, index, _ in places if plane in pulls else ():
            np.add.at(counts[plane], index.positions, 1.0)
    for plane, pull in pulls.items():
        for group, j, index, coefficient in touched[plane]:
            share = 1 / (jnp.asarray(counts[plane][index.positions], map.plan.dtype) * coefficient)
            rows = group.rows(j)
            part = jax.tree.map(
                lambda x, g=group, n=rows, i=index, s=share: masked(g, i.take(x) * expand(s, x), n), pull
            )
            leaves[group.keys[j]] += part
    return leaves


def _touched(map: Map) -> dict[Plane, list[tuple[FactorGroup, int, IndexMap, Any]]]:
    """The interfaces that stand on single variables, by plane, and the coefficients of the variables in them."""
    found: dict[Plane, list[tuple[FactorGroup, int, IndexMap, Any]]] = {}
    for group in map.projected:
        for j, edge in enumerate(group.edges):
            ends = () if edge is None else edge.ends()
            if len(ends) == 1 and ends[0].op == "scale":
                (end,) = ends
                coefficient = 1.0 if end.coefficient is None else end.coefficient
                found.setdefault(end.plane, []).append((group, j, end.index, coefficient))
    return found
