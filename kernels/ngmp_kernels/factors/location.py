r"""Noise on a residual `r = out - mean` that is not normal: Laplace and logistic; and the log-normal distribution.

For r ~ N(m, v), s = sqrt(v), $E|r| = s\sqrt{2/\pi}\, e^{-m^2/2v} + m\,(1 - 2\Phi(-m/s))$, whose derivatives in m give
the projection of Laplace noise in closed form; a kink is nothing that quadrature nodes see.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import AbstractConjugate, Cavities, Families, Values
from ..families import Gaussian
from ..numerics.logarithm import softplus
from ..numerics.special import LOG_2PI, safe_exp
from ..quadrature.edge import Moments
from .generic import ConstantFactor
from .likelihood import AbstractClosed, at_constants, positive
from .logistic import AbstractLogistic

_DENSITY = float(1 / np.sqrt(2 * np.pi))


class LaplaceNoise(AbstractClosed):
    """`f(r) = e^{-|r|/scale} / (2 scale)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    scale: Float[Values, " #n"]

    def log_density(self, r: Array) -> Array:
        return -jnp.abs(r) / self.scale - jnp.log(2.0 * self.scale)

    def edge_moments(self, mean: Array, variance: Array) -> Moments:
        s = jnp.sqrt(variance)
        t = mean / s
        density = jnp.exp(-0.5 * t * t) * _DENSITY
        size = 2.0 * s * density + mean * (ndtr(t) - ndtr(-t))
        first, second = ndtr(t) - ndtr(-t), 2.0 * density / s
        third, fourth = -t * second / s, (t * t - 1.0) * second / variance
        b = -1.0 / jnp.asarray(self.scale)
        return Moments(b * size - jnp.log(2.0 * self.scale), b * first, b * second, b * third, b * fourth)

    def initial(self) -> tuple[Gaussian]:
        variance = 2.0 * jnp.asarray(self.scale) ** 2
        return (Gaussian.from_mean_variance(jnp.zeros_like(variance), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return positive("scale", self.scale)

    def moments(self, r: Array) -> tuple[Array, Array]:
        return -r, jnp.broadcast_to(2.0 * jnp.asarray(self.scale) ** 2, r.shape)

    def cdf(self, out: Array, r: Array) -> Array:
        u = (out + r) / self.scale
        tail = 0.5 * jnp.exp(-jnp.abs(u))
        return jnp.where(u > 0.0, 1.0 - tail, tail)

    def survival(self, out: Array, r: Array) -> Array:
        """`P(outcome > out | r)`."""
        return self.cdf(-out, -r)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        """Of a sum of Gaussian and Laplace noise: two halves, each the exponential of a Gaussian, in closed form."""
        (q,) = marginals
        s, b = q.std, jnp.asarray(self.scale)
        sides = [0.5 * (s / b) ** 2 + sign * q.mean / b + log_ndtr(-s / b - sign * q.mean / s) for sign in (1.0, -1.0)]
        return jnp.logaddexp(*sides) - jnp.log(2.0 * b)


class LogisticNoise(AbstractLogistic):
    """`f(u) = sigma(u) sigma(-u) / scale` of the residual in units of its scale, `u = (out - mean) / scale`."""

    interfaces: ClassVar[tuple[str, ...]] = ("u",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    scale: Float[Values, " #n"]

    def log_density(self, u: Array) -> Array:
        return -softplus(u) - softplus(-u) - jnp.log(self.scale)

    def line(self) -> tuple[Array, Array, Array]:
        one = jnp.ones_like(jnp.asarray(self.scale))
        return one, one, jnp.zeros_like(one)

    def initial(self) -> tuple[Gaussian]:
        one = jnp.ones_like(jnp.asarray(self.scale))
        return (Gaussian.from_mean_variance(jnp.zeros_like(one), 3.0 * one),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return positive("scale", self.scale)

    def moments(self, u: Array) -> tuple[Array, Array]:
        variance = (np.pi**2 / 3.0) * jnp.asarray(self.scale) ** 2
        return -u * self.scale, jnp.broadcast_to(variance, u.shape)

    def cdf(self, out: Array, u: Array) -> Array:
        return jax.nn.sigmoid(out / self.scale + u)

    def survival(self, out: Array, u: Array) -> Array:
        """`P(outcome > out | u)`."""
        return jax.nn.sigmoid(-out / self.scale - u)


class LogNormalNoise(AbstractConjugate):
    """`f(r) = N(r; 0, 1/precision) / out` of the residual of the logarithm, `r = log(out) - mean`."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "positive"
    log_out: Float[Values, " #n"]
    precision: Float[Values, " #n"]

    def _log_scale(self) -> Array:
        return 0.5 * (jnp.log(self.precision) - LOG_2PI) - self.log_out

    def log_density(self, r: Array) -> Array:
        return self._log_scale() - 0.5 * self.precision * r * r

    def message(self) -> tuple[Gaussian, Array]:
        precision = jnp.broadcast_to(jnp.asarray(self.precision), self._log_scale().shape)
        return Gaussian.from_information(jnp.zeros_like(precision), precision), self._log_scale()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        known = jnp.isfinite(self.log_out)
        return {"outcomes must be positive and finite": known, **positive("std", self.precision)}

    def moments(self, r: Array) -> tuple[Array, Array]:
        """At outcome one, the logarithm of which is zero."""
        v = 1.0 / jnp.asarray(self.precision)
        mean = safe_exp(-r + 0.5 * v)
        return mean, mean**2 * jnp.expm1(v)

    def cdf(self, out: Array, r: Array) -> Array:
        u = (jnp.log(jnp.where(out > 0.0, out, 1.0)) + r) * jnp.sqrt(self.precision)
        return jnp.where(out > 0.0, ndtr(u), 0.0)

    def score(self, out: Array, r: Array) -> Array:
        """`u` with `P(outcome <= out | r) = ndtr(u)`."""
        return (jnp.log(jnp.where(out > 0.0, out, jnp.finfo(r.dtype).tiny)) + r) * jnp.sqrt(self.precision)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (q,) = marginals
        v = 1.0 / jnp.asarray(self.precision)
        mean = safe_exp(-q.mean + 0.5 * (v + q.variance))
        return mean, mean**2 * jnp.expm1(q.variance), mean**2 * jnp.exp(q.variance) * jnp.expm1(v)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (q,) = marginals
        spread = jnp.sqrt(1.0 / jnp.asarray(self.precision) + q.variance)
        return jnp.where(out > 0.0, ndtr((jnp.log(jnp.where(out > 0.0, out, 1.0)) + q.mean) / spread), 0.0)


def _logistic(out: Any, mean: Any, scale: Any) -> Lowered:
    scale = as_float(scale)
    return Lowered(LogisticNoise(scale), ((out - mean) / scale,))


def _logistic_constant(out: Any, mean: Any, scale: Any) -> Lowered:
    scale, mean = as_float(scale), as_float(mean)
    found = at_constants(LogisticNoise(scale), (as_float(out) - mean) / scale).factor
    value = jnp.broadcast_to(-mean / scale, found.value.shape)  # type: ignore[attr-defined]
    moments = LogisticNoise(scale).moments(value)
    return Lowered(ConstantFactor(found.value, *moments, found.checks(), LogisticNoise(scale), (value,)), ())  # type: ignore[attr-defined]


_ANY = CONSTANT | GAUSSIAN


@register
class Logistic(Distribution):
    """`Logistic(mean, scale=)`: the mean is affine in Gaussian variables; so may the outcome be."""

    __slots__ = ()
    support = "real"
    family = Gaussian
    event_ndims: ClassVar = {"out": 0, "mean": 0, "scale": 0}
    placeholder = 0.0
    signatures = (
        Signature({"out": CONSTANT, "mean": CONSTANT, "scale": CONSTANT}, _logistic_constant, ConstantFactor),
        Signature({"out": _ANY, "mean": _ANY, "scale": CONSTANT}, _logistic, LogisticNoise),
    )

    def __init__(self, mean: Any, *, scale: Any):
        self.arguments = {"mean": mean, "scale": scale}

    @staticmethod
    def standard(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 1.8 * scale

    def draw(self, key: Any, like: Array, mean: Array, scale: Array) -> Array:
        return mean + scale * jax.random.logistic(key, like.shape, like.dtype)
