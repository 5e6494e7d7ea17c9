r"""Gamma likelihoods: `Gamma(concentration, mean=exp(f))`, or a rate or scale of such a form, of positive outcomes.

With $w = \log y - f$, the logarithm of the outcome over its mean, and a the concentration,

$$ l = a (1 + w - e^w) - S(a) - \log y, \qquad S(a) = \log\Gamma(a) - a \log a + a. $$

An unknown concentration $a = e^k$ is projected together with w: all but $E[S]$ is
closed. With a known one the factor is that of other positive outcomes, `PowerGamma` of power one.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, Lowered, Signature, as_float
from ..factor import AbstractProjected, Families, Values
from ..families import Gaussian
from ..numerics.gamma_functions import stirling_error
from ..numerics.special import safe_exp
from ..quadrature.nodes import hermite
from .positive import PowerGamma

_POSITIVE = "outcomes must be positive and finite"


def over_gaussian(g: Any, mean: Array, variance: Array, points: int = 32) -> Array:
    """`E[g(k)]` of `k ~ N(mean, variance)`, by Hermite nodes on a leading axis."""
    u, log_weights = (jnp.asarray(x, mean.dtype).reshape(-1, *(1,) * mean.ndim) for x in hermite(points))
    return jnp.sum(jnp.exp(log_weights) * g(mean + jnp.sqrt(variance) * u), 0)


class GammaLogs(AbstractProjected):
    """`f(k, w) = Gamma(y; concentration e^k, mean y e^{-w})`."""

    interfaces: ClassVar[tuple[str, ...]] = ("k", "w")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    joins: ClassVar[str] = "always"
    support: ClassVar[str | None] = "positive"
    relative: ClassVar[bool] = True
    out: Float[Values, " #n"]

    def given(self, k: Array, w: Array) -> tuple[PowerGamma, Array]:
        """The factor of a known concentration e^k, and the logarithm of the rate there."""
        k, w = jnp.broadcast_arrays(k, w)
        out = jnp.asarray(self.out)
        return PowerGamma(out, safe_exp(k), np.ones(1, out.dtype)), w + k - jnp.log(out)  # type: ignore[arg-type]

    def log_density(self, k: Array, w: Array) -> Array:
        a = safe_exp(k)
        return a * (1.0 + w - safe_exp(w)) - stirling_error(a) - jnp.log(jnp.asarray(self.out))

    def joint_expectation(self, mean: Array, covariance: Array) -> Array:
        """Weighting by e^k shifts w by their covariance."""
        (k, w), c = (mean[..., 0], mean[..., 1]), covariance[..., 0, 1]
        v_k, v_w = covariance[..., 0, 0], covariance[..., 1, 1]
        a, out = safe_exp(k + 0.5 * v_k), jnp.asarray(self.out)
        error = over_gaussian(lambda k: stirling_error(safe_exp(k)), k, v_k)
        return a * (1.0 + w + c - safe_exp(w + c + 0.5 * v_w)) - error - jnp.log(out)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_POSITIVE: (self.out > 0.0) & jnp.isfinite(self.out)}

    def moments(self, k: Array, w: Array) -> tuple[Array, Array]:
        factor, u = self.given(k, w)
        return factor.moments(u)

    def cdf(self, out: Array, k: Array, w: Array) -> Array:
        factor, u = self.given(k, w)
        return factor.cdf(out, u)


# What is given as exp of a Gaussian -> w, with z = log y.
_LOG_RATIO = {
    "mean": lambda z, f, k: z - f,
    "rate": lambda z, g, k: z + g - k,
    "scale": lambda z, h, k: z - h - k,
}


def _lower(out: Any, concentration: Any, **given: Any) -> Lowered:
    """Of a known concentration: the logarithm of the rate."""
    ((name, value),) = given.items()
    a, out = as_float(concentration), as_float(out)
    log_rate = {"rate": lambda g: g, "scale": lambda h: -h, "mean": lambda f: jnp.log(a) - f}[name](value)
    return Lowered(PowerGamma(out, a, np.ones(1, out.dtype)), (log_rate,))  # type: ignore[arg-type]


def _lower_both(out: Any, concentration: Any, **given: Any) -> Lowered:
    ((name, value),) = given.items()
    if isinstance(value, (jax.Array, np.ndarray)):  # a known rate, scale or mean
        value = jnp.log(as_float(value))
    out = as_float(out)
    log_out = jnp.log(jnp.maximum(out, jnp.finfo(out.dtype).tiny))
    return Lowered(GammaLogs(out), (concentration, _LOG_RATIO[name](log_out, value, concentration)))


SIGNATURES = (
    *(Signature({"out": CONSTANT, "concentration": CONSTANT, k: EXP_GAUSSIAN}, _lower, PowerGamma)
      for k in _LOG_RATIO),
    *(Signature({"out": CONSTANT, "concentration": EXP_GAUSSIAN, k: CONSTANT | EXP_GAUSSIAN}, _lower_both, GammaLogs)
      for k in _LOG_RATIO),
)  # fmt: skip
