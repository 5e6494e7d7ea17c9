"""The Dirichlet distribution, as a prior of vectors of probabilities."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, DIRICHLET, Distribution, Lowered, Signature, as_float, register
from ..factor import AbstractConjugate, Families
from ..families import Dirichlet as DirichletFamily
from ..oracle import Case, oracle_case, uniform
from .generic import ConstantFactor


class DirichletPrior(AbstractConjugate):
    """`f(p) = Dirichlet(p; concentration)` with constant concentration, over K classes."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (DirichletFamily,)
    concentration: Float[Array, "#n K"]

    def _family(self) -> DirichletFamily:
        return DirichletFamily.from_concentration(self.concentration)

    def log_density(self, p: Array) -> Array:
        return jnp.sum((self.concentration - 1.0) * jnp.log(p), -1) - self._family().log_partition()

    def message(self) -> tuple[DirichletFamily, Array]:
        return self._family(), -self._family().log_partition()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {"every concentration must be positive and finite": jnp.all((a > 0.0) & jnp.isfinite(a), -1)}

    def moments(self, p: Array) -> tuple[Array, Array]:
        total = jnp.sum(self.concentration, -1, keepdims=True)
        mean = jnp.broadcast_to(self.concentration / total, p.shape)
        return mean, mean * (1.0 - mean) / (total + 1.0)


def _lower_prior(out: Any, concentration: Any) -> Lowered:
    return Lowered(DirichletPrior(as_float(concentration)), (out,))


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
        Signature({"out": DIRICHLET, "concentration": CONSTANT}, _lower_prior, DirichletPrior),
        Signature({"out": CONSTANT, "concentration": CONSTANT}, _lower_constant, ConstantFactor),
    )

    def __init__(self, concentration: Any):
        self.arguments = {"concentration": concentration}


def _case(key: Any, dtype: Any) -> Case:
    alpha = uniform(key, dtype, 0.5, 4.0, (4, 3))
    q = DirichletFamily.from_concentration(alpha + 1.0)
    return Case(DirichletPrior(alpha), (q,), (q,))


oracle_case(DirichletPrior, _case)
