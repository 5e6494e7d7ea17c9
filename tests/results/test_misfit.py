"""Residuals far beyond their noise are named, in models whose nodes may have led to the wrong answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal


def waves(y, seen):
    x = ngmp.sample("x", Normal(jnp.zeros(12), std=1.0))
    ngmp.sample("y", Normal(ngmp.apply(jnp.sin, x), std=0.2), obs=y, mask=seen)


@pytest.fixture(scope="module")
def program():
    return ngmp.compile(waves)


@pytest.mark.parametrize(("size", "wrong"), [(0.5, False), (2.0, True)])
def test_residuals_against_their_noise(program, size, wrong):
    """Data that no sine reaches drive x a turn too far, seven standard deviations of its prior; masked ones do not
    count."""
    y, seen = size * (np.arange(12) > 5), np.arange(12) != 3
    y[3] = 100.0
    post = program(y=jnp.asarray(y), seen=jnp.asarray(seen))
    residuals = ((y - post["sin"].mean) / 0.2)[seen]
    np.testing.assert_allclose(post.misfit["y"], (np.sum(residuals**2) - 11) / np.sqrt(22), rtol=1e-6)
    np.testing.assert_allclose(post.misfit["x"], (np.sum(post["x"].mean ** 2) - 12) / np.sqrt(24), rtol=1e-6)
    assert post.converged and bool((np.asarray(post["x"].mean) > np.pi).any()) == wrong
    assert bool(post.misfits) == ("misfit: residuals of 'x'" in post.reason) == wrong


def test_linear_models_are_not_looked_at():
    """There is one answer, whatever the data; and under jit the words are refused."""

    def level(y):
        ngmp.sample("y", Normal(ngmp.sample("x", Normal(0.0, std=1.0)), std=0.1), obs=y)

    program = ngmp.compile(level)
    assert not program(y=jnp.linspace(-9.0, 9.0, 12)).misfit
    with pytest.raises(TypeError, match="use misfit inside"):
        jax.jit(lambda y: program(y=y).misfits and y)(jnp.zeros(12))
