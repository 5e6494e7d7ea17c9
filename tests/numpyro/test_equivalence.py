"""Models in both spellings: a NumPyro model gives the numbers of the same model in this language."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, HalfCauchy, HalfNormal, MvNormal, Normal, Poisson, dot, exp

numpyro = pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
dist = pytest.importorskip("numpyro.distributions")

RNG = np.random.default_rng(0)
COUNTY, FLOOR = RNG.integers(0, 5, 30), RNG.integers(0, 2, 30) * 1.0
X = RNG.normal(size=(30, 3))
Y = RNG.normal(size=5)[COUNTY] - 0.6 * FLOOR + 0.5 * RNG.normal(size=30)


def radon(county, floor, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sd = numpyro.sample("sd", dist.HalfCauchy(1.0))
    with numpyro.plate("counties", 5):
        a = numpyro.sample("a", dist.Normal(mu, sd))
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("obs", len(floor)):
        numpyro.sample("y", dist.Normal(a[county] + b * floor, s), obs=y)


def our_radon(county, floor, y):
    mu = ngmp.sample("mu", Normal(0.0, std=5.0))
    sd = ngmp.sample("sd", HalfCauchy(scale=1.0))
    a = ngmp.sample("a", Normal(mu + np.zeros(5), std=sd))
    b = ngmp.sample("b", Normal(0.0, std=2.0))
    s = ngmp.sample("s", HalfNormal(std=1.0))
    ngmp.sample("y", Normal(a[county] + b * floor, std=s), obs=y)


def poisson(X, y=None):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(a + X @ w)), obs=y)


def our_poisson(X, y):
    a = ngmp.sample("a", Normal(0.0, std=2.0))
    w = ngmp.sample("w", MvNormal(np.zeros(X.shape[1]), covariance=1.0))
    ngmp.sample("y", Poisson(exp(a + dot(X, w))), obs=y)


def logistic(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    numpyro.sample("y", dist.Bernoulli(logits=jnp.dot(X, w)), obs=y)


def our_logistic(X, y):
    w = ngmp.sample("w", MvNormal(np.zeros(X.shape[1]), covariance=1.0))
    ngmp.sample("y", Bernoulli(logits=dot(X, w)), obs=y)


CASES = {
    "radon": (radon, our_radon, {"county": COUNTY, "floor": FLOOR, "y": Y}, ("mu", "sd", "a", "b", "s")),
    "poisson": (poisson, our_poisson, {"X": X, "y": RNG.poisson(2.0, 30)}, ("a", "w")),
    "logistic": (logistic, our_logistic, {"X": X, "y": RNG.integers(0, 2, 30)}, ("w",)),
}


@pytest.mark.parametrize("name", CASES)
def test_both_spellings_give_the_same_numbers(name):
    theirs, ours, inputs, names = CASES[name]
    a = ngmp.compile(ngmp.from_numpyro(theirs), integrate="auto")(**inputs)
    b = ngmp.compile(ours, integrate="auto")(**inputs)
    assert a.converged and b.converged
    np.testing.assert_allclose(a.free_energy, b.free_energy, rtol=1e-9)
    for k in names:
        np.testing.assert_allclose(a[k].mean, b[k].mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(a[k].variance, b[k].variance, rtol=1e-9, atol=1e-12)


def test_description_says_what_was_recognised_and_where():
    text = ngmp.compile(ngmp.from_numpyro(radon), integrate="auto").lower(**CASES["radon"][2]).describe()
    line = radon.__code__.co_firstlineno
    assert f"test_equivalence.py:{line + 8}" in text and "loc affine in 'a' + 'b'" in text
