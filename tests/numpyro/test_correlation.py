"""Correlation matrices of NumPyro models: partial correlations, integrated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import ngmp_compiler as ngmp

numpyro = pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
dist = pytest.importorskip("numpyro.distributions")

from ngmp_compiler.numpyro.correlation import cholesky_of  # noqa: E402

RNG = np.random.default_rng(3)
GROUP, X = np.repeat(np.arange(6), 4), RNG.normal(size=24)
Y = np.array([1.0, -0.5, 0.3, 0.8, -1.0, 0.0])[GROUP] + 0.7 * X + 0.5 * RNG.normal(size=24)


def slopes(group, x, y=None):
    """Levels and slopes of groups, correlated."""
    rho = numpyro.sample("L", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("groups", 6):
        ab = numpyro.sample("ab", dist.MultivariateNormal(jnp.zeros(2), scale_tril=jnp.array([[1.0], [0.6]]) * rho))
    numpyro.sample("y", dist.Normal(ab[group, 0] + ab[group, 1] * x, 0.5), obs=y)


@pytest.mark.parametrize("eta", [0.7, 3.0])
def test_partial_correlations_are_independent(eta, only64):
    """The density of numpyro in the coordinates of the vine, by the derivative of the map to the matrix."""
    p = jnp.asarray([0.3, 0.8, 0.45])

    def entries(p):
        return cholesky_of(p)[jnp.tril_indices(3, -1)]

    slope = np.linalg.slogdet(jax.jacfwd(entries)(p))[1]
    b = eta + 0.5 * np.array([1.0, 1.0, 0.0])  # columns 0, 0, 1
    here = st.beta(b, b).logpdf(np.asarray(p)).sum()
    np.testing.assert_allclose(dist.LKJCholesky(3, eta).log_prob(cholesky_of(p)) + slope, here, atol=1e-10)


def test_correlated_effects_against_a_sum_over_correlations(only64):
    """Evidence and means by dense Gaussians on a grid of correlations; draws in the layout of the model."""
    post = ngmp.compile(ngmp.from_numpyro(slopes), integrate="auto")(group=GROUP, x=X, y=Y)
    assert post.converged
    z = np.linspace(-0.9995, 0.9995, 801)
    A = np.zeros((24, 12))
    A[np.arange(24), 2 * GROUP], A[np.arange(24), 2 * GROUP + 1] = 1.0, X
    log, means = [], []
    for r in z:
        prior = np.kron(np.eye(6), [[1.0, 0.6 * r], [0.6 * r, 0.36]])
        gain = prior @ A.T @ np.linalg.inv(A @ prior @ A.T + 0.25 * np.eye(24))
        log.append(st.multivariate_normal(np.zeros(24), A @ prior @ A.T + 0.25 * np.eye(24)).logpdf(Y))
        means.append(gain @ Y)
    mass = np.exp(np.array(log)) * st.beta(2.0, 2.0).pdf((1 + z) / 2) / 2 * (z[1] - z[0])
    np.testing.assert_allclose(post.free_energy, -np.log(mass.sum()), atol=1e-3)
    np.testing.assert_allclose(post["ab"].mean.reshape(-1), np.average(means, axis=0, weights=mass), atol=1e-3)
    np.testing.assert_allclose(2 * post["partial_L"].mean - 1, np.average(z, weights=mass), atol=2e-3)
    draws = post.to_numpyro_samples(jax.random.key(0), 400)
    assert draws["L"].shape == (400, 2, 2) and draws["ab"].shape == (400, 6, 2)
    np.testing.assert_allclose(np.linalg.norm(draws["L"], axis=-1), 1.0, atol=1e-6)


def test_large_ones_are_refused_with_their_site():
    def model(y):
        L = numpyro.sample("L", dist.LKJCholesky(5, 1.0))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(5), scale_tril=L), obs=y)

    with pytest.raises(ngmp.ModelError, match="'L'.*LKJCholesky"):
        ngmp.compile(ngmp.from_numpyro(model), integrate="auto").lower(y=np.zeros(5))
