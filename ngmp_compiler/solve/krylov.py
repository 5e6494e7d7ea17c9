r"""Linear systems $A x = b$ known by products with A only: residuals minimised over a Krylov space.

Adaptive simpler GMRES: directions $p_k$ are kept with orthonormal images $q_k = A p_k$, so that the solution and its
residual are updated in place and nothing has to be solved at the end. The next direction is the residual while that
shrinks, and the last image where it stagnates; either alone can break down.

References:
    P. Jiranek, M. Rozloznik (2010), Adaptive version of simpler GMRES, Numerical Algorithms 53, 93-112.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Vector = Any  # a pytree of arrays
_DIRECTIONS = 20  # kept at a time; memory is this many vectors, twice
_STAGNATION = 0.9  # a residual that shrinks by less is no good direction


class _State(NamedTuple):
    x: Vector
    residual: Vector
    direction: Vector  # to be tried next
    directions: Vector  # (directions, ...)
    images: Vector
    size: Float[Array, ""]  # of the residual
    count: Int[Array, ""]


def dot(a: Vector, b: Vector) -> Float[Array, ""]:
    # From a Python zero: one of jax would make double precision of single where that is enabled.
    return jnp.asarray(sum(jnp.sum(x * y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)))


def solve(
    operator: Callable[[Vector], Vector], right: Vector, tol: float, most: int = 400
) -> tuple[Vector, Bool[Array, ""], Int[Array, ""]]:
    """The solution, whether its residual is below `tol |right|`, and how many products that took.

    Args:
        operator: a linear function of a pytree of floating-point arrays.
        right: b.
        tol: the relative residual wanted.
        most: products with A at most.
    """
    norm = jnp.sqrt(dot(right, right))

    def going(state: _State) -> Array:
        return (state.size > tol * norm) & (state.count < most)

    def step(state: _State) -> _State:
        slot = state.count % _DIRECTIONS
        fresh = slot == 0  # start over from the residual
        p = _where(fresh, state.residual, state.direction)
        past, images = (jax.tree.map(lambda x: x * ~fresh, old) for old in (state.directions, state.images))
        q = operator(p)
        for _ in range(2):  # Gram-Schmidt, twice is enough
            overlaps = _overlaps(images, q)
            q, p = _minus(q, _combine(images, overlaps)), _minus(p, _combine(past, overlaps))
        length = jnp.sqrt(dot(q, q))
        scale = jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0)
        p, q = _times(p, scale), _times(q, scale)
        share = dot(q, state.residual)
        residual = _minus(state.residual, _times(q, share))
        size = jnp.sqrt(dot(residual, residual))
        shrinks = size <= _STAGNATION * state.size
        following = _where(shrinks, _times(residual, 1 / jnp.where(size > 0, size, 1)), q)
        x = jax.tree.map(lambda a, b: a + share * b, state.x, p)
        past, images = _put(past, slot, p), _put(images, slot, q)
        return _State(x, residual, following, past, images, size, state.count + 1)

    zero = jax.tree.map(jnp.zeros_like, right)
    empty = jax.tree.map(lambda x: jnp.zeros((_DIRECTIONS, *x.shape), x.dtype), right)
    start = _State(zero, right, right, empty, empty, norm, jnp.asarray(0))
    found = jax.lax.while_loop(going, step, start)
    return found.x, found.size <= tol * norm, found.count


def _overlaps(rows: Vector, q: Vector) -> Float[Array, " k"]:
    pairs = zip(jax.tree.leaves(rows), jax.tree.leaves(q), strict=True)
    return jnp.sum(jnp.stack([r.reshape(r.shape[0], -1) @ x.reshape(-1) for r, x in pairs]), axis=0)


def _combine(rows: Vector, weights: Float[Array, " k"]) -> Vector:
    return jax.tree.map(lambda r: jnp.tensordot(weights, r, 1), rows)


def _put(rows: Vector, slot: Array, new: Vector) -> Vector:
    return jax.tree.map(lambda old, x: old.at[slot].set(x), rows, new)


def _minus(a: Vector, b: Vector) -> Vector:
    return jax.tree.map(jnp.subtract, a, b)


def _times(a: Vector, scale: Array) -> Vector:
    return jax.tree.map(lambda x: scale * x, a)


def _where(flag: Array, yes: Vector, no: Vector) -> Vector:
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)
