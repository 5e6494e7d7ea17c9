"""Counts of several classes at once: multinomial, with known or Dirichlet probabilities, and Dirichlet-multinomial."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, DIRICHLET, Distribution, Lowered, Signature, as_float, exactly_one, register
from ..factor import AbstractConjugate, Cavities, Families, Values
from ..families import Dirichlet
from ..numerics.gamma_functions import gammaln
from ..numerics.special import is_count, safe_log
from .generic import ConstantFactor
from .softmax import COUNTS

_COUNTS = "counts must be non-negative integers"


def _log_coefficient(counts: Array) -> Array:
    return gammaln(jnp.sum(counts, -1) + 1.0) - jnp.sum(gammaln(counts + 1.0), -1)


class MultinomialProbs(AbstractConjugate):
    """`f(p) = n! prod_k p_k^{y_k} / y_k!`: the Dirichlet message with the counts y."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (Dirichlet,)
    counts: Float[Values, "#n K"]

    def log_density(self, p: Array) -> Array:
        return jnp.sum(self.counts * safe_log(p), -1) + _log_coefficient(jnp.asarray(self.counts))

    def message(self) -> tuple[Dirichlet, Array]:
        counts = jnp.asarray(self.counts)
        return Dirichlet(counts), _log_coefficient(counts)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_COUNTS: jnp.all(is_count(self.counts), -1)}

    def _trials(self) -> Array:
        return jnp.sum(jnp.asarray(self.counts), -1, keepdims=True)

    def moments(self, p: Array) -> tuple[Array, Array]:
        return self._trials() * p, self._trials() * p * (1.0 - p)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (q,) = marginals
        n = self._trials()
        return n * q.mean, n**2 * q.variance, n * (q.mean * (1.0 - q.mean) - q.variance)


def _lower(out: Any, probs: Any) -> Lowered:
    return Lowered(MultinomialProbs(as_float(out)), (probs,))


def _lower_constant(out: Any, probs: Any) -> Lowered:
    factor, probs = MultinomialProbs(as_float(out)), jnp.asarray(as_float(probs))
    total = jnp.abs(jnp.sum(probs, -1) - 1.0) < 1e-4
    conditions = {**factor.checks(), "probs must be non-negative and sum to one": total & jnp.all(probs >= 0.0, -1)}
    value = factor.log_density(probs)
    return Lowered(ConstantFactor(value, *factor.moments(probs), conditions), ())


def _lower_logits(out: Any, logits: Any) -> Lowered:
    return _lower_constant(out, jax.nn.softmax(jnp.asarray(as_float(logits)), -1))


@register
class Multinomial(Distribution):
    """`Multinomial(probs=)` or `Multinomial(logits=)` of observed counts, a vector; the number of trials is their sum.
    Probs may be Dirichlet, logits a Gaussian vector, as of `Categorical`."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 1, "probs": 1, "logits": 1}
    placeholder = 0
    signatures = (
        Signature({"out": CONSTANT, "probs": DIRICHLET}, _lower, MultinomialProbs),
        Signature({"out": CONSTANT, "probs": CONSTANT}, _lower_constant, ConstantFactor),
        Signature({"out": CONSTANT, "logits": CONSTANT}, _lower_logits, ConstantFactor),
        COUNTS,
    )

    def __init__(self, n: Any = None, *, probs: Any = None, logits: Any = None):
        # n is the sum of the counts, whatever it is said to be
        self.arguments = exactly_one("Multinomial", probs=probs, logits=logits)

    def draw(self, key: Any, like: Array, probs: Any = None, logits: Any = None) -> Array:
        """With as many trials as `like` has in all."""
        probs = jax.nn.softmax(logits, -1) if probs is None else probs
        return jax.random.multinomial(key, jnp.sum(like, -1), probs, shape=like.shape, dtype=like.dtype)


def _lower_compound(out: Any, concentration: Any) -> Lowered:
    counts, a = jnp.asarray(as_float(out)), jnp.asarray(as_float(concentration))
    n, total = jnp.sum(counts, -1), jnp.sum(a, -1)
    value = _log_coefficient(counts) + gammaln(total) - gammaln(n + total)
    value += jnp.sum(gammaln(counts + a) - gammaln(a), -1)
    conditions = {
        _COUNTS: jnp.all(is_count(counts), -1),
        "concentrations must be positive and finite": jnp.all((a > 0.0) & jnp.isfinite(a), -1),
    }
    p, wider = a / total[..., None], ((n + total) / (1.0 + total))[..., None]
    mean = n[..., None] * p
    return Lowered(ConstantFactor(value, mean, mean * (1.0 - p) * wider, conditions), ())


@register
class DirichletMultinomial(Distribution):
    """`DirichletMultinomial(concentration)` of observed counts: multinomial, each with Dirichlet probabilities."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 1, "concentration": 1}
    placeholder = 0
    signatures = (Signature({"out": CONSTANT, "concentration": CONSTANT}, _lower_compound, ConstantFactor),)

    def __init__(self, concentration: Any):
        self.arguments = {"concentration": concentration}

    def draw(self, key: Any, like: Array, concentration: Array) -> Array:
        one, other = jax.random.split(key)
        probs = jax.random.dirichlet(one, concentration, like.shape[:-1], like.dtype)
        return jax.random.multinomial(other, jnp.sum(like, -1), probs, shape=like.shape, dtype=like.dtype)
