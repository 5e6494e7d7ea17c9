r"""The logarithm of a Gamma variable, as a prior of log-precisions and log-rates with a Gaussian marginal.

With $z = \log\tau$, $\tau \sim Gamma(a, b)$: $l(z) = a z - b e^z + a \log b - \log\Gamma(a)$.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import gammainc
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, on, register
from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, Values
from ..families import Gaussian
from ..numerics.gamma_functions import digamma, gammaln, trigamma
from ..numerics.special import safe_exp
from .exponential import settle


class LogGammaPrior(AbstractProjected):
    """`f(z) = Gamma(e^z; concentration a, rate b) e^z`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    concentration: Float[Values, " #n"]
    rate: Float[Values, " #n"]

    def _at(self, z: Array, power: Array) -> Array:
        """l, with `e^power` for `e^z`."""
        a, b = jnp.asarray(self.concentration), jnp.asarray(self.rate)
        return a * (z + jnp.log(b)) - b * safe_exp(power) - gammaln(a)

    def log_density(self, z: Array) -> Array:
        return self._at(z, z)

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        """With `rho = b E[e^z]`: `eta = (a + (m - 1) rho, -rho/2)`."""
        rho = self.rate * safe_exp(marginal.mean + 0.5 * marginal.variance)
        return Gaussian(self.concentration + (marginal.mean - 1.0) * rho, -0.5 * rho)

    def settle(self, marginal: Gaussian, cavity: Gaussian, leaf: Gaussian, once: Gaussian) -> Gaussian:
        return settle(jnp.asarray(self.concentration), jnp.log(self.rate), marginal, cavity)

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        return self._at(marginal.mean, marginal.mean + 0.5 * marginal.variance)

    def initial(self) -> tuple[Gaussian]:
        # Its moments: flat, nothing else might say where a scale is.
        a, log_b = jnp.broadcast_arrays(jnp.asarray(self.concentration), jnp.log(self.rate))
        return (Gaussian.from_mean_variance(digamma(a) - log_b, trigamma(a)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        a = self.concentration
        return {
            "the concentration must be positive and finite": (a > 0.0) & jnp.isfinite(a),
            "the rate must be positive and finite": (self.rate > 0.0) & jnp.isfinite(self.rate),
        }

    def moments(self, z: Array) -> tuple[Array, Array]:
        a = jnp.asarray(self.concentration)
        return jnp.broadcast_to(digamma(a) - jnp.log(self.rate), z.shape), jnp.broadcast_to(trigamma(a), z.shape)

    def cdf(self, out: Array, z: Array) -> Array:
        return gammainc(*jnp.broadcast_arrays(self.concentration, self.rate * safe_exp(out)))


@register
class LogGamma(Distribution):
    """`LogGamma(concentration, rate=)`: the logarithm of a Gamma variable, with a Gaussian marginal.

    `Normal(m, precision=exp(s))` with such an s is normal noise with a Gamma precision.
    """

    __slots__ = ()
    family = Gaussian
    event_ndims: ClassVar = {"out": 0, "concentration": 0, "rate": 0}
    placeholder = 0.0
    also_called: ClassVar = {"shape": "concentration"}
    signatures = (on(LogGammaPrior, concentration=CONSTANT, rate=CONSTANT, out=GAUSSIAN),)

    def __init__(self, concentration: Any, *, rate: Any):
        self.arguments = {"concentration": concentration, "rate": rate}
