"""The Wishart family on positive definite matrices."""

import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..numerics.cholesky import cholesky, inverse, log_det
from ..numerics.gamma_functions import digamma, gammaln, trigamma
from ._family import AbstractFamily, promote, register
from .gamma import Gamma
from .mv_gaussian import _symmetric

_LOG_2, _LOG_PI = math.log(2.0), math.log(math.pi)
_NEWTON = 40
_ROUNDING = 16.0  # units, times d, that a diagonal may have lost


def _halves(df: Float[Array, "*b"], d: int) -> Float[Array, "*b d"]:
    """The arguments $(\\nu + 1 - i)/2$, i = 1..d, of the multivariate gamma function."""
    return 0.5 * (df[..., None] - jnp.asarray(np.arange(d), df.dtype))


def _degrees(s: Float[Array, "*b"], d: int) -> Float[Array, "*b"]:
    r"""Solve $d \log(\nu/2) - \psi_d(\nu/2) = s$ for $\nu > d - 1$ by Newton's method in $\log(\nu - d + 1)$."""

    def step(_, t):
        df = d - 1 + jnp.exp(t)
        gap = d * jnp.log(0.5 * df) - jnp.sum(digamma(_halves(df, d)), -1) - s
        slope = (d / df - 0.5 * jnp.sum(trigamma(_halves(df, d)), -1)) * jnp.exp(t)
        return t - jnp.clip(gap / slope, -1.0, 1.0)

    start = jnp.log(d * (d + 1) / (2 * s))  # s is about d (d + 1) / (2 nu)
    return d - 1 + jnp.exp(jax.lax.fori_loop(0, _NEWTON, step, start))


@register
class Wishart(AbstractFamily):
    r"""Wishart with $\nu$ degrees of freedom and scale S: $T(W) = (W, \log\det W)$,
    $\eta = (-S^{-1}/2, (\nu - d - 1)/2)$.

    $A(\eta) = \frac{\nu}{2} \log\det(2 S) + \log\Gamma_d(\nu/2)$, for Lebesgue measure on the upper triangle. The mean
    is $\nu S$. The matrix comes first, because the first block tells the event shape. Only the symmetric part of
    `eta1` matters, as in `MvGaussian`.
    """

    eta1: Float[Array, "*b d d"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 2
    kind: ClassVar[str] = "wishart"
    support: ClassVar[str] = "matrix"

    @classmethod
    def from_df_scale(cls, df: ArrayLike, scale: ArrayLike) -> Self:
        df, scale = promote(df, scale)
        return cls.from_df_inverse_scale(df, inverse(cholesky(_symmetric(scale))))

    @classmethod
    def from_df_inverse_scale(cls, df: ArrayLike, inverse_scale: ArrayLike) -> Self:
        df, inverse = promote(df, inverse_scale)
        batch = jnp.broadcast_shapes(df.shape, inverse.shape[:-2])
        d = inverse.shape[-1]
        return cls(jnp.broadcast_to(-0.5 * inverse, (*batch, d, d)), jnp.broadcast_to(0.5 * (df - d - 1), batch))

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        if len(event_shape) != 2 or event_shape[0] != event_shape[1]:
            raise ValueError(
                f"Wishart variables are square matrices: expected an event_shape (d, d), got {event_shape}."
            )
        return cls(jnp.zeros((*batch_shape, *event_shape), dtype), jnp.zeros(batch_shape, dtype))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        mean, mean_log_det = promote(*mu)
        chol = cholesky(_symmetric(mean))
        df = _degrees(log_det(chol) - mean_log_det, mean.shape[-1])
        return cls.from_df_inverse_scale(df, df[..., None, None] * inverse(chol))

    @property
    def df(self) -> Float[Array, "*b"]:
        return 2 * self.eta2 + self.eta1.shape[-1] + 1

    @property
    def inverse_scale(self) -> Float[Array, "*b d d"]:
        return -2 * _symmetric(self.eta1)

    @property
    def _chol(self) -> Float[Array, "*b d d"]:
        """Lower Cholesky factor of the inverse scale; NaN where that is not positive definite."""
        return cholesky(self.inverse_scale)

    @property
    def scale(self) -> Float[Array, "*b d d"]:
        return inverse(self._chol)

    @property
    def mean(self) -> Float[Array, "*b d d"]:
        return self.df[..., None, None] * self.scale

    @property
    def variance(self) -> Float[Array, "*b d d"]:
        s = self.scale
        diagonal = jnp.diagonal(s, axis1=-2, axis2=-1)
        return self.df[..., None, None] * (s**2 + diagonal[..., :, None] * diagonal[..., None, :])

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return z, log_det(cholesky(z))

    def log_partition(self) -> Float[Array, "*b"]:
        d, df = self.eta1.shape[-1], self.df
        gamma = 0.25 * d * (d - 1) * _LOG_PI + jnp.sum(gammaln(_halves(df, d)), -1)
        return 0.5 * df * (d * _LOG_2 - log_det(self._chol)) + gamma

    def mean_log_det(self) -> Float[Array, "*b"]:
        d = self.eta1.shape[-1]
        return jnp.sum(digamma(_halves(self.df, d)), -1) + d * _LOG_2 - log_det(self._chol)

    def to_mean(self) -> tuple[Array, Array]:
        return self.mean, self.mean_log_det()

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return self.dot(self.statistics(z)) - self.log_partition()

    def slack(self) -> tuple[Array, ...]:
        return -jnp.diagonal(self.eta1, axis1=-2, axis2=-1), self.df - (self.eta1.shape[-1] - 1)

    def is_proper(self) -> Bool[Array, "*b"]:
        diagonal = jnp.diagonal(self._chol, axis1=-2, axis2=-1)
        finite = jnp.all(jnp.isfinite(self.eta1), axis=(-2, -1)) & jnp.isfinite(self.eta2)
        definite = jnp.all(jnp.isfinite(diagonal) & (diagonal > 0), axis=-1)
        return finite & definite & (self.df > self.eta1.shape[-1] - 1)

    def mended(self) -> Self:
        """With a little more on the diagonal of an inverse scale that has a Cholesky factor no more."""
        d, given = self.eta1.shape[-1], jax.lax.stop_gradient(self.eta1)
        more = _ROUNDING * d * jnp.finfo(self.dtype).eps * jnp.eye(d, dtype=self.dtype) * given
        broken = ~jnp.isfinite(self._chol[..., :1, :1])
        return type(self)(self.eta1 + jnp.where(broken, more, 0), self.eta2)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Bartlett: `W = L A A^T L^T`, `S = L L^T`, A lower triangular, normal below a diagonal of chi variables."""
        below, on = jax.random.split(key)
        d, batch = self.eta1.shape[-1], shape + self.batch_shape
        normal = jnp.tril(jax.random.normal(below, (*batch, d, d), self.dtype), -1)
        chi = jnp.sqrt(2 * jax.random.gamma(on, _halves(self.df, d), (*batch, d), self.dtype))
        a = normal + chi[..., None] * jnp.eye(d, dtype=self.dtype)
        root = cholesky(self.scale) @ a
        return root @ jnp.swapaxes(root, -1, -2)

    @property
    def diagonal(self) -> Gamma:
        r"""The entries of the diagonal, $W_{ii} \sim S_{ii} \chi^2_\nu$, (*b, d)."""
        scales = jnp.diagonal(self.scale, axis1=-2, axis2=-1)
        return Gamma.from_concentration_rate(0.5 * self.df[..., None], 0.5 / scales)

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        raise NotImplementedError("entries of a Wishart have no quantiles in closed form; those of q.diagonal have")

    def counterpart(self, dist: Any) -> Any:
        return dist.Wishart(self.df, scale_matrix=self.scale)
