"""Zero-mean normal noise of unknown precision; `noise_log_precision` has the other kernel of unknown scales.

`NoisePrecision` has interfaces (r, tau), `NoiseLogPrecision` (r, s), with `r ~ N(0, 1/tau)` and `r ~ N(0, e^{-s})`.
Mean-precision models, heteroscedastic regression, stochastic volatility and precision hierarchies all reduce to them.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage, integrate_message
from ..families import AbstractFamily, Gamma, Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.logarithm import log, log1p
from ..numerics.special import LOG_2PI, student_t_log_density
from ..quadrature.predictive import scale_mixture_cdf
from ..quadrature.projection import Quadrature, nodes, tangent_projection
from ..quadrature.regression import log_quotient


class AbstractNoise(AbstractProjected):
    """Normal noise r of an unknown scale: what does not depend on how the scale is given."""

    support: ClassVar[str | None] = "real"

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        # Over the scale the integrand is smooth whatever the scale of r; over r it may be narrow for the nodes.
        return integrate_message(self, 1, cavities, quadrature)

    def initial(self) -> tuple[Gaussian, None]:
        # The leaf on r starts at about the prior expectation of the precision: flat, it would leave a random walk
        # of unknown step size untied.
        return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}


class NoisePrecision(AbstractNoise):
    """`f(r, tau) = N(r; 0, 1/tau)`.

    Toward tau, with cavity r ~ N(m, v):  `l(tau) = log N(0; m, v + 1/tau)`.
    Toward r, with cavity tau ~ Gamma(a, b):  `l(r) = log t_{2a}(r; scale^2 = b/a)`, Student's t.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "tau")
    families: ClassVar[Families] = (Gaussian, Gamma)

    def log_density(self, r: Array, tau: Array) -> Array:
        return 0.5 * safe_log_lanes(tau) - 0.5 * LOG_2PI - 0.5 * tau * r * r

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == 0:
            tau = cavities[1]
            a, b = tau.concentration, tau.rate
            return lambda r: student_t_log_density(r, 2.0 * a, 0.5 * jnp.log(b / a))
        r = cavities[0]
        m, v = r.mean, r.variance

        def toward_tau(tau: Array) -> Array:
            precision = tau / (1.0 + v * tau)  # 1/(v + 1/tau), without dividing by a small tau
            return 0.5 * safe_log_lanes(precision) - 0.5 * LOG_2PI - 0.5 * m * (m * precision)  # m may be huge

        return toward_tau

    def peak(self, j: int, cavities: Cavities) -> tuple[Array, Array] | None:
        """Toward r: `(1 + r^2 / 2b)^{-a - 1/2}`."""
        rate = cavities[1].rate
        return (jnp.zeros_like(rate), jnp.sqrt(2.0 * rate)) if j == 0 else None

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        """Without constants, which project to nothing: toward r two gamma functions to a factor; toward tau relative to
        the mean $t$, `l(tau) - l(t) = {log(tau/t) - log(u) - (m^2 t / s^2) (tau/t - 1) / u} / 2` with s = 1 + v t and
        u = (1 + v tau) / s.
        """
        if j == 0:
            a, b = cavities[1].concentration, cavities[1].rate
            return tangent_projection(marginal, lambda r: -(a + 0.5) * log1p(0.5 * r * r / b), quadrature)
        (m, v), mean = (cavities[0].mean, cavities[0].variance), marginal.mean
        spread = 1.0 + v * mean
        square = (m / spread) ** 2 * mean  # of a flat cavity, m and v are huge

        def toward_tau(tau: Array) -> Array:
            u = (1.0 + v * tau) / spread
            return 0.5 * (log_quotient(tau, mean) - log(u) - square * ((tau - mean) / mean) / u)

        return tangent_projection(marginal, toward_tau, quadrature, centred=True)

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        """With `f^p = (2 pi)^{-p/2} tau^{p/2} e^{-p tau r^2/2}`, both integrals stay in closed form:

        toward tau: `tau^{p/2} (1 + p v tau)^{-1/2} exp{-p tau m^2 / (2 (1 + p v tau))}`,
        toward r: `Γ(a + p/2) / Γ(a) b^a / (b + p r^2/2)^{a + p/2}`.
        """
        p = power
        if j == 0:
            a, b = cavities[1].concentration, cavities[1].rate
            constant = gammaln(a + 0.5 * p) - gammaln(a) - 0.5 * p * jnp.log(b) - 0.5 * p * LOG_2PI
            return lambda r: (constant - (a + 0.5 * p) * log1p(0.5 * p * r * r / b)) / p
        m, v = cavities[0].mean, cavities[0].variance

        def toward_tau(tau: Array) -> Array:
            spread = 1 + p * v * tau
            return 0.5 * (safe_log_lanes(tau) - LOG_2PI - log1p(p * v * tau) / p - m * (m * tau / spread))

        return toward_tau

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 0:
            log_tau, tau = marginals[1].to_mean()
            return lambda r: 0.5 * (log_tau - LOG_2PI - tau * r * r)
        _, square = marginals[0].to_mean()
        return lambda tau: 0.5 * (safe_log_lanes(tau) - LOG_2PI - square * tau)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> Gaussian | Gamma:
        """Toward r: precision `E[tau]`. Toward tau: `(1/2, -E[r^2]/2)`."""
        if j == 0:
            _, tau = marginals[1].to_mean()
            return Gaussian(jnp.zeros_like(tau), -0.5 * tau)
        _, square = marginals[0].to_mean()
        return Gamma(jnp.full_like(square, 0.5), -0.5 * square)

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        (_, square), (log_tau, tau) = marginals[0].to_mean(), marginals[1].to_mean()
        return 0.5 * (log_tau - LOG_2PI - square * tau)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def moments(self, r: Array, tau: Array) -> tuple[Array, Array]:
        mean, variance = jnp.broadcast_arrays(-r, 1.0 / tau)
        return mean, variance

    def score(self, out: Array, r: Array, tau: Array) -> Array:
        """`u` with `P(outcome <= out | r, tau) = ndtr(u)`."""
        return (out + r) * jnp.sqrt(tau)

    def cdf(self, out: Array, r: Array, tau: Array) -> Array:
        return ndtr((out + r) * jnp.sqrt(tau))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        r, tau = marginals
        return -r.mean, r.variance, mean_variance(tau)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        r, tau = marginals
        t, log_weights = nodes(Quadrature(), tau)
        return scale_mixture_cdf(out, r, safe_log_lanes(t), log_weights)


def safe_log_lanes(x: Array) -> Array:
    """`safe_log` by the logarithm that fills vector registers."""
    return log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def mean_variance(tau: Gamma) -> Array:
    """`E[1/tau] = b/(a - 1)`, infinite for a <= 1."""
    finite = tau.concentration > 1.0
    return jnp.where(finite, tau.rate / jnp.where(finite, tau.concentration - 1.0, 1.0), jnp.inf)
