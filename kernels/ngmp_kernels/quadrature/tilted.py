"""Moment matching of tilted distributions, the step of expectation propagation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families import AbstractFamily, Gaussian
from .projection import LogMessage, nodes
from .rules import AbstractQuadrature, Quadrature

_REACH = 9.0  # standard deviations of the cavity that a grid covers


def tilted_match(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage,
    quadrature: AbstractQuadrature, hard: bool = False,
) -> AbstractFamily:  # fmt: skip
    r"""The family member with the moments of $q_c(z) e^{l(z)}$: $E[T] = \sum_k w_k T(z_k)$.

    Args:
        q: the receiving marginal, batch axes `*b`; it places the nodes.
        cavity: the cavity toward the factor, `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`.
        quadrature, hard: place the nodes; see `tilted_nodes`.
    """
    z, log_mass = tilted_nodes(q, cavity, log_message, quadrature, hard)
    weights = jnp.exp(log_mass - jax.nn.logsumexp(log_mass, axis=0))
    if isinstance(q, Gaussian):  # about the mean: squares of a narrow marginal far from zero would leave no digits
        mean = jnp.sum(weights * z, axis=0)
        return Gaussian.from_mean_variance(mean, jnp.sum(weights * (z - mean) ** 2, axis=0))  # type: ignore[return-value]
    statistics = jax.vmap(q.statistics)(z)

    def average(t: jax.Array) -> jax.Array:
        return jnp.sum(weights.reshape(weights.shape + (1,) * (t.ndim - weights.ndim)) * t, axis=0)

    return type(q).from_mean(*(average(t) for t in statistics))


def tilted_evidence(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage,
    quadrature: AbstractQuadrature, hard: bool = False,
) -> Float[Array, "*b"]:  # fmt: skip
    r"""$\log \int q_c(z) e^{l(z)} dz$, at the nodes of `tilted_nodes`."""
    return jax.nn.logsumexp(tilted_nodes(q, cavity, log_message, quadrature, hard)[1], axis=0)


def tilted_nodes(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage,
    quadrature: AbstractQuadrature, hard: bool = False,
) -> tuple[Array, Float[Array, "Q *b"]]:  # fmt: skip
    r"""Nodes and the logarithms of the tilted mass $w_k\, q_c(z_k) e^{l(z_k)}$ at them.

    The nodes are those of the receiving marginal q, which at a fixed point has the moments sought, with weights
    $w^q_k / q(z_k)$. On Gaussian edges Hermite nodes would fail where one tail is the cavity's and $V_c > 2 V_q$ (a
    count of zero), so the default there is `_stretched`; if l is `hard`, between the edges of where it is finite.
    """
    if isinstance(quadrature, Quadrature) and isinstance(q, Gaussian) and isinstance(cavity, Gaussian):
        z, log_weights = _stretched(q, cavity, 4 * quadrature.gaussian + 1, log_message if hard else None)
    else:
        z, log_weights = nodes(quadrature, q)
        log_weights = log_weights - jax.vmap(q.log_density)(z)
    return z, log_weights + log_message(z) + jax.vmap(cavity.log_density)(z)


def _stretched(q: Gaussian, cavity: Gaussian, n: int, hard: LogMessage | None = None) -> tuple[Array, Array]:
    r"""Trapezoidal nodes $z = m + s (v + \sinh v)/2$, uniform in v, and $\log dz$.

    They are dense on the scale s of q and reach `_REACH` standard deviations of the cavity, beyond which no tilted
    distribution with a log-concave message has mass. A `hard` log-message jumps to minus infinity, where a sum over
    nodes that move with q would jump as well: of such a row the edges are found, and the nodes between them are those
    of Gauss and Legendre.
    """
    m, s = q.mean, q.std
    reach, shift = _REACH * jnp.maximum(cavity.std, s), m - cavity.mean
    # arcsinh(2x) solves (v + sinh v)/2 = x from above.
    left, right = (jnp.arcsinh(2.0 * (reach + jnp.maximum(d, 0.0)) / s) for d in (shift, -shift))
    unit = jnp.asarray(np.linspace(0.0, 1.0, n), q.dtype).reshape((-1,) + (1,) * m.ndim)
    v = -left + (left + right) * unit
    weight = jnp.broadcast_to((left + right) / (n - 1), v.shape)
    if hard is not None:
        v, weight = _between_edges(lambda v: jnp.isfinite(hard(m + 0.5 * s * (v + jnp.sinh(v)))), v, weight)
    return m + 0.5 * s * (v + jnp.sinh(v)), jnp.log(weight * s * 0.5 * (1.0 + jnp.cosh(v)))


_HALVINGS = 60


def _between_edges(
    inside: Callable[[Array], Array], v: Float[Array, "Q *b"], weight: Float[Array, "Q *b"]
) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on the stretch of v where `inside` holds; v and weight themselves where that is
    all of it, or none."""
    flags = inside(v)
    some, every = jnp.any(flags, axis=0), jnp.all(flags, axis=0)
    first, last = jnp.argmax(flags, axis=0), len(v) - 1 - jnp.argmax(flags[::-1], axis=0)

    def edge(at: Array, beyond: Array) -> Array:
        """The end of the stretch between a node inside and its neighbour outside, by halving."""
        good, bad = (jnp.take_along_axis(v, k[None], axis=0)[0] for k in (at, jnp.clip(beyond, 0, len(v) - 1)))

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            good, bad = ends
            middle = 0.5 * (good + bad)
            ok = inside(middle[None])[0]
            return jnp.where(ok, middle, good), jnp.where(ok, bad, middle)

        return jax.lax.fori_loop(0, _HALVINGS, halve, (good, bad))[0]

    low, high = edge(first, first - 1), edge(last, last + 1)
    x, w = (jnp.asarray(c, v.dtype).reshape((-1,) + (1,) * low.ndim) for c in np.polynomial.legendre.leggauss(len(v)))
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    cut = some & ~every
    return jnp.where(cut, middle + half * x, v), jnp.where(cut, half * w, weight)
