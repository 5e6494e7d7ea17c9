"""The models of `scaling.py`: what they are compiled with, and their inputs for N items."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_models.learning import matern_process

RNG = np.random.default_rng(0)


class Entry(NamedTuple):
    """A model, the inputs it takes for N items, and options of `ngmp.compile`."""

    model: Callable
    inputs: Callable[[int], dict[str, Any]]
    options: dict[str, Any] = {}


def reals(n: int) -> np.ndarray:
    return RNG.standard_normal(n)


def features(n: int, d: int) -> np.ndarray:
    return RNG.standard_normal((n, d)) / np.sqrt(d)


def counts(n: int) -> dict[str, Any]:
    return {"y": RNG.poisson(5.0, n)}


def tables(n: int, states: int) -> dict[str, Any]:
    transition = RNG.dirichlet(np.ones(states), states) + 2 * np.eye(states)
    transition /= transition.sum(1, keepdims=True)
    return {"y": RNG.integers(0, 8, n), "transition": transition, "emission": RNG.dirichlet(np.ones(8), states)}


def hmm(n: int) -> dict[str, Any]:
    return {"initial": np.full(4, 0.25), **tables(n, 4)}


def coins(n: int) -> dict[str, Any]:
    return {"features": features(n, 4), "y": RNG.integers(0, 2, n)}


def noisy(n: int) -> dict[str, Any]:
    return {"phi": features(n, 4), "psi": features(n, 2), "y": reals(n)}


def levels(n: int) -> dict[str, Any]:
    return {"features": tuple(features(n, 3) for _ in range(3)), "y": reals(n)}


def clusters(n: int) -> dict[str, Any]:
    return {"y": reals(n), "centres": np.array([-1.0, 1.0])}


def clouds(n: int) -> dict[str, Any]:
    return {"y": features(n, 2), "centres": np.array([[-1.0, 0.0], [1.0, 0.0]])}


def neurons(n: int) -> dict[str, Any]:
    return {"features": features(n, 3), "y": reals(n), "weights": features(8, 3), "gains": reals(8)}


SCALABLE = {
    "poisson_chain": Entry(ngmp_models.poisson_chain, counts),
    "stochastic_volatility": Entry(ngmp_models.stochastic_volatility, lambda n: {"r": reals(n)}),
    "local_level": Entry(ngmp_models.local_level, lambda n: {"y": reals(n)}),
    "hmm, 4 states": Entry(ngmp_models.hmm, hmm),
    "mean_precision": Entry(ngmp_models.mean_precision, lambda n: {"y": 1.5 + 0.7 * reals(n)}),
    "logistic_regression, D = 4": Entry(ngmp_models.logistic_regression, coins),
    "heteroscedastic, D = 4 + 2": Entry(ngmp_models.heteroscedastic, noisy),
    "gaussian_mixture, VMP": Entry(ngmp_models.gaussian_mixture, clusters, {"method": ngmp.VMP()}),
}
"""Models that are run at a million items."""

GALLERY = {
    **SCALABLE,
    "poisson_chain_loop": Entry(ngmp_models.poisson_chain_loop, counts),
    "matern_process": Entry(matern_process, lambda n: {"gaps": np.ones(n), **counts(n)}),
    "learned_hmm": Entry(ngmp_models.learned_hmm, lambda n: tables(n, 3)),
    "precision_hierarchy, 2 levels": Entry(ngmp_models.precision_hierarchy, levels),
    "gaussian_mixture": Entry(ngmp_models.gaussian_mixture, clusters),
    "vector_mixture": Entry(ngmp_models.vector_mixture, clouds),
    "neurons": Entry(ngmp_models.neurons, neurons, {"rules": ngmp_models.NEURON_RULES}),
    "sprinkler": Entry(ngmp_models.sprinkler, lambda n: {"wet": RNG.integers(0, 2, n)}),
    "skills": Entry(ngmp_models.skills, lambda n: {"score": RNG.uniform(size=3)}),
}
"""Every model of the gallery."""
