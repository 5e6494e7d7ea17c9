r"""Beta likelihoods: `Beta(logits=f, concentration=phi)` of outcomes in (0, 1), with mean $\sigma(f)$, $\phi = a + b$.

$$ l = \log\Gamma(\phi) - \log\Gamma(a) - \log\Gamma(b) + (a - 1) \log y + (b - 1) \log(1 - y), \qquad
   a = \phi\, \sigma(f), \quad b = \phi\, \sigma(-f). $$

An unknown concentration $\phi = e^k$ is projected together with f.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, logit
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, GAUSSIAN, Signature, on
from ..factor import AbstractProjected, Families, Values
from ..families import Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.special import safe_exp

_UNIT = "outcomes must lie strictly between 0 and 1"


def _inside(out: Any) -> Array:
    return jnp.asarray((out > 0.0) & (out < 1.0))


class BetaLogit(AbstractProjected):
    """`f(z) = Beta(y; phi sigmoid(z), phi sigmoid(-z))` of a known concentration phi."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "unit"
    out: Float[Values, " #n"]
    concentration: Float[Values, " #n"]

    def _parameters(self, z: Array) -> tuple[Array, Array]:
        # Far out one of them is nothing, and its outcome too.
        return (jnp.maximum(self.concentration * jax.nn.sigmoid(x), 1e-25) for x in (z, -z))  # type: ignore[return-value]

    def log_density(self, z: Array) -> Array:
        # log-gamma(a) as log-gamma(1 + a) - log a: far out one of the two is nothing, and its logarithm is not.
        phi = jnp.asarray(self.concentration)
        a, b = (phi * jax.nn.sigmoid(x) for x in (z, -z))
        logs = 2.0 * jnp.log(phi) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z)
        y = jnp.clip(jnp.asarray(self.out), jnp.finfo(z.dtype).tiny, 1.0 - jnp.finfo(z.dtype).epsneg)
        powers = (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y)
        return gammaln(phi) - gammaln(1.0 + a) - gammaln(1.0 + b) + logs + powers

    def initial(self) -> tuple[Gaussian]:
        y, phi = jnp.asarray(self.out), jnp.asarray(self.concentration)
        p = (phi * y + 0.5) / (phi + 1.0)
        variance = jnp.minimum(1.0 / ((phi + 1.0) * p * (1.0 - p)), 1.0)
        return (Gaussian.from_mean_variance(jnp.broadcast_to(logit(p), variance.shape), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        fine = (self.concentration > 0.0) & jnp.isfinite(self.concentration)
        return {_UNIT: _inside(self.out), "the concentration must be positive and finite": fine}

    def moments(self, z: Array) -> tuple[Array, Array]:
        p = jax.nn.sigmoid(z)
        return p, p * jax.nn.sigmoid(-z) / (1.0 + self.concentration)

    def cdf(self, out: Array, z: Array) -> Array:
        a, b = self._parameters(z)
        return betainc(*jnp.broadcast_arrays(a, b, jnp.clip(out, 0.0, 1.0)))


class BetaLogits(AbstractProjected):
    """`f(z, k) = Beta(y; e^k sigmoid(z), e^k sigmoid(-z))`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z", "k")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    joins: ClassVar[str] = "always"
    support: ClassVar[str | None] = "unit"
    out: Float[Values, " #n"]

    def given(self, k: Array) -> BetaLogit:
        """The factor of a known concentration e^k."""
        return BetaLogit(self.out, safe_exp(k))

    def log_density(self, z: Array, k: Array) -> Array:
        return self.given(k).log_density(z)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_UNIT: _inside(self.out)}

    def moments(self, z: Array, k: Array) -> tuple[Array, Array]:
        z, k = jnp.broadcast_arrays(z, k)
        return self.given(k).moments(z)

    def cdf(self, out: Array, z: Array, k: Array) -> Array:
        z, k = jnp.broadcast_arrays(z, k)
        return self.given(k).cdf(out, z)


SIGNATURES: tuple[Signature, ...] = (
    on(BetaLogit, out=CONSTANT, logits=GAUSSIAN, concentration=CONSTANT),
    on(BetaLogits, out=CONSTANT, logits=GAUSSIAN, concentration=EXP_GAUSSIAN),
)
