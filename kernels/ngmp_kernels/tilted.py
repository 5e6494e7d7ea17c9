"""Moment matching of tilted distributions, the step of expectation propagation."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .families import AbstractFamily, Gaussian
from .projection import LogMessage, nodes
from .quadrature import AbstractRule, Quadrature

_REACH = 9.0  # standard deviations of the cavity that a grid covers


def tilted_match(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage, rule: AbstractRule
) -> AbstractFamily:
    r"""The family member with the moments of $q_c(z) e^{l(z)}$: $E[T] = \sum_k w_k T(z_k)$.

    Args:
        q: the receiving marginal, batch axes `*b`; it places the nodes.
        cavity: the cavity toward the factor, `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`.
        rule: places the nodes; see `tilted_nodes`.
    """
    z, log_mass = tilted_nodes(q, cavity, log_message, rule)
    weights = jnp.exp(log_mass - jax.nn.logsumexp(log_mass, axis=0))
    statistics = jax.vmap(q.statistics)(z)

    def average(t: jax.Array) -> jax.Array:
        return jnp.sum(weights.reshape(weights.shape + (1,) * (t.ndim - weights.ndim)) * t, axis=0)

    return type(q).from_mean(*(average(t) for t in statistics))


def tilted_evidence(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage, rule: AbstractRule
) -> Float[Array, "*b"]:
    r"""$\log \int q_c(z) e^{l(z)} dz$, at the nodes of `tilted_nodes`."""
    return jax.nn.logsumexp(tilted_nodes(q, cavity, log_message, rule)[1], axis=0)


def tilted_nodes(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage, rule: AbstractRule
) -> tuple[Array, Float[Array, "Q *b"]]:
    r"""Nodes and the logarithms of the tilted mass $w_k\, q_c(z_k) e^{l(z_k)}$ at them.

    The nodes are those of the receiving marginal q, which at a fixed point has the moments sought, with weights
    $w^q_k / q(z_k)$. On Gaussian edges Hermite nodes would fail where one tail is the cavity's and $V_c > 2 V_q$ (a
    count of zero), so the default there is `_stretched`.
    """
    if isinstance(rule, Quadrature) and isinstance(q, Gaussian) and isinstance(cavity, Gaussian):
        z, log_weights = _stretched(q, cavity, 4 * rule.gaussian + 1)
    else:
        z, log_weights = nodes(rule, q)
        log_weights = log_weights - jax.vmap(q.log_density)(z)
    return z, log_weights + log_message(z) + jax.vmap(cavity.log_density)(z)


def _stretched(q: Gaussian, cavity: Gaussian, n: int) -> tuple[Array, Array]:
    r"""Trapezoidal nodes $z = m + s (v + \sinh v)/2$, uniform in v, and $\log dz$.

    They are dense on the scale s of q and reach `_REACH` standard deviations of the cavity, beyond which no tilted
    distribution with a log-concave message has mass.
    """
    m, s = q.mean, q.std
    reach, shift = _REACH * jnp.maximum(cavity.std, s), m - cavity.mean
    # arcsinh(2x) solves (v + sinh v)/2 = x from above.
    left, right = (jnp.arcsinh(2.0 * (reach + jnp.maximum(d, 0.0)) / s) for d in (shift, -shift))
    unit = jnp.asarray(np.linspace(0.0, 1.0, n), q.dtype).reshape((-1,) + (1,) * m.ndim)
    v = -left + (left + right) * unit
    spacing = s * 0.5 * (1.0 + jnp.cosh(v)) * (left + right) / (n - 1)
    return m + 0.5 * s * (v + jnp.sinh(v)), jnp.log(spacing)
