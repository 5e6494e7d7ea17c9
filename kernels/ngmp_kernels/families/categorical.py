"""The categorical family over K classes, in over-complete coordinates."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from ._family import AbstractFamily, one_event_axis, promote


class Categorical(AbstractFamily):
    r"""Categorical on $\{0, ..., K-1\}$: $T(z)$ = one-hot, $\eta$ = logits, $A(\eta) = \log \sum_k e^{\eta_k}$.

    Over-complete: adding a constant to all logits changes nothing but A. Outcomes are integers of shape `(..., *b)`.
    """

    eta1: Float[Array, "*b K"]

    event_ndim: ClassVar[int] = 1
    kind: ClassVar[str] = "categorical"

    @classmethod
    def from_probs(cls, probs: ArrayLike) -> Self:
        (probs,) = promote(probs)
        return cls(jnp.log(probs))

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> Self:
        return cls(*promote(logits))

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        one_event_axis("Categorical", event_shape)
        return cls(jnp.zeros(tuple(batch_shape) + tuple(event_shape), dtype))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        return cls.from_probs(*mu)

    @property
    def probs(self) -> Float[Array, "*b K"]:
        return jax.nn.softmax(self.eta1, axis=-1)

    @property
    def mean(self) -> Float[Array, "*b K"]:
        return self.probs

    @property
    def variance(self) -> Float[Array, "*b K"]:
        return self.probs * (1 - self.probs)

    def location_scale(self) -> tuple[Array, Array]:
        """`2 sqrt(p)`, in which the Fisher metric is that of a unit sphere."""
        root = jnp.exp(0.5 * jax.nn.log_softmax(self.eta1, axis=-1))
        return 2 * root, jnp.ones_like(root)

    def statistics(self, z: Int[Array, "..."]) -> tuple[Array]:
        return (jax.nn.one_hot(z, self.event_shape[0], dtype=self.dtype),)

    def log_partition(self) -> Float[Array, "*b"]:
        return jax.nn.logsumexp(self.eta1, axis=-1)

    def to_mean(self) -> tuple[Array]:
        return (self.probs,)

    def log_density(self, z: Int[Array, "..."]) -> Float[Array, "*b"]:
        chosen = jnp.asarray(z)[..., None] == jnp.arange(self.event_shape[0])
        # a selection, not a product: an impossible class (logit -inf) must not turn the others into NaN
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(self.eta1, axis=-1), 0), axis=-1)

    def entropy(self) -> Float[Array, "*b"]:
        p = self.probs
        return -jnp.sum(jnp.where(p > 0, p * jax.nn.log_softmax(self.eta1, axis=-1), 0), axis=-1)

    def kl(self, other: Self) -> Float[Array, "*b"]:
        p = self.probs
        difference = jax.nn.log_softmax(self.eta1, axis=-1) - jax.nn.log_softmax(other.eta1, axis=-1)
        return jnp.sum(jnp.where(p > 0, p * difference, 0), axis=-1)

    def fisher(self) -> Float[Array, "*b K K"]:
        p = self.probs
        return p[..., :, None] * jnp.eye(p.shape[-1], dtype=p.dtype) - p[..., :, None] * p[..., None, :]

    def is_proper(self) -> Bool[Array, "*b"]:
        return jnp.all(jnp.isfinite(self.eta1), axis=-1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.categorical(key, self.eta1, axis=-1, shape=shape + self.batch_shape)
