"""Oracle cases: for every factor class, random instances on which the tests check it against brute force.

A file that defines a factor ends with `oracle_case(TheFactor, make)`; the tests fail for a registered factor without.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, PRNGKeyArray

from .factor import AbstractFactor, Cavities
from .families import AbstractFamily, Gamma, Gaussian


class Case(NamedTuple):
    """A batch of 3 to 5 factors, and a proper cavity and marginal for each interface."""

    factor: AbstractFactor
    cavities: Cavities
    marginals: tuple[AbstractFamily, ...]


Make = Callable[[PRNGKeyArray, Any], Case]

ORACLE: dict[type[AbstractFactor], Make] = {}


def oracle_case(factor: type[AbstractFactor], make: Make) -> None:
    """Register `make(key, dtype) -> Case` for a factor class."""
    ORACLE[factor] = make


def uniform(key: PRNGKeyArray, dtype: Any, low: float, high: float, shape: tuple[int, ...] = (4,)) -> Array:
    """Random parameters of a case."""
    return jax.random.uniform(key, shape, dtype, low, high)


def some_gaussian(key: PRNGKeyArray, dtype: Any, variance: float = 0.5, shape: tuple[int, ...] = (4,)) -> Gaussian:
    """Gaussians with means in (-1, 1) and variances within a factor of two below `variance`."""
    mean, scale = jax.random.split(key)
    return Gaussian.from_mean_variance(
        uniform(mean, dtype, -1.0, 1.0, shape), uniform(scale, dtype, 0.5 * variance, variance, shape)
    )


def some_gamma(key: PRNGKeyArray, dtype: Any, low: float = 3.0, shape: tuple[int, ...] = (4,)) -> Gamma:
    """Gammas with shapes in (low, 2 low) and means around one."""
    a, b = jax.random.split(key)
    concentration = uniform(a, dtype, low, 2.0 * low, shape)
    return Gamma.from_concentration_rate(concentration, uniform(b, dtype, low, 2.0 * low, shape))
