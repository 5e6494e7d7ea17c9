"""Nested: messages of factors of few interfaces, by the product of the nodes of all others."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .quadrature.projection import AbstractQuadrature, nodes
from .quadrature.regression import LogMessage


def nested_quadrature(
    factor: Any, j: int, cavities: tuple[Any, ...], quadrature: AbstractQuadrature, power: float = 1.0
) -> LogMessage:
    """`l_j(z_j) = log Σ_k Π_i w_{i,k_i} f(z_j, z_{k})^p` on the product of the nodes of the other cavities.

    Cost Q^d for `d` interfaces, so it is meant for at most three.
    """
    on_grid = _on_grid(factor, j, cavities, quadrature)

    def log_message(z_j: Array) -> Array:
        log_weights, log_f, axes = on_grid(z_j)
        return jax.nn.logsumexp(log_weights + power * log_f, axis=axes)

    return log_message


def nested_expectation(
    factor: Any, j: int, marginals: tuple[Any, ...], quadrature: AbstractQuadrature
) -> LogMessage:
    """`E[log f | z_j] = Σ_k Π_i w_{i,k_i} log f(z_j, z_{k})` on the product of the nodes of the other marginals."""
    if len(factor.interfaces) == 1:
        return factor.log_density
    on_grid = _on_grid(factor, j, marginals, quadrature)

    def message(z_j: Array) -> Array:
        log_weights, log_f, axes = on_grid(z_j)
        return jnp.sum(jnp.exp(log_weights) * log_f, axis=axes)

    return message


def _on_grid(factor: Any, j: int, cavities: tuple[Any, ...], quadrature: AbstractQuadrature) -> Callable:
    """`log f` and the log-weights on the product of the nodes of all interfaces but `j`."""
    others = [i for i in range(len(factor.interfaces)) if i != j]
    grids = {i: nodes(quadrature, cavities[i]) for i in others}

    def evaluate(z_j: Array) -> tuple[Array, Array, tuple[int, ...]]:
        # Axes: one per other interface, then those of z_j, the last of which is n.
        values, total = {j: z_j[(None,) * len(others)]}, 0.0
        for axis, i in enumerate(others):
            z, log_weights = grids[i]
            place = (*(None,) * axis, slice(None), *(None,) * (len(others) - axis - 1 + z_j.ndim - 1))
            values[i] = z[place]
            total = total + log_weights[place]
        log_f = factor.log_density(*(values[i] for i in range(len(factor.interfaces))))
        return jnp.asarray(total), log_f, tuple(range(len(others)))

    return evaluate
