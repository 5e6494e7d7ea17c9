"""Templates of the likelihoods beside counts and classes: times, proportions, angles, heavy and light tails."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from reliability_draws import Draw, Template

import ngmp_compiler as ngmp
from ngmp_compiler import Dirichlet, Gamma, Normal, exp, sample


def _proportions(d: Draw, n: int) -> np.ndarray:
    return np.clip(1 / (1 + np.exp(-np.clip(d.reals(n), -6.0, 6.0))), 1e-3, 1 - 1e-3)


LIKELIHOODS: dict[str, tuple[Callable, Callable[[Draw, int], dict[str, Any]]]] = {
    "Exponential": (lambda f: ngmp.Exponential(rate=exp(f)), lambda d, n: {"y": d.positives(n)}),
    "Pareto": (lambda f: ngmp.Pareto(exp(f), scale=1.0), lambda d, n: {"y": 1.0 + d.positives(n)}),
    "Laplace": (lambda f: ngmp.Laplace(f, scale=0.7), lambda d, n: {"y": d.reals(n)}),
    "Logistic": (lambda f: ngmp.Logistic(f, scale=0.7), lambda d, n: {"y": d.reals(n)}),
    "LogNormal": (lambda f: ngmp.LogNormal(f, std=0.7), lambda d, n: {"y": d.positives(n)}),
    "probit": (lambda f: ngmp.Bernoulli(probit=f), lambda d, n: {"y": d.classes(n)}),
    "Beta": (lambda f: ngmp.Beta(logits=f, concentration=5.0), lambda d, n: {"y": _proportions(d, n)}),
    "BetaBinomial": (
        lambda f: ngmp.BetaBinomial(9.0, logits=f, concentration=5.0),
        lambda d, n: {"y": np.round(9.0 * _proportions(d, n))},
    ),
    "VonMises": (lambda f: ngmp.VonMises(f, concentration=2.0), lambda d, n: {"y": np.mod(d.reals(n), 6.28) - 3.14}),
}


def plate(name: str) -> Template:
    """Independent elements: f_n ~ N(m, v_n)."""
    likelihood, draw = LIKELIHOODS[name]

    def model(y, seen, m, v):
        sample("y", likelihood(sample("f", Normal(m + jnp.zeros(len(v)), variance=v))), obs=y, mask=seen)

    def inputs(d: Draw) -> dict[str, Any]:
        return {**draw(d, 5), "seen": d.mask(5), "m": d.log_centre(), "v": d.variance(5)}

    return Template(model, inputs, {})


def rates(y, counts, seen, a, b, c):
    """Conjugate: exponential times with a Gamma rate, multinomial counts with Dirichlet probabilities."""
    sample("y", ngmp.Exponential(rate=sample("tau", Gamma(a, rate=b))), obs=y, mask=seen)
    sample("n", ngmp.Multinomial(probs=sample("p", Dirichlet(c))), obs=counts)


def rate_inputs(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    counts = np.stack([d.counts(4) for _ in range(3)], -1)
    return {"y": d.positives(5), "counts": counts, "seen": d.mask(5), "a": a, "b": b, "c": 0.5 + d.simplex(3)}


TEMPLATES = {**{f"{name} plate": plate(name) for name in LIKELIHOODS}, "rates": Template(rates, rate_inputs, {})}
