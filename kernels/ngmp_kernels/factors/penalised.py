"""Penalised-complexity priors of scales."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..distribution import register
from .gamma import Gamma
from .prior import AbstractPrior
from .priors import Exponential


@register
class PCScale(AbstractPrior):
    """`PCScale(upper=, probability=)`: the penalised-complexity prior of a standard deviation, `P(x > upper) =
    probability`: an Exponential of rate `-log(probability) / upper` (Simpson et al., 2017)."""

    __slots__ = ()
    support = "positive"

    def as_latent(self) -> Gamma:
        return Gamma(1.0, rate=-jnp.log(self.arguments["probability"]) / self.arguments["upper"])

    @staticmethod
    def standard(upper: Any, probability: Any) -> tuple[Any, Any]:
        return Exponential.standard(-jnp.log(probability) / upper)

    def __init__(self, *, upper: Any, probability: Any):
        self.arguments = {"upper": upper, "probability": probability}

    def draw(self, key: Any, like: Array, upper: Array, probability: Array) -> Array:
        return -upper / jnp.log(probability) * jax.random.exponential(key, like.shape, like.dtype)

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
