"""The Poisson distribution, with a log-Gaussian, Gamma or constant rate."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, GAMMA, Distribution, Lowered, Signature, as_float, on, register
from ..factor import AbstractConjugate, AbstractProjected, AbstractQuadrature, Cavities, Families, Values
from ..families import Gamma, Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.special import is_count, negative_binomial_cdf, poisson_cdf, safe_exp, safe_log, stirling_remainder
from ..quadrature.predictive import threshold_cdf
from ..quadrature.projection import Quadrature, nodes
from .exponential import settle
from .generic import ConstantFactor
from .multiple import with_multiples

_COUNTS = "counts must be non-negative integers"


class PoissonLog(AbstractProjected):
    """`f(z) = Poisson(counts; e^z)`: `l(z) = y z - e^z - log y!`.

    Projection at q = N(m, v), by Bonnet and Price: with `rho = e^{m + v/2}`, `E[l'] = y - rho` and `E[l''] = -rho`,
    hence `eta = (y + (m - 1) rho, -rho/2)`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]

    def log_density(self, z: Array) -> Array:
        return self.counts * z - safe_exp(z) - gammaln(self.counts + 1.0)

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        m = marginal.mean
        rho = safe_exp(m + 0.5 * marginal.variance)
        return Gaussian(self.counts + (m - 1.0) * rho, -0.5 * rho)

    def settle(self, marginal: Gaussian, cavity: Gaussian, leaf: Gaussian, once: Gaussian) -> Gaussian:
        return settle(self.counts, 0.0, marginal, cavity)

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        """About log y, where `y z`, `e^z` and `log y!` are large and nearly cancel: with `u = m - log y`,
        `-y (e^{u + v/2} - 1 - u) - (log y! - y log y + y)`."""
        m, half = marginal.mean, 0.5 * marginal.variance
        y = jnp.maximum(self.counts, 1.0)
        log_y = jnp.log(y)
        u = m - log_y
        near = jnp.abs(u + half) < 1.0
        excess = jnp.expm1(jnp.where(near, u + half, 0.0)) - jnp.where(near, u, 0.0)
        log_factorial = gammaln(self.counts + 1.0)
        close = -y * excess - stirling_remainder(y, log_y, log_factorial)
        far = self.counts * m - safe_exp(m + half) - log_factorial
        return jnp.where(near & (self.counts > 0), close, far)

    def initial(self) -> tuple[Gaussian]:
        rate = self.counts + 0.5  # one count has relative variance 1/rate
        return (Gaussian.from_mean_variance(jnp.log(rate), jnp.minimum(1.0 / rate, 1.0)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_COUNTS: is_count(self.counts)}

    def moments(self, z: Array) -> tuple[Array, Array]:
        return safe_exp(z), safe_exp(z)

    def cdf(self, out: Array, z: Array) -> Array:
        return poisson_cdf(out, safe_exp(z))

    def survival(self, out: Array, z: Array) -> Array:
        """`P(outcome > out | z)`, with the digits of a small one."""
        k, rate = jnp.broadcast_arrays(jnp.floor(out), safe_exp(z))
        return jnp.where(k < 0.0, 1.0, gammainc(jnp.maximum(k, 0.0) + 1.0, rate))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        """`y <= k` exactly if the (k + 1)-th arrival, Gamma(k + 1, 1) at unit rate, comes after `e^z`."""
        (q,) = marginals
        shape = jnp.broadcast_to(jnp.maximum(jnp.floor(out), 0.0) + 1.0, q.batch_shape)
        arrival, log_weights = nodes(Quadrature(), Gamma.from_concentration_rate(shape, jnp.ones_like(shape)))
        inside = threshold_cdf(q, safe_log(arrival), log_weights, lambda z: self.cdf(out, z))
        return jnp.where(out < 0.0, 0.0, inside)


class PoissonRate(AbstractConjugate):
    """`f(tau) = Poisson(counts; tau)`: the Gamma message (y, -1)."""

    interfaces: ClassVar[tuple[str, ...]] = ("tau",)
    families: ClassVar[Families] = (Gamma,)
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]

    def log_density(self, tau: Array) -> Array:
        return self.counts * safe_log(tau) - tau - gammaln(self.counts + 1.0)

    def message(self) -> tuple[Gamma, Array]:
        counts = jnp.asarray(self.counts)
        return Gamma(counts, -jnp.ones_like(counts)), -gammaln(counts + 1.0)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_COUNTS: is_count(self.counts)}

    def moments(self, tau: Array) -> tuple[Array, Array]:
        return tau, tau

    def cdf(self, out: Array, tau: Array) -> Array:
        return poisson_cdf(out, tau)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        """Negative binomial: `I_{b/(b + 1)}(a, k + 1)` under Gamma(a, b)."""
        (q,) = marginals
        return negative_binomial_cdf(out, q.concentration, q.rate / (1.0 + q.rate))


def _lower_constant(out: Any, rate: Any) -> Lowered:
    out, rate = as_float(out), as_float(rate)
    conditions = {_COUNTS: is_count(out), "the rate must be non-negative and finite": (rate >= 0) & jnp.isfinite(rate)}
    value = PoissonRate(out).log_density(rate)
    rate = jnp.broadcast_to(rate, value.shape)
    return Lowered(ConstantFactor(value, rate, rate, conditions, PoissonRate(out), (rate,)), ())


@register
class Poisson(Distribution):
    """`Poisson(rate)` of observed counts: the rate is `exp` of an affine expression, a Gamma variable or constant."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 0, "rate": 0}
    placeholder = 0
    signatures = with_multiples((
        on(PoissonLog, out=CONSTANT, rate=EXP_GAUSSIAN),
        on(PoissonRate, out=CONSTANT, rate=GAMMA),
        Signature({"out": CONSTANT, "rate": CONSTANT}, _lower_constant, ConstantFactor),
    ))  # fmt: skip

    def __init__(self, rate: Any):
        self.arguments = {"rate": rate}

    def draw(self, key: Any, like: Array, rate: Array) -> Array:
        return jax.random.poisson(key, rate, like.shape).astype(like.dtype)
