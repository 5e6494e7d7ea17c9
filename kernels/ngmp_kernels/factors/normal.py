"""The normal distribution, scalar: every use becomes a zero-mean noise factor on a residual `r = out - mean`.

With a constant scale that factor is conjugate. With an unknown precision `tau` (Gamma) or log-precision `s`
(Gaussian) it has a second interface; those two kernels are in `normal_noise`.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CONSTANT,
    EXP_GAUSSIAN,
    GAMMA,
    GAUSSIAN,
    INVERSE_GAMMA,
    TAKE,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    reciprocal,
    register,
)
from ..factor import AbstractConjugate, AbstractProjected, AbstractQuadrature, Cavities, Families, Values
from ..families import Gamma, Gaussian
from ..numerics.special import LOG_2PI, safe_exp, safe_log
from ..quadrature.predictive import log_precision_nodes
from .bilinear import SIGNATURES as SEVERAL_PRODUCTS
from .bilinear import whole_mean
from .exponential import settle
from .inverse_gamma import NoiseVariance, NormalVariance
from .multiple import with_multiples
from .noise_log_precision import LOG_PRECISION, NoiseLogPrecision
from .normal_noise import NoisePrecision, mean_variance
from .product import ProductNoise, lower_product
from .product_log_precision import SIGNATURES as LOG_PRODUCTS
from .switched_noise import SwitchedNoise


class NormalNoise(AbstractConjugate):
    """`f(r) = N(r; 0, 1/precision)` with a constant precision."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    precision: Float[Values, " #n"]

    def log_density(self, r: Array) -> Array:
        return 0.5 * jnp.log(self.precision) - 0.5 * LOG_2PI - 0.5 * self.precision * r * r

    def message(self) -> tuple[Gaussian, Array]:
        precision = jnp.asarray(self.precision)
        eta = Gaussian(jnp.zeros_like(precision), -0.5 * precision)
        return eta, 0.5 * jnp.log(precision) - 0.5 * LOG_2PI

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"the scale (variance, precision or std) must be positive and finite": _positive(self.precision)}

    def moments(self, r: Array) -> tuple[Array, Array]:
        return -r, jnp.broadcast_to(1.0 / self.precision, r.shape)

    def score(self, out: Array, r: Array) -> Array:
        """`u` with `P(outcome <= out | r) = ndtr(u)`."""
        return (out + r) * jnp.sqrt(self.precision)

    def cdf(self, out: Array, r: Array) -> Array:
        return ndtr((out + r) * jnp.sqrt(self.precision))

    def _with(self, r: Gaussian) -> "NormalNoise":
        """`out = -E[r] + noise` with the uncertainty of r made part of the noise."""
        return NormalNoise(1.0 / (r.variance + 1.0 / self.precision))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (r,) = marginals
        return -r.mean, r.variance, jnp.broadcast_to(1.0 / self.precision, r.batch_shape)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (r,) = marginals
        return self._with(r).cdf(out, r.mean)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        (r,) = marginals
        return self._with(r).log_density(r.mean)


class NormalPrecision(AbstractConjugate):
    """`f(tau) = N(out; mean, 1/tau)` with both ends constant: the Gamma message (1/2, -(out - mean)^2/2)."""

    interfaces: ClassVar[tuple[str, ...]] = ("tau",)
    families: ClassVar[Families] = (Gamma,)
    support: ClassVar[str | None] = "real"
    out: Float[Values, " #n"]
    mean: Float[Values, " #n"]

    def log_density(self, tau: Array) -> Array:
        r = self.out - self.mean
        return 0.5 * jnp.log(tau) - 0.5 * LOG_2PI - 0.5 * tau * r * r

    def message(self) -> tuple[Gamma, Array]:
        r = jnp.asarray(self.out - self.mean)
        return Gamma(jnp.full_like(r, 0.5), -0.5 * r * r), jnp.full_like(r, -0.5 * LOG_2PI)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"outcome and mean must be finite": jnp.isfinite(self.out - self.mean)}

    def moments(self, tau: Array) -> tuple[Array, Array]:
        return jnp.broadcast_to(self.mean, tau.shape), 1.0 / tau

    def cdf(self, out: Array, tau: Array) -> Array:
        return ndtr((out - self.mean) * jnp.sqrt(tau))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (tau,) = marginals
        mean = jnp.broadcast_to(self.mean, tau.batch_shape)
        return mean, jnp.zeros_like(mean), mean_variance(tau)


class NormalLogPrecision(AbstractProjected):
    """`f(s) = N(out; mean, e^{-s})` with both ends constant: `l(s) = s/2 - (out - mean)^2 e^s/2 - log(2 pi)/2`.

    Projection at q = N(m, v), by Bonnet and Price: with `rho = (out - mean)^2 e^{m + v/2}`,
    `E[l'] = 1/2 - rho/2`, `E[l''] = -rho/2`, hence `eta = (1/2 + (m - 1) rho/2, -rho/4)`.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("s",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    out: Float[Values, " #n"]
    mean: Float[Values, " #n"]

    def _rho(self, s: Array) -> Array:
        return (self.out - self.mean) ** 2 * safe_exp(s)

    def log_density(self, s: Array) -> Array:
        return 0.5 * s - 0.5 * self._rho(s) - 0.5 * LOG_2PI

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        m = marginal.mean
        rho = self._rho(m + 0.5 * marginal.variance)
        return Gaussian(0.5 + 0.5 * (m - 1.0) * rho, -0.25 * rho)

    def settle(self, marginal: Gaussian, cavity: Gaussian, leaf: Gaussian, once: Gaussian) -> Gaussian:
        square = jnp.asarray(self.out - self.mean) ** 2
        found = settle(0.5, safe_log(0.5 * square), marginal, cavity)
        # A residual of zero has no wall at all, however far s rises: the message is s/2.
        wall = square > jnp.finfo(square.dtype).tiny
        return Gaussian(jnp.where(wall, found.eta1, 0.5), jnp.where(wall, found.eta2, 0.0))

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        m = marginal.mean
        return 0.5 * m - 0.5 * self._rho(m + 0.5 * marginal.variance) - 0.5 * LOG_2PI

    def initial(self) -> tuple[Gaussian]:
        # At the residual itself, s = -log r^2, where the density peaks; one that is zero says nothing of where.
        square = jnp.asarray((self.out - self.mean) ** 2)
        s = jnp.where(square > 0, -safe_log(square), 0.0)
        return (Gaussian.from_mean_variance(s, jnp.ones_like(s)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"outcome and mean must be finite": jnp.isfinite(self.out - self.mean)}

    def moments(self, s: Array) -> tuple[Array, Array]:
        return jnp.broadcast_to(self.mean, s.shape), safe_exp(-s)

    def cdf(self, out: Array, s: Array) -> Array:
        return ndtr((out - self.mean) * safe_exp(0.5 * s))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        s, log_weights = log_precision_nodes(marginals[0])
        return jnp.sum(jnp.exp(log_weights) * self.cdf(out, s), axis=0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        s, log_weights = log_precision_nodes(marginals[0], (self.out - self.mean) ** 2)
        return jax.nn.logsumexp(log_weights + self.log_density(s), axis=0)


def _positive(x: Array) -> Array:
    return (x > 0.0) & jnp.isfinite(x)


# What is given for the scale -> precision.
# std * |std| keeps the sign, so that a negative std is reported and not squared away.
_PRECISION = {
    "precision": lambda p: as_float(p),
    "variance": lambda v: reciprocal(as_float(v)),
    "std": lambda s: reciprocal(as_float(s) * abs(as_float(s))),
}


def _lower_noise(out: Any, mean: Any, **scale: Any) -> Lowered:
    ((name, value),) = scale.items()
    return Lowered(NormalNoise(_PRECISION[name](value)), (out - mean,))


def _interface(scale: dict[str, Any], log: bool) -> Any:
    ((name, value),) = scale.items()
    return LOG_PRECISION[name](value) if log else value


def _on_scale(factor: Any, name: str, kind: Any, log: bool = False) -> Signature:
    """Outcome and mean are constant: a factor on the scale alone."""

    def lower(out: Any, mean: Any, **scale: Any) -> Lowered:
        return Lowered(factor(as_float(out), as_float(mean)), (_interface(scale, log),))

    return Signature({"out": CONSTANT, "mean": CONSTANT, name: kind}, lower, factor)


def _on_residual(factor: Any, name: str, kind: Any, log: bool = False) -> Signature:
    """A factor on the residual and the scale."""

    def lower(out: Any, mean: Any, **scale: Any) -> Lowered:
        return Lowered(factor(), (out - mean, _interface(scale, log)))

    return Signature({"out": _ANY, "mean": _ANY, name: kind}, lower, factor)


def _lower_switched(out: Any, mean: Any, **scale: Any) -> Lowered:
    """The tables (n|1, K) are those of one selector; see `ngmp_compiler.declare.gates`."""
    ((name, value),) = scale.items()
    selector = next(x.index for x in (mean, value) if hasattr(x, "index"))
    table = as_float(value.table) if hasattr(value, "index") else as_float(value)[:, None]
    moving = hasattr(mean, "index")
    classes = selector.eta_shape[0]
    shift = as_float(mean.table) if moving else jnp.zeros((1, classes), table.dtype)
    precision = jnp.broadcast_to(jnp.asarray(_PRECISION[name](table)), (table.shape[0], classes))
    return Lowered(SwitchedNoise(jnp.asarray(shift), precision), (out if moving else out - mean, selector))


def _lower_product(out: Any, mean: Any, left: Any, right: Any, **scale: Any) -> Lowered:
    ((name, value),) = scale.items()
    constant = isinstance(value, (jax.Array, np.ndarray))
    return lower_product(out, mean, left, right, _PRECISION[name](value) if constant else value)


_ANY = CONSTANT | GAUSSIAN
_TABLE, _MEAN = CONSTANT | TAKE, _ANY | TAKE
_SCALES = ("precision", "variance", "std")
_PRODUCT = {"out": _ANY, "mean": _ANY, "left": GAUSSIAN, "right": GAUSSIAN}


@register
class Normal(Distribution):
    """`Normal(mean, variance=)`, `Normal(mean, precision=)` or `Normal(mean, std=)`.

    The mean is a constant, affine in Gaussian variables, or such an expression plus products of two of them; the
    scale is a constant, a Gamma variable (precision), an InverseGamma one (variance) or `exp` of an affine expression.
    """

    __slots__ = ()
    support = "real"
    family = Gaussian
    event_ndims: ClassVar = {
        **dict.fromkeys(("out", "mean", "left", "right", "variance", "precision", "std"), 0),
        **dict.fromkeys(("lefts", "rights"), 1),
    }
    placeholder = 0.0
    signatures = with_multiples((
        *(Signature({"out": _ANY, "mean": _ANY, k: CONSTANT}, _lower_noise, NormalNoise) for k in _SCALES),
        _on_scale(NormalPrecision, "precision", GAMMA),
        _on_residual(NoisePrecision, "precision", GAMMA),
        _on_scale(NormalVariance, "variance", INVERSE_GAMMA),
        _on_residual(NoiseVariance, "variance", INVERSE_GAMMA),
        *(_on_scale(NormalLogPrecision, k, EXP_GAUSSIAN, log=True) for k in _SCALES),
        *(_on_residual(NoiseLogPrecision, k, EXP_GAUSSIAN, log=True) for k in _SCALES),
        *(Signature({"out": GAUSSIAN, "mean": _MEAN, k: _TABLE}, _lower_switched, SwitchedNoise) for k in _SCALES),
        *(Signature({"out": CONSTANT, "mean": GAUSSIAN, k: TAKE}, _lower_switched, SwitchedNoise) for k in _SCALES),
        # The compiler passes the mean `left * right + mean` in three parts.
        *(Signature({**_PRODUCT, k: CONSTANT}, _lower_product, ProductNoise) for k in _SCALES),
        Signature({**_PRODUCT, "precision": GAMMA}, _lower_product, ProductNoise),
        *LOG_PRODUCTS,
        *SEVERAL_PRODUCTS,
    ))  # fmt: skip

    @staticmethod
    def standard(mean: Any, variance: Any = None, precision: Any = None, std: Any = None) -> tuple[Any, Any]:
        return mean, std if std is not None else jnp.sqrt(reciprocal(precision) if variance is None else variance)

    @staticmethod
    def plain(**arguments: Any) -> dict[str, Any]:
        return whole_mean(**arguments)

    def __init__(self, mean: Any, *, variance: Any = None, precision: Any = None, std: Any = None):
        scale = exactly_one("Normal", variance=variance, precision=precision, std=std)
        self.arguments = {"mean": mean, **scale}
