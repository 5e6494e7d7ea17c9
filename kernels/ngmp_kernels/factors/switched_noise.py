"""Normal noise whose constant mean and scale a categorical variable picks: mixture priors, spike and slab, outliers.

Here the residual is one edge shared by all classes, so the mixture is one factor; where classes have random parameters
of their own, see `gated`.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage
from ..families import Categorical, Gaussian
from ..numerics.special import LOG_2PI


class SwitchedNoise(AbstractProjected):
    """`f(r, z) = N(r; shift[z], 1/precision[z])`.

    Toward r, with cavity probabilities c: `log sum_k c_k N(r; shift_k, 1/precision_k)`.
    Toward z, with cavity r ~ N(m, v): `log N(shift_k; m, v + 1/precision_k)`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "selector")
    families: ClassVar[Families] = (Gaussian, Categorical)
    support: ClassVar[str | None] = "real"
    shift: Float[Array, "#n K"]
    precision: Float[Array, "#n K"]

    def _each(self, r: Float[Array, "... n"]) -> Float[Array, "... n K"]:
        """`log f` for every class."""
        return 0.5 * (jnp.log(self.precision) - LOG_2PI - self.precision * (r[..., None] - self.shift) ** 2)

    def _expected(self, r: Gaussian) -> Float[Array, "n K"]:
        """`E[log f]` for every class."""
        return self._each(r.mean) - 0.5 * self.precision * r.variance[..., None]

    def _integrated(self, r: Gaussian) -> Float[Array, "n K"]:
        """`log E[f]` for every class."""
        gap, variance = r.mean[..., None] - self.shift, r.variance[..., None] + 1.0 / self.precision
        return -0.5 * (jnp.log(variance) + LOG_2PI + gap**2 / variance)

    def log_density(self, r: Array, z: Array) -> Array:
        return _pick(self._each(r), z)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == 1:
            each = self._integrated(cavities[0])
            return lambda z: _pick(each, z)
        log_probs = jax.nn.log_softmax(cavities[1].eta1, axis=-1)
        return lambda r: jax.nn.logsumexp(log_probs + self._each(r), axis=-1)

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        log_probs = jax.nn.log_softmax(cavities[1].eta1, axis=-1)
        return jax.nn.logsumexp(log_probs + self._integrated(cavities[0]), axis=-1)

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 1:
            each = self._expected(marginals[0])
            return lambda z: _pick(each, z)
        probs = marginals[1].probs
        return lambda r: jnp.sum(probs * self._each(r), axis=-1)

    def mean_field_projection(
        self, j: int, marginals: Cavities, quadrature: AbstractQuadrature
    ) -> Gaussian | Categorical:
        if j == 1:
            return Categorical(self._expected(marginals[0]))
        weights = marginals[1].probs * self.precision
        return Gaussian(jnp.sum(weights * self.shift, axis=-1), -0.5 * jnp.sum(weights, axis=-1))

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        return jnp.sum(marginals[1].probs * self._expected(marginals[0]), axis=-1)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def initial(self) -> tuple[Gaussian, None]:
        # The leaf on r may have to hold the core together, so it starts where the mixture has its mass.
        shift, spread = jnp.broadcast_arrays(self.shift, 1.0 / self.precision)
        mean = jnp.mean(shift, axis=-1)
        return Gaussian.from_mean_variance(mean, jnp.mean(spread + shift**2, axis=-1) - mean**2), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        positive = (self.precision > 0.0) & jnp.isfinite(self.precision)
        return {
            "every entry of the scale (variance, precision or std) must be positive and finite": jnp.all(positive, -1),
            "every entry of the mean must be finite": jnp.all(jnp.isfinite(self.shift), axis=-1),
        }

    def moments(self, r: Array, z: Array) -> tuple[Array, Array]:
        shift, precision = jnp.broadcast_arrays(self.shift, self.precision)
        return _pick(shift, z) - r, 1.0 / _pick(precision, z) + 0.0 * r

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        r, z = marginals
        mean = jnp.sum(z.probs * self.shift, axis=-1)
        spread = jnp.sum(z.probs * self.shift**2, axis=-1) - mean**2
        return mean - r.mean, spread + r.variance, jnp.sum(z.probs / self.precision, axis=-1)

    def cdf(self, out: Array, r: Array, z: Array) -> Array:
        mean, variance = self.moments(r, z)
        return ndtr((out - mean) / jnp.sqrt(variance))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        r, z = marginals
        spread = jnp.sqrt(r.variance[..., None] + 1.0 / self.precision)
        return jnp.sum(z.probs * ndtr(((out + r.mean)[..., None] - self.shift) / spread), axis=-1)


def _pick(rows: Float[Array, "... n K"], z: Array) -> Array:
    """`rows[..., z]` for integers z (..., n)."""
    shape = jnp.broadcast_shapes(rows.shape[:-1], z.shape)
    index = jnp.broadcast_to(z, shape)[..., None]
    return jnp.take_along_axis(jnp.broadcast_to(rows, (*shape, rows.shape[-1])), index, axis=-1)[..., 0]
