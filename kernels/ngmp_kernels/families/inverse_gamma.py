"""The inverse Gamma family on the positive half-line: the reciprocal of a Gamma variable."""

from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..quadrature.nodes import Nodes
from ..quadrature.rules import AbstractQuadrature, LogTrapezoid, counts
from ._family import AbstractFamily, broadcast, register
from .gamma import Gamma


@register
class InverseGamma(AbstractFamily):
    r"""Inverse Gamma with shape $a$ and scale $b$: $T(v) = (\log v, 1/v)$, $\eta = (-a - 1, -b)$.

    $A(\eta) = \log\Gamma(a) - a \log b$. $1/v$ is Gamma with concentration a and rate b, through which everything here
    is computed.
    """

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "inversegamma"
    support: ClassVar[str] = "positive"
    integrated: ClassVar[str] = "always"

    @classmethod
    def from_concentration_scale(cls, concentration: ArrayLike, scale: ArrayLike) -> Self:
        concentration, scale = broadcast(concentration, scale)
        return cls(-concentration - 1, -scale)

    @classmethod
    def from_reciprocal(cls, q: Gamma) -> Self:
        """The distribution of 1/t for t ~ q."""
        return cls.from_concentration_scale(q.concentration, q.rate)

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        mean_log, mean_reciprocal = broadcast(*mu)
        return cls.from_reciprocal(Gamma.from_mean(-mean_log, mean_reciprocal))

    @property
    def concentration(self) -> Float[Array, "*b"]:
        return -self.eta1 - 1

    @property
    def scale(self) -> Float[Array, "*b"]:
        return -self.eta2

    @property
    def reciprocal(self) -> Gamma:
        """The distribution of 1/v."""
        return Gamma.from_concentration_rate(self.concentration, self.scale)

    @property
    def mean(self) -> Float[Array, "*b"]:
        """`b/(a - 1)`, infinite for a <= 1."""
        finite = self.concentration > 1
        return jnp.where(finite, self.scale / jnp.where(finite, self.concentration - 1, 1), jnp.inf)

    @property
    def variance(self) -> Float[Array, "*b"]:
        """Infinite for a <= 2."""
        finite = self.concentration > 2
        a = jnp.where(finite, self.concentration, 3)
        return jnp.where(finite, self.scale**2 / ((a - 1) ** 2 * (a - 2)), jnp.inf)

    def location_scale(self) -> tuple[Array, Array]:
        """Of the reciprocal, which has moments."""
        return self.reciprocal.location_scale()

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return jnp.log(z), 1 / z

    def log_partition(self) -> Float[Array, "*b"]:
        return self.reciprocal.log_partition()

    def to_mean(self) -> tuple[Array, Array]:
        mean_log, mean = self.reciprocal.to_mean()
        return -mean_log, mean

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return self.reciprocal.log_density(1 / z) - 2 * jnp.log(z)

    def entropy(self) -> Float[Array, "*b"]:
        return self.reciprocal.entropy() + 2 * self.to_mean()[0]

    def kl(self, other: Self) -> Float[Array, "*b"]:
        return self.reciprocal.kl(other.reciprocal)

    def slack(self) -> tuple[Array, ...]:
        return self.reciprocal.slack()

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return 1 / self.reciprocal.sample(key, shape)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """Those of the reciprocal, by the quadratures that are regressions there."""
        known = quadrature if isinstance(quadrature, LogTrapezoid) else counts(quadrature)
        tau, log_weights = self.reciprocal.nodes(known)
        return 1 / tau, log_weights

    def regress(self, z: Array, w: Array, values: Array, centred: bool = False) -> Self:
        """The regression on log t and t of t = 1/v."""
        eta = self.reciprocal.regress(1 / z, w, values, centred)
        return type(self)(-eta.eta1, eta.eta2)

    def cdf(self, z: Array) -> Array:
        return jnp.where(z > 0, 1 - self.reciprocal.cdf(1 / jnp.where(z > 0, z, 1.0)), 0.0)

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return 1 / self.reciprocal.inverse_cdf(1 - p)

    def counterpart(self, dist: Any) -> Any:
        return dist.InverseGamma(self.concentration, self.scale)
