"""The multivariate normal distribution: a zero-mean noise factor on the vector residual `r = out - mean`."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import (
    CONSTANT,
    MV_GAUSSIAN,
    WISHART,
    Distribution,
    Lowered,
    Signature,
    as_float,
    exactly_one,
    register,
)
from ..factor import AbstractConjugate, Cavities, Families
from ..families import MvGaussian
from ..numerics.cholesky import cholesky, inverse, log_det, whiten
from ..numerics.special import LOG_2PI
from .bilinear import vector_signatures, whole_mean
from .low_rank import LowRankNoise, draw, lower_low_rank, root_of
from .wishart import MvNormalPrecision, NoiseWishart, lower_noise, lower_precision


class MvNormalNoise(AbstractConjugate):
    """`f(r) = N(r; 0, precision^{-1})` with a constant precision matrix, whose log-determinant is `log_det`."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (MvGaussian,)
    support: ClassVar[str | None] = "real"
    precision: Float[Array, "#n d d"]
    log_det: Float[Array, " #n"]

    def _log_scale(self) -> Array:
        return 0.5 * self.log_det - 0.5 * self.precision.shape[-1] * LOG_2PI

    def log_density(self, r: Array) -> Array:
        return self._log_scale() - 0.5 * jnp.einsum("...i,...ij,...j->...", r, self.precision, r)

    def message(self) -> tuple[MvGaussian, Array]:
        return MvGaussian(jnp.zeros_like(self.precision[..., 0]), -0.5 * self.precision), self._log_scale()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        text = (
            "covariance or precision must be symmetric and positive definite (positive, when a scalar or a vector); a "
            "singular covariance is a constant (an input as it is, or made by NumPy) or goes in by its root, "
            "covariance_root=L of L @ L.T; a singular precision is a structure of any rank, ngmp.structure(R)"
        )
        return {text: jnp.isfinite(self.log_det)}

    def moments(self, r: Array) -> tuple[Array, Array]:
        variance = jnp.diagonal(inverse(cholesky(self.precision)), axis1=-2, axis2=-1)
        return -r, jnp.broadcast_to(variance, r.shape)

    # The outcome is a vector; its distribution function here is that of every entry by itself. The marginal needs a
    # mean and a covariance, which may be singular, and no natural parameters.

    def cdf(self, out: Array, r: Array) -> Array:
        return ndtr((out + r) / jnp.sqrt(self.moments(r)[1]))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (r,) = marginals
        mean, variance = self.moments(r.mean)
        return mean, jnp.diagonal(r.covariance, axis1=-2, axis2=-1), variance

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        mean, epistemic, aleatoric = self.predictive_moments(marginals)
        return ndtr((out - mean) / jnp.sqrt(epistemic + aleatoric))

    def predictive_log_density(self, marginals: Cavities) -> Array:
        """`log N(0; m, C + (L L^T)^{-1})` by `I + L^T C L`, with C the covariance of r and `L L^T` the precision."""
        (r,) = marginals
        root = jnp.swapaxes(cholesky(jnp.asarray(self.precision)), -1, -2)
        inner = root @ r.covariance @ jnp.swapaxes(root, -1, -2)
        spread = cholesky(jnp.eye(r.mean.shape[-1], dtype=r.mean.dtype) + inner)
        white = whiten(spread, root @ r.mean[..., None])
        return self._log_scale() - 0.5 * jnp.sum(white**2, (-2, -1)) - 0.5 * log_det(spread)


def _precision_and_log_det(name: str, value: Array, d: int) -> tuple[Array, Array]:
    """From a scalar (n|1), a diagonal (n|1, d) or a symmetric matrix (n|1, d, d), covariance or precision."""
    eye = jnp.eye(d, dtype=value.dtype)
    if value.ndim < 3:
        diagonal = value if name == "precision" else 1.0 / value
        diagonal = jnp.broadcast_to(diagonal.reshape(value.shape[0], -1), (value.shape[0], d))
        return diagonal[..., None] * eye, jnp.sum(jnp.log(diagonal), -1)
    other, eps = jnp.swapaxes(value, -1, -2), jnp.finfo(value.dtype).eps
    most = jnp.max(jnp.abs(value), (-2, -1))
    symmetric = jnp.max(jnp.abs(value - other), (-2, -1)) <= eps**0.5 * most
    value = 0.5 * (value + other)
    chol = cholesky(value)  # not positive definite: NaN, which `checks` reports
    # The last pivot of a singular matrix is rounding. A smooth kernel, a covariance, comes close to it.
    least = (d if name == "precision" else 1) * eps * most
    regular = jnp.min(jnp.diagonal(chol, axis1=-2, axis2=-1), -1) ** 2 > least
    volume = jnp.where(symmetric & regular, log_det(chol), jnp.nan)
    return (value, volume) if name == "precision" else (inverse(chol), -volume)


def _lower(out: Any, mean: Any, **scale: Any) -> Lowered:
    ((name, value),) = scale.items()
    d = mean.shape[-1]
    value = as_float(value)
    if value.ndim > 3 or any(size != d for size in value.shape[1:]):
        raise ValueError(
            f"MvNormal: the mean has {d} entries, so {name}= must be a scalar, a vector of {d} or a matrix "
            f"({d}, {d}); got shape {value.shape[1:]}"
        )
    return Lowered(MvNormalNoise(*_precision_and_log_det(name, value, d)), (out - mean,))


_ANY = CONSTANT | MV_GAUSSIAN


@register
class MvNormal(Distribution):
    """`MvNormal(mean, covariance=)` or `MvNormal(mean, precision=)`: a scalar, a vector (diagonal) or a matrix.

    A covariance may be singular, as the noise of a state that is partly deterministic is, where the variables form a
    chain; if it is not known while compiling, its root L (d, k) is given instead, `covariance_root=L` for `L @ L.T`.
    The precision may be a Wishart variable, or `tau * R` with a Gamma variable tau and a structure R, as `ngmp.rw2` and
    its like make them; then `constraint="sum"`, or rows A, keep `A x = 0` exactly.
    The mean is a constant vector or vector-valued affine in Gaussian variables, such as `A @ x + b`, where A may be
    random too: vectors are its rows. Of a matrix only the symmetric part counts.
    """

    __slots__ = ("constraint",)
    family = MvGaussian
    event_ndims: ClassVar = {
        "out": 1, "mean": 1, "covariance": None, "precision": None, "covariance_root": 2, "lefts": 1, "rights": 1,
    }  # fmt: skip
    placeholder = 0.0
    signatures = (
        *(
            Signature({"out": _ANY, "mean": _ANY, k: CONSTANT}, _lower, MvNormalNoise)
            for k in ("covariance", "precision")
        ),
        Signature({"out": _ANY, "mean": _ANY, "covariance_root": CONSTANT}, lower_low_rank, LowRankNoise),
        Signature({"out": CONSTANT, "mean": CONSTANT, "precision": WISHART}, lower_precision, MvNormalPrecision),
        Signature({"out": _ANY, "mean": _ANY, "precision": WISHART}, lower_noise, NoiseWishart),
        *vector_signatures(_precision_and_log_det),
    )

    @staticmethod
    def plain(**arguments: Any) -> dict[str, Any]:
        return whole_mean(**arguments)

    def draw(self, key: Any, like: Array, mean: Array, covariance_root: Any = None, **_: Any) -> Array | None:
        return None if covariance_root is None else draw(key, like, mean, covariance_root)

    def __init__(
        self, mean: Any, *, covariance: Any = None, precision: Any = None, covariance_root: Any = None,
        constraint: Any = None,
    ):  # fmt: skip
        self.constraint = constraint
        given = {"covariance": covariance, "precision": precision, "covariance_root": covariance_root}
        scale = exactly_one("MvNormal", **given)
        root = root_of(covariance)
        self.arguments = {"mean": mean, **(scale if root is None else {"covariance_root": root})}
