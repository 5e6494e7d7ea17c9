r"""Newton's method on the map of a model, for fixed points that sweeps come to too slowly, or run away from.

With the gap $g(\eta) = \eta^*(\eta) - \eta$ a step d solves $(I - \partial \eta^*)\, d = g$, by products with the
Jacobian of one sweep (`krylov`). It is halved until g shrinks and all marginals and targets are proper, in a norm where
every natural parameter is in units of its own size. Near a fixed point the digits double in every step, also where a
direction is all but flat, as between factors that may be rotated, or where damped sweeps lead away from it. What it
ends at is no answer yet: sweeps follow, and the rule that stops these decides.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..emit.core import Leaves
from ..emit.map import Map
from ..value import replaced
from .adaptive import scales
from .flat import every
from .krylov import dot, solve

if TYPE_CHECKING:
    from .solver import Solver

_LINEAR = 1e-2  # relative residual of the linear system: a better step is better only near the end
_PRODUCTS = 100  # with the Jacobian, for one step
_MOST = 5  # times the sweeps that follow at most: products and evaluations
_LEAST = 1e-3  # part of a step
_FALL = 1e-4  # times the part: how much the gap has to shrink
_CLOSE = 0.01  # times tol: what is left to the sweeps
_FLOOR = 1e-6  # of the size of all parameters of a leaf: the unit of those that are zero


class _Newton(NamedTuple):
    leaves: Leaves
    gap: Leaves
    units: Leaves
    size: Float[Array, ""]  # of the gap, in these units
    count: Int[Array, ""]  # evaluations of the map, and products with its Jacobian
    moves: Bool[Array, ""]  # whether the last step could be taken


def newton(solver: "Solver", leaves: Leaves) -> tuple[Leaves, Int[Array, ""]]:
    """Leaves nearer to a fixed point, or the same ones; and how many evaluations and products that took."""
    map = replaced(solver.map, settles=False)
    gap, fine = _gap(map, leaves)
    units = _units(leaves, gap)
    size = _size(gap, units)
    begin = _Newton(leaves, gap, units, size, jnp.asarray(1), fine & jnp.isfinite(size))

    def going(run: _Newton) -> Array:
        return run.moves & (run.size > _CLOSE * solver.tol) & (run.count < _MOST * solver.max_sweeps)

    end = jax.lax.while_loop(going, lambda run: _advance(map, run), begin)
    return end.leaves, end.count


def _advance(map: Map, run: _Newton) -> _Newton:
    """One step, or the same point where no part of it helps."""
    _, moved = jax.linearize(lambda leaves: _gap(map, leaves)[0], run.leaves)

    def operator(v: Leaves) -> Leaves:
        return jax.tree.map(lambda g, u: -g / u, moved(jax.tree.map(jnp.multiply, v, run.units)), run.units)

    step, _, products = solve(operator, jax.tree.map(jnp.divide, run.gap, run.units), _LINEAR, _PRODUCTS)

    def at(part: Array) -> tuple[Leaves, Leaves, Array]:
        leaves = jax.tree.map(lambda x, s, u: x + part.astype(x.dtype) * s * u, run.leaves, step, run.units)
        gap, fine = _gap(map, leaves)
        size = _size(gap, run.units)
        return leaves, gap, jnp.where(fine & ~jnp.isnan(size), size, jnp.inf)

    def shorter(tried: tuple) -> tuple:
        part = 0.5 * tried[0]
        return part, tried[1] + 1, *at(part)

    def refused(tried: tuple) -> Array:
        part, *_, size = tried
        return ~(size < (1 - _FALL * part) * run.size) & (part > _LEAST)

    whole = jnp.ones((), run.size.dtype)
    part, count, leaves, gap, size = jax.lax.while_loop(refused, shorter, (whole, run.count + products + 1, *at(whole)))
    better = size < (1 - _FALL * part) * run.size
    leaves, gap = (jax.tree.map(lambda a, b: jnp.where(better, a, b), *pair)
                   for pair in ((leaves, run.leaves), (gap, run.gap)))  # fmt: skip
    units = _units(leaves, gap)
    return _Newton(leaves, gap, units, _size(gap, units), count.astype(run.count.dtype), better)


def _gap(map: Map, leaves: Leaves) -> tuple[Leaves, Bool[Array, ""]]:
    """Targets less leaves, and whether all of them and the marginals exist."""
    found = map.evaluate(leaves)
    return jax.tree.map(jnp.subtract, found.target, leaves), found.core.proper & every(list(found.fine.values()))


def _units(leaves: Leaves, gap: Leaves) -> Leaves:
    """The size of every natural parameter, with a floor for those that say next to nothing."""

    def unit(key: str) -> Any:
        q = leaves[key]
        sizes = [jnp.abs(x) for x in jax.tree.leaves((q, gap[key]))]
        floor = _FLOOR * sum((jnp.mean(x) for x in sizes if x.size), jnp.zeros((), q.dtype))
        return jax.tree.unflatten(jax.tree.structure(q), [s + floor for s in scales(q, gap[key])])

    return {key: unit(key) for key in leaves}


def _size(gap: Leaves, units: Leaves) -> Float[Array, ""]:
    scaled = jax.tree.map(jnp.divide, gap, units)
    return jnp.sqrt(dot(scaled, scaled))
