"""Implicit derivatives of the fixed point against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_models import mean_precision, poisson_chain

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="finite differences need float64")

RNG = np.random.default_rng(3)
COUNTS = RNG.poisson(np.exp(np.cumsum(0.3 * RNG.standard_normal(40))))
READINGS = 1.0 + RNG.standard_normal(12)


def moments(post):
    return jnp.sum(post["z"].mean ** 2) + jnp.sum(post["z"].variance)


@pytest.mark.parametrize("output", [lambda post: post.free_energy, moments], ids=["free energy", "moments"])
def test_hyperparameter_of_a_chain(output):
    program = ngmp.compile(poisson_chain, tol=1e-12)

    def f(sigma2):
        return output(program(y=COUNTS, sigma2=sigma2))

    h = 1e-5
    expected = (f(0.1 + h) - f(0.1 - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(f)(0.1), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(f)(0.1), expected, rtol=1e-6)


@pytest.mark.slow
def test_data_of_a_two_interface_factor():
    program = ngmp.compile(mean_precision, tol=1e-12)

    def f(y):
        post = program(y=y)
        return post["x"].variance + post["tau"].mean + post.free_energy

    step = np.zeros(12)
    step[3] = 1e-5
    expected = (f(READINGS + step) - f(READINGS - step)) / 2e-5
    np.testing.assert_allclose(jax.grad(f)(READINGS)[3], expected, rtol=1e-6)


@pytest.mark.slow
def test_vmap_of_grad_is_a_loop_of_grads():
    program = ngmp.compile(poisson_chain, tol=1e-12)
    gradient = jax.grad(lambda s: program(y=COUNTS, sigma2=s).free_energy)
    values = jnp.array([0.05, 0.2])
    np.testing.assert_allclose(jax.vmap(gradient)(values), [gradient(v) for v in values], rtol=1e-9)
