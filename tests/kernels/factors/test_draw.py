"""Outcomes that distributions draw themselves, against SciPy's."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import ngmp_compiler as ngmp

N = 4000
ONE = jnp.ones(N)


def at(**values):
    return {k: jnp.asarray([v], float) for k, v in values.items()}


CASES = {
    "Poisson": (ngmp.Poisson(1.0), at(rate=3.5), st.poisson(3.5)),
    "NegativeBinomial": (
        ngmp.NegativeBinomial(mean=1.0, dispersion=1.0), at(mean=4.0, dispersion=2.0), st.nbinom(2, 1 / 3)
    ),
    "Binomial": (ngmp.Binomial(1, probs=0.5), at(n=9, probs=0.3), st.binom(9, 0.3)),
    "BetaBinomial": (
        ngmp.BetaBinomial(1, logits=0.0, concentration=1.0), at(n=9, logits=0.0, concentration=4.0),
        st.betabinom(9, 2, 2),
    ),
    "Logistic": (ngmp.Logistic(0.0, scale=1.0), at(mean=1.0, scale=0.5), st.logistic(1.0, 0.5)),
    "StudentT": (ngmp.StudentT(5.0, 0.0, scale=1.0), at(df=6.0, mean=1.0, scale=2.0), st.t(6.0, 1.0, 2.0)),
    "HalfNormal": (ngmp.HalfNormal(std=1.0), at(std=2.0), st.halfnorm(scale=2.0)),
    "HalfCauchy": (ngmp.HalfCauchy(scale=1.0), at(scale=2.0), st.halfcauchy(scale=2.0)),
    "Cauchy": (ngmp.Cauchy(0.0, scale=1.0), at(mean=1.0, scale=2.0), st.cauchy(1.0, 2.0)),
    "Laplace": (ngmp.Laplace(0.0, scale=1.0), at(mean=1.0, scale=2.0), st.laplace(1.0, 2.0)),
    "LogNormal": (ngmp.LogNormal(0.0, std=1.0), at(mean=0.3, std=0.5), st.lognorm(0.5, scale=np.exp(0.3))),
    "Exponential": (ngmp.Exponential(rate=1.0), at(rate=3.0), st.expon(scale=1 / 3)),
    "Uniform": (ngmp.Uniform(0.0, 1.0), at(low=-1.0, high=3.0), st.uniform(-1.0, 4.0)),
    "PCScale": (
        ngmp.PCScale(upper=1.0, probability=0.1), at(upper=2.0, probability=0.05), st.expon(scale=-2 / np.log(0.05))
    ),
    "Density": (ngmp.Density(lambda x: 2 * jnp.log(x) - x, "positive"), {}, st.gamma(3.0)),
    "VonMises": (ngmp.VonMises(0.0, concentration=1.0), at(mean=0.5, concentration=3.0), st.vonmises(3.0, 0.5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_distribution(name, key):
    distribution, arguments, exact = CASES[name]
    found = np.asarray(distribution.draw(key, ONE, **arguments))
    assert found.shape == (N,)
    # Distribution functions at a few quantiles, within five standard errors.
    for y in np.unique(exact.ppf([0.02, 0.2, 0.5, 0.8, 0.98])):
        p = exact.cdf(y)
        assert abs(np.mean(found <= y) - p) < 5 * np.sqrt(p * (1 - p) / N) + 1e-9


def test_counts_of_several_classes(key):
    like, probs = jnp.asarray([[10.0, 0.0, 0.0]] * N), jnp.asarray([[0.2, 0.3, 0.5]])
    found = np.asarray(ngmp.Multinomial(probs=probs[0]).draw(key, like, probs=probs))
    assert (found.sum(1) == 10).all()
    np.testing.assert_allclose(found.mean(0), [2.0, 3.0, 5.0], atol=0.15)
    found = np.asarray(ngmp.DirichletMultinomial(probs[0]).draw(key, like, concentration=10 * probs))
    assert (found.sum(1) == 10).all()
    np.testing.assert_allclose(found.var(0), np.array([1.6, 2.1, 2.5]) * 20 / 11, rtol=0.2)


def test_ordered_classes(key):
    cuts, x = np.array([-1.0, 0.5]), np.array([-1.0, np.log(1.5)])
    for distribution, link in ((ngmp.OrderedLogistic, st.logistic), (ngmp.OrderedProbit, st.norm)):
        p = np.diff(np.concatenate([[0], link.cdf(cuts - 0.4), [1]]))
        for given in ({"cutpoints": jnp.asarray(cuts[None])}, {"ordered": jnp.asarray(x[None])}):
            found = np.asarray(distribution(0.0, cuts).draw(key, ONE, predictor=jnp.asarray([0.4]), **given))
            np.testing.assert_allclose(np.bincount(found.astype(int), minlength=3) / N, p, atol=0.04)
