"""What likelihoods of one Gaussian predictor share: a log-density in it is enough, and quadrature does the rest."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ..distribution import Lowered
from ..factor import AbstractFactor, AbstractProjected, AbstractQuadrature, Cavities, Families
from ..families import Gaussian
from ..quadrature.edge import by_derivatives
from ..quadrature.start import peak
from .generic import ConstantFactor


class AbstractLikelihood(AbstractProjected):
    """A factor `f(z) = p(out | z)` of one Gaussian interface; `out` is a field."""

    families: ClassVar[Families] = (Gaussian,)

    def initial(self) -> tuple[Gaussian | None]:
        out = jnp.asarray(self.out)  # type: ignore[attr-defined]
        n = max(jnp.shape(x)[0] for x in vars(self).values() if jnp.ndim(x))
        return (peak(self.log_density, n, out.dtype),)


class AbstractClosed(AbstractProjected):
    """A factor of one Gaussian interface whose `edge_moments` are known in closed form; its projection follows."""

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        return by_derivatives(marginal.mean, self.edge_moments(marginal.mean, marginal.variance))

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        return self.edge_moments(marginal.mean, marginal.variance).value


def at_constants(factor: AbstractFactor, *values: Any) -> Lowered:
    """What is left of a factor whose interfaces are all constants."""
    values = tuple(jnp.asarray(v) for v in values)
    value = factor.log_density(*values)
    finite = {"the predictor must be finite": jnp.isfinite(sum(values))} if values else {}
    mean, variance = factor.moments(*(jnp.broadcast_to(v, value.shape) for v in values))
    safe = jnp.where(jnp.isfinite(value), value, 0.0)
    possible = {"the outcome must be possible under the parameters": jnp.isfinite(value)}
    return Lowered(ConstantFactor(safe, mean, variance, factor.checks() | finite | possible, factor, values), ())


def positive(name: str, x: Any) -> dict[str, Any]:
    """The condition that a parameter is positive and finite."""
    return {f"the {name} must be positive and finite": (x > 0.0) & jnp.isfinite(x)}


def broadcast(*arrays: Any) -> list[Array]:
    return list(jnp.broadcast_arrays(*arrays))
