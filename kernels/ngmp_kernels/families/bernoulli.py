"""The Bernoulli family."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logit
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..quadrature.nodes import Nodes, column
from ..quadrature.rules import AbstractQuadrature
from ._family import AbstractFamily, promote, register


@register
class Bernoulli(AbstractFamily):
    r"""Bernoulli on $\{0, 1\}$: $T(z) = z$, $\eta$ = logit, $A(\eta) = \log(1 + e^\eta)$."""

    eta1: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "bernoulli"
    support: ClassVar[str] = "classes"
    closed: ClassVar[bool] = True
    integrated: ClassVar[str] = "always"

    @classmethod
    def from_probs(cls, probs: ArrayLike) -> Self:
        (probs,) = promote(probs)
        return cls(logit(probs))

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> Self:
        return cls(*promote(logits))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        return cls.from_probs(*mu)

    @property
    def probs(self) -> Float[Array, "*b"]:
        return jax.nn.sigmoid(self.eta1)

    @property
    def mean(self) -> Float[Array, "*b"]:
        return self.probs

    @property
    def variance(self) -> Float[Array, "*b"]:
        return jax.nn.sigmoid(self.eta1) * jax.nn.sigmoid(-self.eta1)

    def location_scale(self) -> tuple[Array, Array]:
        """The angle `2 arcsin sqrt(p)`, in which the Fisher metric is one."""
        p = jax.nn.sigmoid(self.eta1)
        return 2 * jnp.arctan2(jnp.sqrt(p), jnp.sqrt(jax.nn.sigmoid(-self.eta1))), jnp.ones_like(p)

    def statistics(self, z: Array) -> tuple[Array]:
        return (jnp.asarray(z, self.dtype),)

    def log_partition(self) -> Float[Array, "*b"]:
        return jax.nn.softplus(self.eta1)

    def to_mean(self) -> tuple[Array]:
        return (self.probs,)

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        # log sigmoid of the logit of the outcome that happened: no cancellation at |eta| >> 1
        return -jax.nn.softplus(jnp.where(z > 0.5, -self.eta1, self.eta1))

    def entropy(self) -> Float[Array, "*b"]:
        magnitude = jnp.abs(self.eta1)
        return jax.nn.softplus(-magnitude) + magnitude * jax.nn.sigmoid(-magnitude)

    def kl(self, other: Self) -> Float[Array, "*b"]:
        p, log1, log0 = self.probs, jax.nn.log_sigmoid, lambda eta: jax.nn.log_sigmoid(-eta)
        one = p * (log1(self.eta1) - log1(other.eta1))
        return one + jax.nn.sigmoid(-self.eta1) * (log0(self.eta1) - log0(other.eta1))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.bernoulli(key, self.probs, shape + self.batch_shape).astype(self.dtype)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """The two outcomes, by any quadrature."""
        z = jnp.broadcast_to(column(np.array([0.0, 1.0]), self), (2,) + self.batch_shape)
        return z, self.log_density(z)

    def regress(self, z: Array, w: Array, values: Array, centred: bool = False) -> Self:
        """Exact: the log-odds of the message, whatever q."""
        return type(self)(values[1] - values[0])

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self:
        """Standard normal logits."""
        return type(self)(spread * jax.random.normal(key, self.eta1.shape, self.dtype))

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return (p > jax.nn.sigmoid(-self.eta1)).astype(self.dtype)

    def counterpart(self, dist: Any) -> Any:
        return dist.Bernoulli(logits=self.eta1)
