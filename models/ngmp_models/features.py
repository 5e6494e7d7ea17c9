r"""Random Fourier features: finite feature maps whose inner products approximate a stationary kernel.

$$ \varphi(x) = \sqrt{2/M}\, \cos(\omega^\top x + b), \quad \omega \sim p, \; b \sim U[0, 2\pi) \quad\Rightarrow\quad
   E[\varphi(x)^\top \varphi(x')] = \int p(\omega) \cos(\omega^\top (x - x'))\, d\omega = k(x - x') $$

with an error of order $1/\sqrt M$. A map is drawn once and applied to any number of inputs:

    map = fourier_map(key, x.shape[1], 1000, kernel=matern32, lengthscale=1.5, scales=(0.5, 1.0, 2.0))
    phi = fourier_features(map, x, inputs=True, constant=True)              # (n, 1000 + d + 1)

References:
    A. Rahimi, B. Recht (2007), Random features for large-scale kernel machines, NeurIPS.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray


class FourierMap(NamedTuple):
    """A draw of frequencies and phases: all that `fourier_features` needs, a pytree."""

    frequency: Float[Array, "d m"]
    phase: Float[Array, " m"]


def rbf(key: PRNGKeyArray, d: int, m: int) -> Float[Array, "d m"]:
    r"""Frequencies of $k(r) = e^{-r^2/2}$: standard normal."""
    return jax.random.normal(key, (d, m))


def matern32(key: PRNGKeyArray, d: int, m: int) -> Float[Array, "d m"]:
    r"""Frequencies of $k(r) = (1 + \sqrt3 r) e^{-\sqrt3 r}$: multivariate t with 3 degrees of freedom.

    $\omega = g \sqrt{3/c}$, $g \sim N(0, I)$, with one $c \sim \chi^2_3$ for each feature.
    """
    normal, chi2 = jax.random.split(key)
    return jax.random.normal(normal, (d, m)) * jnp.sqrt(3.0 / jax.random.chisquare(chi2, 3.0, (m,)))


def fourier_map(
    key: PRNGKeyArray,
    dimensions: int,
    count: int,
    *,
    kernel: Callable[[PRNGKeyArray, int, int], Float[Array, "d m"]] = rbf,
    lengthscale: float | Float[Array, " d"] = 1.0,
    scales: tuple[float, ...] = (1.0,),
) -> FourierMap:
    """Draw a feature map.

    Args:
        key: a `jax.random` key; the same key gives the same map.
        dimensions: number of inputs, d.
        count: number of features, M.
        kernel: draws frequencies at unit lengthscale: `rbf`, `matern32`, or a function of `(key, d, m)`.
        lengthscale: one for all inputs, or one for each of them.
        scales: blocks of (nearly) equal size have these multiples of the lengthscale; the map then approximates the
            average of the kernels. The last blocks are the larger ones where the sizes differ.
    """
    if dimensions < 1 or count < len(scales) or not scales:
        given = f"dimensions={dimensions}, count={count}, scales={scales}"
        raise ValueError(f"fourier_map needs an input, and a feature for every scale; got {given}")
    lengthscale = jnp.asarray(lengthscale, float)
    if lengthscale.shape not in ((), (dimensions,)):
        raise ValueError(f"lengthscale must be a number or a vector of {dimensions}, got shape {lengthscale.shape}")
    for name, value in (("lengthscale", lengthscale), ("scales", np.asarray(scales, float))):
        if not isinstance(value, Tracer) and not np.all((np.asarray(value) > 0) & np.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
    draw, turn = jax.random.split(key)
    bounds = [count * i // len(scales) for i in range(len(scales) + 1)]
    scale = jnp.asarray(np.repeat(scales, np.diff(bounds)), float)
    frequency = kernel(draw, dimensions, count) / (lengthscale.reshape(-1, 1) * scale)
    return FourierMap(frequency, jax.random.uniform(turn, (count,), maxval=2 * np.pi))


def fourier_features(
    map: FourierMap, x: Float[Array, "n d"], *, inputs: bool = False, constant: bool = False
) -> Float[Array, "n m"]:
    """Apply a map, and append the inputs themselves (a linear kernel) and a column of ones (an intercept) if asked."""
    x = jnp.asarray(x)
    d, m = map.frequency.shape
    if x.ndim != 2 or x.shape[1] != d:
        raise ValueError(f"the map was drawn for inputs of shape (n, {d}); got {x.shape}")
    if not isinstance(x, Tracer) and not np.all(np.isfinite(x)):
        bad = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
        raise ValueError(f"inputs must be finite; row {bad} is {np.asarray(x[bad])}")
    dtype = jnp.result_type(x, map.frequency)
    x = x.astype(dtype)
    parts = [jnp.sqrt(jnp.asarray(2.0 / m, dtype)) * jnp.cos(x @ map.frequency + map.phase)]
    parts += [x] if inputs else []
    parts += [jnp.ones((len(x), 1), dtype)] if constant else []
    return jnp.concatenate(parts, axis=1)
