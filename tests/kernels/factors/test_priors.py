"""Priors of hyperparameters: densities against scipy, and where their mass is said to be."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

from ngmp_kernels import (
    Beta,
    Cauchy,
    Density,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    LogNormal,
    Normal,
    PCScale,
    StudentT,
    Uniform,
)

SCIPY = {
    "half-normal": (HalfNormal(std=2.0), st.halfnorm(scale=2.0)),
    "half-Cauchy": (HalfCauchy(scale=0.5), st.halfcauchy(scale=0.5)),
    "Cauchy": (Cauchy(1.0, scale=0.5), st.cauchy(1.0, 0.5)),
    "Laplace": (Laplace(-1.0, scale=2.0), st.laplace(-1.0, 2.0)),
    "log-normal": (LogNormal(0.5, std=0.8), st.lognorm(0.8, scale=np.exp(0.5))),
    "exponential": (Exponential(rate=3.0), st.expon(scale=1 / 3)),
    "uniform": (Uniform(-1.0, 3.0), st.uniform(-1.0, 4.0)),
    "penalised": (PCScale(upper=2.0, probability=0.05), st.expon(scale=-2.0 / np.log(0.05))),
    "normal": (Normal(3.0, precision=4.0), st.norm(3.0, 0.5)),
    "t": (StudentT(5.0, 1.0, scale=2.0), st.t(5.0, 1.0, 2.0)),
    "gamma": (Gamma(0.3, rate=2.0), st.gamma(0.3, scale=0.5)),
    "inverse gamma": (InverseGamma(3.0, scale=2.0), st.invgamma(3.0, scale=2.0)),
    "beta": (Beta(2.0, 0.5), st.beta(2.0, 0.5)),
}


def lowered(distribution, x):
    arguments = {k: jnp.asarray([v]) for k, v in distribution.arguments.items()}
    for signature in distribution.signatures:
        kinds = dict.fromkeys(("out", *arguments), "constant")
        if set(kinds) == set(signature.arguments) and all("constant" in k for k in signature.arguments.values()):
            return signature.lower(out=jnp.asarray(x), **arguments).factor
    raise AssertionError


@pytest.mark.parametrize("name", list(SCIPY)[:8])
def test_log_density(name):
    prior, reference = SCIPY[name]
    x = reference.ppf([0.05, 0.3, 0.5, 0.9])
    np.testing.assert_allclose(lowered(prior, x).log_density(), reference.logpdf(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCIPY)
def test_standard_is_where_the_mass_is(name):
    """The centre is within one spread of the median, and the spread within a factor of 1.6, on the real line."""
    prior, reference = SCIPY[name]
    ends = prior.arguments.get("low", 0.0), prior.arguments.get("high", 1.0)
    free = {
        "real": lambda x: x,
        "positive": np.log,
        "unit": lambda x: np.log(x / (1 - x)),
        "interval": lambda x: np.log((x - ends[0]) / (ends[1] - x)),
    }[prior.support]
    low, middle, high = free(reference.ppf([0.16, 0.5, 0.84]))
    centre, spread = (float(x) for x in prior.standard(**{k: jnp.asarray(v) for k, v in prior.arguments.items()}))
    assert abs(centre - middle) < spread
    assert 1 / 1.6 < spread / (0.5 * (high - low)) < 1.6


@pytest.mark.parametrize("name", ["half-normal", "Laplace", "log-normal", "exponential", "uniform", "penalised"])
def test_moments(name):
    prior, reference = SCIPY[name]
    mean, variance = lowered(prior, np.array([1.0])).moments()
    np.testing.assert_allclose((mean[0], variance[0]), reference.stats("mv"), rtol=1e-5)


def test_any_density():
    """One that is not normalised, on an interval."""
    prior = Density(lambda x: -0.5 * x**2, (0.0, 2.0))
    x = np.linspace(0.1, 1.9, 5)
    np.testing.assert_allclose(lowered(prior, x).log_density(), -0.5 * x**2, rtol=1e-6)
    assert prior.support == "interval"
    assert Density(jnp.sin).key != Density(jnp.cos).key


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HalfNormal(2.0), ["nothing by position", "std="]),
        (lambda: HalfCauchy(sd=1.0), ["scale="]),
        (lambda: Density(3.0), ["cannot be called"]),
        (lambda: Density(jnp.sin, "positiv"), ["'positive'", "interval"]),
        (lambda: Density(jnp.sin, (0.0, 1.0, 2.0)), ["two ends"]),
    ],
)
def test_refusals(make, words):
    with pytest.raises((TypeError, ValueError)) as error:
        make()
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("prior", "x", "words"),
    [
        (HalfNormal(std=-1.0), 1.0, "std must be positive"),
        (HalfNormal(std=1.0), -1.0, "in the support"),
        (Uniform(2.0, 1.0), 1.5, "low must be below high"),
        (PCScale(upper=1.0, probability=1.5), 1.0, "between 0 and 1"),
        (Density(lambda x: jnp.log(x - 2.0), "positive"), 1.0, "must be a number"),
    ],
)
def test_bad_values_are_conditions(prior, x, words):
    failed = [text for text, ok in lowered(prior, np.array([x])).checks().items() if not bool(jnp.all(ok))]
    assert any(words in text for text in failed), failed

