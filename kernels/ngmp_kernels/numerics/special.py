"""Small functions that stay finite and keep their digits where the textbook form does not."""

import jax.numpy as jnp
from jax.scipy.special import betainc, gammaincc
from jaxtyping import Array, Bool, Float

from .gamma_functions import gammaln, log_gamma_ratio, log_half_ratio
from .logarithm import log1p

LOG_2PI = 1.8378770664093453


def safe_exp(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`exp(x)`, held 20 nats below overflow so that products with it stay finite in either precision."""
    bound = jnp.log(jnp.finfo(x.dtype).max) - 20.0
    return jnp.exp(jnp.minimum(x, bound.astype(x.dtype)))


def stirling_remainder(
    y: Float[Array, "*b"], log_y: Float[Array, "*b"], log_factorial: Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """`log y! - y log y + y` for y >= 1: half of `log 2 pi y` and Stirling's series, which from 16 on is exact."""
    inverse = 1 / jnp.where(y < 16.0, 16.0, y)
    square = inverse * inverse
    series = (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) * inverse
    return jnp.where(y < 16.0, log_factorial - y * log_y + y, 0.5 * (LOG_2PI + log_y) + series)


def safe_log(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log(x)` for x >= 0, held at the logarithm of the smallest normal number, so that 0 log 0 = 0."""
    tiny = jnp.finfo(x.dtype).tiny
    return jnp.where(x > tiny, jnp.log(jnp.where(x > tiny, x, 1.0)), jnp.log(tiny).astype(x.dtype))


def log_probability(p: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log(p)` of constants, with -10^4 for zero; NaN for a negative number.

    Zeros are common in tables of probabilities. Minus infinity would turn into NaN in cavities and gradients; -10^4
    has probability zero in either precision, and no ordinary evidence outweighs it.
    """
    return jnp.where(p > 0.0, jnp.log(jnp.where(p > 0.0, p, 1.0)), jnp.where(p == 0.0, -1e4, jnp.nan))


def log_binomial(n: Float[Array, "*b"], k: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """`log C(n, k)`, also for large n and small k."""
    return log_gamma_ratio(n - k + 1.0, k) - gammaln(k + 1.0)


def student_t_log_density(r: Array, df: Array, log_scale: Array) -> Array:
    """Log-density of Student's t, `df` degrees of freedom, location 0: elementwise, broadcasting.

    `log Gamma((df+1)/2) - log Gamma(df/2) - log(df pi)/2 - log_scale - (df+1)/2 log1p((r/scale)^2/df)`.
    """
    u = r * jnp.exp(-log_scale)
    constant = log_half_ratio(0.5 * df, 0.5 * df) - 0.5 * LOG_2PI - log_scale
    return constant - 0.5 * (df + 1.0) * log1p(u * u / df)


def poisson_cdf(out: Array, rate: Array) -> Array:
    """`P(y <= out) = Q(k + 1, rate)` with k = floor(out), for a Poisson count: elementwise, broadcasting."""
    k, rate = jnp.broadcast_arrays(jnp.floor(out), rate)
    return jnp.where(k < 0.0, 0.0, gammaincc(jnp.maximum(k, 0.0) + 1.0, rate))


def negative_binomial_cdf(out: Array, shape: Array, probability: Array) -> Array:
    """`P(y <= out) = I_p(shape, k + 1)` with k = floor(out), for the failures before `shape` successes."""
    k, shape, probability = jnp.broadcast_arrays(jnp.floor(out), shape, probability)
    return jnp.where(k < 0.0, 0.0, betainc(shape, jnp.maximum(k, 0.0) + 1.0, probability))


def binomial_cdf(out: Array, trials: Array, failure: Array) -> Array:
    """`P(y <= out) = I_{1-p}(n - k, k + 1)` with k = floor(out), for successes in n trials that fail with 1 - p."""
    k, trials, failure = jnp.broadcast_arrays(jnp.floor(out), trials, failure)
    inside = jnp.clip(k, 0.0, jnp.maximum(trials - 1.0, 0.0))
    value = betainc(jnp.maximum(trials - inside, 1.0), inside + 1.0, failure)
    return jnp.where(k < 0.0, 0.0, jnp.where(k >= trials, 1.0, value))


def is_count(y: Float[Array, "*b"]) -> Bool[Array, "*b"]:
    """Where `y` is a non-negative integer (held in floating point)."""
    return (y >= 0.0) & (y == jnp.round(y)) & jnp.isfinite(y)
