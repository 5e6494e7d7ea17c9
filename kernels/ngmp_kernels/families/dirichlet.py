"""The Dirichlet family on the simplex."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, xlogy
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..numerics.gamma_functions import digamma, gammaln, inverse_digamma, trigamma
from ..numerics.inverse_cdf import INVERSE
from ._family import AbstractFamily, promote, register


def concentration_from_mean(g: Float[Array, "*b K"]) -> Float[Array, "*b K"]:
    r"""Solve $\psi(\alpha_k) - \psi(\sum_j \alpha_j) = g_k$ for $\alpha$.

    One unknown is enough: with $s = \sum_j \alpha_j$, $\alpha_k(s) = \psi^{-1}(\psi(s) + g_k)$ and
    $h(s) = \sum_k \alpha_k(s) - s = 0$. $h$ is concave (checked numerically), and $\psi^{-1}(y) \le e^y + 1/2$,
    $e^{\psi(s)} \le s$ give the upper bound $s \le K / (2 (1 - \sum_k e^{g_k}))$, from which Newton's method descends
    to the root without overshoot.
    """
    eps = jnp.finfo(g.dtype).eps
    gap = jnp.maximum(1 - jnp.sum(jnp.exp(g), axis=-1), eps)
    bound = 0.5 * g.shape[-1] / gap

    def alphas(s):
        return inverse_digamma(digamma(s)[..., None] + g)

    def step(_, s):
        alpha = alphas(s)
        slope = jnp.sum(trigamma(s)[..., None] / trigamma(alpha), axis=-1) - 1
        return s - (jnp.sum(alpha, axis=-1) - s) / slope

    return alphas(jax.lax.fori_loop(0, 10, step, bound))


@register
class Dirichlet(AbstractFamily):
    r"""Dirichlet with concentrations $\alpha$: $T(p) = \log p$, $\eta = \alpha - 1$.

    $A(\eta) = \sum_k \log\Gamma(\alpha_k) - \log\Gamma(\sum_k \alpha_k)$, for Lebesgue measure on the first K-1
    coordinates.
    """

    eta1: Float[Array, "*b K"]

    event_ndim: ClassVar[int] = 1
    kind: ClassVar[str] = "dirichlet"
    support: ClassVar[str] = "simplex"

    @classmethod
    def from_concentration(cls, concentration: ArrayLike) -> Self:
        (concentration,) = promote(concentration)
        return cls(concentration - 1)

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        (mean_log,) = promote(*mu)
        return cls(concentration_from_mean(mean_log) - 1)

    @property
    def concentration(self) -> Float[Array, "*b K"]:
        return self.eta1 + 1

    @property
    def mean(self) -> Float[Array, "*b K"]:
        return self.concentration / jnp.sum(self.concentration, axis=-1, keepdims=True)

    @property
    def variance(self) -> Float[Array, "*b K"]:
        alpha = self.concentration
        total = jnp.sum(alpha, axis=-1, keepdims=True)
        # Of all others, without a difference: 1 - mean of a class that is nearly certain would leave no digits.
        zero = jnp.zeros_like(alpha[..., :1])
        before = jnp.concatenate([zero, jnp.cumsum(alpha[..., :-1], -1)], -1)
        after = jnp.concatenate([zero, jnp.cumsum(alpha[..., :0:-1], -1)], -1)[..., ::-1]
        return self.mean * ((before + after) / total) / (total + 1)

    def statistics(self, z: Array) -> tuple[Array]:
        return (jnp.log(z),)

    def log_partition(self) -> Float[Array, "*b"]:
        alpha = self.concentration
        return jnp.sum(gammaln(alpha), axis=-1) - gammaln(jnp.sum(alpha, axis=-1))

    def to_mean(self) -> tuple[Array]:
        alpha = self.concentration
        return (digamma(alpha) - digamma(jnp.sum(alpha, axis=-1, keepdims=True)),)

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return jnp.sum(xlogy(self.eta1, z), axis=-1) - self.log_partition()

    def slack(self) -> tuple[Array, ...]:
        return (self.concentration,)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.dirichlet(key, self.concentration, shape + self.batch_shape, self.dtype)

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self:
        """A draw times the total concentration: q once more, as counts."""
        return type(self)(spread * jnp.sum(self.concentration, -1, keepdims=True) * self.sample(key))

    def cdf(self, z: Array) -> Array:
        """Every entry is a Beta variable."""
        a = self.concentration
        return betainc(*jnp.broadcast_arrays(a, jnp.sum(a, -1, keepdims=True) - a, jnp.clip(z, 0.0, 1.0)))

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return INVERSE["unit"](self.cdf, p[..., None], self.mean, self.std)

    def counterpart(self, dist: Any) -> Any:
        return dist.Dirichlet(self.concentration)
