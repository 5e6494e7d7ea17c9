r"""Functions of a scalar, for `ngmp.apply`, whose mean and variance under a Gaussian are known in closed form.

A deterministic node $out = g(x)$ needs no more than these. With $\mu(m, v)$ and $\sigma^2(m, v)$ the moments of g(x)
for $x \sim N(m, v)$, the message toward `out` is $N(\mu, \sigma^2)$ at the cavity of x; and with $(\xi, -\Lambda/2)$
the cavity of `out`, the log-message toward x has the expectation
$E(m, v) = \xi\mu - \frac12 \Lambda (\mu^2 + \sigma^2)$, hence the projection
$(\partial_m E - 2 m\,\partial_v E,\ \partial_v E)$ at the marginal of x.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families import Gaussian
from ..numerics.special import LOG_2PI


@jax.tree_util.register_static
class ClosedForm:
    """A function with its moments; called, it is the function.

    Args:
        function: `g(x, *constants)`, written with `jax.numpy`.
        moments: `(m, v, *constants) -> (mean, variance)` of `g(x)` for x ~ N(m, v), differentiable.
    """

    def __init__(self, function: Callable[..., Array], moments: Callable[..., tuple[Array, Array]]):
        self.function, self.moments = function, moments
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Array:
        return self.function(*arguments)

    def project(self, q: Gaussian, out: Gaussian, constants: tuple[Array, ...]) -> Gaussian:
        """The tangent projection, at the marginal q of x, of the cavity of `out` read at `g(x)`."""
        m, v = q.mean, q.variance

        def expected(m: Array, v: Array) -> Array:
            mean, variance = self.moments(m, v, *constants)
            return out.eta1 * mean + out.eta2 * (mean**2 + variance)

        one, zero = jnp.ones_like(m), jnp.zeros_like(m)
        _, by_mean = jax.jvp(expected, (m, v), (one, zero))
        _, by_variance = jax.jvp(expected, (m, v), (zero, one))
        return Gaussian(by_mean - 2 * m * by_variance, by_variance)


def expected_log_density(p: Gaussian, mean: Array, variance: Array) -> Float[Array, " n"]:
    """`E[log p]` under any distribution with this mean and variance."""
    return 0.5 * (jnp.log(p.precision) - LOG_2PI - p.precision * ((mean - p.mean) ** 2 + variance))


def _residual_sine(x: Array, rho: Array, omega: Array) -> Array:
    return x + rho / omega * jnp.sin(omega * x)


def _residual_sine_moments(m: Array, v: Array, rho: Array, omega: Array) -> tuple[Array, Array]:
    r"""With $E = e^{-\omega^2 v}$, $s = \sin\omega m$ and $c = \rho/\omega$: mean $m + c \sqrt E s$ and variance
    $v + 2 c\,\omega v \sqrt E \cos\omega m + c^2 (1 - E) \left(\tfrac{1 + E}2 - E s^2\right)$; the last two terms are
    the covariance of x with the sine, twice, and the variance of the sine."""
    c, s = rho / omega, jnp.sin(omega * m)
    root = jnp.exp(-0.5 * omega**2 * v)
    square, rest = root**2, -jnp.expm1(-(omega**2) * v)
    covariance = omega * v * root * jnp.cos(omega * m)
    return m + c * root * s, v + 2 * c * covariance + c**2 * rest * (0.5 * (1 + square) - square * s**2)


residual_sine = ClosedForm(_residual_sine, _residual_sine_moments)
"""`residual_sine(x, rho, omega) = x + (rho / omega) sin(omega x)`, increasing for |rho| < 1."""
