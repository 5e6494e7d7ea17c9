"""Inverses of distribution functions: y with F(y) = p, for F on arrays whose last axes are those of the mean."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

_MAX_STEPS = 200  # bisection alone would need a quarter of them for full precision
Function = Callable[[Array], Array]


def check_probabilities(p: Any) -> None:
    """Refuse what is no probability strictly between 0 and 1, where that is known."""
    if isinstance(p, Tracer):
        return
    values = np.asarray(p)
    inside = values.dtype.kind in "fiu" and bool(np.all((values > 0) & (values < 1)))
    if not inside:
        raise ValueError(f"quantile(p): p must be probabilities strictly between 0 and 1, such as 0.05; got {p}")


def _real(cdf: Function, p: Array, mean: Array, std: Array) -> Array:
    """In `y = mean + std sinh t` every finite number is within reach; tails may be as heavy as they like."""
    std = jnp.where(jnp.isfinite(std) & (std > 0), std, 1.0)
    return _continuous(cdf, p, lambda t: mean + std * jnp.sinh(t), mean)


def _positive(cdf: Function, p: Array, mean: Array, std: Array) -> Array:
    return _continuous(cdf, p, lambda t: mean * jnp.exp(t), mean)


def _unit(cdf: Function, p: Array, mean: Array, std: Array) -> Array:
    return _continuous(cdf, p, jax.nn.sigmoid, mean)


def _continuous(cdf: Function, p: Array, coordinate: Function, like: Array) -> Array:
    """The root of `F(y(t)) - p`, with the derivatives of the implicit function: `dy = (dp - dF)/f`."""
    reach = 0.45 * jnp.log(jnp.finfo(like.dtype).max)
    shape = jnp.broadcast_shapes(p.shape, like.shape)
    y = jax.lax.stop_gradient(coordinate(_root(lambda t: cdf(coordinate(t)), p, jnp.full(shape, reach, like.dtype))))
    value, density = jax.jvp(cdf, (y,), (jnp.ones_like(y),))
    slack = p - value
    density = jax.lax.stop_gradient(jnp.where(density > 0, density, jnp.inf))
    return y + (slack - jax.lax.stop_gradient(slack)) / density


def _root(cdf: Function, p: Array, reach: Array) -> Array:
    """`F(t) = p` by Chandrupatla's method: inverse quadratic interpolation where that is safe, else bisection.

    Each element has its own bracket between a (the newest point) and b, c being the point before; F is 0 and 1 at
    the ends of the first, [-reach, reach].
    """
    tol = 2 * jnp.finfo(reach.dtype).eps

    def going(carry: tuple) -> Array:
        return jnp.any(~carry[-2]) & (carry[-1] < _MAX_STEPS)

    def step(carry: tuple) -> tuple:
        a, b, fa, fb, t, done, count = carry
        x = a + t * (b - a)
        fx = cdf(x) - p
        same = (fx > 0) == (fa > 0)
        c, fc = jnp.where(same, a, b), jnp.where(same, fa, fb)
        b, fb = jnp.where(same, b, a), jnp.where(same, fb, fa)
        least = tol * (1 + jnp.abs(x)) / jnp.abs(b - x)
        xi, phi = (x - b) / (c - b), (fx - fb) / (fc - fb)
        quadratic = fx / (fb - fx) * fc / (fb - fc) + (c - x) / (b - x) * fx / (fc - fx) * fb / (fc - fb)
        smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        new = jnp.clip(jnp.where(smooth, quadratic, 0.5), least, 1 - least)
        ended = done | (least > 0.5) | (fx == 0)
        kept = (jnp.where(done, old, now) for old, now in zip(carry[:4], (x, b, fx, fb), strict=True))
        return *kept, new, ended, count + 1

    zero = jnp.zeros_like(reach)
    start = (-reach, reach, zero - p, zero + 1 - p, zero + 0.5, jnp.zeros(reach.shape, bool), 0)
    return jax.lax.while_loop(going, step, jax.lax.stop_gradient(start))[0]


def _count(cdf: Function, p: Array, mean: Array, std: Array) -> Array:
    """The smallest integer k with `F(k) >= p`: doubled until it is passed, then bisected; `F(-1) = 0`."""
    largest = 1 / jnp.finfo(mean.dtype).eps  # beyond it not every integer is a number
    first = jnp.broadcast_to(jnp.clip(jnp.ceil(mean), 1.0, largest), jnp.broadcast_shapes(p.shape, mean.shape))

    def step(carry: tuple) -> tuple:
        low, high, passed = carry  # F(low) < p; once passed, F(high) >= p
        k = jnp.where(passed, jnp.floor(0.5 * (low + high)), high)
        above = (cdf(k) >= p) | (k >= largest)
        return jnp.where(above, low, k), jnp.where(above, k, jnp.where(passed, high, 2 * high)), passed | above

    def going(carry: tuple) -> Array:
        low, high, passed = carry
        return jnp.any(~passed | (high - low > 1))

    start = jax.lax.stop_gradient((-jnp.ones_like(first), first, jnp.zeros(first.shape, bool)))
    return jax.lax.stop_gradient(jax.lax.while_loop(going, step, start)[1])


INVERSE: dict[str | None, Callable[..., Array]] = {
    "real": _real,
    "positive": _positive,
    "unit": _unit,
    "count": _count,
}
"""By the support of the distribution."""
