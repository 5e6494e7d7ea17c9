r"""Derivatives of a fixed point without differentiating the iteration that found it.

At $\eta = \Phi(\eta, \theta)$ the implicit function theorem gives
$(I - \partial_\eta \Phi)\, \dot\eta = \partial_\theta \Phi\, \dot\theta$, a linear system in the Jacobian of one sweep,
linearised once, so memory does not depend on the number of sweeps; transposed, it is the adjoint system of reverse
mode. A free energy that is stationary in the leaves needs no system at all (the envelope theorem).

Derivatives of a run that has not converged, or whose linear system could not be solved, are NaN.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float

from ..value import distinct
from .krylov import solve

Leaves = Any  # a pytree of arrays
Inputs = Any  # what a fixed point depends on; integers have no derivative


def attach(target: Callable[[Leaves, Inputs], Leaves], leaves: Leaves, inputs: Inputs, tol: float = 0.0) -> Leaves:
    """`leaves`, unchanged, with the derivatives of the fixed point of `target(leaves, inputs)` in the inputs.

    Args:
        target: the undamped map, one sweep. It is called when derivatives are taken, so it must close over no tracer.
        leaves: a fixed point of it, to the accuracy the derivatives are wanted in.
        inputs: what the fixed point depends on.
        tol: relative residual of the linear system; as small as rounding allows if that is larger.
    """

    every, build = distinct(inputs)

    @jax.custom_jvp
    def fixed(every: list[Array], leaves: Leaves) -> Leaves:
        return leaves

    def fixed_jvp(primals: Any, tangents: Any) -> tuple[Leaves, Leaves]:
        # Derivatives of this rule, those of second order, are again those of the fixed point.
        every, point = primals[0], fixed(*primals)
        right = _moved(lambda x: target(point, build(x)), every, tangents[0])
        if right is None:
            return point, jax.tree.map(jnp.zeros_like, point)
        _, moved = jax.linearize(lambda x: target(x, build(every)), point)
        return point, _solved(moved, right, point, tol)

    fixed.defjvp(fixed_jvp, symbolic_zeros=True)
    return fixed(every, jax.lax.stop_gradient(leaves))


def _moved(function: Callable[[list[Array]], Any], arrays: list[Array], tangents: list[Any]) -> Any:
    """The derivative of a function along tangents; None if all of them are zero. What is constant stays so."""
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]
    if not moving:
        return None

    def at(values: list[Array]) -> Any:
        given = dict(zip(moving, values, strict=True))
        return function([given.get(i, x) for i, x in enumerate(arrays)])

    return jax.jvp(at, ([arrays[i] for i in moving],), ([tangents[i] for i in moving],))[1]


def _solved(moved: Callable[[Leaves], Leaves], right: Leaves, point: Leaves, tol: float) -> Leaves:
    """`(I - moved)^{-1} right`, with every array in units of its own size: natural parameters differ by decades."""
    units = jax.tree.map(lambda x: _size(jax.lax.stop_gradient(x)), point)
    wanted = max(tol, 1e3 * float(jnp.finfo(jax.tree.leaves(point)[0].dtype).eps))

    def residual(v: Leaves) -> Leaves:
        back = jax.tree.map(jnp.divide, moved(jax.tree.map(jnp.multiply, v, units)), units)
        return jax.tree.map(jnp.subtract, v, back)

    def krylov(operator: Callable[[Leaves], Leaves], right: Leaves) -> Leaves:
        found, solved, _ = solve(operator, right, wanted)
        return jax.tree.map(lambda x: jnp.where(solved, x, jnp.nan), found)

    # custom_linear_solve wants all of its right side to have a derivative, or none of it; the barrier ties it together.
    scaled = jax.lax.optimization_barrier(jax.tree.map(jnp.divide, right, units))
    return jax.tree.map(jnp.multiply, jax.lax.custom_linear_solve(residual, scaled, krylov, krylov), units)


def _size(x: Array) -> Float[Array, ""]:
    size = jnp.sqrt(jnp.mean(x**2)) if x.size else jnp.zeros((), x.dtype)
    return jnp.where(size > 0, size, 1)


def envelope(
    energy: Callable[[Leaves, Inputs], Array], value: Float[Array, ""], leaves: Leaves, inputs: Inputs
) -> Float[Array, ""]:
    """`value`, which is `energy(leaves, inputs)`, with its derivatives in the inputs at fixed leaves.

    They are the total ones where the energy is stationary in the leaves. `leaves` must come from `attach`: second
    derivatives go through them.
    """

    every, build = distinct(inputs)

    @jax.custom_jvp
    def stationary(every: list[Array], leaves: Leaves, value: Array) -> Array:
        return value

    def stationary_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        every, leaves, _ = primals
        tangent = _moved(lambda x: energy(leaves, build(x)), every, tangents[0])
        return stationary(*primals), jnp.zeros_like(value) if tangent is None else tangent

    stationary.defjvp(stationary_jvp, symbolic_zeros=True)
    return stationary(every, leaves, jax.lax.stop_gradient(value))


def flagged(ok: Bool[Array, ""], tree: Any) -> Any:
    """`tree`, unchanged, with derivatives that are NaN unless `ok`; a derivative of zero stays zero.

    So `jnp.where(post.converged, loss, 0.0)` leaves out the members of a batch that have not converged.
    """
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    # Batched wherever `ok` is: jax 0.10 mixes up a batch of which some outputs of a custom_jvp are no batch.
    arrays = jax.tree.map(lambda x: jnp.where(ok, x, x), arrays)

    @jax.custom_jvp
    def identity(ok: Array, arrays: Any) -> Any:
        return arrays

    @identity.defjvp
    def identity_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
        ok, arrays = primals

        def keep(_: Any, t: Array) -> Array:
            return jnp.where(ok | (t == 0), t, jnp.nan)

        def marked(t: Array) -> Array:  # the solution x of x = t, which jax takes for linear whatever we say it is
            return jax.lax.custom_linear_solve(lambda x: x, t, keep, keep)

        return identity(ok, arrays), jax.tree.map(marked, tangents[1])

    return eqx.combine(identity(ok, arrays), rest)
