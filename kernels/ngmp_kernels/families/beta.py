"""The Beta family on the unit interval."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, xlog1py, xlogy
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..numerics.gamma_functions import digamma, gammaln, log_gamma_ratio
from ..numerics.inverse_cdf import INVERSE
from ..numerics.logarithm import log, log1p
from ..quadrature.nodes import Nodes, cutoff, normalised, point, stretch
from ..quadrature.regression import LogMessage, derivatives, log_quotient, log_shift, slopes
from ..quadrature.rules import AbstractQuadrature, Delta, LogTrapezoid, counts
from ._family import AbstractFamily, broadcast, register
from .dirichlet import concentration_from_mean


def _drop(x: Array, a: Array, b: Array) -> Array:
    r"""Log-density drop of logit p at distance x from its mode: $D(x) = (a+b) \log(1 + \frac{a}{a+b}(e^x - 1)) - a x$.

    $D(x; a, b) = D(-x; b, a)$, and the side with the smaller parameter in front does not cancel. Beyond `far` the
    exponential would overflow, and the logarithm is split.
    """
    far = 50.0
    low, high, y = jnp.minimum(a, b), jnp.maximum(a, b), jnp.where(a > b, -x, x)
    near_log = jnp.log1p(low / (a + b) * jnp.expm1(jnp.minimum(y, far)))
    far_log = y + jnp.log(low / (a + b)) + jnp.log1p(high / low * jnp.exp(-jnp.maximum(y, far)))
    return (a + b) * jnp.where(y < far, near_log, far_log) - low * y


def _reach(a: Array, b: Array, cutoff: float) -> Array:
    r"""The x > 0 where `_drop` equals the cutoff, from above.

    Two upper bounds: $|D'''| \le D''$ gives $D \ge h (e^{-x} - 1 + x)$, $h = ab/(a+b)$; the tail is at least
    $D \ge b x - (a+b) \log(1 + b/a)$. Newton on the convex D descends from the smaller one.
    """
    r = cutoff * (1 / a + 1 / b)
    x = jnp.minimum(r + jnp.sqrt(2 * r), (cutoff + (a + b) * jnp.log1p(b / a)) / b)
    for _ in range(4):
        slope = (a + b) * jax.nn.sigmoid(x + jnp.log(a / b)) - a
        x = x - (_drop(x, a, b) - cutoff) / slope
    return x


@register
class Beta(AbstractFamily):
    r"""Beta(a, b): $T(p) = (\log p, \log(1-p))$, $\eta = (a - 1, b - 1)$, $A(\eta) = \log B(a, b)$."""

    eta1: Float[Array, "*b"]
    eta2: Float[Array, "*b"]

    event_ndim: ClassVar[int] = 0
    kind: ClassVar[str] = "beta"
    support: ClassVar[str] = "unit"
    integrated: ClassVar[str] = "always"

    @classmethod
    def from_ab(cls, a: ArrayLike, b: ArrayLike) -> Self:
        a, b = broadcast(a, b)
        return cls(a - 1, b - 1)

    @classmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        alpha = concentration_from_mean(jnp.stack(broadcast(*mu), axis=-1))
        return cls.from_ab(alpha[..., 0], alpha[..., 1])

    @property
    def a(self) -> Float[Array, "*b"]:
        return self.eta1 + 1

    @property
    def b(self) -> Float[Array, "*b"]:
        return self.eta2 + 1

    @property
    def mean(self) -> Float[Array, "*b"]:
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> Float[Array, "*b"]:
        total = self.a + self.b
        return (self.a / total) * (self.b / total) / (total + 1)

    def statistics(self, z: Array) -> tuple[Array, Array]:
        return jnp.log(z), jnp.log1p(-z)

    def log_partition(self) -> Float[Array, "*b"]:
        # jax.scipy.special.betaln is off by 1e-6 where an argument exceeds 8.
        low, high = jnp.minimum(self.a, self.b), jnp.maximum(self.a, self.b)
        return gammaln(low) - log_gamma_ratio(high, low)

    def to_mean(self) -> tuple[Array, Array]:
        total = digamma(self.a + self.b)
        return digamma(self.a) - total, digamma(self.b) - total

    def log_density(self, z: Array) -> Float[Array, "*b"]:
        return xlogy(self.eta1, z) + xlog1py(self.eta2, -z) - self.log_partition()

    def slack(self) -> tuple[Array, ...]:
        return self.a, self.b

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        return jax.random.beta(key, self.a, self.b, shape + self.batch_shape, self.dtype)

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        r"""In $x = \operatorname{logit} p - \log(a/b)$ the log-density is minus `_drop` up to a constant."""
        if isinstance(quadrature, Delta):
            return point(self)
        a, b, info = self.a, self.b, jnp.finfo(self.dtype)
        end = cutoff(self.dtype)
        n = quadrature.n if isinstance(quadrature, LogTrapezoid) else counts(quadrature).beta
        x, log_jacobian = stretch(_reach(b, a, end), _reach(a, b, end), n)
        p = jnp.clip(jax.nn.sigmoid(x + jnp.log(a / b)), info.tiny, 1 - info.epsneg)
        return p, normalised(log_jacobian - _drop(x, a, b))

    def regress(self, z: Array, w: Array, values: Array, centred: bool = False) -> Self:
        """Basis: the logit and the binary divergence, both relative to the mean m; first and second order in z - m."""
        total = self.a + self.b
        m1, m0 = self.a / total, self.b / total
        log1 = log_quotient(z, m1)
        log0 = log_shift(m1 - z, m0, log1p(-z) - log(m0))
        beta1, beta2 = slopes(w, values, log1 - log0, -(m1 * log1 + m0 * log0))
        return type(self)(beta1 - m1 * beta2, -beta1 - m0 * beta2)

    def shortcut(self, quadrature: AbstractQuadrature, log_message: LogMessage) -> Self | None:
        """eta1 log p + eta2 log(1 - p) has derivatives eta1 / p - eta2 / (1-p) and -eta1 / p^2 - eta2 / (1-p)^2."""
        if not isinstance(quadrature, Delta):
            return None
        p = self.mean
        d1, d2 = derivatives(log_message, p)
        return type(self)(p**2 * (d1 - (1 - p) * d2), -((1 - p) ** 2) * (d1 + p * d2))

    def cdf(self, z: Array) -> Array:
        return betainc(*jnp.broadcast_arrays(self.a, self.b, jnp.clip(z, 0.0, 1.0)))

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        return INVERSE["unit"](self.cdf, p, self.mean, self.std)

    def counterpart(self, dist: Any) -> Any:
        return dist.Beta(self.a, self.b)
