r"""Logarithms of HalfNormal and HalfCauchy variables: scales that are not integrated, plates of them (the horseshoe).

With $z = \log x - \log s$, s the scale: $l(z) = z - e^{2z}/2 + \log(2/\pi)/2$, and $l(z) = -\log(\pi \cosh z)$. A scale
x is then `exp` of a Gaussian variable, as in `Normal(m, std=x)`, and so may s be.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, Lowered, Signature, register
from ..factor import AbstractProjected, Families, Values
from ..families import Gaussian
from ..numerics.special import safe_exp, safe_log
from .likelihood import AbstractLikelihood


class _LogHalf(AbstractProjected):
    """A density of the logarithm of a scale in units of another; without parameters."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    centre: ClassVar[tuple[float, float]]
    """Mean and variance of z."""

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def initial(self) -> tuple[Gaussian]:
        mean, variance = self.centre
        return (Gaussian.from_mean_variance(jnp.full(1, mean), jnp.full(1, variance)),)

    def moments(self, r: Array) -> tuple[Array, Array]:
        mean, variance = self.centre
        return mean - r, jnp.full_like(r, variance)


class LogHalfNormal(_LogHalf):
    """`f(r) = p(e^r) e^r` of a half-normal of scale one."""

    centre: ClassVar[tuple[float, float]] = (-0.6351814227307391, float(np.pi**2 / 8))

    def log_density(self, r: Array) -> Array:
        return r - 0.5 * safe_exp(2.0 * r) + 0.5 * float(np.log(2 / np.pi))

    def cdf(self, out: Array, r: Array) -> Array:
        return 2.0 * ndtr(safe_exp(out + r)) - 1.0


class LogHalfCauchy(_LogHalf):
    """`f(r) = sech(r) / pi`."""

    centre: ClassVar[tuple[float, float]] = (0.0, float(np.pi**2 / 4))

    def log_density(self, r: Array) -> Array:
        return float(np.log(2 / np.pi)) + r - jax.nn.softplus(2.0 * r)

    def cdf(self, out: Array, r: Array) -> Array:
        return 2 / np.pi * jnp.arctan(safe_exp(out + r))


_KERNELS = {"normal": LogHalfNormal, "cauchy": LogHalfCauchy}


class HalfCauchyScale(AbstractLikelihood):
    """`f(u) = HalfCauchy(out; scale=e^u)`: sech of `log out - u`."""

    interfaces: ClassVar[tuple[str, ...]] = ("u",)
    support: ClassVar[str | None] = "positive"
    out: Float[Values, " #n"]

    def log_density(self, u: Array) -> Array:
        log_out = safe_log(jnp.asarray(self.out))
        return float(np.log(2 / np.pi)) - u - jax.nn.softplus(2.0 * (log_out - u))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"outcomes must be positive and finite": (self.out > 0.0) & jnp.isfinite(self.out)}

    def cdf(self, out: Array, u: Array) -> Array:
        return 2.0 / np.pi * jnp.arctan(jnp.maximum(out, 0.0) * safe_exp(-u))

    def moments(self, u: Array) -> tuple[Array, Array]:
        """Infinite."""
        return jnp.full_like(u, jnp.inf), jnp.full_like(u, jnp.inf)


def _signature(shape: str) -> Signature:
    def lower(out: Any, log_scale: Any) -> Lowered:
        return Lowered(_KERNELS[shape](), (out - log_scale,))

    return Signature({"out": GAUSSIAN, "log_scale": CONSTANT | GAUSSIAN}, lower, _KERNELS[shape])


class _LogHalfDistribution(Distribution):
    __slots__ = ()
    family = Gaussian
    event_ndims: ClassVar = {"out": 0, "log_scale": 0}
    placeholder = 0.0

    def __init__(self, log_scale: Any):
        self.arguments = {"log_scale": log_scale}


@register
class LogOfHalfNormal(_LogHalfDistribution):
    """`LogOfHalfNormal(log_scale)`: the logarithm of a HalfNormal variable, with a Gaussian marginal."""

    __slots__ = ()
    signatures = (_signature("normal"),)

    def draw(self, key: Any, like: Array, log_scale: Array) -> Array:
        return log_scale + jnp.log(jnp.abs(jax.random.normal(key, like.shape, like.dtype)))


@register
class LogOfHalfCauchy(_LogHalfDistribution):
    """`LogOfHalfCauchy(log_scale)`: the logarithm of a HalfCauchy variable, with a Gaussian marginal."""

    __slots__ = ()
    signatures = (_signature("cauchy"),)

    def draw(self, key: Any, like: Array, log_scale: Array) -> Array:
        return log_scale + jnp.log(jnp.abs(jax.random.cauchy(key, like.shape, like.dtype)))


def log_scale(scale: Any) -> Any:
    """The logarithm of a constant, or of `exp(z)`."""
    if getattr(scale, "is_expression", False):
        return np.log(scale)
    return float(np.log(scale)) if isinstance(scale, (int, float)) and scale > 0 else jnp.log(scale)
