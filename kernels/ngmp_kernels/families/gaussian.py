"""The scalar Gaussian family."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..numerics.gamma_functions import log_ratio_excess
from ..numerics.lanes import if_any
from ..numerics.special import LOG_2PI
from ..quadrature.nodes import Nodes, column, hermite, point
from ..quadrature.regression import LogMessage, derivatives
from ..quadrature.rules import AbstractQuadrature, Delta, GaussHermite, Unscented, counts
from ._family import AbstractFamily, broadcast, register


@functools.lru_cache
def _hermite_slopes(n: int) -> np.ndarray:
    """(3, n): coefficients of 1, u and u^2 - 1 in the regression of values at the Hermite nodes u on them."""
    u, log_weights = hermite(n)
    w = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    square = u**2 - w @ u**2  # orthogonal to 1, and to u by symmetry
    return np.stack([w, w * u / (w @ u**2), w * square / (w @ square**2)])


@register
class Gaussian(AbstractFamily):
    r"""Scalar Gaussian: $T(z) = (z, z^2)$, $\eta = (\xi, -\Lambda/2)$ with $\xi = \Lambda m$ and precision $\Lambda$.

    $A(\eta) = \xi^2 / (2\Lambda) - \frac12 \log \Lambda + \frac12 \log 2\pi$.
    """

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "a Gaussian variable (or an affine expression)"
    symbol: ClassVar[str] = "N"
    core: ClassVar[str] = "gaussian"
    integrated: ClassVar[str] = "always"

    @classmethod
    def from_mean_variance(cls, mean: ArrayLike, variance: ArrayLike) -> Self:
        mean, variance = broadcast(mean, variance)
        precision = 1 / variance  # one division here and one back: they are what a pass over a long chain costs
        return cls(mean * precision, -0.5 * precision)

    from_mean_covariance = from_mean_variance  # of vectors of one entry, as far as anyone can tell

    @classmethod
    def standard(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        """N(0, 1)."""
        zero = cls.flat(batch_shape, event_shape, dtype)
        return cls(zero.eta1, zero.eta2 - 0.5)

    @classmethod
    def from_information(cls, xi: ArrayLike, precision: ArrayLike) -> Self:
        """From the weighted mean `xi` = precision * mean and the precision, which may be zero or negative."""
        xi, precision = broadcast(xi, precision)
        return cls(xi, -0.5 * precision)

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        first, second = broadcast(*mu)
        return cls.from_mean_variance(first, second - first**2)

    @property
    def precision(self) -> Float[Array, "*b"]:
        return -2 * self.eta2

    @property
    def mean(self) -> Float[Array, "*b"]:
        return self.eta1 * self.variance

    @property
    def variance(self) -> Float[Array, "*b"]:
        return 1 / self.precision

    @property
    def covariance(self) -> Float[Array, "*b"]:
        """The variance: what a vector has a matrix for."""
        return self.variance

    def shifted(self, value: Array) -> Self:
        """The distribution of `z + value`."""
        return type(self)(self.eta1 - 2 * self.eta2 * value, self.eta2)

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return z, z**2

    def log_partition(self) -> Float[Array, "*b"]:
        return 0.5 * (self.eta1**2 / self.precision - jnp.log(self.precision) + LOG_2PI)

    def to_mean(self) -> tuple[Array, Array]:
        return self.mean, self.variance + self.mean**2

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return 0.5 * (jnp.log(self.precision) - LOG_2PI - self.precision * (z - self.mean) ** 2)

    def entropy(self) -> Float[Array, "*b"]:
        return 0.5 * (1 + LOG_2PI - jnp.log(self.precision))

    def kl(self, other: Self) -> Float[Array, "*b"]:
        ratio = other.precision / self.precision
        return 0.5 * (log_ratio_excess(ratio) + other.precision * (self.mean - other.mean) ** 2)

    def slack(self) -> tuple[Array, ...]:
        return (-self.eta2,)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return self.mean + self.std * jax.random.normal(key, shape + self.batch_shape, self.dtype)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """`m + s u`, u the nodes of Hermite."""
        if isinstance(quadrature, Delta):
            return point(self)
        few = 3 if isinstance(quadrature, Unscented) else counts(quadrature).gaussian
        n = quadrature.n if isinstance(quadrature, GaussHermite) else few
        u, log_weights = hermite(n)
        z = self.mean + self.std * column(u, self)
        return z, jnp.broadcast_to(column(log_weights, self), z.shape)

    def shortcut(self, quadrature: AbstractQuadrature, log_message: LogMessage) -> Self:
        """A regression, on 1, u and u^2 - 1 with u = (z - m) / s; where l hardly differs between the nodes, its limit.

        Of differences divided by a tiny variance rounding would leave nothing.
        """
        if isinstance(quadrature, Delta):
            return self._osculating(log_message)
        z, _ = self.nodes(quadrature)
        values = log_message(z)
        eps = float(jnp.finfo(values.dtype).eps)
        high, low = jnp.max(values, 0), jnp.min(values, 0)
        flat = high - low <= eps ** (1 / 3) + 8 * eps * jnp.maximum(jnp.abs(high), jnp.abs(low))

        def limit(found: Self) -> Self:
            exact = self._osculating(log_message)
            there = flat & jnp.isfinite(exact.eta1) & jnp.isfinite(exact.eta2)
            return jax.tree.map(lambda a, b: jnp.where(there, a, b), exact, found)

        return if_any(flat, limit, lambda found: found, self._regress(z, values))

    def _osculating(self, log_message: LogMessage) -> Self:
        """The member with the same two derivatives at the mean."""
        d1, d2 = derivatives(log_message, self.mean)
        return type(self)(d1 - self.mean * d2, 0.5 * d2)

    def _regress(self, z: Array, values: Array) -> Self:
        """By values at all nodes of Hermite, so that it is one product with a constant matrix.

        What is left, at the u of the rounded nodes that the message has seen, is regressed once more: an exact relation
        is recovered to rounding, whatever the constant.
        """
        m, s = self.mean, self.std
        table = jnp.asarray(_hermite_slopes(z.shape[0]), values.dtype)

        def slopes(y: Array) -> Array:
            return jnp.tensordot(table, y, 1, precision="highest")

        u = (z - m) / s
        centre, beta1, beta2 = slopes(values)
        _, more1, more2 = slopes(values - (centre + u * (beta1 + beta2 * u)))
        eta2 = (beta2 + more2) / s**2
        return type(self)((beta1 + more1) / s - 2 * m * eta2, eta2)

    def slope(self, function: Callable[[Any], Array]) -> Self:
        """`(J_m - 2 m J_v, J_v)` of a function of mean and variance: no difference of large numbers."""
        m, v = self.mean, self.variance
        by_mean, by_variance = jax.grad(lambda m, v: function(type(self).from_mean_variance(m, v)), (0, 1))(m, v)
        return type(self)(by_mean - 2 * m * by_variance, by_variance)

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self:
        """The linear coefficient `Lambda (z - m)` of a draw z, to which it moves the mean."""
        noise = spread * jnp.sqrt(jnp.abs(self.precision)) * jax.random.normal(key, self.batch_shape, self.dtype)
        return type(self)(noise, jnp.zeros_like(noise))

    def cdf(self, z: Array) -> Array:
        return ndtr((z - self.mean) / self.std)

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return self.mean + self.std * ndtri(p)

    def counterpart(self, dist: Any) -> Any:
        return dist.Normal(self.mean, self.std)
