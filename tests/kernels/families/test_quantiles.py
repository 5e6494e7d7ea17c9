"""`std` and `quantile` of every family, against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ngmp_kernels.families import (
    FAMILIES,
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    InverseGamma,
    MvGaussian,
    Wishart,
)

P = np.array([[0.01, 0.3], [0.5, 0.975]])
A, B = np.array([0.7, 2.5, 40.0]), np.array([2.0, 0.5, 8.0])
COVARIANCE = np.array([[2.0, 0.6], [0.6, 1.0]])
PROBS = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2]])

CASES = {
    "gaussian": (Gaussian.from_mean_variance(A, B), stats.norm(A, np.sqrt(B))),
    "gamma": (Gamma.from_concentration_rate(A, B), stats.gamma(A, scale=1 / B)),
    "inversegamma": (InverseGamma.from_concentration_scale(A + 2, B), stats.invgamma(A + 2, scale=B)),
    "beta": (Beta.from_ab(A, B), stats.beta(A, B)),
    "mvgaussian": (
        MvGaussian.from_mean_covariance(np.array([[1.0, -2.0]]), COVARIANCE),
        stats.norm([[1.0, -2.0]], np.sqrt([[2.0, 1.0]])),
    ),
    "dirichlet": (Dirichlet.from_concentration(PROBS * 9), stats.beta(PROBS * 9, (1 - PROBS) * 9)),
}


@pytest.mark.parametrize("name", CASES)
def test_quantiles_are_scipys(name):
    q, reference = CASES[name]
    found = jax.jit(lambda q: (q.quantile(P), q.std))(q)
    expected = reference.ppf(P.reshape(*P.shape, *(1,) * q.mean.ndim))
    assert found[0].shape == P.shape + q.batch_shape + q.event_shape
    tol = 1e-8 if q.dtype == jnp.float64 else 3e-4
    np.testing.assert_allclose(found[0], expected, rtol=tol)
    np.testing.assert_allclose(found[1], reference.std(), rtol=tol)


def test_quantiles_of_classes_are_the_smallest_that_reach_p():
    q = Categorical.from_probs(PROBS)
    expected = [[stats.rv_discrete(values=([0, 1, 2], row)).ppf(p) for row in PROBS] for p in (0.1, 0.6, 0.95)]
    np.testing.assert_array_equal(q.quantile(np.array([0.1, 0.6, 0.95])), expected)
    coin = Bernoulli.from_probs(np.array([0.2, 0.7]))
    np.testing.assert_array_equal(coin.quantile(0.5), stats.bernoulli([0.2, 0.7]).ppf(0.5))


def test_the_diagonal_of_a_wishart_has_quantiles():
    q = Wishart.from_df_scale(5.0, COVARIANCE)
    with pytest.raises(NotImplementedError, match=r"q\.diagonal have"):
        q.quantile(0.5)
    expected = np.diag(COVARIANCE) * stats.chi2(5.0).ppf(0.3)
    np.testing.assert_allclose(q.diagonal.quantile(0.3), expected, rtol=1e-8 if q.dtype == jnp.float64 else 1e-4)


def test_derivatives_of_quantiles_are_those_of_the_inverse_function():
    def third(rate):
        return Gamma.from_concentration_rate(2.5, rate).quantile(0.3)

    value, slope = jax.value_and_grad(third)(2.0)
    np.testing.assert_allclose(slope, -value / 2.0, rtol=1e-5)  # t ~ Gamma(a, b): b t does not depend on b


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, np.array([0.5, 1.5])])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        CASES["gaussian"][0].quantile(p)


def test_every_family_has_words_and_a_symbol():
    assert {f.words for f in FAMILIES.values()} >= {"a Gamma variable", "an InverseGamma variable"}
    assert FAMILIES["mvgaussian"].symbol == "N" and FAMILIES["wishart"].symbol == "Wishart"
