"""The Gamma distribution, as a prior of precisions and rates; likelihoods are in `gamma_regression`."""

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
from .gamma_regression import SIGNATURES as LIKELIHOODS
from .generic import ConstantFactor
from .given import AbstractMember
from .log_gamma import LogGamma
from .multiple import with_multiples
from .positive import GammaRate


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


def _factor(concentration: Any, rate: Any = None, scale: Any = None, mean: Any = None) -> GammaPrior:
    a = as_float(concentration)
    if rate is None:
        rate = reciprocal(as_float(scale)) if mean is None else a * reciprocal(as_float(mean))
    return GammaPrior(a, as_float(rate))


def _lower_prior(out: Any, concentration: Any, **given: Any) -> Lowered:
    return Lowered(_factor(concentration, **given), (out,))


def _lower_constant(out: Any, concentration: Any, **given: Any) -> Lowered:
    out = as_float(out)
    return _factor(concentration, **given).observed(out, {"outcomes must be positive": out > 0.0})


def _lower_rate(out: Any, concentration: Any, rate: Any) -> Lowered:
    return Lowered(GammaRate(as_float(out), as_float(concentration)), (rate,))


_GIVEN = ("rate", "scale", "mean")


@register
class Gamma(Distribution):
    """`Gamma(concentration, rate=)`, `Gamma(concentration, scale=)` or `Gamma(concentration, mean=)`: of concentration
    a and rate b, the mean is a/b and the variance a/b^2.

    A latent outcome has constants. Of an observed one, rate, scale or mean may be `exp` of an affine expression, and so
    may the concentration of such.
    """

    __slots__ = ()
    support = "positive"
    family = GammaFamily
    event_ndims: ClassVar = {"out": 0, "concentration": 0, "rate": 0, "scale": 0, "mean": 0}
    placeholder = 1.0
    also_called: ClassVar = {"shape": "concentration"}
    signatures = with_multiples((
        *(Signature({"out": GAMMA, "concentration": CONSTANT, k: CONSTANT}, _lower_prior, GammaPrior) for k in _GIVEN),
        *(Signature({"out": CONSTANT, "concentration": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor)
          for k in _GIVEN),
        *LIKELIHOODS,
        Signature({"out": CONSTANT, "concentration": CONSTANT, "rate": GAMMA}, _lower_rate, GammaRate),
    ))  # fmt: skip

    def log_form(self) -> LogGamma:
        a, *_ = given = list(self.arguments.values())
        rate = {"rate": lambda b: b, "scale": lambda b: 1.0 / b, "mean": lambda b: a / b}[list(self.arguments)[1]]
        return LogGamma(a, rate=rate(given[1]))

    @staticmethod
    def standard(concentration: Any, rate: Any = None, scale: Any = None, mean: Any = None) -> tuple[Any, Any]:
        centre, spread = log_gamma_moments(concentration)
        rate = concentration / mean if mean is not None else rate
        return centre + (jnp.log(scale) if rate is None else -jnp.log(rate)), spread

    def __init__(self, concentration: Any, *, rate: Any = None, scale: Any = None, mean: Any = None):
        self.arguments = {"concentration": concentration, **exactly_one("Gamma", rate=rate, scale=scale, mean=mean)}
