"""Zero-mean normal noise of unknown scale: the two kernels behind unknown precisions and log-precisions.

`NoisePrecision` has interfaces (r, tau), `NoiseLogPrecision` (r, s), with `r ~ N(0, 1/tau)` and `r ~ N(0, e^{-s})`.
Mean-precision models, heteroscedastic regression, stochastic volatility and precision hierarchies all reduce to them.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool

from ..factor import AbstractProjected, Cavities, Families, LogMessage, Rule, integrate_message, nested_quadrature
from ..families import AbstractFamily, Gamma, Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.logarithm import log, log1p, softplus
from ..numerics.special import LOG_2PI, safe_exp, student_t_log_density
from ..oracle import Case, oracle_case, some_gamma, some_gaussian
from ..quadrature.predictive import lambert, log_precision_nodes, scale_mixture_cdf
from ..quadrature.projection import Quadrature, nodes, tangent_projection
from ..quadrature.regression import log_quotient


class NoisePrecision(AbstractProjected):
    """`f(r, tau) = N(r; 0, 1/tau)`.

    Toward tau, with cavity r ~ N(m, v):  `l(tau) = log N(0; m, v + 1/tau)`.
    Toward r, with cavity tau ~ Gamma(a, b):  `l(r) = log t_{2a}(r; scale^2 = b/a)`, Student's t.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "tau")
    families: ClassVar[Families] = (Gaussian, Gamma)
    support: ClassVar[str | None] = "real"

    def log_density(self, r: Array, tau: Array) -> Array:
        return 0.5 * _safe_log(tau) - 0.5 * LOG_2PI - 0.5 * tau * r * r

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if j == 0:
            tau = cavities[1]
            a, b = tau.concentration, tau.rate
            return lambda r: student_t_log_density(r, 2.0 * a, 0.5 * jnp.log(b / a))
        r = cavities[0]
        m, v = r.mean, r.variance

        def toward_tau(tau: Array) -> Array:
            precision = tau / (1.0 + v * tau)  # 1/(v + 1/tau), without dividing by a small tau
            return 0.5 * _safe_log(precision) - 0.5 * LOG_2PI - 0.5 * m * m * precision

        return toward_tau

    def project(self, j: int, marginal: AbstractFamily, cavities: Cavities, rule: Rule) -> AbstractFamily:
        """Without constants, which project to nothing: toward r two gamma functions to a factor; toward tau relative to
        the mean $t$, `l(tau) - l(t) = {log(tau/t) - log(u) - (m^2 t / s^2) (tau/t - 1) / u} / 2` with s = 1 + v t and
        u = (1 + v tau) / s.
        """
        if j == 0:
            a, b = cavities[1].concentration, cavities[1].rate
            return tangent_projection(marginal, lambda r: -(a + 0.5) * log1p(0.5 * r * r / b), rule)
        (m, v), mean = (cavities[0].mean, cavities[0].variance), marginal.mean
        spread = 1.0 + v * mean
        square = m * m * mean / spread**2

        def toward_tau(tau: Array) -> Array:
            u = (1.0 + v * tau) / spread
            return 0.5 * (log_quotient(tau, mean) - log(u) - square * ((tau - mean) / mean) / u)

        return tangent_projection(marginal, toward_tau, rule, centred=True)

    def fractional_message(self, j: int, cavities: Cavities, power: float, rule: Rule) -> LogMessage:
        """With `f^p = (2 pi)^{-p/2} tau^{p/2} e^{-p tau r^2/2}`, both integrals stay in closed form:

        toward tau: `tau^{p/2} (1 + p v tau)^{-1/2} exp{-p tau m^2 / (2 (1 + p v tau))}`,
        toward r: `Γ(a + p/2) / Γ(a) b^a / (b + p r^2/2)^{a + p/2}`.
        """
        del rule
        p = power
        if j == 0:
            a, b = cavities[1].concentration, cavities[1].rate
            constant = gammaln(a + 0.5 * p) - gammaln(a) - 0.5 * p * jnp.log(b) - 0.5 * p * LOG_2PI
            return lambda r: (constant - (a + 0.5 * p) * log1p(0.5 * p * r * r / b)) / p
        m, v = cavities[0].mean, cavities[0].variance

        def toward_tau(tau: Array) -> Array:
            spread = 1 + p * v * tau
            return 0.5 * (_safe_log(tau) - LOG_2PI - log1p(p * v * tau) / p - m * m * tau / spread)

        return toward_tau

    def mean_field_message(self, j: int, marginals: Cavities, rule: Rule) -> LogMessage:
        del rule
        if j == 0:
            log_tau, tau = marginals[1].to_mean()
            return lambda r: 0.5 * (log_tau - LOG_2PI - tau * r * r)
        _, square = marginals[0].to_mean()
        return lambda tau: 0.5 * (_safe_log(tau) - LOG_2PI - square * tau)

    def mean_field_projection(self, j: int, marginals: Cavities, rule: Rule) -> Gaussian | Gamma:
        """Toward r: precision `E[tau]`. Toward tau: `(1/2, -E[r^2]/2)`."""
        del rule
        if j == 0:
            _, tau = marginals[1].to_mean()
            return Gaussian(jnp.zeros_like(tau), -0.5 * tau)
        _, square = marginals[0].to_mean()
        return Gamma(jnp.full_like(square, 0.5), -0.5 * square)

    def expected_log_density(self, marginals: Cavities, rule: Rule) -> Array:
        del rule
        (_, square), (log_tau, tau) = marginals[0].to_mean(), marginals[1].to_mean()
        return 0.5 * (log_tau - LOG_2PI - square * tau)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def log_evidence(self, cavities: Cavities, rule: Rule) -> Array:
        # Over tau the integrand is smooth on any scale of r; over r a Student-t may be narrow for the nodes.
        return integrate_message(self, 1, cavities, rule)

    def initial(self) -> tuple[Gaussian, None]:
        # The leaf on r starts at about the prior expectation of the precision: flat, it would leave a random walk
        # of unknown step size untied.
        return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, r: Array, tau: Array) -> tuple[Array, Array]:
        mean, variance = jnp.broadcast_arrays(-r, 1.0 / tau)
        return mean, variance

    def cdf(self, out: Array, r: Array, tau: Array) -> Array:
        return ndtr((out + r) * jnp.sqrt(tau))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        r, tau = marginals
        return -r.mean, r.variance, mean_variance(tau)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        r, tau = marginals
        t, log_weights = nodes(Quadrature(), tau)
        return scale_mixture_cdf(out, r, _safe_log(t), log_weights)


class NoiseLogPrecision(AbstractProjected):
    """`f(r, s) = N(r; 0, e^{-s})`.

    Toward s, with cavity r ~ N(m, v):  `l(s) = log N(0; m, v + e^{-s})`. With a cavity `exp{h r - λ r^2/2}`, λ of any
    sign, it is `h^2 / 2(e^s + λ) - log(1 + λ e^{-s})/2` up to a constant, while e^s > -λ: the factor itself ties r.
    So in a hierarchy, where all that is known of the residual of s_l, this factor apart, is one message, flat or worse
    for a row that has its own noise, nothing jumps as λ passes zero.
    Toward r, with cavity s ~ N(m, v):  `l(r) = log ∫ N(r; 0, e^{-s}) N(s; m, v) ds`, a one-dimensional integral, by
    the trapezoidal rule on `points` nodes about the mode of the integrand, `s* = m + v/2 - u` with
    `u e^u = (v r^2/2) e^{m + v/2}` (Lambert's W). They reach to where it has fallen by the rounding unit: right to
    1e-11 at v = 1, 1e-8 at v = 2 and 1e-6 at v = 4. `centred=False` gives Gauss-Hermite nodes at the cavity, as in the
    paper's code, a thousand times less accurate at v = 1.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "s")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    support: ClassVar[str | None] = "real"
    points: int = eqx.field(static=True, default=32)
    centred: bool = eqx.field(static=True, default=True)

    def log_density(self, r: Array, s: Array) -> Array:
        return 0.5 * s - 0.5 * LOG_2PI - 0.5 * r * r * safe_exp(s)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        cavity = cavities[1 - j]
        if j == 0:
            return lambda r: self._scale_mixture(r, cavity.mean, cavity.variance)
        proper, h, lam = cavity.is_proper(), cavity.eta1, -2.0 * cavity.eta2
        known = Gaussian(h, jnp.where(proper, cavity.eta2, -0.5))
        m, v = known.mean, known.variance
        log_v, least = _safe_log(v), jnp.where(proper, 0.0, -2.0 * lam)

        def toward_s(s: Array) -> Array:
            log_precision = s - softplus(s + log_v)  # -log(v + e^{-s})
            ordinary = 0.5 * log_precision - 0.5 * LOG_2PI - 0.5 * m * m * safe_exp(log_precision)
            precision = jnp.maximum(safe_exp(s), least)  # flat beyond where `message_exists` looks
            ratio = jnp.where(proper, 0.0, lam / jnp.where(proper, 1.0, precision))
            extended = 0.5 * h * h / jnp.where(proper, 1.0, precision + lam) - 0.5 * log1p(ratio)
            return jnp.where(proper, ordinary, extended)

        return toward_s

    def message_exists(self, j: int, marginal: Any, cavities: Cavities) -> Bool[Array, " n"]:
        cavity = cavities[1 - j]
        if j == 0:
            return cavity.is_proper()
        return cavity.is_proper() | (4.0 * cavity.eta2 < safe_exp(marginal.mean - 4.0 * marginal.std))

    def _scale_mixture(self, r: Array, m: Array, v: Array) -> Array:
        if not self.centred:
            x, w = np.polynomial.hermite.hermgauss(self.points)
            x, log_w = (jnp.asarray(c, r.dtype) for c in (x, np.log(w) + x * x))
            place = (slice(None), *(None,) * r.ndim)
            d = jax.lax.stop_gradient(jnp.sqrt(2.0 * v)) * x[place]  # s - m at the nodes
            log_f = self.log_density(r, m + d) - 0.5 * d * d / v - 0.5 * jnp.log(v) - 0.5 * LOG_2PI
            return jax.nn.logsumexp(log_w[place] + log_f, axis=0) + 0.5 * jnp.log(2.0 * v)
        # The integral does not depend on where its nodes are, so neither do derivatives.
        u, v_fixed = jax.lax.stop_gradient((lambert(r * r, m, v), v))
        shift, (left, right) = 0.5 * v_fixed - u, _reach(u, v_fixed)
        step = (left + right) / (self.points - 1)
        # Relative to the mode, s* = m + shift, the sum needs no search for its largest term: at s* + delta,
        # log f = delta/2 - a (e^delta - 1) - (delta^2 + 2 shift delta)/(2v) with a = r^2 e^{s*} / 2.
        a, slope, curvature = 0.5 * r * r * safe_exp(m + shift), 0.5 - shift / v, 0.5 / v
        ratio = jnp.exp(step)

        def add(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], None]:
            total, grown = carry  # grown: e^delta, from node to node by a product
            delta = k * step - left
            log_f = delta * (slope - curvature * delta) - a * (grown - 1.0)
            return (total + jnp.exp(log_f), grown * ratio), None

        start = jnp.zeros_like(a), jnp.broadcast_to(jnp.exp(-left), a.shape)
        (total, _), _ = jax.lax.scan(add, start, jnp.arange(self.points, dtype=r.dtype), unroll=2)
        at_mode = self.log_density(r, m + shift) - 0.5 * shift * shift / v - 0.5 * jnp.log(v) - 0.5 * LOG_2PI
        return at_mode + log(total * step)

    def fractional_message(self, j: int, cavities: Cavities, power: float, rule: Rule) -> LogMessage:
        """`f^p`: toward s the closed form of `NoisePrecision` at tau = e^s; toward r by quadrature over s."""
        if j == 0:
            message = nested_quadrature(self, 0, cavities, rule, power)
            return lambda r: message(r) / power
        fraction = NoisePrecision().fractional_message(1, cavities, power, rule)
        return lambda s: fraction(safe_exp(s))

    def mean_field_message(self, j: int, marginals: Cavities, rule: Rule) -> LogMessage:
        del rule
        if j == 0:
            s = marginals[1]
            precision = safe_exp(s.mean + 0.5 * s.variance)
            return lambda r: 0.5 * (s.mean - LOG_2PI - precision * r * r)
        _, square = marginals[0].to_mean()
        return lambda s: 0.5 * (s - LOG_2PI - square * safe_exp(s))

    def expected_log_density(self, marginals: Cavities, rule: Rule) -> Array:
        del rule
        r, s = marginals
        return 0.5 * (s.mean - LOG_2PI - (r.mean**2 + r.variance) * safe_exp(s.mean + 0.5 * s.variance))

    def in_family(self) -> tuple[bool, bool]:
        return True, False

    def log_evidence(self, cavities: Cavities, rule: Rule) -> Array:
        # Over s the integrand varies on the scale of s, whatever the scale of r is.
        return integrate_message(self, 1, cavities, rule)

    def initial(self) -> tuple[Gaussian, None]:
        # The leaf on r starts at about the prior expectation of the precision: flat, it would leave a random walk
        # of unknown step size untied.
        return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, r: Array, s: Array) -> tuple[Array, Array]:
        mean, variance = jnp.broadcast_arrays(-r, safe_exp(-s))
        return mean, variance

    def cdf(self, out: Array, r: Array, s: Array) -> Array:
        return ndtr((out + r) * safe_exp(0.5 * s))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        r, s = marginals
        return -r.mean, r.variance, safe_exp(0.5 * s.variance - s.mean)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        r, s = marginals
        return scale_mixture_cdf(out, r, *log_precision_nodes(s))

    def predictive_log_density(self, marginals: Cavities) -> Array:
        r, s = marginals
        z, log_weights = log_precision_nodes(s, r.mean**2)
        return jax.nn.logsumexp(log_weights + self.log_message(1, marginals)(z), axis=0)


def _reach(u: Array, v: Array) -> tuple[Array, Array]:
    """How far to the left and to the right of its mode the integrand of a scale mixture matters.

    Its logarithm falls by `D(d) = {u (e^d - 1 - d) + d^2/2} / v`, to -c at no more than what is returned: to the left
    `e^-L - 1 + L` is at least `L - 1` and `L^2 / (2 + L)`, to the right `e^R - 1 - R` at least `R^2 / 2`. In single
    precision, like all that only places nodes.
    """
    dtype, c = u.dtype, -float(np.log(jnp.finfo(u.dtype).eps)) - 2.0
    u, v = u.astype(jnp.float32), jnp.clip(v, 1e-30, 1e30).astype(jnp.float32)
    twice = 2.0 * c * v
    far = (2.0 * u + twice) / (jnp.sqrt(u * u + 2.0 * u + twice) + u)
    left = far
    for _ in range(2):  # descends to where `u L^2 / (2 + L) + L^2 / 2 = c v`
        left = jnp.sqrt(twice / (1.0 + 2.0 * u / (2.0 + left)))
    ratio = c * v / u
    right = jnp.minimum(jnp.sqrt(twice / (1.0 + u)), log1p(ratio + jnp.sqrt(2.0 * ratio)))
    return jnp.minimum(left, far).astype(dtype), right.astype(dtype)


def _safe_log(x: Array) -> Array:
    return log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def mean_variance(tau: Gamma) -> Array:
    """`E[1/tau] = b/(a - 1)`, infinite for a <= 1."""
    finite = tau.concentration > 1.0
    return jnp.where(finite, tau.rate / jnp.where(finite, tau.concentration - 1.0, 1.0), jnp.inf)


def _precision_case(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (some_gaussian(k1, dtype), some_gamma(k2, dtype))
    return Case(NoisePrecision(), cavities, (some_gaussian(k3, dtype), some_gamma(k4, dtype, 4.0)))


def _log_precision_case(key: Any, dtype: Any) -> Case:
    k1, k2, k3, k4 = jax.random.split(key, 4)
    cavities = (some_gaussian(k1, dtype), some_gaussian(k2, dtype))
    return Case(NoiseLogPrecision(), cavities, (some_gaussian(k3, dtype, 0.25), some_gaussian(k4, dtype, 0.3)))


oracle_case(NoisePrecision, _precision_case)
oracle_case(NoiseLogPrecision, _log_precision_case)
