"""Gradients of batches under `jit`."""

import jax
import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Normal


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
