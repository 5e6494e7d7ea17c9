"""Where a factor given by its log-density alone starts: at its own data, found by search."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families import Gaussian
from .regression import derivatives

_REACH = 14.5  # in u = asinh(z): peaks are looked for up to |z| = 10^6
_NODES, _ROUNDS = 33, 6  # every round looks at the interval between the neighbours of the best node: a sixteenth


def peak(log_density: Callable[[Array], Array], n: int, dtype: Any) -> Gaussian:
    r"""The Gaussian at the peak of `log f(z) - log(1 + z^2)`, n of them, with the curvature of `log f` there.

    The second term is a weak prior: a log-density that only rises (a count of zero, a censored time) has its peak where
    it stops to rise, and not at infinity. Nodes are equidistant in `asinh(z)`, so nothing need be known of the scale of
    z. Where `log f` is not concave at its peak, the variance is `1 + z^2`.

    Args:
        log_density: elementwise, (1, n) -> (1, n); what is not a number counts as minus infinity.
    """

    def value(u: Float[Array, " n"]) -> Float[Array, " n"]:
        z = jnp.sinh(u)
        found = log_density(z[None])[0] - jnp.log1p(z * z)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    def look(k: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        centre, width, best, at = carry
        u = centre + width * (2.0 * k / (_NODES - 1) - 1.0)
        found = value(u)
        better = found > best
        return centre, width, jnp.where(better, found, best), jnp.where(better, u, at)

    def narrow(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        centre, width, best = carry
        _, _, best, at = jax.lax.fori_loop(0, _NODES, look, (centre, width, best, centre))
        return at, width * (2.0 / (_NODES - 1)), best

    start = jnp.zeros(n, dtype), jnp.full(n, _REACH, dtype), jnp.full(n, -jnp.inf, dtype)
    z = jnp.sinh(jax.lax.fori_loop(0, _ROUNDS, narrow, start)[0])
    _, curvature = derivatives(log_density, z)
    broad = 1.0 + z * z
    concave = (curvature < 0.0) & jnp.isfinite(curvature)
    variance = jnp.where(concave, jnp.minimum(-1.0 / jnp.where(concave, curvature, -1.0), broad), broad)
    return Gaussian.from_mean_variance(z, variance)
