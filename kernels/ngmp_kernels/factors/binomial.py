"""The binomial distribution of observed counts, with Gaussian logits, a Beta probability or constants."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import (
    BETA,
    CLOGLOG_GAUSSIAN,
    CONSTANT,
    GAUSSIAN,
    PHI_GAUSSIAN,
    SIGMOID_GAUSSIAN,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    on,
    register,
)
from ..factor import AbstractConjugate, Cavities, Families, Values
from ..families import Beta, Gaussian
from ..numerics.logarithm import softplus
from ..numerics.special import binomial_cdf, is_count, log_binomial, safe_log
from .bernoulli import BernoulliPrior, as_logits, logit_cdf, through
from .generic import ConstantFactor
from .linked import LINKS, BinomialLinked, lower_linked
from .logistic import AbstractLogistic


def _check_counts(counts: Array, trials: Array) -> dict[str, Array]:
    inside = is_count(counts) & is_count(trials) & (counts <= trials)
    return {"counts must be integers from 0 to the number of trials n": inside}


class BinomialLogit(AbstractLogistic):
    """`f(z) = Binomial(counts; trials, logit^{-1} z)`: `l(z) = log C(n, y) - y softplus(-z) - (n - y) softplus(z)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]
    trials: Float[Values, " #n"]

    def log_density(self, z: Array) -> Array:
        failures = self.trials - self.counts
        log_f = -self.counts * softplus(-z) - failures * softplus(z)
        return log_f + log_binomial(self.trials, self.counts)

    def line(self) -> tuple[Array, Array, Array]:
        counts, trials = jnp.asarray(self.counts), jnp.asarray(self.trials)
        return counts, trials - counts, jnp.zeros_like(counts)

    def initial(self) -> tuple[Gaussian]:
        # Half a pseudo-count of either outcome; the variance of an empirical logit is 1/(n p (1 - p)).
        hits, misses = self.counts + 0.5, self.trials - self.counts + 0.5
        variance = jnp.minimum(1.0 / hits + 1.0 / misses, 1.0)
        return (Gaussian.from_mean_variance(jnp.log(hits) - jnp.log(misses), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return _check_counts(self.counts, self.trials)

    def moments(self, z: Array) -> tuple[Array, Array]:
        mean = self.trials * jax.nn.sigmoid(z)
        return mean, mean * jax.nn.sigmoid(-z)

    def cdf(self, out: Array, z: Array) -> Array:
        return binomial_cdf(out, self.trials, jax.nn.sigmoid(-z))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (q,) = marginals
        return logit_cdf(q, out, self.trials)


class BinomialProbs(AbstractConjugate):
    """`f(p) = C(n, y) p^y (1 - p)^{n - y}`: the Beta message (y, n - y)."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (Beta,)
    support: ClassVar[str | None] = "count"
    counts: Float[Values, " #n"]
    trials: Float[Values, " #n"]

    def log_density(self, p: Array) -> Array:
        failures = self.trials - self.counts
        return self.counts * safe_log(p) + failures * safe_log(1.0 - p) + log_binomial(self.trials, self.counts)

    def message(self) -> tuple[Beta, Array]:
        counts, failures = jnp.broadcast_arrays(self.counts, self.trials - self.counts)
        return Beta(counts, failures), log_binomial(self.trials, self.counts)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return _check_counts(self.counts, self.trials)

    def moments(self, p: Array) -> tuple[Array, Array]:
        return self.trials * p, self.trials * p * (1.0 - p)

    def cdf(self, out: Array, p: Array) -> Array:
        return binomial_cdf(out, self.trials, 1.0 - p)


def _lower_constant(out: Any, n: Any, **given: Any) -> Lowered:
    factor, logits = BinomialLogit(as_float(out), as_float(n)), as_logits(**given)
    conditions = {**factor.checks(), **BernoulliPrior(logits).checks()}
    value = factor.log_density(logits)
    moments = factor.moments(jnp.broadcast_to(logits, value.shape))
    return Lowered(ConstantFactor(value, *moments, conditions, factor, (logits,)), ())


_GIVEN = ("probs", "logits")
_LINKED = (
    (PHI_GAUSSIAN, lambda probs, **given: lower_linked(probit=probs, **given)),
    (CLOGLOG_GAUSSIAN, lambda probs, **given: lower_linked(cloglog=probs, **given)),
)


@register
class Binomial(Distribution):
    """`Binomial(n, probs=)` or `Binomial(n, logits=)`: logits affine in Gaussian variables, probs a Beta variable.

    Other links: `Binomial(n, probit=)`, `Binomial(n, cloglog=)`, or `link="probit"` beside `logits=`.
    """

    __slots__ = ()
    family = None
    event_ndims: ClassVar = dict.fromkeys(("out", "n", "probs", "logits", "probit", "cloglog"), 0)
    placeholder = 0
    signatures = (
        on(BinomialLogit, out=CONSTANT, n=CONSTANT, logits=GAUSSIAN),
        on(BinomialProbs, out=CONSTANT, n=CONSTANT, probs=BETA),
        on(BinomialLogit, out=CONSTANT, n=CONSTANT, probs=SIGMOID_GAUSSIAN),
        *(Signature({"out": CONSTANT, "n": CONSTANT, "probs": kind}, lower, BinomialLinked) for kind, lower in _LINKED),
        *(Signature({"out": CONSTANT, "n": CONSTANT, k: GAUSSIAN}, lower_linked, BinomialLinked) for k in LINKS),
        *(Signature({"out": CONSTANT, "n": CONSTANT, k: CONSTANT}, lower_linked, ConstantFactor) for k in LINKS),
        *(Signature({"out": CONSTANT, "n": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor) for k in _GIVEN),
    )

    def __init__(
        self, n: Any, *, probs: Any = None, logits: Any = None, probit: Any = None, cloglog: Any = None,
        link: str = "logit",
    ):  # fmt: skip
        given = exactly_one("Binomial", probs=probs, logits=logits, probit=probit, cloglog=cloglog)
        self.arguments = {"n": n, **through("Binomial", given, link)}

    def draw(self, key: Any, like: Array, n: Array, **given: Array) -> Array | None:
        if not given.keys() & {"probs", "logits"}:
            return None
        probs = given["probs"] if "probs" in given else jax.nn.sigmoid(given["logits"])
        return jax.random.binomial(key, n, probs, like.shape, like.dtype)
