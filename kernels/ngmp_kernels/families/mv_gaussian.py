"""The multivariate Gaussian family with a dense precision matrix."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..numerics.cholesky import cholesky, inverse, inverse_factor, log_det, unwhiten, whiten
from ..numerics.special import LOG_2PI
from ..quadrature.nodes import Nodes, column, hermite_product, symmetric
from ..quadrature.regression import LogMessage
from ..quadrature.rules import AbstractQuadrature, GaussHermite, Unscented
from ._family import AbstractFamily, check_event, promote, register

_PER_AXIS = {1: 32, 2: 16, 3: 7, 4: 5}  # nodes by dimension: products of more would cost more than they are worth
MOST_DIMENSIONS = 6  # of five and six, symmetric nodes


def _symmetric(x: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    return 0.5 * (x + jnp.swapaxes(x, -1, -2))


def _matvec(matrix: Float[Array, "*b d d"], vector: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    return (matrix @ vector[..., None])[..., 0]


def _with_batch(vector: Array, matrix: Array) -> tuple[Array, Array]:
    """Give a (*b, d) vector and a (*b, d, d) matrix the same batch shape."""
    batch = jnp.broadcast_shapes(vector.shape[:-1], matrix.shape[:-2])
    return jnp.broadcast_to(vector, batch + vector.shape[-1:]), jnp.broadcast_to(matrix, batch + matrix.shape[-2:])


@register
class MvGaussian(AbstractFamily):
    r"""Gaussian on $R^d$: $T(z) = (z, z z^T)$, $\eta = (\xi, -\Lambda/2)$ with $\xi = \Lambda m$.

    $A(\eta) = \frac12 \xi^T \Lambda^{-1} \xi - \frac12 \log\det\Lambda + \frac d2 \log 2\pi$. Only the symmetric part
    of `eta2` matters; A is defined through it, so that its gradient and Hessian over all d*d entries are E[T], Cov[T].
    """

    eta1: Float[Array, "*b d"]
    eta2: Float[Array, "*b d d"]

    event_ndim: ClassVar[int] = 1
    kind: ClassVar[str] = "mvgaussian"
    words: ClassVar[str] = "a Gaussian vector (an MvNormal variable, A @ x)"
    symbol: ClassVar[str] = "N"
    core: ClassVar[str] = "gaussian"
    integrated: ClassVar[str] = "short"

    @classmethod
    def from_mean_covariance(cls, mean: ArrayLike, covariance: ArrayLike) -> Self:
        mean, covariance = _with_batch(*promote(mean, covariance))
        precision = inverse(cholesky(_symmetric(covariance)))
        return cls(_matvec(precision, mean), -0.5 * precision)

    @classmethod
    def standard(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...], dtype: Any = float) -> Self:
        """N(0, I)."""
        zero = cls.flat(batch_shape, event_shape, dtype)
        return cls(zero.eta1, zero.eta2 - 0.5 * jnp.eye(event_shape[0], dtype=dtype))

    @classmethod
    def from_information(cls, xi: ArrayLike, precision: ArrayLike) -> Self:
        """From the weighted mean `xi` = precision @ mean and the precision, which may be singular."""
        xi, precision = _with_batch(*promote(xi, precision))
        return cls(xi, -0.5 * precision)

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        check_event(cls, event_shape)
        batch_shape, event_shape = tuple(batch_shape), tuple(event_shape)
        return cls(jnp.zeros(batch_shape + event_shape, dtype), jnp.zeros(batch_shape + 2 * event_shape, dtype))

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        first, second = promote(*mu)
        return cls.from_mean_covariance(first, second - first[..., :, None] * first[..., None, :])

    @property
    def precision(self) -> Float[Array, "*b d d"]:
        return -2 * _symmetric(self.eta2)

    @property
    def _chol(self) -> Float[Array, "*b d d"]:
        """Lower Cholesky factor of the precision; NaN where the precision is not positive definite."""
        return cholesky(self.precision)

    @property
    def mean(self) -> Float[Array, "*b d"]:
        chol = self._chol
        return unwhiten(chol, whiten(chol, self.eta1[..., None]))[..., 0]

    @property
    def covariance(self) -> Float[Array, "*b d d"]:
        return inverse(self._chol)

    @property
    def variance(self) -> Float[Array, "*b d"]:
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1)

    def shifted(self, value: Array) -> Self:
        """The distribution of `z + value`."""
        return type(self)(self.eta1 - 2 * jnp.einsum("...ij,...j->...i", self.eta2, value), self.eta2)

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return z, z[..., :, None] * z[..., None, :]

    def log_partition(self) -> Float[Array, "*b"]:
        chol = self._chol
        white = whiten(chol, self.eta1[..., None])[..., 0]
        return 0.5 * (jnp.sum(white**2, axis=-1) - log_det(chol) + white.shape[-1] * LOG_2PI)

    def to_mean(self) -> tuple[Array, Array]:
        m = self.mean
        return m, self.covariance + m[..., :, None] * m[..., None, :]

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        chol = self._chol
        residual = z - self.mean
        white = _matvec(jnp.swapaxes(chol, -1, -2), residual)
        return 0.5 * (log_det(chol) - z.shape[-1] * LOG_2PI - jnp.sum(white**2, axis=-1))

    def entropy(self) -> Float[Array, "*b"]:
        return 0.5 * (self.event_shape[0] * (1 + LOG_2PI) - log_det(self._chol))

    def kl(self, other: Self) -> Float[Array, "*b"]:
        chol, other_chol = self._chol, other._chol
        # tr(Lambda_other Sigma) = || chol^{-1} chol_other ||^2, and the same matrix carries the log-determinant ratio.
        batch = jnp.broadcast_shapes(chol.shape, other_chol.shape)
        ratio = whiten(jnp.broadcast_to(chol, batch), jnp.broadcast_to(other_chol, batch))
        trace = jnp.sum(ratio**2, axis=(-2, -1))
        white = _matvec(jnp.swapaxes(other_chol, -1, -2), self.mean - other.mean)
        log_ratio = log_det(chol) - log_det(other_chol)
        return 0.5 * (trace - self.event_shape[0] + log_ratio + jnp.sum(white**2, axis=-1))

    def slack(self) -> tuple[Array, ...]:
        # Necessary, not sufficient: the smallest eigenvalue would cost a factorisation.
        return (-jnp.diagonal(self.eta2, axis1=-2, axis2=-1),)

    def remainder(self, other: "MvGaussian") -> Float[Array, "*b"]:
        """The smallest eigenvalue of the other precision in coordinates where the own one is the identity."""
        white = inverse_factor(self._chol)
        turned = white @ other.precision @ jnp.swapaxes(white, -1, -2)
        return jnp.minimum(jnp.linalg.eigvalsh(jnp.where(jnp.isfinite(turned), turned, 0.0))[..., 0], 1.0)

    def is_proper(self) -> Bool[Array, "*b"]:
        diagonal = jnp.diagonal(self._chol, axis1=-2, axis2=-1)
        finite = jnp.all(jnp.isfinite(self.eta1), axis=-1) & jnp.all(jnp.isfinite(self.eta2), axis=(-2, -1))
        return finite & jnp.all(jnp.isfinite(diagonal) & (diagonal > 0), axis=-1)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        noise = jax.random.normal(key, shape + self.batch_shape + self.event_shape, self.dtype)
        # chol^{-T} noise has covariance (chol chol^T)^{-1}
        white = inverse_factor(self._chol)
        return self.mean + _matvec(jnp.swapaxes(white, -1, -2), noise)

    def _table(self, quadrature: AbstractQuadrature) -> tuple[np.ndarray, np.ndarray]:
        """Products of the nodes of Hermite (Q, d), or symmetric ones, and their log-weights."""
        (d,) = self.event_shape
        if d > MOST_DIMENSIONS:
            raise TypeError(f"No quadrature over vectors of {d} entries: at most {MOST_DIMENSIONS}.")
        if isinstance(quadrature, GaussHermite | Unscented):
            return hermite_product(quadrature.n if isinstance(quadrature, GaussHermite) else 3, d)
        return hermite_product(_PER_AXIS[d], d) if d in _PER_AXIS else symmetric(d)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """`m + C^{-T} u`, with C the Cholesky factor of the precision and u products of the nodes of Hermite."""
        u, log_weights = self._table(quadrature)
        root, mean = inverse_factor(self._chol), self.mean
        # Entry by entry, so that XLA makes them where they are used.
        entries = [
            sum((root[..., j, i] * column(u[:, j], self) for j in range(i, u.shape[1])), mean[..., i])
            for i in range(u.shape[1])
        ]
        return jnp.stack(entries, -1), jnp.broadcast_to(column(log_weights, self), entries[0].shape)

    def shortcut(self, quadrature: AbstractQuadrature, log_message: LogMessage) -> Self:
        """With `u = C^T (z - m)`, 1, u_i and u_i u_j - [i = j] are orthogonal at three nodes an axis and more; and the
        same at all rows, so that the regression is two products with a table."""
        u, log_weights = (jnp.asarray(x, self.dtype) for x in self._table(quadrature))
        w, values, chol = jnp.exp(log_weights), log_message(self.nodes(quadrature)[0]), self._chol
        y = values - jnp.tensordot(w, values, 1, precision="highest")
        slope, bend = (jnp.moveaxis(jnp.tensordot(table, y, 1, precision="highest"), 0, -1)
                       for table in ((w[:, None] * u).T, (w * (u.T[:, None] * u.T)).reshape(-1, len(u))))  # fmt: skip
        bend = chol @ bend.reshape(*bend.shape[:-1], *chol.shape[-2:]) @ jnp.swapaxes(chol, -1, -2)
        return type(self)(_matvec(chol, slope) - _matvec(bend, self.mean), 0.5 * bend)

    def slope(self, function: Callable[[Any], Array]) -> Self:
        """`(J_m - 2 J_S m, J_S)` of a function of mean and covariance, J_S symmetric."""
        m, s = self.mean, self.covariance
        by_mean, by_spread = jax.grad(lambda m, s: function(type(self).from_mean_covariance(m, s)), (0, 1))(m, s)
        by_spread = _symmetric(by_spread)
        return type(self)(by_mean - 2 * _matvec(by_spread, m), by_spread)

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self:
        """As of a scalar: `Lambda (z - m)` of a draw z."""
        noise = spread * jnp.einsum("nij,nj->ni", -2 * self.eta2, self.sample(key) - self.mean)
        return type(self)(noise, jnp.zeros_like(self.eta2))

    def cdf(self, z: Array) -> Array:
        return ndtr((z - self.mean) / self.std)

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return self.mean + self.std * ndtri(p)[..., None]

    def counterpart(self, dist: Any) -> Any:
        return dist.MultivariateNormal(self.mean, precision_matrix=self.precision)
