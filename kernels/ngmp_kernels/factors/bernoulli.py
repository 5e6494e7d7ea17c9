"""The Bernoulli distribution, with Gaussian logits, a Beta probability or constants; latent outcomes too."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import logit
from jaxtyping import Array, Bool, Float

from ..distribution import (
    BERNOULLI,
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
from ..families import Bernoulli as BernoulliFamily
from ..families import Beta, Gaussian
from ..numerics.logarithm import softplus
from ..numerics.special import binomial_cdf, log_probability, safe_log
from ..quadrature.predictive import threshold_cdf
from ..quadrature.projection import Quadrature, nodes
from .generic import ConstantFactor
from .linked import LINKS, BinomialLinked, lower_linked
from .logistic import AbstractLogistic

_BINARY = "outcomes must be 0 or 1"


def _is_binary(y: Array) -> Array:
    return jnp.asarray((y == 0.0) | (y == 1.0))


def _binary_cdf(out: Array, zero: Array) -> Array:
    out, zero = jnp.broadcast_arrays(out, zero)
    return jnp.where(out < 0.0, 0.0, jnp.where(out < 1.0, zero, 1.0))


def logit_cdf(q: Gaussian, out: Array, trials: Array) -> Array:
    """`F(k)` of a binomial count with logits z ~ q: `y <= k` exactly if z < -logit B for B ~ Beta(n - k, k + 1)."""
    k, trials = jnp.floor(out), jnp.broadcast_to(trials, q.batch_shape)
    inside = jnp.clip(k, 0.0, jnp.maximum(trials - 1.0, 0.0))
    p, log_weights = nodes(Quadrature(), Beta.from_ab(jnp.maximum(trials - inside, 1.0), inside + 1.0))
    value = threshold_cdf(q, -logit(p), log_weights, lambda z: binomial_cdf(out, trials, jax.nn.sigmoid(-z)))
    return jnp.where(k < 0.0, 0.0, jnp.where(k >= trials, 1.0, value))


class BernoulliLogit(AbstractLogistic):
    """`f(z) = Bernoulli(out; logit^{-1} z)`: `l(z) = -y softplus(-z) - (1 - y) softplus(z)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "count"
    out: Float[Values, " #n"]

    def log_density(self, z: Array) -> Array:
        return -self.out * softplus(-z) - (1.0 - self.out) * softplus(z)

    def line(self) -> tuple[Array, Array, Array]:
        out = jnp.asarray(self.out)
        return out, 1.0 - out, jnp.zeros_like(out)

    def initial(self) -> tuple[Gaussian]:
        # Half a pseudo-count of either outcome: p = (y + 1/2)/2, that is logits of +-log 3.
        logits = jnp.log(self.out + 0.5) - jnp.log(1.5 - self.out)
        return (Gaussian.from_mean_variance(logits, jnp.ones_like(logits)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_BINARY: _is_binary(self.out)}

    def moments(self, z: Array) -> tuple[Array, Array]:
        return jax.nn.sigmoid(z), jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)

    def cdf(self, out: Array, z: Array) -> Array:
        return _binary_cdf(out, jax.nn.sigmoid(-z))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (q,) = marginals
        return logit_cdf(q, out, jnp.ones(1, q.dtype))


class BernoulliProbs(AbstractConjugate):
    """`f(p) = p^y (1 - p)^{1 - y}`: the Beta message (y, 1 - y)."""

    interfaces: ClassVar[tuple[str, ...]] = ("p",)
    families: ClassVar[Families] = (Beta,)
    support: ClassVar[str | None] = "count"
    out: Float[Values, " #n"]

    def log_density(self, p: Array) -> Array:
        return self.out * safe_log(p) + (1.0 - self.out) * safe_log(1.0 - p)

    def message(self) -> tuple[Beta, Array]:
        out = jnp.asarray(self.out)
        return Beta(out, 1.0 - out), jnp.zeros_like(out)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {_BINARY: _is_binary(self.out)}

    def moments(self, p: Array) -> tuple[Array, Array]:
        return p, p * (1.0 - p)

    def cdf(self, out: Array, p: Array) -> Array:
        return _binary_cdf(out, 1.0 - p)


class BernoulliPrior(AbstractConjugate):
    """`f(b) = Bernoulli(b; logit^{-1} logits)` of a latent outcome b, with constant logits."""

    interfaces: ClassVar[tuple[str, ...]] = ("out",)
    families: ClassVar[Families] = (BernoulliFamily,)
    logits: Float[Values, " #n"]

    def log_density(self, b: Array) -> Array:
        return b * self.logits - jax.nn.softplus(self.logits)

    def message(self) -> tuple[BernoulliFamily, Array]:
        return BernoulliFamily(jnp.asarray(self.logits)), -jax.nn.softplus(self.logits)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"probs must lie between 0 and 1, and logits must be finite": jnp.isfinite(self.logits)}

    def moments(self, b: Array) -> tuple[Array, Array]:
        p = jnp.broadcast_to(jax.nn.sigmoid(self.logits), b.shape)
        return p, p * jax.nn.sigmoid(-self.logits)


def as_logits(probs: Any = None, logits: Any = None) -> Array:
    """Logits of constants given either way; 0 and 1 give large finite ones, numbers outside [0, 1] give NaN."""
    if logits is not None:
        return as_float(logits)
    p = as_float(probs)
    return log_probability(p) - log_probability(1.0 - p)


def _lower_prior(out: Any, **given: Any) -> Lowered:
    return Lowered(BernoulliPrior(as_logits(**given)), (out,))


def _lower_constant(out: Any, **given: Any) -> Lowered:
    out, logits = as_float(out), as_logits(**given)
    conditions = {**BernoulliLogit(out).checks(), **BernoulliPrior(logits).checks()}
    value = BernoulliLogit(out).log_density(logits)
    moments = BernoulliPrior(logits).moments(value)
    return Lowered(ConstantFactor(value, *moments, conditions, BernoulliLogit(out), (logits,)), ())


_GIVEN = ("probs", "logits")
_LINKED = (
    (PHI_GAUSSIAN, lambda probs, **given: lower_linked(probit=probs, **given)),
    (CLOGLOG_GAUSSIAN, lambda probs, **given: lower_linked(cloglog=probs, **given)),
)


def through(owner: str, given: dict[str, Any], link: str) -> dict[str, Any]:
    """The predictor under the name of its link."""
    if link not in ("logit", "probit", "cloglog"):
        raise ValueError(f"{owner} was given link={link!r}; the links are 'logit', 'probit' and 'cloglog'")
    if link != "logit" and "logits" in given:
        return {link: given["logits"]}
    return given


@register
class Bernoulli(Distribution):
    """`Bernoulli(probs=)` or `Bernoulli(logits=)`: logits affine in Gaussian variables, probs a Beta variable.

    Other links: `Bernoulli(probit=)`, `Bernoulli(cloglog=)`, or `link="probit"` beside `logits=`.
    """

    __slots__ = ()
    support = "classes"
    family = BernoulliFamily
    event_ndims: ClassVar = dict.fromkeys(("out", "probs", "logits", "probit", "cloglog"), 0)
    placeholder = 0
    signatures = (
        on(BernoulliLogit, out=CONSTANT, logits=GAUSSIAN),
        on(BernoulliProbs, out=CONSTANT, probs=BETA),
        on(BernoulliLogit, out=CONSTANT, probs=SIGMOID_GAUSSIAN),
        *(Signature({"out": CONSTANT, "probs": kind}, lower, BinomialLinked) for kind, lower in _LINKED),
        *(Signature({"out": CONSTANT, k: GAUSSIAN}, lower_linked, BinomialLinked) for k in LINKS),
        *(Signature({"out": CONSTANT, k: CONSTANT}, lower_linked, ConstantFactor) for k in LINKS),
        *(Signature({"out": BERNOULLI, k: CONSTANT}, _lower_prior, BernoulliPrior) for k in _GIVEN),
        *(Signature({"out": CONSTANT, k: CONSTANT}, _lower_constant, ConstantFactor) for k in _GIVEN),
    )

    def __init__(
        self, *, probs: Any = None, logits: Any = None, probit: Any = None, cloglog: Any = None, link: str = "logit"
    ):
        given = exactly_one("Bernoulli", probs=probs, logits=logits, probit=probit, cloglog=cloglog)
        self.arguments = through("Bernoulli", given, link)
