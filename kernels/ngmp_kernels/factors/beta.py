"""The Beta distribution, as a prior of probabilities; likelihoods are in `beta_regression`."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from ..distribution import (
    BETA,
    CONSTANT,
    SIGMOID_GAUSSIAN,
    Distribution,
    Lowered,
    Signature,
    as_float,
    log_gamma_moments,
    on,
    register,
)
from ..factor import Families, Values
from ..families import Beta as BetaFamily
from .beta_regression import SIGNATURES as LIKELIHOODS
from .beta_regression import BetaLogit
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
    """`Beta(a, b)`: mean a/(a + b).

    Of an observed outcome also `Beta(logits=f, concentration=)`: the mean is sigmoid(f), a + b the
    concentration; f is affine in Gaussian variables, the concentration a constant or `exp` of an affine expression.
    """

    __slots__ = ()
    support = "unit"
    family = BetaFamily
    event_ndims: ClassVar = {"out": 0, "a": 0, "b": 0, "logits": 0, "mean": 0, "concentration": 0}
    placeholder = 0.5
    signatures = (
        on(BetaPrior, out=BETA, a=CONSTANT, b=CONSTANT),
        Signature({"out": CONSTANT, "a": CONSTANT, "b": CONSTANT}, _lower_constant, ConstantFactor),
        *LIKELIHOODS,
        on(BetaLogit, out=CONSTANT, mean=SIGMOID_GAUSSIAN, concentration=CONSTANT),
    )

    @staticmethod
    def standard(a: Any, b: Any) -> tuple[Any, Any]:
        (first, spread), (second, other) = log_gamma_moments(a), log_gamma_moments(b)
        return first - second, jnp.sqrt(spread**2 + other**2)

    def __init__(
        self, a: Any = None, b: Any = None, *, logits: Any = None, mean: Any = None, concentration: Any = None
    ):
        given = {"a": a, "b": b, "logits": logits, "mean": mean, "concentration": concentration}
        self.arguments = {name: value for name, value in given.items() if value is not None}
        if set(self.arguments) not in ({"a", "b"}, {"logits", "concentration"}, {"mean", "concentration"}):
            got = ", ".join(self.arguments) or "none of them"
            raise TypeError(f"Beta takes a and b, or logits= and concentration=; got {got}")
