"""The Beta family on the unit interval."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..numerics.gamma_functions import digamma, gammaln, log_gamma_ratio, trigamma
from ._family import AbstractFamily, broadcast, no_event
from .dirichlet import concentration_from_mean


class Beta(AbstractFamily):
    r"""Beta(a, b): $T(p) = (\log p, \log(1-p))$, $\eta = (a - 1, b - 1)$, $A(\eta) = \log B(a, b)$."""

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "beta"

    @classmethod
    def from_ab(cls, a: ArrayLike, b: ArrayLike) -> Self:
        a, b = broadcast(a, b)
        return cls(a - 1, b - 1)

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        no_event("Beta", event_shape)
        return cls(jnp.zeros(batch_shape, dtype), jnp.zeros(batch_shape, dtype))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        alpha = concentration_from_mean(jnp.stack(broadcast(*mu), axis=-1))
        return cls.from_ab(alpha[..., 0], alpha[..., 1])

    @property
    def a(self) -> Float[Array, "*b"]:
        return self.eta1 + 1

    @property
    def b(self) -> Float[Array, "*b"]:
        return self.eta2 + 1

    @property
    def mean(self) -> Float[Array, "*b"]:
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> Float[Array, "*b"]:
        total = self.a + self.b
        return (self.a / total) * (self.b / total) / (total + 1)

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return jnp.log(z), jnp.log1p(-z)

    def log_partition(self) -> Float[Array, "*b"]:
        # jax.scipy.special.betaln is off by 1e-6 where an argument exceeds 8.
        low, high = jnp.minimum(self.a, self.b), jnp.maximum(self.a, self.b)
        return gammaln(low) - log_gamma_ratio(high, low)

    def to_mean(self) -> tuple[Array, Array]:
        total = digamma(self.a + self.b)
        return digamma(self.a) - total, digamma(self.b) - total

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return xlogy(self.eta1, z) + xlog1py(self.eta2, -z) - self.log_partition()

    def entropy(self) -> Float[Array, "*b"]:
        return self.log_partition() - self.dot(self.to_mean())

    def kl(self, other: Self) -> Float[Array, "*b"]:
        return other.log_partition() - self.log_partition() - (other - self).dot(self.to_mean())

    def fisher(self) -> Float[Array, "*b 2 2"]:
        total = trigamma(self.a + self.b)
        row1 = jnp.stack([trigamma(self.a) - total, -total], -1)
        row2 = jnp.stack([-total, trigamma(self.b) - total], -1)
        return jnp.stack([row1, row2], -2)

    def slack(self) -> tuple[Array, ...]:
        return self.a, self.b

    def is_proper(self) -> Bool[Array, "*b"]:
        return jnp.isfinite(self.eta1) & jnp.isfinite(self.eta2) & (self.eta1 > -1) & (self.eta2 > -1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.beta(key, self.a, self.b, shape + self.batch_shape, self.dtype)
