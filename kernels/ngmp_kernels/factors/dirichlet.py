"""The Dirichlet distribution, as a prior of vectors of probabilities."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, DIRICHLET, Distribution, Lowered, Signature, as_float, on, register
from ..factor import Families
from ..families import Dirichlet as DirichletFamily
from .generic import ConstantFactor
from .given import AbstractMember


class DirichletPrior(AbstractMember):
    """`f(p) = Dirichlet(p; concentration)` with constant concentration, over K classes."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (DirichletFamily,)
    concentration: Float[Array, "#n K"]

    def density(self) -> DirichletFamily:
        return DirichletFamily.from_concentration(self.concentration)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {"every concentration must be positive and finite": jnp.all((a > 0.0) & jnp.isfinite(a), -1)}


def _lower_constant(out: Any, concentration: Any) -> Lowered:
    factor, out = DirichletPrior(as_float(concentration)), as_float(out)
    tolerance = 100.0 * jnp.finfo(out.dtype).eps
    inside = jnp.all(out > 0.0, -1) & (jnp.abs(jnp.sum(out, -1) - 1.0) < tolerance)
    conditions = {**factor.checks(), "outcomes must be positive vectors that sum to one": inside}
    value = factor.log_density(out)
    mean, variance = factor.moments(jnp.broadcast_to(out, (*value.shape, out.shape[-1])))
    return Lowered(ConstantFactor(value, mean, variance, conditions), ())


@register
class Dirichlet(Distribution):
    """`Dirichlet(concentration)` over as many classes as the concentration has entries."""

    __slots__ = ()
    support = "simplex"
    family = DirichletFamily
    event_ndims: ClassVar = {"out": 1, "concentration": 1}
    placeholder = 1.0  # finite; a masked vector is not on the simplex, so its check must be masked as well
    signatures = (
        on(DirichletPrior, out=DIRICHLET, concentration=CONSTANT),
        Signature({"out": CONSTANT, "concentration": CONSTANT}, _lower_constant, ConstantFactor),
    )

    def __init__(self, concentration: Any):
        self.arguments = {"concentration": concentration}
