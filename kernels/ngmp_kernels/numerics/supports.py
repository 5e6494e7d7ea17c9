"""Maps between the supports of numbers and the real line.

A support is "real", "positive" (by the exponential), "above" or "below" an end (the same from there), "interval" (by
the logistic function, between two ends), "unit" or "simplex" (the same, between 0 and 1, for every proportion by
itself).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

Ends = tuple[Any, Any]  # of the support; (0, 1) where it needs none

_BOUNDED = ("unit", "interval", "simplex")


def from_real(support: str, u: Array, ends: Ends) -> Array:
    """The value on the support."""
    if support == "positive":
        return jnp.exp(u)
    if support in ("above", "below"):
        return ends[0] + jnp.exp(u) if support == "above" else ends[1] - jnp.exp(u)
    if support in _BOUNDED:
        return ends[0] + (ends[1] - ends[0]) * jax.nn.sigmoid(u)
    return u


def stretched(support: str, v: Array, spread: Array) -> tuple[Array, Array]:
    r"""An odd function of v with slope `spread` at zero, and the logarithm of its slope.

    A density that is finite at an end of its support falls like $e^{-|u|}$ on the real line, an arm that takes many
    nodes. $u = v \sqrt{s^2 + v^2 / 4}$ is $v |v| / 2$ far off, so that there it falls like $e^{-v^2 / 2}$.
    """
    if support == "real":
        return spread * v, jnp.broadcast_to(jnp.log(spread), v.shape)
    root = jnp.sqrt(spread**2 + v**2 / 4)
    return v * root, jnp.log(root + v**2 / (4 * root))


def to_real(support: str, x: Array, ends: Ends) -> Array:
    """The inverse of `from_real`."""
    if support == "positive":
        return jnp.log(x)
    if support in ("above", "below"):
        return jnp.log(x - ends[0]) if support == "above" else jnp.log(ends[1] - x)
    if support in _BOUNDED:
        return jnp.log(x - ends[0]) - jnp.log(ends[1] - x)
    return x


def log_slope(support: str, u: Array, ends: Ends) -> Array:
    """The logarithm of the derivative of `from_real`, without its sign."""
    if support in ("positive", "above", "below"):
        return u
    if support in _BOUNDED:
        return jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u) + jnp.log(ends[1] - ends[0])
    return jnp.zeros_like(u)
