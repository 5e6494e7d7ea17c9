"""Densities of one number: priors of hyperparameters that are integrated (`integrate=...`), and likelihoods.

With constant parameters no message rule touches them. Where one of the `kernels` fits, a parameter may be random, and
the outcome latent. Scales go by keyword, as everywhere.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..distribution import (
    CONSTANT,
    EXP_GAUSSIAN,
    GAMMA,
    GAUSSIAN,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    reciprocal,
    register,
)
from ..families import Gaussian
from .gamma import Gamma
from .location import LaplaceNoise, LogNormalNoise
from .log_half import HalfCauchyScale, LogOfHalfCauchy, LogOfHalfNormal, log_scale
from .multiple import with_multiples
from .normal import Normal
from .positive import GammaRate, PowerGamma
from .prior import AbstractPrior
from .student_t import StudentTNoise


def _half_normal(out: Any, std: Any) -> Lowered:
    """`out^2` is Gamma(1/2) with rate `1 / (2 std^2)`."""
    out = as_float(out)
    shape = np.full(1, 0.5, out.dtype), np.full(1, 2.0, out.dtype)
    return Lowered(PowerGamma(out, *shape), (-2.0 * std - float(np.log(2.0)),))  # type: ignore[arg-type]


def _half_cauchy(out: Any, scale: Any) -> Lowered:
    return Lowered(HalfCauchyScale(as_float(out)), (scale,))  # type: ignore[call-arg]


def _exponential(out: Any, rate: Any) -> Lowered:
    out = as_float(out)
    return Lowered(PowerGamma(out, np.ones(1, out.dtype), np.ones(1, out.dtype), True), (rate,))  # type: ignore[arg-type]


def _exponential_rate(out: Any, rate: Any) -> Lowered:
    out = as_float(out)
    return Lowered(GammaRate(out, np.ones(1, out.dtype)), (rate,))  # type: ignore[arg-type]


def _log_normal(out: Any, mean: Any, std: Any) -> Lowered:
    log_out, std = jnp.log(as_float(out)), as_float(std)
    return Lowered(LogNormalNoise(log_out, reciprocal(std * abs(std))), (log_out - mean,))


_ANY = CONSTANT | GAUSSIAN


def _on_residual(factor: Any) -> Signature:
    """A factor of the residual with a constant scale; the outcome may be latent."""

    def lower(out: Any, mean: Any, scale: Any) -> Lowered:
        return Lowered(factor(as_float(scale)), (out - mean,))

    kind = StudentTNoise if factor is _cauchy else factor
    return Signature({"out": _ANY, "mean": _ANY, "scale": CONSTANT}, lower, kind)


def _cauchy(scale: Any) -> StudentTNoise:
    return StudentTNoise(np.ones(1, scale.dtype), scale)  # type: ignore[arg-type]


@register
class HalfNormal(AbstractPrior):
    r"""`HalfNormal(std=)`: $p(x) \propto e^{-x^2 / 2 \sigma^2}$ for positive x; std may be `exp(z)`."""

    __slots__ = ()
    support = "positive"
    logarithm = True
    kernels = (Signature({"out": CONSTANT, "std": EXP_GAUSSIAN}, _half_normal, PowerGamma),)

    def as_latent(self) -> LogOfHalfNormal:
        return LogOfHalfNormal(log_scale(self.arguments["std"]))

    @staticmethod
    def standard(std: Any) -> tuple[Any, Any]:
        return jnp.log(std) - 0.6, 1.1

    def __init__(self, *, std: Any):
        self.arguments = {"std": std}

    def draw(self, key: Any, like: Array, std: Array) -> Array:
        return std * jnp.abs(jax.random.normal(key, like.shape, like.dtype))

    @staticmethod
    def log_density(out: Any, std: Any) -> Array:
        return 0.5 * np.log(2 / np.pi) - jnp.log(std) - 0.5 * (out / std) ** 2

    @staticmethod
    def moments(std: Any) -> tuple[Any, Any]:
        return std * np.sqrt(2 / np.pi), std**2 * (1 - 2 / np.pi)


@register
class HalfCauchy(AbstractPrior):
    r"""`HalfCauchy(scale=)`: $p(x) \propto 1 / (1 + (x/s)^2)$ for positive x; s may be `exp(z)`."""

    __slots__ = ()
    support = "positive"
    logarithm = True
    kernels = (Signature({"out": CONSTANT, "scale": EXP_GAUSSIAN}, _half_cauchy, HalfCauchyScale),)

    def as_latent(self) -> LogOfHalfCauchy:
        return LogOfHalfCauchy(log_scale(self.arguments["scale"]))

    @staticmethod
    def standard(scale: Any) -> tuple[Any, Any]:
        return jnp.log(scale), 1.6

    def __init__(self, *, scale: Any):
        self.arguments = {"scale": scale}

    def draw(self, key: Any, like: Array, scale: Array) -> Array:
        return scale * jnp.abs(jax.random.cauchy(key, like.shape, like.dtype))

    @staticmethod
    def log_density(out: Any, scale: Any) -> Array:
        return np.log(2 / np.pi) - jnp.log(scale) - jnp.log1p((out / scale) ** 2)


@register
class Cauchy(AbstractPrior):
    r"""`Cauchy(mean, scale=)`: $p(x) \propto 1 / (1 + ((x - m)/s)^2)$; `mean` is the location: there is no mean."""

    __slots__ = ()
    support = "real"
    family = Gaussian
    placeholder = 0.0
    kernels = (_on_residual(_cauchy),)

    @staticmethod
    def standard(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 2 * scale

    def __init__(self, mean: Any, *, scale: Any):
        self.arguments = {"mean": mean, "scale": scale}

    def draw(self, key: Any, like: Array, mean: Array, scale: Array) -> Array:
        return mean + scale * jax.random.cauchy(key, like.shape, like.dtype)

    @staticmethod
    def log_density(out: Any, mean: Any, scale: Any) -> Array:
        return -np.log(np.pi) - jnp.log(scale) - jnp.log1p(((out - mean) / scale) ** 2)

    @staticmethod
    def moments(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, float("inf") * scale


@register
class Laplace(AbstractPrior):
    r"""`Laplace(mean, scale=)`: $p(x) \propto e^{-|x - m|/s}$; mean and x may be Gaussian expressions."""

    __slots__ = ()
    support = "real"
    family = Gaussian
    placeholder = 0.0
    kernels = (_on_residual(LaplaceNoise),)

    @staticmethod
    def standard(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 1.4 * scale

    def __init__(self, mean: Any, *, scale: Any):
        self.arguments = {"mean": mean, "scale": scale}

    def draw(self, key: Any, like: Array, mean: Array, scale: Array) -> Array:
        return mean + scale * jax.random.laplace(key, like.shape, like.dtype)

    @staticmethod
    def log_density(out: Any, mean: Any, scale: Any) -> Array:
        return -jnp.log(2 * scale) - jnp.abs(out - mean) / scale

    @staticmethod
    def moments(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 2 * scale**2


@register
class LogNormal(AbstractPrior):
    """`LogNormal(mean, std=)`: the exponential of a Normal with this mean and standard deviation."""

    __slots__ = ()
    support = "positive"
    placeholder = 1.0
    logarithm = True
    kernels = (Signature({"out": CONSTANT, "mean": GAUSSIAN, "std": CONSTANT}, _log_normal, LogNormalNoise),)

    def as_latent(self) -> Normal:
        return Normal(self.arguments["mean"], std=self.arguments["std"])

    @staticmethod
    def standard(mean: Any, std: Any) -> tuple[Any, Any]:
        return mean, std

    def __init__(self, mean: Any, *, std: Any):
        self.arguments = {"mean": mean, "std": std}

    def draw(self, key: Any, like: Array, mean: Array, std: Array) -> Array:
        return jnp.exp(mean + std * jax.random.normal(key, like.shape, like.dtype))

    @staticmethod
    def log_density(out: Any, mean: Any, std: Any) -> Array:
        log = jnp.log(out)
        return -0.5 * np.log(2 * np.pi) - jnp.log(std) - log - 0.5 * ((log - mean) / std) ** 2

    @staticmethod
    def moments(mean: Any, std: Any) -> tuple[Any, Any]:
        first = jnp.exp(mean + 0.5 * std**2)
        return first, first**2 * jnp.expm1(std**2)


@register
class Exponential(AbstractPrior):
    r"""`Exponential(rate)`, `Exponential(mean=)`: $p(x) = \lambda e^{-\lambda x}$ for positive x.

    The rate is a constant, `exp` of an affine expression, or a Gamma variable.
    """

    __slots__ = ()
    support = "positive"
    converted = ("mean", "scale")
    kernels = with_multiples((
        Signature({"out": CONSTANT, "rate": EXP_GAUSSIAN}, _exponential, PowerGamma),
        Signature({"out": CONSTANT, "rate": GAMMA}, _exponential_rate, GammaRate),
    ))  # fmt: skip

    def as_latent(self) -> Gamma:
        return Gamma(1.0, rate=self.arguments["rate"])

    @staticmethod
    def standard(rate: Any) -> tuple[Any, Any]:
        return -jnp.log(rate) - 0.6, 1.3

    def __init__(self, rate: Any = None, *, mean: Any = None, scale: Any = None):
        ((name, value),) = exactly_one("Exponential", rate=rate, mean=mean, scale=scale).items()
        self.arguments = {"rate": value if name == "rate" else 1.0 / value}

    def draw(self, key: Any, like: Array, rate: Array) -> Array:
        return jax.random.exponential(key, like.shape, like.dtype) / rate

    @staticmethod
    def log_density(out: Any, rate: Any) -> Array:
        return jnp.log(rate) - rate * out

    @staticmethod
    def moments(rate: Any) -> tuple[Any, Any]:
        return 1 / rate, 1 / rate**2


@register
class Uniform(AbstractPrior):
    """`Uniform(low, high)`: the same density everywhere between two numbers."""

    __slots__ = ()
    support = "interval"

    @staticmethod
    def standard(low: Any, high: Any) -> tuple[Any, Any]:
        return 0.0, 1.8

    def __init__(self, low: Any, high: Any):
        self.arguments = {"low": low, "high": high}

    def draw(self, key: Any, like: Array, low: Array, high: Array) -> Array:
        return low + (high - low) * jax.random.uniform(key, like.shape, like.dtype)

    @staticmethod
    def log_density(out: Any, low: Any, high: Any) -> Array:
        return jnp.zeros_like(out) - jnp.log(high - low)

    @staticmethod
    def moments(low: Any, high: Any) -> tuple[Any, Any]:
        return 0.5 * (low + high), (high - low) ** 2 / 12

    @staticmethod
    def conditions(low: Any, high: Any) -> dict[str, Any]:
        return {"low must be below high, both finite": (low < high) & jnp.isfinite(low) & jnp.isfinite(high)}
