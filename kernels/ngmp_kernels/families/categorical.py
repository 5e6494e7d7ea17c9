"""The categorical family over K classes, in over-complete coordinates."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..quadrature.nodes import Nodes
from ..quadrature.rules import AbstractQuadrature
from ._family import AbstractFamily, promote, register


@register
class Categorical(AbstractFamily):
    r"""Categorical on $\{0, ..., K-1\}$: $T(z)$ = one-hot, $\eta$ = logits, $A(\eta) = \log \sum_k e^{\eta_k}$.

    Over-complete: adding a constant to all logits changes nothing but A. Outcomes are integers of shape `(..., *b)`.
    """

    eta1: Float[Array, "*b K"]

    event_ndim: ClassVar[int] = 1
    kind: ClassVar[str] = "categorical"
    support: ClassVar[str] = "classes"
    closed: ClassVar[bool] = True
    core: ClassVar[str] = "categorical"
    integrated: ClassVar[str] = "always"

    @classmethod
    def from_probs(cls, probs: ArrayLike) -> Self:
        (probs,) = promote(probs)
        return cls(jnp.log(probs))

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> Self:
        return cls(*promote(logits))

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

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.categorical(key, self.eta1, axis=-1, shape=shape + self.batch_shape)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """All classes, by any quadrature."""
        (k,) = self.event_shape
        z = jnp.broadcast_to(jnp.arange(k).reshape((-1,) + (1,) * len(self.batch_shape)), (k,) + self.batch_shape)
        return z, jnp.moveaxis(jax.nn.log_softmax(self.eta1, axis=-1), -1, 0)

    def regress(self, z: Array, w: Array, values: Array, centred: bool = False) -> Self:
        """Exact, whatever q; of the equivalent logits the ones that sum to zero."""
        return type(self)(jnp.moveaxis(values - jnp.mean(values, axis=0), 0, -1))

    def slope(self, function: Callable[[Any], Array]) -> Self:
        """`J_p`, up to a constant, from `J_eta = p (J_p - p . J_p)`; nothing toward a class that cannot be."""
        by_logits = jax.grad(lambda eta: function(type(self)(eta)))(self.eta1)
        p = self.probs
        known = p > jnp.finfo(p.dtype).tiny
        return type(self)(jnp.where(known, by_logits / jnp.where(known, p, 1.0), 0.0))

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self:
        """Standard normal logits."""
        return type(self)(spread * jax.random.normal(key, self.eta1.shape, self.dtype))

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        below = jnp.cumsum(self.probs, -1)[..., :-1]  # the last is one, up to rounding
        return jnp.sum(below < p[..., None], -1)

    def counterpart(self, dist: Any) -> Any:
        return dist.Categorical(logits=self.eta1)
