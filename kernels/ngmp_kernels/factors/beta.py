"""The Beta distribution, as a prior of probabilities."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from ..distribution import BETA, CONSTANT, Distribution, Lowered, Signature, as_float, log_gamma_moments, register
from ..factor import AbstractConjugate, Families, Values
from ..families import Beta as BetaFamily
from ..oracle import Case, oracle_case, uniform
from .generic import ConstantFactor


class BetaPrior(AbstractConjugate):
    """`f(p) = Beta(p; a, b)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (BetaFamily,)
    support: ClassVar[str | None] = "unit"
    a: Float[Values, " #n"]
    b: Float[Values, " #n"]

    def _family(self) -> BetaFamily:
        return BetaFamily.from_ab(*jnp.broadcast_arrays(self.a, self.b))

    def log_density(self, p: Array) -> Array:
        return (self.a - 1.0) * jnp.log(p) + (self.b - 1.0) * jnp.log1p(-p) - self._family().log_partition()

    def message(self) -> tuple[BetaFamily, Array]:
        return self._family(), -self._family().log_partition()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {
            "a must be positive and finite": (self.a > 0.0) & jnp.isfinite(self.a),
            "b must be positive and finite": (self.b > 0.0) & jnp.isfinite(self.b),
        }

    def moments(self, p: Array) -> tuple[Array, Array]:
        total = self.a + self.b
        mean = jnp.broadcast_to(self.a / total, p.shape)
        return mean, mean * (1.0 - mean) / (total + 1.0)

    def cdf(self, out: Array, *z: Array) -> Array:
        del z
        return betainc(*jnp.broadcast_arrays(self.a, self.b, jnp.clip(out, 0.0, 1.0)))


def _lower_prior(out: Any, a: Any, b: Any) -> Lowered:
    return Lowered(BetaPrior(as_float(a), as_float(b)), (out,))


def _lower_constant(out: Any, a: Any, b: Any) -> Lowered:
    factor, out = BetaPrior(as_float(a), as_float(b)), as_float(out)
    conditions = {**factor.checks(), "outcomes must lie strictly between 0 and 1": (out > 0.0) & (out < 1.0)}
    value = factor.log_density(out)
    return Lowered(ConstantFactor(value, *factor.moments(value), conditions, factor), ())


@register
class Beta(Distribution):
    """`Beta(a, b)`: mean a/(a + b)."""

    __slots__ = ()
    support = "unit"
    family = BetaFamily
    event_ndims: ClassVar = {"out": 0, "a": 0, "b": 0}
    placeholder = 0.5
    signatures = (
        Signature({"out": BETA, "a": CONSTANT, "b": CONSTANT}, _lower_prior, BetaPrior),
        Signature({"out": CONSTANT, "a": CONSTANT, "b": CONSTANT}, _lower_constant, ConstantFactor),
    )

    @staticmethod
    def standard(a: Any, b: Any) -> tuple[Any, Any]:
        (first, spread), (second, other) = log_gamma_moments(a), log_gamma_moments(b)
        return first - second, jnp.sqrt(spread**2 + other**2)

    def __init__(self, a: Any, b: Any):
        self.arguments = {"a": a, "b": b}


def _case(key: Any, dtype: Any) -> Case:
    a = uniform(key, dtype, 0.5, 4.0)
    q = BetaFamily.from_ab(a + 1.0, a[::-1] + 1.0)
    return Case(BetaPrior(a, uniform(key, dtype, 1.9, 2.0, (1,))), (q,), (q,))


oracle_case(BetaPrior, _case)
