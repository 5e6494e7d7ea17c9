"""The Beta distribution, as a prior of probabilities."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from ..distribution import BETA, CONSTANT, Distribution, Lowered, Signature, as_float, log_gamma_moments, on, register
from ..factor import Families, Values
from ..families import Beta as BetaFamily
from .generic import ConstantFactor
from .given import AbstractMember


class BetaPrior(AbstractMember):
    """`f(p) = Beta(p; a, b)` with constant parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (BetaFamily,)
    support: ClassVar[str | None] = "unit"
    a: Float[Values, " #n"]
    b: Float[Values, " #n"]

    def density(self) -> BetaFamily:
        return BetaFamily.from_ab(*jnp.broadcast_arrays(self.a, self.b))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {
            "a must be positive and finite": (self.a > 0.0) & jnp.isfinite(self.a),
            "b must be positive and finite": (self.b > 0.0) & jnp.isfinite(self.b),
        }

    def cdf(self, out: Array, *z: Array) -> Array:
        return betainc(*jnp.broadcast_arrays(self.a, self.b, jnp.clip(out, 0.0, 1.0)))


def _lower_constant(out: Any, a: Any, b: Any) -> Lowered:
    out = as_float(out)
    inside = {"outcomes must lie strictly between 0 and 1": (out > 0.0) & (out < 1.0)}
    return BetaPrior(as_float(a), as_float(b)).observed(out, inside)


@register
class Beta(Distribution):
    """`Beta(a, b)`: mean a/(a + b)."""

    __slots__ = ()
    support = "unit"
    family = BetaFamily
    event_ndims: ClassVar = {"out": 0, "a": 0, "b": 0}
    placeholder = 0.5
    signatures = (
        on(BetaPrior, out=BETA, a=CONSTANT, b=CONSTANT),
        Signature({"out": CONSTANT, "a": CONSTANT, "b": CONSTANT}, _lower_constant, ConstantFactor),
    )

    @staticmethod
    def standard(a: Any, b: Any) -> tuple[Any, Any]:
        (first, spread), (second, other) = log_gamma_moments(a), log_gamma_moments(b)
        return first - second, jnp.sqrt(spread**2 + other**2)

    def __init__(self, a: Any, b: Any):
        self.arguments = {"a": a, "b": b}
