r"""Marginals where hyperparameters were integrated: $q(z) = \sum_m w_m q_m(z)$ over the nodes of the integral."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ngmp_kernels.families import AbstractFamily, in_words
from ngmp_kernels.numerics.inverse_cdf import INVERSE, check_probabilities


def each(q: Any, function: Callable, axis: int = 0) -> Any:
    """`function(q)`, once for every one of the results that `vmap` has stacked in q."""
    if q.weights.ndim == 1:
        return function(q)
    return jax.vmap(lambda q: each(q, function, axis), out_axes=axis)(q)


def heavy(weights: Float[Array, " m"], x: Any) -> Any:
    """Arrays of all nodes, with those of the heaviest in place of what weighs nothing: a scale far out may be so large
    that its square is infinite, and zero times that is not zero."""
    top, none = jnp.argmax(weights), weights < 1e-30

    def one(x: Array) -> Array:
        return jnp.where(none.reshape(-1, *(1,) * (x.ndim - 1)), x[top], x)

    return jax.tree.map(one, x)


class Mixture(eqx.Module):
    """A mixture of members of one family, of batch shape `*b`; the axis of the components leads."""

    weights: Float[Array, " m"]
    components: Any  # a family of batch shape (m, *b)

    def __repr__(self) -> str:
        return in_words(self, f"mixture of {type(self.components).__name__}", self.batch_shape)

    def _average(self, x: Float[Array, "m ..."]) -> Float[Array, "..."]:
        return jnp.tensordot(self.weights, x, axes=1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.components.batch_shape[1:]

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.components.event_shape

    @property
    def dtype(self) -> Any:
        return self.weights.dtype

    @property
    def mean(self) -> Array:
        """E[z]."""
        return each(self, lambda q: q._average(q.components.mean))

    @property
    def variance(self) -> Array:
        """Var[z], elementwise: within the nodes and between them."""
        return each(self, lambda q: q._average(q.components.variance + (q.components.mean - q.mean) ** 2))

    @property
    def covariance(self) -> Array:
        """Cov[z] of a vector: within the nodes and between them."""

        def whole(q: Mixture) -> Array:
            off = q.components.mean - q.mean
            return q._average(q.components.covariance + off[..., :, None] * off[..., None, :])

        return each(self, whole)

    @property
    def std(self) -> Array:
        return jnp.sqrt(self.variance)

    def cdf(self, z: Array) -> Array:
        """`P(z' <= z)`, of every entry of a vector by itself; z has shape `(..., *b, *event)`."""
        return self._average(jax.vmap(lambda q: q.cdf(z))(self.components))

    def quantile(self, p: ArrayLike) -> Array:
        """The z with `P(z' <= z) = p`, of shape `(*p.shape, *b, *event)`; see `AbstractFamily.quantile`."""
        check_probabilities(p)
        p = jnp.asarray(p, self.dtype)

        def inverse(q: Mixture) -> Array:
            mean = q.mean
            return INVERSE["real"](q.cdf, p.reshape(p.shape + (1,) * mean.ndim), mean, q.std)

        return each(self, inverse, p.ndim)

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        """The logarithm of the density; z has shape `(..., *b, *event)`."""
        found = jax.vmap(lambda q: q.log_density(z))(self.components)
        return logsumexp(found + jnp.log(self.weights).reshape(-1, *(1,) * (found.ndim - 1)), axis=0)

    def density(self, z: ArrayLike) -> Float[Array, "*b"]:
        return jnp.exp(self.log_density(jnp.asarray(z, self.dtype)))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `(*shape, *b, *event)`: a node for each, then a draw of it."""
        node, draw = jax.random.split(key)
        size = 1
        for n in shape:
            size *= n
        at = jax.random.categorical(node, jnp.log(self.weights), shape=(size,))
        found = jax.vmap(lambda k, m: jax.tree.map(lambda x: x[m], self.components).sample(k))(
            jax.random.split(draw, size), at
        )
        return found.reshape(*shape, *found.shape[1:])


def mixed(weights: Float[Array, " m"], components: AbstractFamily) -> Any:
    """The mixture of members of a family; one of classes is a member itself."""
    if components.closed:
        means = (jnp.tensordot(weights, mu, axes=1) for mu in components.to_mean())
        return type(components).from_mean(*means)
    return Mixture(weights, components)


class MixedOutcome(eqx.Module):
    """The distribution of a predicted outcome over the nodes: `F(y) = sum_m w_m F_m(y)`."""

    weights: Float[Array, " m"]
    outcomes: Any  # an `Outcome`, with a leading axis m
    mean: Array
    std: Array

    @property
    def ndim(self) -> int:
        return self.outcomes.ndim

    @property
    def counts(self) -> bool:
        return self.outcomes.counts

    def cdf(self, y: Array) -> Array:
        return jnp.tensordot(self.weights, jax.vmap(lambda one: one.cdf(y))(self.outcomes), axes=1)

    def last(self, steps: int) -> "MixedOutcome":
        """Of the last elements along the first axis."""
        each = jax.vmap(lambda one: one.last(steps))(self.outcomes)
        return MixedOutcome(self.weights, each, self.mean[-steps:], self.std[-steps:])

    def quantile(self, p: Array) -> Array:
        self.outcomes.check()
        p = p.reshape(p.shape + (1,) * self.mean.ndim)
        function = jnp.vectorize(self.cdf, signature=f"({_axes(self.mean)})->({_axes(self.mean)})")
        found = {}
        for part in self.outcomes.parts:  # of every kind of support at the site, by the whole function of distribution
            support = part.factor.support
            if support not in found:
                found[support] = INVERSE[support](function, p, self.mean, self.std)
        if len(found) == 1:
            return next(iter(found.values()))
        one = jax.tree.map(lambda x: x[0], self.outcomes)
        kinds = [jnp.full((part.n, *one.event), i) for i, part in enumerate(one.parts)]
        where = one.gather(kinds)
        each = [found[part.factor.support] for part in one.parts]
        return jnp.select([where == i for i in range(len(each))], each)


def _axes(x: Array) -> str:
    return ",".join(f"a{i}" for i in range(x.ndim))


def mixed_prediction(weights: Float[Array, " m"], each: Any) -> Any:
    """The prediction by all nodes of those by each, which have a leading axis m."""
    average, each = functools.partial(jnp.tensordot, weights, axes=1), heavy(weights, each)
    mean = average(each.mean)
    epistemic = average(each.epistemic + (each.mean - mean) ** 2)
    aleatoric = average(each.aleatoric)
    lead = jnp.log(weights).reshape(-1, *(1,) * (each.log_density.ndim - 1))
    outcome = MixedOutcome(weights, each.outcome, mean, jnp.sqrt(epistemic + aleatoric))
    return type(each)(mean, epistemic, aleatoric, logsumexp(each.log_density + lead, axis=0), outcome)
