r"""Derivatives of a fixed point without differentiating the iteration that found it.

At $\eta = \Phi(\eta, \theta)$ the implicit function theorem gives
$(I - \partial_\eta \Phi)\, \dot\eta = \partial_\theta \Phi\, \dot\theta$. It is solved by GMRES on products
with the Jacobian of one sweep, so memory does not depend on the number of sweeps; transposed, it is the adjoint system
of reverse mode.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

Leaves = Any  # a pytree of arrays


def attach(target: Callable[[Leaves, Any], Leaves], leaves: Leaves, inputs: Any) -> Leaves:
    """`leaves`, unchanged, with the derivatives of the fixed point of `target(leaves, inputs)` in the inputs.

    Args:
        target: the undamped map, one sweep.
        leaves: a fixed point of it, to the accuracy the derivatives are wanted in.
        inputs: what the fixed point depends on; integers have no derivative.
    """

    @jax.custom_jvp
    def fixed(inputs: Any, leaves: Leaves) -> Leaves:
        del inputs
        return leaves

    @fixed.defjvp
    def fixed_jvp(primals: Any, tangents: Any) -> tuple[Leaves, Leaves]:
        inputs, leaves = primals
        _, unravel = ravel_pytree(leaves)
        _, right = jax.jvp(lambda x: target(leaves, x), (inputs,), (tangents[0],))

        def residual(v: Float[Array, " n"]) -> Float[Array, " n"]:
            _, moved = jax.jvp(lambda x: target(x, inputs), (leaves,), (unravel(v),))
            return v - ravel_pytree(moved)[0]

        solution = jax.lax.custom_linear_solve(residual, ravel_pytree(right)[0], _gmres, _gmres)
        return leaves, unravel(solution)

    return fixed(inputs, jax.lax.stop_gradient(leaves))


def _gmres(operator: Callable[[Array], Array], right: Float[Array, " n"]) -> Float[Array, " n"]:
    tol = 1e3 * jnp.finfo(right.dtype).eps
    # jax's own solver: lineax's GMRES is a dependency for this one call, and no faster.
    return jax.scipy.sparse.linalg.gmres(operator, right, tol=float(tol), restart=40, maxiter=25)[0]
