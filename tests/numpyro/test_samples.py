"""Draws in the layout of `mcmc.get_samples()`: NumPyro itself takes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp

numpyro = pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
dist = pytest.importorskip("numpyro.distributions")
infer = pytest.importorskip("numpyro.infer")


def model(x, y=None):
    tau = numpyro.sample("tau", dist.LogNormal(0.0, 0.5))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([x.shape[0]]))
    a = numpyro.deterministic("a", tau * z)
    numpyro.sample("y", dist.Normal(a + x @ b, 0.5), obs=y)


def test_draws_have_the_names_and_shapes_of_the_model():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 2)), rng.normal(size=8)
    post = ngmp.compile(ngmp.from_numpyro(model))(x=x, y=y)
    draws = post.to_numpyro_samples(jax.random.key(0), 2000)
    assert {k: v.shape for k, v in draws.items()} == {"tau": (2000,), "b": (2000, 2), "z": (2000, 8), "a": (2000, 8)}
    np.testing.assert_allclose(draws["a"], draws["tau"][:, None] * draws["z"], rtol=1e-6)
    np.testing.assert_allclose(draws["b"].mean(0), post["b"].mean, atol=0.1)
    predicted = infer.Predictive(model, draws)(jax.random.key(1), x=jnp.asarray(x))
    assert predicted["y"].shape == (2000, 8)
