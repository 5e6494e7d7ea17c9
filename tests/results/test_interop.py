"""Posteriors in other libraries, where those are installed; and draws with keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp, families

EYE = np.eye(2)
MEMBERS = {
    "Gaussian": families.Gaussian.from_mean_variance(np.array([0.3, -1.0]), np.array([0.5, 2.0])),
    "MvGaussian": families.MvGaussian.from_mean_covariance(np.zeros((3, 2)), np.tile(EYE + 0.3, (3, 1, 1))),
    "Gamma": families.Gamma(np.array([1.5]), np.array([-2.0])),
    "InverseGamma": families.InverseGamma(np.array([-4.0]), np.array([-2.0])),
    "Beta": families.Beta(np.array([1.0]), np.array([2.0])),
    "Bernoulli": families.Bernoulli(np.array([0.4])),
    "Categorical": families.Categorical(np.array([[0.1, 0.2, -1.0]])),
    "Dirichlet": families.Dirichlet(np.array([[0.5, 1.0, 2.0]])),
    "Wishart": families.Wishart(-0.5 * (EYE + 0.2)[None], np.array([1.5])),
}


QUICK = ("Gaussian", "Categorical")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MEMBERS])
def test_numpyro_has_the_same_densities_and_shapes(name, key):
    pytest.importorskip("numpyro")
    q = jax.tree.map(jnp.asarray, MEMBERS[name])
    other = q.to_numpyro()
    z = q.sample(key, (4,))
    assert other.batch_shape == q.batch_shape and other.sample(key, (4,)).shape == z.shape
    if name == "Categorical":
        expected = jnp.take_along_axis(jax.nn.log_softmax(q.eta1), z.T, axis=-1).T
    else:
        expected = q.log_density(z)
    np.testing.assert_allclose(other.log_prob(z), expected, rtol=1e-4, atol=1e-5)


def model(y):
    z = ngmp.sample("z", Normal(np.zeros(3), variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_arviz_has_draws_of_the_marginals(key):
    pytest.importorskip("arviz")
    post = ngmp.compile(model)(y=np.array([0, 3, 6]))
    data = post.to_arviz(key, draws=4000, chains=2)
    z = data.posterior["z"]
    assert z.dims[:2] == ("chain", "draw") and z.shape == (2, 4000, 3)
    np.testing.assert_allclose(z.mean(("chain", "draw")), post["z"].mean, atol=0.05)
    assert data.posterior.attrs["reason"] == "converged"
    same = post.to_arviz(key, draws=10).posterior["z"]
    np.testing.assert_array_equal(same, post.to_arviz(key, draws=10).posterior["z"])  # keys, not clocks
    assert post.to_arviz().posterior["z"].shape == (1, 1000, 3)
