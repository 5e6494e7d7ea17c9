"""The Gamma distribution, as a prior of precisions and rates."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import gammainc
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CONSTANT,
    GAMMA,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    log_gamma_moments,
    reciprocal,
    register,
)
from ..factor import Families, Values
from ..families import Gamma as GammaFamily
from .generic import ConstantFactor
from .given import AbstractMember


class GammaPrior(AbstractMember):
    """`f(tau) = Gamma(tau; concentration, rate)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("tau",)
    families: ClassVar[Families] = (GammaFamily,)
    support: ClassVar[str | None] = "positive"
    concentration: Float[Values, " #n"]
    rate: Float[Values, " #n"]

    def density(self) -> GammaFamily:
        return GammaFamily.from_concentration_rate(*jnp.broadcast_arrays(self.concentration, self.rate))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {
            "the concentration must be positive and finite": (a > 0.0) & jnp.isfinite(a),
            "the rate (or scale) must be positive and finite": (self.rate > 0.0) & jnp.isfinite(self.rate),
        }

    def cdf(self, out: Array, *z: Array) -> Array:
        a, x = jnp.broadcast_arrays(self.concentration, self.rate * jnp.maximum(out, 0.0))
        return gammainc(a, x)


def _factor(concentration: Any, rate: Any, scale: Any) -> GammaPrior:
    return GammaPrior(as_float(concentration), reciprocal(as_float(scale)) if rate is None else as_float(rate))


def _lower_prior(out: Any, concentration: Any, rate: Any = None, scale: Any = None) -> Lowered:
    return Lowered(_factor(concentration, rate, scale), (out,))


def _lower_constant(out: Any, concentration: Any, rate: Any = None, scale: Any = None) -> Lowered:
    out = as_float(out)
    return _factor(concentration, rate, scale).observed(out, {"outcomes must be positive": out > 0.0})


@register
class Gamma(Distribution):
    """`Gamma(concentration, rate=)` or `Gamma(concentration, scale=)`: of concentration a and rate b, the mean is a/b
    and the variance a/b^2."""

    __slots__ = ()
    support = "positive"
    family = GammaFamily
    event_ndims: ClassVar = {"out": 0, "concentration": 0, "rate": 0, "scale": 0}
    placeholder = 1.0
    also_called: ClassVar = {"shape": "concentration"}
    signatures = (
        *(
            Signature({"out": GAMMA, "concentration": CONSTANT, k: CONSTANT}, _lower_prior, GammaPrior)
            for k in ("rate", "scale")
        ),
        *(
            Signature({"out": CONSTANT, "concentration": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor)
            for k in ("rate", "scale")
        ),
    )

    @staticmethod
    def standard(concentration: Any, rate: Any = None, scale: Any = None) -> tuple[Any, Any]:
        centre, spread = log_gamma_moments(concentration)
        return centre + (jnp.log(scale) if rate is None else -jnp.log(rate)), spread

    def __init__(self, concentration: Any, *, rate: Any = None, scale: Any = None):
        self.arguments = {"concentration": concentration, **exactly_one("Gamma", rate=rate, scale=scale)}
