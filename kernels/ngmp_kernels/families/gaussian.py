"""The scalar Gaussian family."""

import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..numerics.gamma_functions import log_ratio_excess
from ._family import AbstractFamily, broadcast, no_event

_LOG_2PI = math.log(2 * math.pi)


class Gaussian(AbstractFamily):
    r"""Scalar Gaussian: $T(z) = (z, z^2)$, $\eta = (\xi, -\Lambda/2)$ with $\xi = \Lambda m$ and precision $\Lambda$.

    $A(\eta) = \xi^2 / (2\Lambda) - \frac12 \log \Lambda + \frac12 \log 2\pi$.
    """

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "gaussian"

    @classmethod
    def from_mean_variance(cls, mean: ArrayLike, variance: ArrayLike) -> Self:
        mean, variance = broadcast(mean, variance)
        precision = 1 / variance  # one division here and one back: they are what a pass over a long chain costs
        return cls(mean * precision, -0.5 * precision)

    @classmethod
    def from_information(cls, xi: ArrayLike, precision: ArrayLike) -> Self:
        """From the weighted mean `xi` = precision * mean and the precision, which may be zero or negative."""
        xi, precision = broadcast(xi, precision)
        return cls(xi, -0.5 * precision)

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        no_event("Gaussian", event_shape)
        return cls(jnp.zeros(batch_shape, dtype), jnp.zeros(batch_shape, dtype))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        first, second = broadcast(*mu)
        return cls.from_mean_variance(first, second - first**2)

    @property
    def precision(self) -> Float[Array, "*b"]:
        return -2 * self.eta2

    @property
    def mean(self) -> Float[Array, "*b"]:
        return self.eta1 * self.variance

    @property
    def variance(self) -> Float[Array, "*b"]:
        return 1 / self.precision

    @property
    def std(self) -> Float[Array, "*b"]:
        return jnp.sqrt(self.variance)

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return z, z**2

    def log_partition(self) -> Float[Array, "*b"]:
        return 0.5 * (self.eta1**2 / self.precision - jnp.log(self.precision) + _LOG_2PI)

    def to_mean(self) -> tuple[Array, Array]:
        return self.mean, self.variance + self.mean**2

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return 0.5 * (jnp.log(self.precision) - _LOG_2PI - self.precision * (z - self.mean) ** 2)

    def entropy(self) -> Float[Array, "*b"]:
        return 0.5 * (1 + _LOG_2PI - jnp.log(self.precision))

    def kl(self, other: Self) -> Float[Array, "*b"]:
        ratio = other.precision / self.precision
        return 0.5 * (log_ratio_excess(ratio) + other.precision * (self.mean - other.mean) ** 2)

    def fisher(self) -> Float[Array, "*b 2 2"]:
        m, v = self.mean, self.variance
        cross = 2 * m * v
        row1, row2 = jnp.stack([v, cross], -1), jnp.stack([cross, 2 * v**2 + 4 * m**2 * v], -1)
        return jnp.stack([row1, row2], -2)

    def slack(self) -> tuple[Array, ...]:
        return (-self.eta2,)

    def is_proper(self) -> Bool[Array, "*b"]:
        return jnp.isfinite(self.eta1) & jnp.isfinite(self.eta2) & (self.eta2 < 0)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.mean + self.std * jax.random.normal(key, shape + self.batch_shape, self.dtype)
