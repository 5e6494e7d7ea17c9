"""Gradients of batches under `jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Categorical, Dirichlet, Gamma, Normal


def test_gradient_of_a_jitted_batch_of_whole_posteriors():
    """All outputs of a batch, of which some are no batch: jax mixed them up under jit."""

    def model(y, std=1.0):
        x = ngmp.sample("x", Normal(0.0, std=std))
        ngmp.sample("y", Normal(x, std=1.0), obs=y)

    program = ngmp.compile(model)

    def total(std):
        posts = jax.vmap(lambda k: program(y=0.7, std=k * std))(jnp.array([1.0, 2.0]))
        return jnp.sum(posts.free_energy) + jnp.sum(posts["x"].mean), posts

    (_, posts), slope = jax.jit(jax.value_and_grad(total, has_aux=True))(1.5)

    def by_hand(std):
        variances = (jnp.array([1.0, 2.0]) * std) ** 2
        energy = 0.5 * jnp.log(2 * jnp.pi * (1 + variances)) + 0.5 * 0.49 / (1 + variances)
        return jnp.sum(energy + 0.7 * variances / (1 + variances))

    assert posts["x"].mean.shape == (2,)
    np.testing.assert_allclose(slope, jax.grad(by_hand)(1.5), rtol=1e-6)


def _precision(y, shift, spread):
    x, tau = ngmp.sample("x", Normal(shift, std=spread)), ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def _logistic(y, shift, spread):
    u = ngmp.sample("u", Normal(np.zeros(len(y)), std=spread))
    ngmp.sample("y", Binomial(5.0, logits=u + shift), obs=y)


def _switching(y, shift, spread):
    rows = ngmp.sample("rows", Dirichlet(np.ones((2, 2)) + 2 * np.eye(2)))

    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=ngmp.take(rows, z)))
        ngmp.sample("y", Normal(ngmp.take(jnp.array([0.0, 3.0]) + shift, z), std=spread), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.ones(2) / 2)), y)


@pytest.mark.parametrize("model", [_precision, _logistic, _switching])
def test_the_gradient_of_a_batch_is_that_of_its_lanes(model):
    """A branch that each lane takes for itself has no reverse mode inside of the rule of a fixed point."""
    program, y, spreads = ngmp.compile(model), np.array([1.0, 2.0, 3.0, 0.0, 4.0, 2.0]), jnp.array([0.5, 1.0, 3.0])

    @jax.jit
    def total(shift):
        return jnp.sum(jax.vmap(lambda spread: program(y=y, shift=shift, spread=spread).free_energy)(spreads))

    found = jax.jit(jax.grad(total))(0.3)
    differences = (total(0.3 + 1e-4) - total(0.3 - 1e-4)) / 2e-4
    np.testing.assert_allclose(found, differences, rtol=1e-4)
