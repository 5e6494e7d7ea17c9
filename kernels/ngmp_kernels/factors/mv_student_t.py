r"""Student's t of vectors: heavy-tailed noise on a residual $r = W (y - \mu)$, whitened by $\Sigma = W^{-1} W^{-T}$.

$$ l(r) = c - \tfrac{\nu + d}{2} \log(1 + |r|^2/\nu), \qquad \nabla l = -w r, \qquad
   \nabla^2 l = -w I + \tfrac{2}{\nu + d} w^2 r r^T, \qquad w = \frac{\nu + d}{\nu + |r|^2}. $$

Their expectations at quadrature nodes are the message, by the theorems of Bonnet and Price.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, MV_GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import Cavities, Values
from ..families import MvGaussian
from ..numerics.cholesky import cholesky
from ..numerics.gamma_functions import gammaln
from .generic import ConstantFactor
from .vectors import AbstractVector


class MvStudentTNoise(AbstractVector):
    """`f(r) = t_df(r; 0, I) / |root|`.

    Attributes:
        df: degrees of freedom.
        root: lower triangular, `root root^T` is the scale matrix: an outcome is `-root r` where it is predicted.
    """

    per_axis: ClassVar[dict[int, int]] = {1: 32, 2: 16, 3: 9}
    df: Float[Values, " #n"]
    root: Float[Array, "#n d d"]

    def _weight(self, r: Float[Array, "*b n d"]) -> Float[Array, "*b n"]:
        return (self.df + r.shape[-1]) / (self.df + jnp.sum(r * r, -1))

    def log_density(self, r: Array) -> Array:
        d, df = r.shape[-1], jnp.asarray(self.df)
        scale = jnp.sum(jnp.log(jnp.diagonal(self.root, axis1=-2, axis2=-1)), -1)
        constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * jnp.log(df * np.pi) - scale
        return constant - 0.5 * (df + d) * jnp.log1p(jnp.sum(r * r, -1) / df)

    def derivatives(self, w: Array, z: Array) -> tuple[Array, Array]:
        weight, d = self._weight(z), z.shape[-1]
        slope = -jnp.einsum("q,qn,qni->ni", w, weight, z, precision="highest")
        outer = jnp.einsum("q,qn,qni,qnj->nij", w, weight * weight, z, z, precision="highest")
        mean = jnp.tensordot(w, weight, 1)[..., None, None] * jnp.eye(d, dtype=z.dtype)
        return slope, 2.0 / (jnp.asarray(self.df) + d)[..., None, None] * outer - mean

    def initial(self) -> tuple[MvGaussian]:
        # Flat, the leaf would leave a random walk with such steps untied.
        d = self.root.shape[-1]
        eye = jnp.eye(d, dtype=self.root.dtype)
        return (
            MvGaussian.from_mean_covariance(jnp.zeros_like(self.root[..., 0]), jnp.broadcast_to(eye, self.root.shape)),
        )

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        diagonal = jnp.diagonal(self.root, axis1=-2, axis2=-1)
        return {
            "the degrees of freedom df must be positive and finite": (self.df > 0.0) & jnp.isfinite(self.df),
            "the scale must be positive definite": jnp.all((diagonal > 0.0) & jnp.isfinite(diagonal), -1),
        }

    def moments(self, r: Array) -> tuple[Array, Array]:
        """The location, which is the mean for df > 1, and the variances, infinite for df <= 2."""
        mean = -jnp.einsum("nij,...nj->...ni", jnp.asarray(self.root), r, precision="highest")
        heavy = self.df <= 2.0
        spread = jnp.where(heavy, jnp.inf, self.df / jnp.where(heavy, 1.0, self.df - 2.0))
        variance = jnp.sum(self.root**2, -1) * jnp.asarray(spread)[..., None]
        return mean, jnp.broadcast_to(variance, mean.shape)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (q,) = marginals
        mean, variance = self.moments(q.mean)
        known = jnp.einsum("nij,njk,nik->ni", jnp.asarray(self.root), q.covariance, jnp.asarray(self.root))
        return mean, known, variance


def _root(scale: Any, d: int) -> Array:
    """The triangular root of a scalar (n|1), a diagonal (n|1, d) or a matrix (n|1, d, d)."""
    scale = as_float(scale)
    if scale.ndim > 3 or any(size != d for size in scale.shape[1:]):
        raise ValueError(f"MvStudentT: scale= must be a number, a vector of {d} or a matrix; got {scale.shape[1:]}")
    if scale.ndim == 3:
        return cholesky(0.5 * (scale + jnp.swapaxes(scale, -1, -2)))
    diagonal = jnp.broadcast_to(jnp.sqrt(jnp.asarray(scale)).reshape(scale.shape[0], -1), (scale.shape[0], d))
    return diagonal[..., None] * jnp.eye(d, dtype=scale.dtype)


def _lower(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    d = mean.shape[-1]
    root = _root(scale, d)
    whiten = jax.scipy.linalg.solve_triangular(
        root, jnp.broadcast_to(jnp.eye(d, dtype=root.dtype), root.shape), lower=True
    )
    factor = MvStudentTNoise(as_float(df), root)
    residual = out - mean
    if isinstance(residual, (jax.Array, np.ndarray)):
        value = factor.log_density(jnp.einsum("nij,nj->ni", whiten, residual))
        at = jnp.broadcast_to(as_float(mean), residual.shape)
        variance = jnp.broadcast_to(factor.moments(jnp.zeros_like(at))[1], at.shape)
        return Lowered(ConstantFactor(value, at, variance, factor.checks()), ())
    return Lowered(factor, (whiten @ residual,))


_ANY = CONSTANT | MV_GAUSSIAN


@register
class MvStudentT(Distribution):
    """`MvStudentT(df, mean, scale=)`: Student's t of vectors; the scale matrix (which is no covariance: that is
    `scale df / (df - 2)`) is a number, a vector (diagonal) or a matrix. The mean is a constant or affine, `A @ x + b`.
    """

    __slots__ = ()
    family = MvGaussian
    event_ndims: ClassVar = {"out": 1, "df": 0, "mean": 1, "scale": None}
    placeholder = 0.0
    signatures = (Signature({"out": _ANY, "df": CONSTANT, "mean": _ANY, "scale": CONSTANT}, _lower, MvStudentTNoise),)

    def draw(self, key: Any, like: Array, df: Array, mean: Array, scale: Array) -> Array:
        """A normal vector over the root of an independent chi-squared number, divided by its degrees of freedom."""
        normal, other = jax.random.split(key)
        root = _root(scale, like.shape[-1])
        z = jnp.einsum("nij,...nj->...ni", root, jax.random.normal(normal, like.shape, like.dtype))
        half = jnp.broadcast_to(0.5 * df, like.shape[:-1])
        return mean + z / jnp.sqrt(jax.random.gamma(other, half, dtype=like.dtype) / half)[..., None]

    def __init__(self, df: Any, mean: Any, *, scale: Any):
        self.arguments = {"df": df, "mean": mean, "scale": scale}
