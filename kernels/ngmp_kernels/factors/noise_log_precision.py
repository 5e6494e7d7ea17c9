"""Zero-mean normal noise of unknown log-precision: `r ~ N(0, e^{-s})`."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array

from ..factor import AbstractQuadrature, Cavities, Families, LogMessage
from ..families import Gaussian
from ..nested import nested_quadrature
from ..numerics.logarithm import log, log1p, softplus
from ..numerics.special import LOG_2PI, safe_exp
from ..quadrature.predictive import lambert, log_precision_nodes, scale_mixture_cdf
from .normal_noise import AbstractNoise, NoisePrecision, safe_log_lanes

_POINTS = 32

# What is given as exp of a Gaussian for the scale -> its log-precision.
LOG_PRECISION = {"precision": lambda s: s, "variance": lambda s: -1.0 * s, "std": lambda s: -2.0 * s}


class NoiseLogPrecision(AbstractNoise):
    """`f(r, s) = N(r; 0, e^{-s})`.

    Toward s, with cavity r ~ N(m, v):  `l(s) = log N(0; m, v + e^{-s})`.
    Toward r, with cavity s ~ N(m, v):  `l(r) = log ∫ N(r; 0, e^{-s}) N(s; m, v) ds`, a one-dimensional integral, by
    the trapezoidal rule on 32 nodes about the mode of the integrand, `s* = m + v/2 - u` with
    `u e^u = (v r^2/2) e^{m + v/2}` (Lambert's W). They reach to where it has fallen by the rounding unit: right to
    1e-11 at v = 1, 1e-8 at v = 2 and 1e-6 at v = 4. Gauss-Hermite nodes at the
    cavity, as in the paper's code, are a thousand times less accurate at v = 1.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "s")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    joins: ClassVar[str] = "asked"  # the paper has an edge for each
    matches: ClassVar[str] = "own"

    def log_density(self, r: Array, s: Array) -> Array:
        return 0.5 * s - 0.5 * LOG_2PI - 0.5 * r * r * safe_exp(s)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        cavity = cavities[1 - j]
        if j == 0:
            return lambda r: self._scale_mixture(r, cavity.mean, cavity.variance)
        m, v = cavity.mean, cavity.variance
        log_v = safe_log_lanes(v)

        def toward_s(s: Array) -> Array:
            log_precision = s - softplus(s + log_v)  # -log(v + e^{-s})
            return 0.5 * log_precision - 0.5 * LOG_2PI - 0.5 * m * (m * safe_exp(log_precision))

        return toward_s

    def _scale_mixture(self, r: Array, m: Array, v: Array) -> Array:
        # The integral does not depend on where its nodes are, so neither do derivatives.
        u, v_fixed = jax.lax.stop_gradient((lambert(r * r, m, v), v))
        shift, (left, right) = 0.5 * v_fixed - u, _reach(u, v_fixed)
        step = (left + right) / (_POINTS - 1)
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
        (total, _), _ = jax.lax.scan(add, start, jnp.arange(_POINTS, dtype=r.dtype), unroll=2)
        at_mode = self.log_density(r, m + shift) - 0.5 * shift * shift / v - 0.5 * jnp.log(v) - 0.5 * LOG_2PI
        return at_mode + log(total * step)

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        """`f^p`: toward s the closed form of `NoisePrecision` at tau = e^s; toward r by quadrature over s."""
        if j == 0:
            message = nested_quadrature(self, 0, cavities, quadrature, power)
            return lambda r: message(r) / power
        fraction = NoisePrecision().fractional_message(1, cavities, power, quadrature)
        return lambda s: fraction(safe_exp(s))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 0:
            s = marginals[1]
            precision = safe_exp(s.mean + 0.5 * s.variance)
            return lambda r: 0.5 * (s.mean - LOG_2PI - precision * r * r)
        _, square = marginals[0].to_mean()
        return lambda s: 0.5 * (s - LOG_2PI - square * safe_exp(s))

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        r, s = marginals
        return 0.5 * (s.mean - LOG_2PI - (r.mean**2 + r.variance) * safe_exp(s.mean + 0.5 * s.variance))

    def joint_expectation(self, mean: Array, covariance: Array) -> Array:
        """`E[r^2 e^s] = E[e^s] ((m_r + c)^2 + v_r)`, with c the covariance of r and s: e^s shifts r by it."""
        (r, s), c = (mean[..., 0], mean[..., 1]), covariance[..., 0, 1]
        square = (r + c) ** 2 + covariance[..., 0, 0]
        return 0.5 * (s - LOG_2PI - square * safe_exp(s + 0.5 * covariance[..., 1, 1]))

    def in_family(self) -> tuple[bool, bool]:
        return True, False

    def moments(self, r: Array, s: Array) -> tuple[Array, Array]:
        mean, variance = jnp.broadcast_arrays(-r, safe_exp(-s))
        return mean, variance

    def score(self, out: Array, r: Array, s: Array) -> Array:
        """`u` with `P(outcome <= out | r, s) = ndtr(u)`."""
        return (out + r) * safe_exp(0.5 * s)

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
