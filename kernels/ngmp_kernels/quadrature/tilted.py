"""Moment matching of tilted distributions, the step of expectation propagation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families import AbstractFamily, Gamma, Gaussian, InverseGamma
from ..numerics.gamma_functions import stirling_error
from .nodes import cutoff
from .projection import LogMessage, nodes
from .rules import AbstractQuadrature, Quadrature

Peak = tuple[Array, Array]  # centre and width
_REACH = 9.0  # standard deviations of the cavity that a grid covers


def tilted_match(
    q: AbstractFamily, cavity: AbstractFamily, log_message: LogMessage,
    quadrature: AbstractQuadrature, hard: bool = False, peak: Peak | None = None,
) -> AbstractFamily:  # fmt: skip
    r"""The family member with the moments of $q_c(z) e^{l(z)}$: $E[T] = \sum_k w_k T(z_k)$.

    Args:
        q: the receiving marginal, batch axes `*b`; it places the nodes.
        cavity: the cavity toward the factor, `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`.
        quadrature, hard, peak: place the nodes; see `tilted_nodes`.
    """
    z, log_mass = tilted_nodes(q, cavity, log_message, quadrature, hard, peak)
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
    quadrature: AbstractQuadrature, hard: bool = False, peak: Peak | None = None,
) -> tuple[Array, Float[Array, "Q *b"]]:  # fmt: skip
    r"""Nodes and the logarithms of the tilted mass $w_k\, q_c(z_k) e^{l(z_k)}$ at them.

    The nodes are those of the receiving marginal q, which at a fixed point has the moments sought, with weights
    $w^q_k / q(z_k)$. On Gaussian edges Hermite nodes would fail where one tail is the cavity's and $V_c > 2 V_q$ (a
    count of zero), so the default there is `_stretched`; if l is `hard`, between the edges of where it is finite; if it
    has a `peak`, which may be too narrow for them, half of them lie about that. On Gamma edges it is `_log_stretched`:
    a precision of one datum may be small, if the datum is noise, or large.
    """
    default = isinstance(quadrature, Quadrature)
    if default and isinstance(q, InverseGamma) and isinstance(cavity, InverseGamma):
        tau, log_mass = _log_stretched(q.reciprocal, cavity.reciprocal, quadrature.gamma)
        return 1 / tau, log_mass + log_message(1 / tau)
    if default and isinstance(q, Gamma) and isinstance(cavity, Gamma):
        tau, log_mass = _log_stretched(q, cavity, quadrature.gamma)
        return tau, log_mass + log_message(tau)
    if default and isinstance(q, Gaussian) and isinstance(cavity, Gaussian):
        n = 4 * quadrature.gaussian + 1
        if peak is None:
            z, log_weights = _stretched(q, cavity, n, log_message if hard else None)
        else:
            z, log_weights = _about_two(q, cavity, n, peak)
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


def _about_two(q: Gaussian, cavity: Gaussian, n: int, peak: Peak) -> tuple[Array, Array]:
    r"""Two grids, $z = c + s \sinh v$ with c and s of q and those of a peak, and $\log dz$: both reach as far.

    With $\rho_k = 1 / (h_k \sqrt{(z - c_k)^2 + s_k^2})$ nodes of grid k to a unit of z, a node of either stands for
    $1 / (\rho_1 + \rho_2)$: each grid integrates a part of unity, which is as smooth there as it is dense.
    """
    centres, widths = (q.mean, peak[0]), (q.std, jnp.minimum(peak[1], q.std))
    reach = _REACH * jnp.maximum(cavity.std, q.std)
    low, high = jnp.minimum(q.mean, cavity.mean) - reach, jnp.maximum(q.mean, cavity.mean) + reach
    unit = jnp.asarray(np.linspace(0.0, 1.0, n // 2 + 1), q.dtype).reshape((-1,) + (1,) * q.mean.ndim)
    found, steps = [], []
    for c, s in zip(centres, widths, strict=True):
        start, end = (jnp.arcsinh((x - c) / s) for x in (low, high))
        found.append(c + s * jnp.sinh(start + (end - start) * unit))
        steps.append((end - start) / (n // 2))
    z = jnp.concatenate(jnp.broadcast_arrays(*found))
    parts = zip(centres, widths, steps, strict=True)
    return z, -jnp.log(sum((1 / (h * jnp.hypot(z - c, s)) for c, s, h in parts), jnp.zeros_like(z)))


def _log_stretched(q: Gamma, cavity: Gamma, n: int) -> tuple[Array, Array]:
    r"""Trapezoidal nodes $\tau = E_q[\tau]\, e^x$ with $x = s (v + \sinh v)/2$, uniform in v, and the logarithm of
    $q_c(\tau)\, d\tau$.

    The log-density of a Gamma in $x = \log(\tau / E\tau)$ is $-a (e^x - 1 - x)$ up to a constant. The nodes are dense
    on the scale $s = \min(1, a^{-1/2})$ of q and reach both ends of the cavity and of q, where it has fallen by
    `cutoff`: what the message alone makes of a broad cavity may lie far from q.
    """
    shift = jnp.log(q.mean / cavity.mean)  # x of the cavity is x + shift
    left, right = (jnp.maximum(own, other) for own, other in
                   zip(_ends(q), (_ends(cavity)[0] + shift, _ends(cavity)[1] - shift), strict=True))  # fmt: skip
    a, scale = cavity.concentration, jnp.minimum(1.0, q.concentration**-0.5)
    low, high = (jnp.arcsinh(2.0 * end / scale) for end in (left, right))
    unit = jnp.asarray(np.linspace(0.0, 1.0, n), q.dtype).reshape((-1,) + (1,) * scale.ndim)
    v = -low + (low + high) * unit
    x = 0.5 * scale * (v + jnp.sinh(v))
    log_dx = jnp.log((low + high) / (n - 1) * scale * 0.5 * (1.0 + jnp.cosh(v)))
    info = jnp.finfo(q.dtype)
    least = 4.0 * info.tiny * jnp.maximum(q.mean, 1.0)  # a node stays positive, for its logarithm
    tau = jnp.clip(q.mean * jnp.exp(x), least, 0.25 * info.max)
    y = x + shift
    return tau, log_dx - a * (jnp.expm1(y) - y) - stirling_error(a)


def _ends(q: Gamma) -> tuple[Array, Array]:
    """How far a Gamma reaches in `log(tau / E tau)`, to the left and to the right; see `Gamma.nodes`."""
    drop = cutoff(q.dtype) / q.concentration
    reach = drop + jnp.sqrt(2 * drop)
    return reach, jnp.log1p(reach)


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
