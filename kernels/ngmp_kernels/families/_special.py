r"""Combinations of log, digamma and log-gamma that cancel at large argument, arranged so that they do not.

Above `_SWITCH` the asymptotic (Bernoulli-number) series is used. With terms to $a^{-10}$ the first neglected term at 16
is below 1e-16, so both branches agree to double precision.
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln, polygamma
from jaxtyping import Array, Float

_SWITCH = 16.0
# B_{2k} / (2k), k = 1..5: digamma(a) ~ log a - 1/(2a) - sum_k B_{2k} / (2k a^{2k}).
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
# B_{2k}, k = 1..6: trigamma(a) ~ 1/a + 1/(2a^2) + sum_k B_{2k} / a^{2k+1}.
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
# B_{2k} / (2k (2k-1)), k = 1..5: log-gamma(a) ~ (a-1/2) log a - a + log(2 pi)/2 + sum_k .../a^{2k-1}.
_LOGGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner sum of c_1 x + c_2 x^2 + ..."""
    total = jnp.zeros_like(x)
    for c in reversed(coefficients):
        total = (total + c) * x
    return total


def _split(a: Array) -> tuple[Array, Array]:
    """Arguments for the direct and the asymptotic branch; each stays in its own range so that gradients are finite."""
    return jnp.minimum(a, _SWITCH), jnp.maximum(a, _SWITCH)


def log_minus_digamma(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log a - \psi(a)$, about $1/(2a)$."""
    small, large = _split(a)
    asymptotic = 0.5 / large + _series(_DIGAMMA, 1 / large**2)
    return jnp.where(a < _SWITCH, jnp.log(small) - digamma(small), asymptotic)


def trigamma_minus_inverse(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\psi_1(a) - 1/a$, about $1/(2a^2)$."""
    small, large = _split(a)
    asymptotic = 0.5 / large**2 + _series(_TRIGAMMA, 1 / large**2) / large
    return jnp.where(a < _SWITCH, polygamma(1, small) - 1 / small, asymptotic)


def stirling_error(a: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log\Gamma(a) - a \log a + a$, about $\frac12 \log(2\pi/a)$."""
    small, large = _split(a)
    asymptotic = 0.5 * (math.log(2 * math.pi) - jnp.log(large)) + _series(_LOGGAMMA, 1 / large**2) * large
    return jnp.where(a < _SWITCH, gammaln(small) - small * jnp.log(small) + small, asymptotic)


def inverse_digamma(y: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""The $a > 0$ with $\psi(a) = y$: Minka's starting value and five Newton steps (enough for 1e-15)."""
    euler = 0.5772156649015329
    a = jnp.where(y >= -2.22, jnp.exp(jnp.maximum(y, -2.22)) + 0.5, -1 / (jnp.minimum(y, -2.22) + euler))
    return jax.lax.fori_loop(0, 5, lambda _, a: a - (digamma(a) - y) / polygamma(1, a), a)


def log_ratio(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$\log x$, through log1p near 1 so that `x - 1 - log_ratio(x)` keeps its digits there, and safe for tiny x."""
    near = jnp.abs(x - 1) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, x - 1, 0)), jnp.log(jnp.where(near, 1, x)))


def log_ratio_excess(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    r"""$x - 1 - \log x \ge 0$, the Bregman divergence of $-\log$ from 1."""
    return (x - 1) - log_ratio(x)
