"""Moment matching of tilted distributions, the step of expectation propagation."""

import jax
import jax.numpy as jnp

from .families import AbstractFamily
from .projection import LogMessage, nodes
from .quadrature import AbstractRule


def tilted_match(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage, rule: AbstractRule
) -> AbstractFamily:
    r"""The family member with the moments of $q_c(z) e^{l(z)}$.

    The integral is taken at the nodes of the receiving marginal q, which at a fixed point has these moments:
    $E[T] = \sum_k w_k T(z_k)$, $w_k \propto w^q_k\, q_c(z_k) e^{l(z_k)} / q(z_k)$.

    Args:
        q: the receiving marginal, batch axes `*b`.
        cavity: the cavity toward the factor, `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`.
        rule: places the nodes.
    """
    z, log_weights = nodes(rule, q)
    tilted = log_weights + log_message(z) + jax.vmap(cavity.log_density)(z) - jax.vmap(q.log_density)(z)
    weights = jnp.exp(tilted - jax.nn.logsumexp(tilted, axis=0))
    statistics = jax.vmap(q.statistics)(z)

    def average(t: jax.Array) -> jax.Array:
        return jnp.sum(weights.reshape(weights.shape + (1,) * (t.ndim - weights.ndim)) * t, axis=0)

    return type(q).from_mean(*(average(t) for t in statistics))
