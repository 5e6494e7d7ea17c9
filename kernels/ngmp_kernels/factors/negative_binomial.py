"""The negative binomial distribution of observed counts, by its mean and dispersion."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, Distribution, Lowered, Signature, as_float, on, register
from ..factor import AbstractProjected, Cavities, Families, Values
from ..families import Beta, Gaussian
from ..numerics.gamma_functions import gammaln, log_gamma_ratio
from ..numerics.logarithm import softplus
from ..numerics.special import is_count, negative_binomial_cdf, safe_exp, safe_log
from ..quadrature.predictive import over_nodes, threshold_cdf
from ..quadrature.projection import Quadrature, nodes
from .generic import ConstantFactor
from .logistic import AbstractLogistic


class NegativeBinomialLog(AbstractLogistic):
    """`f(z) = NegativeBinomial(counts; mean e^z, dispersion phi)`.

    With `u = z - log phi`:
    `l(z) = log Gamma(y + phi) - log Gamma(phi) - log y! - y softplus(-u) - phi softplus(u)`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]
    dispersion: Float[Values, " #n"]

    def log_density(self, z: Array) -> Array:
        y, phi = self.counts, self.dispersion
        u = z - jnp.log(phi)
        # -log B(phi, y + 1) - log(y + phi): the gamma functions of a large count, apart, would leave no digits.
        low, high = jnp.minimum(phi, y + 1.0), jnp.maximum(phi, y + 1.0)
        constant = log_gamma_ratio(high, low) - gammaln(low) - jnp.log(y + phi)
        return constant - y * softplus(-u) - phi * softplus(u)

    def line(self) -> tuple[Array, Array, Array]:
        dispersion = jnp.asarray(self.dispersion)
        return jnp.asarray(self.counts), dispersion, jnp.log(dispersion)

    def initial(self) -> tuple[Gaussian]:
        rate = self.counts + 0.5
        variance = jnp.minimum(1.0 / rate + 1.0 / self.dispersion, 1.0)  # relative variance of one count
        return (Gaussian.from_mean_variance(jnp.broadcast_to(jnp.log(rate), variance.shape), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {
            "counts must be non-negative integers": is_count(self.counts),
            "the dispersion must be positive and finite": (self.dispersion > 0.0) & jnp.isfinite(self.dispersion),
        }

    def moments(self, z: Array) -> tuple[Array, Array]:
        mean = safe_exp(z)
        return mean, mean + mean * (mean / self.dispersion)

    def cdf(self, out: Array, z: Array) -> Array:
        return negative_binomial_cdf(out, self.dispersion, jax.nn.sigmoid(jnp.log(self.dispersion) - z))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        """`y <= k` exactly if `phi/(phi + e^z)` exceeds a Beta(phi, k + 1) variable B: z < log phi - logit B."""
        (q,) = marginals
        b = jnp.broadcast_to(jnp.maximum(jnp.floor(out), 0.0) + 1.0, q.batch_shape)
        phi = jnp.broadcast_to(self.dispersion, q.batch_shape)
        p, log_weights = nodes(Quadrature(), Beta.from_ab(phi, b))
        inside = threshold_cdf(q, jnp.log(phi) - logit(p), log_weights, lambda z: self.cdf(out, z))
        return jnp.where(out < 0.0, 0.0, inside)


class NegativeBinomialLogs(AbstractProjected):
    """`f(z, d) = NegativeBinomial(counts; mean e^z, dispersion e^d)`: log-mean and log-dispersion."""

    interfaces: ClassVar[tuple[str, ...]] = ("z", "d")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    joins: ClassVar[str] = "always"
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]

    def given(self, d: Array) -> NegativeBinomialLog:
        """The factor of a known dispersion e^d."""
        return NegativeBinomialLog(self.counts, safe_exp(d))

    def log_density(self, z: Array, d: Array) -> Array:
        return self.given(d).log_density(z)

    def initial(self) -> tuple[Gaussian, None]:
        return *self.given(jnp.zeros(1)).initial(), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"counts must be non-negative integers": is_count(self.counts)}

    def moments(self, z: Array, d: Array) -> tuple[Array, Array]:
        z, d = jnp.broadcast_arrays(z, d)
        return self.given(d).moments(z)

    def cdf(self, out: Array, z: Array, d: Array) -> Array:
        return self.given(d).cdf(out, z)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        z, d = marginals
        each, log_weights = over_nodes(d, lambda d: self.given(d).predictive_cdf(out, (z,)))
        return jnp.sum(jnp.exp(log_weights) * each, 0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        z, d = marginals
        each, log_weights = over_nodes(d, lambda d: self.given(d).predictive_log_density((z,)))
        return jax.nn.logsumexp(log_weights + each, 0)


def _lower_constant(out: Any, mean: Any, dispersion: Any) -> Lowered:
    factor, mean = NegativeBinomialLog(as_float(out), as_float(dispersion)), as_float(mean)
    conditions = {**factor.checks(), "the mean must be non-negative and finite": (mean >= 0.0) & jnp.isfinite(mean)}
    z = safe_log(mean)
    value = factor.log_density(z)
    moments = factor.moments(jnp.broadcast_to(z, value.shape))
    return Lowered(ConstantFactor(value, *moments, conditions, factor, (z,)), ())


@register
class NegativeBinomial(Distribution):
    """`NegativeBinomial(mean=, dispersion=)`: the mean is `exp` of an affine expression, or constant; so may the
    dispersion be of such a mean.

    The variance is mean + mean^2/dispersion; a large dispersion gives the Poisson distribution.
    """

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 0, "mean": 0, "dispersion": 0}
    placeholder = 0
    signatures = (
        on(NegativeBinomialLog, out=CONSTANT, mean=EXP_GAUSSIAN, dispersion=CONSTANT),
        Signature({"out": CONSTANT, "mean": CONSTANT, "dispersion": CONSTANT}, _lower_constant, ConstantFactor),
        on(NegativeBinomialLogs, out=CONSTANT, mean=EXP_GAUSSIAN, dispersion=EXP_GAUSSIAN),
    )

    def __init__(self, *, mean: Any, dispersion: Any):
        self.arguments = {"mean": mean, "dispersion": dispersion}

    def draw(self, key: Any, like: Array, mean: Array, dispersion: Array) -> Array:
        """Poisson counts of a rate that is Gamma."""
        one, other = jax.random.split(key)
        rate = mean / dispersion * jax.random.gamma(one, dispersion, like.shape, like.dtype)
        return jax.random.poisson(other, rate, like.shape).astype(like.dtype)
