"""Starts by Newton's method, where the log-density curves the wrong way at the prior means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Weibull, exp

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="needs float64")
Y = np.array([6.17619, 2.15454, 1.8068, 60.01371, 0.48042, 0.23636, 2.11705, 5.63547])
MEAN, VARIANCE = -1.90504, 3.32298


def weibull(y):
    f, k = ngmp.sample("f", Normal(MEAN, variance=VARIANCE)), ngmp.sample("k", Normal(1.0, std=0.7))
    ngmp.sample("y", Weibull(exp(k + jnp.zeros(len(Y))), scale=exp(f + jnp.zeros(len(Y)))), obs=y)


def test_a_weibull_of_unknown_shape_whose_prior_is_far_from_the_data():
    """At the prior means the log-density is -10^7, and its curvature has both signs; on a grid it is a hill."""
    post = jax.jit(ngmp.compile(weibull))(Y)
    assert post.converged and post.sweeps < 100
    f, k = (x[..., None] for x in np.meshgrid(np.linspace(-3, 5, 400), np.linspace(-2.5, 1.5, 400)))
    log_z = np.log(Y) - f
    log_p = np.sum(k + np.exp(k) * log_z - np.exp(np.exp(k) * log_z), -1)
    f, k = f[..., 0], k[..., 0]
    log_p += -0.5 * (f - MEAN) ** 2 / VARIANCE - 0.5 * ((k - 1.0) / 0.7) ** 2
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for name, x in (("f", f), ("k", k)):
        mean = np.sum(p * x)
        std = np.sqrt(np.sum(p * (x - mean) ** 2))
        assert abs(float(post[name].mean) - mean) < 0.1 * std
        np.testing.assert_allclose(post[name].std, std, rtol=0.1)
