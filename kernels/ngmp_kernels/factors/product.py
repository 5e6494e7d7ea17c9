r"""Normal noise around a product of two Gaussian variables: `Normal(a * b + ..., precision=...)`, a soft product.

With the residual $r = out - (\text{the affine rest of the mean})$ the factor is $N(r; a b, \tau^{-1})$. One of a and b
integrates out in closed form, and so does r; the other, and an unknown precision, by quadrature.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import Lowered
from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage, Values
from ..families import AbstractFamily, Gamma, Gaussian
from ..numerics.special import LOG_2PI
from ..quadrature.projection import Quadrature, nodes
from .bilinear import Bilinear

_RULE = Quadrature()


class Point(NamedTuple):
    """A value that is known, with the moments of a marginal."""

    mean: Array
    variance: Array


class ProductNoise(AbstractProjected):
    """`f(r, a, b, tau) = N(r; a b, 1/tau)`, where r may be data and tau a constant.

    With cavities r ~ N(m, v), b ~ N(m_b, v_b) and a known tau, toward a:
    `l(a) = log N(m; a m_b, v + 1/tau + a^2 v_b)`; toward b likewise. Toward r:
    `l(r) = log ∫ N(r; a m_b, 1/tau + a^2 v_b) q(a) da`; toward tau the same integral at r. An unknown tau is averaged
    over its cavity; toward r that is a sum over nodes of r, a and tau, 132 000 terms for every factor. Many factors
    with all four unknown are better served by the closed forms of `StructuredVMP()`.

    Attributes:
        out: r where it is data; then it is no interface.
        precision: tau where it is a constant; then it is no interface.
    """

    support: ClassVar[str | None] = "real"
    joins: ClassVar[str] = "chains"
    matches: ClassVar[str] = "jointly"
    out: Float[Values, " #n"] | None = None
    precision: Float[Values, " #n"] | None = None

    @property
    def interfaces(self) -> tuple[str, ...]:
        return ("r",) * (self.out is None) + ("a", "b") + ("tau",) * (self.precision is None)

    @property
    def families(self) -> Families:
        return tuple(Gamma if name == "tau" else Gaussian for name in self.interfaces)

    def _all(self, given: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
        """Values or marginals of (r, a, b, tau), with None for a tau that is constant."""
        known = dict(zip(self.interfaces, given, strict=True))
        r = known.get("r")
        if self.out is not None:
            point = jnp.asarray(self.out)
            r = Point(point, jnp.zeros_like(point)) if isinstance(known["a"], Gaussian) else point
        return r, known["a"], known["b"], known.get("tau")

    def _variance(self, tau: Array | None) -> Array:
        return 1.0 / (jnp.asarray(self.precision) if tau is None else tau)

    def log_density(self, *z: Array) -> Array:
        r, a, b, tau = self._all(z)
        return _log_normal(r - a * b, self._variance(tau))

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        r, a, b, tau = self._all(cavities)
        name = self.interfaces[j]
        if name == "tau":
            return lambda t: _average_over(a, lambda z: _log_normal(r.mean - z * b.mean, _spread(r, z, b) + 1.0 / t))
        toward = {"r": lambda s: _toward_residual(a, b, s), "a": lambda s: _toward_side(r, b, s)}
        toward["b"] = lambda s: _toward_side(r, a, s)
        if tau is None:
            return toward[name](1.0 / jnp.asarray(self.precision))

        def message(z: Array) -> Array:
            t, log_weights = nodes(_RULE, tau)
            place = (slice(None), *(None,) * (z.ndim - 1))
            return jax.nn.logsumexp(log_weights[place] + toward[name](1.0 / t[place])(z[None]), axis=0)

        return message

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        # Over tau last, if it is unknown: there the factor is smoothest.
        j = len(self.interfaces) - 1
        z, log_weights = nodes(quadrature, cavities[j])
        return jax.nn.logsumexp(log_weights + self.log_message(j, cavities)(z), axis=0)

    def _precision(self, tau: Any) -> tuple[Array, Array]:
        """`E[log tau]` and `E[tau]`."""
        if tau is not None:
            return tau.to_mean()
        precision = jnp.asarray(self.precision)
        return jnp.log(precision), precision

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        r, a, b, tau = self._all(marginals)
        name = self.interfaces[j]
        if name == "tau":
            square = expected_square(r, a, b)
            return lambda t: 0.5 * (jnp.log(t) - LOG_2PI - square * t)
        return _expected(name, (r, a, b), *self._precision(tau))

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        r"""In closed form, with $\tau$ for its expectation.

        Toward r: $(\tau E[a] E[b], -\tau/2)$. Toward a: $(\tau E[r] E[b], -\tau E[b^2]/2)$, and toward b likewise.
        Toward tau: $(1/2, -E[(r - a b)^2]/2)$.
        """
        r, a, b, tau = self._all(marginals)
        name = self.interfaces[j]
        if name == "tau":
            square = expected_square(r, a, b)
            return Gamma(jnp.full_like(square, 0.5), -0.5 * square)
        _, precision = self._precision(tau)
        if name == "r":
            linear = precision * a.mean * b.mean
            return Gaussian(linear, jnp.broadcast_to(-0.5 * precision, linear.shape))
        other = b if name == "a" else a
        linear, square = precision * r.mean * other.mean, precision * (other.mean**2 + other.variance)
        return Gaussian(*jnp.broadcast_arrays(linear, -0.5 * square))

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        r, a, b, tau = self._all(marginals)
        log_precision, precision = self._precision(tau)
        return 0.5 * (log_precision - LOG_2PI - precision * expected_square(r, a, b))

    def joint_expectation(self, mean: Array, covariance: Array) -> Array | None:
        if self.precision is None:
            return None
        precision = jnp.asarray(self.precision)
        return 0.5 * (jnp.log(precision) - LOG_2PI - precision * product_square(mean, covariance, self.out))

    def matched(self, q: Any, cavity: Any, power: float) -> tuple[Any, Array] | None:
        """Where all of its interfaces, with none for tau, are joined."""
        if self.precision is None:
            return None
        out = None if self.out is None else jnp.asarray(self.out)[:, None]
        return Bilinear.of((1, 1), out, jnp.asarray(self.precision)[:, None, None]).matched(q, cavity, power)

    def in_family(self) -> tuple[bool, ...]:
        return (True,) * len(self.interfaces)

    def initial(self) -> tuple[Gaussian | None, ...]:
        unit = Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1))
        return tuple(unit if name == "r" else None for name in self.interfaces)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if self.precision is None:
            return {}
        positive = (self.precision > 0.0) & jnp.isfinite(self.precision)
        return {"the scale (variance, precision or std) must be positive and finite": positive}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        r, a, b, tau = self._all(z)
        mean, variance = jnp.broadcast_arrays(a * b - r, self._variance(tau))
        return mean, variance

    def cdf(self, out: Array, *z: Array) -> Array:
        mean, variance = self.moments(*z)
        return ndtr((out - mean) / jnp.sqrt(variance))


def expected_square(r: Gaussian, a: Gaussian, b: Gaussian) -> Float[Array, " n"]:
    """`E[(r - a b)^2]` under independent Gaussians."""
    cross = r.mean * a.mean * b.mean
    return r.mean**2 + r.variance - 2.0 * cross + (a.mean**2 + a.variance) * (b.mean**2 + b.variance)


def product_square(
    mean: Float[Array, "n k"], covariance: Float[Array, "n k k"], out: Float[Values, " #n"] | None
) -> Float[Array, " n"]:
    r"""`E[(r - a b)^2]` under a joint Gaussian of (r, a, b), or of (a, b) with r known, by the pairings of Isserlis.

    With u, v, w the deviations of r, a, b: $r - a b = d + u - m_b v - m_a w - v w$, $d = m_r - m_a m_b$.
    """
    if out is not None:
        batch = jnp.broadcast_shapes(jnp.shape(out), mean.shape[:-1])
        given = jnp.broadcast_to(out, batch)[..., None]
        mean = jnp.concatenate([given, jnp.broadcast_to(mean, (*batch, *mean.shape[-1:]))], -1)
        covariance = jnp.pad(covariance, [(0, 0)] * (covariance.ndim - 2) + [(1, 0), (1, 0)])
    r, a, b = (mean[..., i] for i in range(3))
    v, w, c = covariance[..., 1, 1], covariance[..., 2, 2], covariance[..., 1, 2]
    row = jnp.stack([jnp.ones_like(a), -b, -a], -1)
    linear = jnp.einsum("...i,...ij,...j->...", row, covariance, row)
    return (r - a * b - c) ** 2 + linear + v * w + c**2


def _log_normal(residual: Array, variance: Array) -> Array:
    return -0.5 * (jnp.log(variance) + LOG_2PI + residual**2 / variance)


def _spread(r: Gaussian, z: Array, other: Gaussian) -> Array:
    return r.variance + z * z * other.variance


def _toward_side(r: Gaussian, other: Gaussian, noise: Array) -> LogMessage:
    return lambda z: _log_normal(r.mean - z * other.mean, _spread(r, z, other) + noise)


def _toward_residual(a: Gaussian, b: Gaussian, noise: Array) -> LogMessage:
    return lambda r: _average_over(a, lambda z: _log_normal(r - z * b.mean, noise + z * z * b.variance), r.ndim)


def _average_over(a: Gaussian, log_f: LogMessage, ndim: int = 2) -> Array:
    """`log ∫ f(z, ...) q(z) dz` with the nodes of z on a leading axis of their own."""
    z, log_weights = nodes(_RULE, a)
    place = (slice(None), *(None,) * (ndim - 1))
    return jax.nn.logsumexp(log_weights[place] + log_f(z[place]), axis=0)


def _expected(name: str, marginals: Cavities, log_precision: Array, precision: Array) -> LogMessage:
    """`E[log N(r; a b, 1/tau) | z_j]` under the other marginals."""
    r, a, b = marginals
    constant = log_precision - LOG_2PI
    if name == "r":
        square = (a.mean**2 + a.variance) * (b.mean**2 + b.variance)
        return lambda z: 0.5 * (constant - precision * (z * z - 2.0 * z * a.mean * b.mean + square))
    other, square = b if name == "a" else a, r.mean**2 + r.variance
    second = other.mean**2 + other.variance
    return lambda z: 0.5 * (constant - precision * (square - 2.0 * z * r.mean * other.mean + z * z * second))


def lower_product(out: Any, mean: Any, left: Any, right: Any, precision: Any) -> Lowered:
    """`Normal(left * right + mean, precision)`; constants are arrays, anything else is an expression."""
    residual = out - mean
    data = residual if isinstance(residual, (jax.Array, np.ndarray)) else None
    constant = precision if isinstance(precision, (jax.Array, np.ndarray)) else None
    before, after = () if data is not None else (residual,), () if constant is not None else (precision,)
    return Lowered(ProductNoise(out=data, precision=constant), (*before, left, right, *after))  # type: ignore[call-arg]
