"""What an energy asks of marginals: expectations under them, and its gradient in their mean parameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..quadrature.rules import AbstractQuadrature, Quadrature

_USUAL = Quadrature()


class Averages:
    """Methods of families for functions of marginals."""

    def expect(self: Any, function: Callable[[Array], Array], quadrature: AbstractQuadrature = _USUAL) -> Array:
        """`E_q[function(z)]` of every element, (*b, ...), by the nodes of the family; of classes the sum over all.

        Args:
            function: of one value z (a number, a vector, the integer of a class), written with `jax.numpy`.
            quadrature: where the nodes are; by default those of the projections.
        """
        z, log_weights = self.nodes(quadrature)
        depth = log_weights.ndim  # nodes and batch
        for _ in range(depth):
            function = jax.vmap(function)
        values = function(z)
        weights = jnp.exp(log_weights)
        return jnp.sum(weights.reshape(weights.shape + (1,) * (values.ndim - depth)) * values, 0)

    def slope(self: Any, function: Callable[[Any], Array]) -> Any:
        r"""$\nabla_\mu J$ of a function J of all elements at once, in the layout of eta.

        $\nabla_\lambda J = F \nabla_\mu J$ with the Fisher information F of every element, of which the directions
        that change nothing (the antisymmetric part of a matrix) are left out. A family that knows better says so.
        """
        slopes, lead = jax.grad(function)(self), self.batch_shape
        shapes = [x.shape[len(lead) :] for x in self.natural]
        sizes = [int(jnp.zeros(s).size) for s in shapes]

        def rows(q: Any) -> Array:
            return jnp.concatenate([x.reshape(*lead, -1) for x in q.natural], -1).reshape(-1, sum(sizes))

        def blocks(x: Array, lead: tuple[int, ...]) -> list[Array]:
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
            return [part.reshape(*lead, *s) for part, s in zip(jnp.split(x, ends, -1), shapes, strict=True)]

        def mean(eta: Array) -> Array:
            return jnp.concatenate([x.reshape(-1) for x in type(self)(*blocks(eta, ())).to_mean()])

        fisher = jax.vmap(jax.jacfwd(mean))(rows(self))
        fisher = 0.5 * (fisher + jnp.swapaxes(fisher, -1, -2))
        units = jnp.sqrt(jnp.diagonal(fisher, axis1=-2, axis2=-1))  # natural parameters differ by decades
        units = jnp.where(units > 0, units, 1.0)
        inverse = jnp.linalg.pinv(fisher / (units[:, :, None] * units[:, None, :]), hermitian=True)
        found = jnp.einsum("nij,nj->ni", inverse, rows(slopes) / units) / units
        return type(self)(*blocks(found.reshape(*lead, -1), lead))
