"""The inverse Gamma distribution, as a prior of variances, and normal noise of such a variance.

`1/v` is a Gamma variable, so everything here is the Gamma precision of `normal_noise` at `tau = 1/v`.
"""

from typing import Any, ClassVar

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
    on,
    register,
)
from ..factor import AbstractConjugate, AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage, Values
from ..families import Gamma, Gaussian
from ..families import InverseGamma as InverseGammaFamily
from ..numerics.special import LOG_2PI
from .generic import ConstantFactor
from .given import AbstractMember
from .normal_noise import NoisePrecision


class InverseGammaPrior(AbstractMember):
    """`f(v) = InverseGamma(v; concentration, scale)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("v",)
    families: ClassVar[Families] = (InverseGammaFamily,)
    support: ClassVar[str | None] = "positive"
    concentration: Float[Values, " #n"]
    scale: Float[Values, " #n"]

    def density(self) -> InverseGammaFamily:
        return InverseGammaFamily.from_concentration_scale(self.concentration, self.scale)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {
            "the concentration must be positive and finite": (a > 0.0) & jnp.isfinite(a),
            "the scale must be positive and finite": (self.scale > 0.0) & jnp.isfinite(self.scale),
        }

    def cdf(self, out: Array, *z: Array) -> Array:
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
        return lambda v: -0.5 * (jnp.log(spread + v) + LOG_2PI + m * (m / (spread + v)))

    def peak(self, j: int, cavities: Cavities) -> tuple[Array, Array] | None:
        return NoisePrecision().peak(0, _reciprocal(cavities)) if j == 0 else None

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        return _of_variance(j, NoisePrecision().fractional_message(j, _reciprocal(cavities), power, quadrature))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        return _of_variance(j, NoisePrecision().mean_field_message(j, _reciprocal(marginals), quadrature))

    def mean_field_projection(
        self, j: int, marginals: Cavities, quadrature: AbstractQuadrature
    ) -> Gaussian | InverseGammaFamily:
        eta = NoisePrecision().mean_field_projection(j, _reciprocal(marginals), quadrature)
        return InverseGammaFamily(-eta.eta1, eta.eta2) if isinstance(eta, Gamma) else eta

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        return NoisePrecision().expected_log_density(_reciprocal(marginals), quadrature)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        return NoisePrecision().log_evidence(_reciprocal(cavities), quadrature)

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


def _lower_constant(out: Any, concentration: Any, scale: Any) -> Lowered:
    out = as_float(out)
    prior = InverseGammaPrior(as_float(concentration), as_float(scale))
    return prior.observed(out, {"outcomes must be positive": out > 0.0})


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
    signatures = (
        on(InverseGammaPrior, out=INVERSE_GAMMA, concentration=CONSTANT, scale=CONSTANT),
        Signature(dict.fromkeys(("out", "concentration", "scale"), CONSTANT), _lower_constant, ConstantFactor),
    )

    @staticmethod
    def standard(concentration: Any, scale: Any) -> tuple[Any, Any]:
        centre, spread = log_gamma_moments(concentration)
        return jnp.log(scale) - centre, spread

    def __init__(self, concentration: Any, *, scale: Any):
        self.arguments = {"concentration": concentration, "scale": scale}
