"""Standard normal numbers by the million, for draws of long chains.

The counter-based generator of jax takes 25 ns a number on a CPU, and its normals in double precision as much again:
more than drawing a chain of them. Here a counter is scrambled by two keyed rounds of a 32-bit mixing function, of which
every bit of the result depends on all bits given (a bijection, so no two counters agree), and 23 of its bits go through
the inverse of the error function in single precision: 8 ns. Numbers reach 5.3 standard deviations.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt

_FEW = 2**16  # numbers that jax makes as well


def normals(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Independent standard normal numbers, in single precision."""
    size = math.prod(shape)
    if size <= _FEW or size >= 2**32:
        return jax.random.normal(key, shape, jnp.float32)
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    bits = _mixed(_mixed(jax.lax.iota(jnp.uint32, size) + first) ^ second)
    uniform = ((bits >> 9).astype(jnp.float32) + 0.5) * np.float32(2**-22) - 1
    return (np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)).reshape(shape)


def _mixed(x: UInt[Array, " n"]) -> UInt[Array, " n"]:
    """Shifts and odd multipliers, each of which can be undone."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
