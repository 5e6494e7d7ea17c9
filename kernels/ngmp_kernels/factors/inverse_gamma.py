"""The inverse Gamma distribution, as a prior of variances, and normal noise of such a variance.

`1/v` is a Gamma variable, so everything here is the Gamma precision of `normal_noise` at `tau = 1/v`.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaincc, ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CONSTANT,
    INVERSE_GAMMA,
    Distribution,
    Lowered,
    Signature,
    as_float,
    log_gamma_moments,
    register,
)
from ..factor import AbstractConjugate, AbstractProjected, Cavities, Families, LogMessage, Rule, Values
from ..families import Gamma, Gaussian
from ..families import InverseGamma as InverseGammaFamily
from ..numerics.special import LOG_2PI
from ..oracle import Case, oracle_case, some_gamma, some_gaussian, uniform
from .generic import ConstantFactor
from .normal_noise import NoisePrecision


class InverseGammaPrior(AbstractConjugate):
    """`f(v) = InverseGamma(v; concentration, scale)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("v",)
    families: ClassVar[Families] = (InverseGammaFamily,)
    support: ClassVar[str | None] = "positive"
    concentration: Float[Values, " #n"]
    scale: Float[Values, " #n"]

    def _family(self) -> InverseGammaFamily:
        return InverseGammaFamily.from_concentration_scale(self.concentration, self.scale)

    def log_density(self, v: Array) -> Array:
        a, b = self.concentration, self.scale
        return -(a + 1.0) * jnp.log(v) - b / v - self._family().log_partition()

    def message(self) -> tuple[InverseGammaFamily, Array]:
        return self._family(), -self._family().log_partition()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {
            "the concentration must be positive and finite": (a > 0.0) & jnp.isfinite(a),
            "the scale must be positive and finite": (self.scale > 0.0) & jnp.isfinite(self.scale),
        }

    def moments(self, v: Array) -> tuple[Array, Array]:
        q = self._family()
        return jnp.broadcast_to(q.mean, v.shape), jnp.broadcast_to(q.variance, v.shape)

    def cdf(self, out: Array, *z: Array) -> Array:
        del z
        a, b, x = jnp.broadcast_arrays(self.concentration, self.scale, out)
        return jnp.where(x > 0.0, gammaincc(a, b / jnp.where(x > 0.0, x, 1.0)), 0.0)


class NormalVariance(AbstractConjugate):
    """`f(v) = N(out; mean, v)` with both ends constant: the inverse Gamma message (-1/2, -(out - mean)^2/2)."""

    interfaces: ClassVar[tuple[str, ...]] = ("v",)
    families: ClassVar[Families] = (InverseGammaFamily,)
    support: ClassVar[str | None] = "real"
    out: Float[Values, " #n"]
    mean: Float[Values, " #n"]

    def log_density(self, v: Array) -> Array:
        return -0.5 * (jnp.log(v) + LOG_2PI + (self.out - self.mean) ** 2 / v)

    def message(self) -> tuple[InverseGammaFamily, Array]:
        r = jnp.asarray(self.out - self.mean)
        return InverseGammaFamily(jnp.full_like(r, -0.5), -0.5 * r * r), jnp.full_like(r, -0.5 * LOG_2PI)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"outcome and mean must be finite": jnp.isfinite(self.out - self.mean)}

    def moments(self, v: Array) -> tuple[Array, Array]:
        return jnp.broadcast_to(self.mean, v.shape), v

    def cdf(self, out: Array, v: Array) -> Array:
        return ndtr((out - self.mean) / jnp.sqrt(v))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (v,) = marginals
        mean = jnp.broadcast_to(self.mean, v.batch_shape)
        return mean, jnp.zeros_like(mean), v.mean


class NoiseVariance(AbstractProjected):
    """`f(r, v) = N(r; 0, v)`; toward v, with cavity r ~ N(m, V), `l(v) = log N(0; m, V + v)`; toward r Student's t."""

    interfaces: ClassVar[tuple[str, ...]] = ("r", "v")
    families: ClassVar[Families] = (Gaussian, InverseGammaFamily)
    support: ClassVar[str | None] = "real"

    def log_density(self, r: Array, v: Array) -> Array:
        return NoisePrecision().log_density(r, 1.0 / v)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == 0:
            return NoisePrecision().log_message(0, _reciprocal(cavities))
        m, spread = cavities[0].mean, cavities[0].variance
        return lambda v: -0.5 * (jnp.log(spread + v) + LOG_2PI + m * m / (spread + v))

    def fractional_message(self, j: int, cavities: Cavities, power: float, rule: Rule) -> LogMessage:
        return _of_variance(j, NoisePrecision().fractional_message(j, _reciprocal(cavities), power, rule))

    def mean_field_message(self, j: int, marginals: Cavities, rule: Rule) -> LogMessage:
        return _of_variance(j, NoisePrecision().mean_field_message(j, _reciprocal(marginals), rule))

    def mean_field_projection(self, j: int, marginals: Cavities, rule: Rule) -> Gaussian | InverseGammaFamily:
        eta = NoisePrecision().mean_field_projection(j, _reciprocal(marginals), rule)
        return InverseGammaFamily(-eta.eta1, eta.eta2) if isinstance(eta, Gamma) else eta

    def expected_log_density(self, marginals: Cavities, rule: Rule) -> Array:
        return NoisePrecision().expected_log_density(_reciprocal(marginals), rule)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def log_evidence(self, cavities: Cavities, rule: Rule) -> Array:
        return NoisePrecision().log_evidence(_reciprocal(cavities), rule)

    def initial(self) -> tuple[Gaussian, None]:
        return NoisePrecision().initial()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, r: Array, v: Array) -> tuple[Array, Array]:
        mean, variance = jnp.broadcast_arrays(-r, v)
        return mean, variance

    def cdf(self, out: Array, r: Array, v: Array) -> Array:
        return ndtr((out + r) / jnp.sqrt(v))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        return NoisePrecision().predictive_moments(_reciprocal(marginals))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        return NoisePrecision().predictive_cdf(out, _reciprocal(marginals))


def _reciprocal(families: Cavities) -> Cavities:
    """The same cavities with the precision in place of the variance; the receiving entry may be None."""
    r, v = families
    return r, None if v is None else v.reciprocal


def _of_variance(j: int, message: LogMessage) -> LogMessage:
    return message if j == 0 else lambda v: message(1.0 / v)


def _lower_prior(out: Any, concentration: Any, scale: Any) -> Lowered:
    return Lowered(InverseGammaPrior(as_float(concentration), as_float(scale)), (out,))


def _lower_constant(out: Any, concentration: Any, scale: Any) -> Lowered:
    factor, out = InverseGammaPrior(as_float(concentration), as_float(scale)), as_float(out)
    conditions = {**factor.checks(), "outcomes must be positive": out > 0.0}
    value = factor.log_density(out)
    return Lowered(ConstantFactor(value, *factor.moments(value), conditions, factor), ())


@register
class InverseGamma(Distribution):
    """`InverseGamma(concentration, scale=)`: of 1/t for t ~ Gamma(a, rate=b), a the concentration and b the scale; its
    mean is b/(a - 1)."""

    __slots__ = ()
    support = "positive"
    family = InverseGammaFamily
    event_ndims: ClassVar = {"out": 0, "concentration": 0, "scale": 0}
    placeholder = 1.0
    also_called: ClassVar = {"shape": "concentration"}
    signatures = tuple(
        Signature({"out": out, "concentration": CONSTANT, "scale": CONSTANT}, lower, factor)
        for out, lower, factor in (
            (INVERSE_GAMMA, _lower_prior, InverseGammaPrior),
            (CONSTANT, _lower_constant, ConstantFactor),
        )
    )

    @staticmethod
    def standard(concentration: Any, scale: Any) -> tuple[Any, Any]:
        centre, spread = log_gamma_moments(concentration)
        return jnp.log(scale) - centre, spread

    def __init__(self, concentration: Any, *, scale: Any):
        self.arguments = {"concentration": concentration, "scale": scale}


def _some(key: Any, dtype: Any, low: float = 3.0) -> InverseGammaFamily:
    return InverseGammaFamily.from_reciprocal(some_gamma(key, dtype, low))


def _prior_case(key: Any, dtype: Any) -> Case:
    q = _some(key, dtype)
    return Case(InverseGammaPrior(uniform(key, dtype, 2.5, 4.0), uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


def _variance_case(key: Any, dtype: Any) -> Case:
    q = _some(key, dtype)
    return Case(NormalVariance(uniform(key, dtype, -2.0, 2.0), uniform(key, dtype, 0.3, 0.4, (1,))), (q,), (q,))


def _noise_case(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (some_gaussian(k1, dtype), _some(k2, dtype))
    return Case(NoiseVariance(), cavities, (some_gaussian(k3, dtype), _some(k4, dtype, 4.0)))


oracle_case(InverseGammaPrior, _prior_case)
oracle_case(NormalVariance, _variance_case)
oracle_case(NoiseVariance, _noise_case)
