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
from ..factor import AbstractConjugate, Families, Values
from ..families import Gamma as GammaFamily
from ..oracle import Case, oracle_case, some_gamma, uniform
from .generic import ConstantFactor


class GammaPrior(AbstractConjugate):
    """`f(tau) = Gamma(tau; concentration, rate)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("tau",)
    families: ClassVar[Families] = (GammaFamily,)
    support: ClassVar[str | None] = "positive"
    concentration: Float[Values, " #n"]
    rate: Float[Values, " #n"]

    def _family(self) -> GammaFamily:
        return GammaFamily.from_concentration_rate(*jnp.broadcast_arrays(self.concentration, self.rate))

    def log_density(self, tau: Array) -> Array:
        a, b = self.concentration, self.rate
        return (a - 1.0) * jnp.log(tau) - b * tau - self._family().log_partition()

    def message(self) -> tuple[GammaFamily, Array]:
        return self._family(), -self._family().log_partition()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {
            "the concentration must be positive and finite": (a > 0.0) & jnp.isfinite(a),
            "the rate (or scale) must be positive and finite": (self.rate > 0.0) & jnp.isfinite(self.rate),
        }

    def moments(self, tau: Array) -> tuple[Array, Array]:
        mean = self.concentration / self.rate
        return jnp.broadcast_to(mean, tau.shape), jnp.broadcast_to(mean / self.rate, tau.shape)

    def cdf(self, out: Array, *z: Array) -> Array:
        del z
        a, x = jnp.broadcast_arrays(self.concentration, self.rate * jnp.maximum(out, 0.0))
        return gammainc(a, x)


def _factor(concentration: Any, rate: Any, scale: Any) -> GammaPrior:
    return GammaPrior(as_float(concentration), reciprocal(as_float(scale)) if rate is None else as_float(rate))


def _lower_prior(out: Any, concentration: Any, rate: Any = None, scale: Any = None) -> Lowered:
    return Lowered(_factor(concentration, rate, scale), (out,))


def _lower_constant(out: Any, concentration: Any, rate: Any = None, scale: Any = None) -> Lowered:
    factor, out = _factor(concentration, rate, scale), as_float(out)
    conditions = {**factor.checks(), "outcomes must be positive": out > 0.0}
    value = factor.log_density(out)
    return Lowered(ConstantFactor(value, *factor.moments(value), conditions, factor), ())


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


def _case(key: Any, dtype: Any) -> Case:
    q = some_gamma(key, dtype)
    return Case(GammaPrior(uniform(key, dtype, 0.5, 4.0), uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


oracle_case(GammaPrior, _case)
