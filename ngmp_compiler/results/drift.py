r"""Drift: whether draws of a posterior stay where they are when chains of the model itself move them on.

Importance weights fail in many dimensions. Hamiltonian chains do not: many of them, each begun at a draw of the
surrogate, are run for a while in its coordinates. If the surrogate is right, means and standard deviations over the
chains stay as they were; if not, they drift to those of the model. A variable whose chains still remember where they
began has not been looked at: the correlation of the ends with the beginnings says so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .coordinates import Entry, flat, standardise, unflat
from .refine import standard_density

CHAINS, STEPS, LEAPFROGS = 256, 48, 8
FORGOTTEN = 0.5  # a correlation with the beginning up to which a variable has been looked at
_ACCEPTED = 0.8


class Drift(NamedTuple):
    """By name: means and standard deviations at the end, and the correlation of the ends with the beginnings."""

    means: dict[str, Array]
    stds: dict[str, Array]
    memory: dict[str, Array]
    acceptance: Array


def drift(
    entries: list[Entry], density: Callable[[dict[str, Array]], Array], start: dict[str, Array], key: PRNGKeyArray
) -> Drift:
    """Run chains from draws of the posterior, (n, *shape) by name; the first `CHAINS` of them are moved on."""
    u = jax.vmap(lambda values: flat(entries, values))(start)
    scale = standardise(u)
    log_density = standard_density(entries, density, scale)
    slope = jax.vmap(jax.value_and_grad(log_density))
    x = jax.vmap(scale.standard)(u[:CHAINS])

    def values(x: Float[Array, "c d"]) -> dict[str, Array]:
        return jax.vmap(lambda row: unflat(entries, scale.real(row))[0])(x)

    def step(carry: Any, key: Array) -> Any:
        x, log, size, total, squares, turn = carry
        x, log, accepted = _moved(slope, x, log, size, key)
        # Steps grow or shrink with the mean acceptance of all chains, over the first half only.
        size = jnp.where(turn < STEPS // 2, size * jnp.exp(1.5 * (accepted - _ACCEPTED) / jnp.sqrt(1.0 + turn)), size)
        late = (turn >= STEPS // 2).astype(x.dtype)
        now = jax.tree.map(lambda v, c: v - c, values(x), centre)
        total = jax.tree.map(lambda t, v: t + late * jnp.mean(v, 0), total, now)
        squares = jax.tree.map(lambda t, v: t + late * jnp.mean(v**2, 0), squares, now)
        return (x, log, size, total, squares, turn + 1), accepted

    first = values(x)
    centre = jax.tree.map(lambda v: jnp.mean(v, 0), first)  # squares about it: what is far from zero keeps its digits
    zero = jax.tree.map(lambda v: jnp.zeros_like(v[0]), first)
    size = jnp.asarray(1.0 / x.shape[1] ** 0.25, x.dtype)
    begin = (x, slope(x)[0], size, zero, zero, jnp.zeros((), int))
    (x, _, _, total, squares, _), accepted = jax.lax.scan(step, begin, jax.random.split(key, STEPS))
    count = STEPS - STEPS // 2
    off = jax.tree.map(lambda t: t / count, total)
    stds = jax.tree.map(lambda s, m: jnp.sqrt(jnp.maximum(s / count - m**2, 0.0)), squares, off)
    means = jax.tree.map(lambda m, c: m + c, off, centre)
    memory = jax.tree.map(_correlation, first, values(x))
    return Drift(means, stds, memory, jnp.mean(accepted[STEPS // 2 :]))


def _moved(slope: Callable, x: Array, log: Array, size: Array, key: Array) -> tuple[Array, Array, Array]:
    """One Hamiltonian step of all chains; the length of steps varies among them."""
    jitter, kick, accept = jax.random.split(key, 3)
    h = size * jax.random.uniform(jitter, (x.shape[0], 1), x.dtype, 0.7, 1.3)
    p = jax.random.normal(kick, x.shape, x.dtype)

    def leap(_: Any, state: Any) -> Any:
        y, p, gradient, _ = state
        p = p + 0.5 * h * gradient
        y = y + h * p
        value, gradient = slope(y)
        return y, p + 0.5 * h * gradient, gradient, value

    value, gradient = slope(x)
    y, q, _, new = jax.lax.fori_loop(0, LEAPFROGS, leap, (x, p, gradient, value))
    ratio = new - log - 0.5 * jnp.sum(q**2, 1) + 0.5 * jnp.sum(p**2, 1)
    ratio = jnp.where(jnp.isfinite(ratio), ratio, -jnp.inf)
    taken = jnp.log(jax.random.uniform(accept, ratio.shape, x.dtype)) < ratio
    probability = jnp.mean(jnp.exp(jnp.minimum(ratio, 0.0)))
    return jnp.where(taken[:, None], y, x), jnp.where(taken, new, log), probability


def _correlation(a: Float[Array, "c ..."], b: Float[Array, "c ..."]) -> Array:
    a, b = a - jnp.mean(a, 0), b - jnp.mean(b, 0)
    both = jnp.sqrt(jnp.sum(a**2, 0) * jnp.sum(b**2, 0))
    return jnp.sum(a * b, 0) / jnp.where(both > 0, both, 1.0)


