"""Pieces of the learning examples against plain formulas; the examples themselves run as notebooks/learning.py."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_models import learning

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="tolerances are those of float64")
RNG = np.random.default_rng(0)


def test_the_state_space_form_has_the_matern_covariance():
    gaps, lengthscale, variance = RNG.uniform(0.1, 2.0, 5), 0.7, 1.3
    a, q, p = learning.matern32_steps(jnp.asarray(gaps), lengthscale, variance)
    times = np.cumsum(gaps) - gaps[0]
    covariance, state = np.zeros((5, 5)), np.asarray(p)
    for i in range(5):
        ahead = state
        for j in range(i, 5):
            ahead = ahead if j == i else np.asarray(a[j]) @ ahead
            covariance[j, i] = covariance[i, j] = ahead[0, 0]
        np.testing.assert_allclose(state, p, atol=1e-12)  # stationary
        if i < 4:
            state = np.asarray(a[i + 1]) @ state @ np.asarray(a[i + 1]).T + np.asarray(q[i + 1])
    distance = np.sqrt(3) * np.abs(times[:, None] - times) / lengthscale
    np.testing.assert_allclose(covariance, variance * (1 + distance) * np.exp(-distance), atol=1e-12)


def test_descent_leaves_parameters_alone_where_there_is_no_gradient():
    found, values = learning.descend(lambda x: ((x - 3.0) ** 2, None), jnp.asarray(0.0), 200, optax.adam(0.1))
    np.testing.assert_allclose(found, 3.0, atol=0.01)
    assert values[-1] < values[0]
    found, _ = learning.descend(lambda x: (x * jnp.nan, None), jnp.asarray(1.0), 3, optax.adam(0.1))
    assert found == 1.0


def test_a_start_at_the_true_marginals_is_the_fixed_point():
    def model(y):
        z = ngmp.sample("z", ngmp.Normal(jnp.zeros(6), variance=0.5))
        ngmp.sample("y", ngmp.Poisson(ngmp.exp(z)), obs=y)

    program, y = ngmp.compile(model), np.array([0, 3, 1, 6, 2, 2])
    post = program(y=y)
    truth = jnp.stack([post["z"].mean, jnp.log(post["z"].variance)], -1)
    state = learning.warm_start(lambda row: row, y, truth, program.init(y=y))
    for a, b in zip(state.leaves["y.z"].natural, post.state.leaves["y.z"].natural, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert program(y=y, init=state).sweeps <= 2


def test_windows():
    found = learning.windows(np.array([0, 3, 1]), 1)
    logs = np.log(np.array([0, 3, 1]) + 0.5)
    np.testing.assert_allclose(found, [logs[[0, 0, 1]], logs[[0, 1, 2]], logs[[1, 2, 2]]])
