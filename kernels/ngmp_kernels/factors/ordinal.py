r"""Ordered classes: `OrderedLogistic` and `OrderedProbit`, with cutpoints known or not.

With cutpoints $c_1 < ... < c_{K-1}$ and F the logistic or normal distribution function, class k of K, from 0, has
probability $F(c_{k+1} - \eta) - F(c_k - \eta)$, where $c_0 = -\infty$, $c_K = \infty$. Unknown cutpoints are given by a
Gaussian vector x (`ordered=x`): $c_1 = x_1$ and $c_{k+1} = c_k + e^{x_{k+1}}$. Then $u = x_1 - \eta$ and the log-gaps
are the unknowns of a factor, projected together.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CONSTANT,
    GAUSSIAN,
    MV_GAUSSIAN,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    register,
)
from ..factor import AbstractProjected, Cavities, Families, Values
from ..families import Gaussian, MvGaussian
from ..families.mv_gaussian import MOST_DIMENSIONS
from ..numerics.logarithm import softplus
from ..numerics.special import safe_exp
from ..quadrature.projection import Quadrature, nodes
from .generic import ConstantFactor

_FAR = 1e4  # of cutpoints beyond the first and the last: no probability lies there, in either precision


def _log_between(low: Array, high: Array, gap: Array, first: Array, last: Array, link: str) -> Array:
    """`log {F(high) - F(low)}`, `gap = high - low`; `log F(high)` if first, `log {1 - F(low)}` if last."""
    # 1 - e^{-gap}, with a gap that is neither so small that its logarithm is lost nor infinite.
    shut = jnp.clip(gap, jnp.finfo(gap.dtype).tiny, _FAR)
    if link == "logit":
        inside = -softplus(-high) - softplus(low) + jnp.log(-jnp.expm1(-shut))
        return jnp.where(first, -softplus(-high), jnp.where(last, -softplus(low), inside))
    flip = low + high > 0.0  # in the left tail, where logarithms keep their digits
    a, b = jnp.where(flip, -high, low), jnp.where(flip, -low, high)
    log_a, log_b = log_ndtr(a), log_ndtr(b)
    thin = shut < 1e-5  # there the density times the gap
    difference = jnp.where(thin, -1.0, jnp.minimum(log_a - log_b, -jnp.finfo(gap.dtype).eps))
    middle = -0.5 * (low + 0.5 * gap) ** 2 - 0.5 * float(np.log(2 * np.pi)) + jnp.log(shut)
    inside = jnp.where(thin, middle, log_b + jnp.log(-jnp.expm1(difference)))
    return jnp.where(first, log_ndtr(high), jnp.where(last, log_ndtr(-low), inside))


def _probabilities(cuts: Sequence[Array], link: str) -> Float[Array, "*b K"]:
    """Of all classes, with cutpoints less the predictor."""
    below = ndtr if link == "probit" else jax.nn.sigmoid
    edges = jnp.stack([below(c) for c in cuts], -1)
    zero, one = jnp.zeros_like(edges[..., :1]), jnp.ones_like(edges[..., :1])
    p = jnp.diff(jnp.concatenate([zero, edges, one], -1), axis=-1)
    return jnp.maximum(p, 0.0)


def _moments(p: Array) -> tuple[Array, Array]:
    return p, p * (1.0 - p)


def _is_class(out: Array, classes: int) -> dict[str, Array]:
    fine = (out >= 0) & (out < classes) & (out == jnp.round(out))
    return {f"outcomes must be classes, integers from 0 to {classes - 1}": fine}


class OrderedKnown(AbstractProjected):
    """`f(eta) = F(c_{k+1} - eta) - F(c_k - eta)` with known cutpoints."""

    interfaces: ClassVar[tuple[str, ...]] = ("eta",)
    families: ClassVar[Families] = (Gaussian,)
    out: Float[Values, " #n"]
    cutpoints: Float[Values, "#n C"]
    link: str = eqx.field(static=True, default="logit")

    def _bounds(self) -> tuple[Array, Array]:
        """The cutpoints about the class."""
        cuts = jnp.asarray(self.cutpoints)
        far = jnp.full_like(cuts[..., :1], _FAR)
        edges = jnp.concatenate([-far, cuts, far], -1)
        at = jnp.asarray(self.out)[..., None] == jnp.arange(edges.shape[-1] - 1)
        return jnp.sum(jnp.where(at, edges[..., :-1], 0.0), -1), jnp.sum(jnp.where(at, edges[..., 1:], 0.0), -1)

    def log_density(self, eta: Array) -> Array:
        low, high = self._bounds()
        first, last = self.out == 0, self.out == self.cutpoints.shape[-1]
        gap = jnp.broadcast_to(high - low, eta.shape)
        return _log_between(low - eta, high - eta, gap, first, last, self.link)

    def initial(self) -> tuple[Gaussian]:
        low, high = self._bounds()
        cuts = jnp.asarray(self.cutpoints)
        middle = jnp.clip(0.5 * (low + high), cuts[..., 0] - 1.0, cuts[..., -1] + 1.0)
        inside = jnp.clip(high - low, 1.0, 4.0)
        return (Gaussian.from_mean_variance(middle, inside),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        rising = jnp.all(jnp.isfinite(self.cutpoints), -1) & jnp.all(jnp.diff(jnp.asarray(self.cutpoints)) > 0.0, -1)
        return {**_is_class(self.out, self.cutpoints.shape[-1] + 1), "cutpoints must be finite and rise": rising}

    def moments(self, eta: Array) -> tuple[Array, Array]:
        cuts = jnp.moveaxis(jnp.asarray(self.cutpoints), -1, 0)
        return _moments(_probabilities([c - eta for c in cuts], self.link))


class OrderedCuts(AbstractProjected):
    """`f(u, d_2, ..., d_{K-1})` of the first cutpoint less the predictor, u, and the logarithms of the gaps."""

    joins: ClassVar[str] = "always"
    out: Float[Values, " #n"]
    classes: int = eqx.field(static=True)
    link: str = eqx.field(static=True, default="logit")

    @property
    def interfaces(self) -> tuple[str, ...]:
        return "u", *(f"d{k}" for k in range(2, self.classes))

    @property
    def families(self) -> Families:
        return (Gaussian,) * (self.classes - 1)

    def log_density(self, *z: Array) -> Array:
        low, high, gap, u = z[0] - _FAR, z[0], jnp.full_like(z[0], _FAR), z[0]
        for k, d in enumerate(z[1:], 1):  # the bounds of class k
            step = safe_exp(d)
            own = ((u, low), (u + step, high), (step, gap))
            low, high, gap = (jnp.where(self.out == k, x, y) for x, y in own)
            u = u + step
        last = self.out == self.classes - 1
        low, high, gap = (jnp.where(last, x, y) for x, y in ((u, low), (u + _FAR, high), (_FAR, gap)))
        return _log_between(low, high, gap, self.out == 0, last, self.link)

    def initial(self) -> tuple[Gaussian | None, ...]:
        # Gaps of one, with the predictor in the middle of its class.
        middle = jnp.clip(0.5 - jnp.asarray(self.out), -self.classes + 2.0, 0.5)
        u = Gaussian.from_mean_variance(middle, jnp.full_like(middle, 2.0))
        gap = Gaussian.from_mean_variance(jnp.zeros_like(middle[:1]), 0.25 * jnp.ones_like(middle[:1]))
        return u, *(gap,) * (self.classes - 2)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return _is_class(self.out, self.classes)

    def moments(self, *z: Array) -> tuple[Array, Array]:
        cuts = [z[0]]
        for d in z[1:]:
            cuts.append(cuts[-1] + safe_exp(d))
        return _moments(_probabilities(jnp.broadcast_arrays(*cuts), self.link))

    def _nodes(self, marginals: Cavities) -> tuple[list[Array], Array]:
        mean, variance = (jnp.stack(x, -1) for x in zip(*((q.mean, q.variance) for q in marginals), strict=True))
        both = MvGaussian.from_mean_covariance(mean, variance[..., None] * jnp.eye(mean.shape[-1]))
        z, log_weights = nodes(Quadrature(), both)
        return list(jnp.moveaxis(z, -1, 0)), log_weights

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        z, log_weights = self._nodes(marginals)
        p, variance = self.moments(*z)
        w = jnp.exp(log_weights)[..., None]
        mean = jnp.sum(w * p, 0)
        return mean, jnp.sum(w * (p - mean) ** 2, 0), jnp.sum(w * variance, 0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        z, log_weights = self._nodes(marginals)
        return jax.nn.logsumexp(log_weights + self.log_density(*z), axis=0)


def _signatures(link: str) -> tuple[Signature, ...]:
    def known(out: Any, predictor: Any, cutpoints: Any) -> Lowered:
        return Lowered(OrderedKnown(as_float(out), as_float(cutpoints), link), (predictor,))

    def unknown(out: Any, predictor: Any, ordered: Any) -> Lowered:
        (count,) = ordered.event_shape
        if count > MOST_DIMENSIONS:
            raise ValueError(f"{count} unknown cutpoints; at most {MOST_DIMENSIONS} are integrated over together")
        x = [row @ ordered for row in np.eye(count)]
        return Lowered(OrderedCuts(as_float(out), count + 1, link), (x[0] - predictor, *x[1:]))  # type: ignore[call-arg]

    def constant(out: Any, predictor: Any, cutpoints: Any) -> Lowered:
        factor, eta = OrderedKnown(as_float(out), as_float(cutpoints), link), as_float(predictor)
        value = factor.log_density(jnp.asarray(eta))
        conditions = {**factor.checks(), "the predictor must be finite": jnp.isfinite(eta)}
        return Lowered(ConstantFactor(value, *factor.moments(jnp.broadcast_to(eta, value.shape)), conditions), ())

    some, any_kind = {"out": CONSTANT, "predictor": GAUSSIAN}, {"out": CONSTANT, "predictor": CONSTANT | GAUSSIAN}
    return (
        Signature({"out": CONSTANT, "predictor": CONSTANT, "cutpoints": CONSTANT}, constant, ConstantFactor),
        Signature({**some, "cutpoints": CONSTANT}, known, OrderedKnown),
        Signature({**any_kind, "ordered": MV_GAUSSIAN}, unknown, OrderedCuts),
    )


class _Ordered(Distribution):
    """What both share."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 0, "predictor": 0, "cutpoints": 1, "ordered": 1}
    placeholder = 0

    def __init__(self, predictor: Any, cutpoints: Any = None, *, ordered: Any = None):
        one = exactly_one(type(self).__name__, cutpoints=cutpoints, ordered=ordered)
        self.arguments = {"predictor": predictor, **one}

    def draw(self, key: Any, like: Array, predictor: Array, **given: Array) -> Array:
        if "cutpoints" in given:
            cuts = given["cutpoints"]
        else:
            first, gaps = given["ordered"][..., :1], jnp.exp(given["ordered"][..., 1:])
            cuts = jnp.cumsum(jnp.concatenate([first, gaps], -1), -1)
        edges = list(jnp.moveaxis(cuts - predictor[..., None], -1, 0))
        p = _probabilities(edges, "probit" if isinstance(self, OrderedProbit) else "logit")
        return jax.random.categorical(key, jnp.log(p), shape=like.shape).astype(like.dtype)


@register
class OrderedLogistic(_Ordered):
    """`OrderedLogistic(predictor, cutpoints)` or `OrderedLogistic(predictor, ordered=x)` of an observed class, from 0
    to the number of cutpoints.

    The predictor is affine in Gaussian variables. Cutpoints are a constant vector that rises, or unknown:
    `x_1, x_1 + e^{x_2}, x_1 + e^{x_2} + e^{x_3}, ...` of a Gaussian vector x, or of a list or plate of numbers, with
    the prior that these were declared with.
    """

    __slots__ = ()
    signatures = _signatures("logit")


@register
class OrderedProbit(_Ordered):
    """`OrderedProbit(predictor, cutpoints)`: as `OrderedLogistic`, with the normal distribution function."""

    __slots__ = ()
    signatures = _signatures("probit")
