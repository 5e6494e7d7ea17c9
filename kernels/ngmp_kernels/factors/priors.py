"""Priors of hyperparameters: densities of one number with constant parameters, which no message rule touches.

They stand where a hyperparameter is integrated numerically (`ngmp.compile(..., integrate=...)`) or where the outcome is
observed. Scales go by keyword, as everywhere.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..distribution import CONSTANT, Distribution, Lowered, Signature, as_float, register
from .generic import ConstantFactor

_INFINITE = float("inf")


class AbstractPrior(Distribution):
    """A density of one number: `log_density(out, **arguments)`, its `support`, and its moments where they exist."""

    __slots__ = ()
    family = None
    placeholder = 0.5

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "signatures" in vars(cls):
            return
        names = (*cls._positional, *cls._keywords)
        cls.event_ndims = dict.fromkeys(("out", *names), 0)
        cls.signatures = (Signature(dict.fromkeys(("out", *names), CONSTANT), cls._lower, ConstantFactor),)

    @classmethod
    def _lower(cls, out: Any, **arguments: Any) -> Lowered:
        out, arguments = as_float(out), {k: as_float(v) for k, v in arguments.items()}
        return Lowered(constant(out, cls.log_density(out, **arguments), cls, arguments), ())

    @staticmethod
    def log_density(out: Any, **arguments: Any) -> Array:
        """The logarithm of the density at a point of the support."""
        raise NotImplementedError

    @staticmethod
    def moments(**arguments: Any) -> tuple[Any, Any]:
        """Mean and variance; infinite where they do not exist."""
        return _INFINITE, _INFINITE

    @staticmethod
    def conditions(**arguments: Any) -> dict[str, Any]:
        """What parameters must obey, in words."""
        return {f"the {name} must be positive and finite": (x > 0) & jnp.isfinite(x)
                for name, x in arguments.items() if name in ("std", "scale", "rate")}  # fmt: skip


def constant(out: Any, value: Array, owner: Any, arguments: dict[str, Any]) -> ConstantFactor:
    """The factor of outcomes whose log-densities are `value`, with what must hold of them."""
    inside = {
        "real": jnp.isfinite(out),
        "positive": (out > 0) & jnp.isfinite(out),
        "unit": (out > 0) & (out < 1),
        "interval": (out > arguments["low"]) & (out < arguments["high"]) if "low" in arguments else True,
    }
    conditions = owner.conditions(**arguments) | {
        "the outcome must be in the support": jnp.broadcast_to(inside[owner.support], value.shape),
        "the log-density must be a number, and not infinite, in the support": jnp.isfinite(value),
    }
    mean, variance = (jnp.broadcast_to(jnp.asarray(m, value.dtype), value.shape) for m in owner.moments(**arguments))
    return ConstantFactor(jnp.where(jnp.isfinite(value), value, 0.0), mean, variance, conditions)


@register
class HalfNormal(AbstractPrior):
    r"""`HalfNormal(std=)`: $p(x) \propto e^{-x^2 / 2 \sigma^2}$ for positive x."""

    __slots__ = ()
    support = "positive"

    @staticmethod
    def standard(std: Any) -> tuple[Any, Any]:
        return jnp.log(std) - 0.6, 1.1

    def __init__(self, *, std: Any):
        self.arguments = {"std": std}

    @staticmethod
    def log_density(out: Any, std: Any) -> Array:
        return 0.5 * np.log(2 / np.pi) - jnp.log(std) - 0.5 * (out / std) ** 2

    @staticmethod
    def moments(std: Any) -> tuple[Any, Any]:
        return std * np.sqrt(2 / np.pi), std**2 * (1 - 2 / np.pi)


@register
class HalfCauchy(AbstractPrior):
    r"""`HalfCauchy(scale=)`: $p(x) \propto 1 / (1 + (x/s)^2)$ for positive x."""

    __slots__ = ()
    support = "positive"

    @staticmethod
    def standard(scale: Any) -> tuple[Any, Any]:
        return jnp.log(scale), 1.6

    def __init__(self, *, scale: Any):
        self.arguments = {"scale": scale}

    @staticmethod
    def log_density(out: Any, scale: Any) -> Array:
        return np.log(2 / np.pi) - jnp.log(scale) - jnp.log1p((out / scale) ** 2)


@register
class Cauchy(AbstractPrior):
    r"""`Cauchy(mean, scale=)`: $p(x) \propto 1 / (1 + ((x - m)/s)^2)$; `mean` is the location: there is no mean."""

    __slots__ = ()
    support = "real"

    @staticmethod
    def standard(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 2 * scale

    def __init__(self, mean: Any, *, scale: Any):
        self.arguments = {"mean": mean, "scale": scale}

    @staticmethod
    def log_density(out: Any, mean: Any, scale: Any) -> Array:
        return -np.log(np.pi) - jnp.log(scale) - jnp.log1p(((out - mean) / scale) ** 2)

    @staticmethod
    def moments(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, _INFINITE * scale


@register
class Laplace(AbstractPrior):
    r"""`Laplace(mean, scale=)`: $p(x) \propto e^{-|x - m|/s}$."""

    __slots__ = ()
    support = "real"

    @staticmethod
    def standard(mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, 1.4 * scale

    def __init__(self, mean: Any, *, scale: Any):
        self.arguments = {"mean": mean, "scale": scale}

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

    @staticmethod
    def standard(mean: Any, std: Any) -> tuple[Any, Any]:
        return mean, std

    def __init__(self, mean: Any, *, std: Any):
        self.arguments = {"mean": mean, "std": std}

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
    r"""`Exponential(rate=)`: $p(x) = \lambda e^{-\lambda x}$ for positive x."""

    __slots__ = ()
    support = "positive"

    @staticmethod
    def standard(rate: Any) -> tuple[Any, Any]:
        return -jnp.log(rate) - 0.6, 1.3

    def __init__(self, *, rate: Any):
        self.arguments = {"rate": rate}

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

    @staticmethod
    def log_density(out: Any, low: Any, high: Any) -> Array:
        return jnp.zeros_like(out) - jnp.log(high - low)

    @staticmethod
    def moments(low: Any, high: Any) -> tuple[Any, Any]:
        return 0.5 * (low + high), (high - low) ** 2 / 12

    @staticmethod
    def conditions(low: Any, high: Any) -> dict[str, Any]:
        return {"low must be below high, both finite": (low < high) & jnp.isfinite(low) & jnp.isfinite(high)}


@register
class PCScale(AbstractPrior):
    """`PCScale(upper=, probability=)`: the penalised-complexity prior of a standard deviation, `P(x > upper) =
    probability`: an Exponential of rate `-log(probability) / upper` (Simpson et al., 2017)."""

    __slots__ = ()
    support = "positive"

    @staticmethod
    def standard(upper: Any, probability: Any) -> tuple[Any, Any]:
        return Exponential.standard(-jnp.log(probability) / upper)

    def __init__(self, *, upper: Any, probability: Any):
        self.arguments = {"upper": upper, "probability": probability}

    @staticmethod
    def log_density(out: Any, upper: Any, probability: Any) -> Array:
        return Exponential.log_density(out, -jnp.log(probability) / upper)

    @staticmethod
    def moments(upper: Any, probability: Any) -> tuple[Any, Any]:
        return Exponential.moments(-jnp.log(probability) / upper)

    @staticmethod
    def conditions(upper: Any, probability: Any) -> dict[str, Any]:
        return {
            "upper must be positive and finite": (upper > 0) & jnp.isfinite(upper),
            "the probability must be between 0 and 1": (probability > 0) & (probability < 1),
        }
