"""Leave-one-out where a noise may vanish: a node that knows an element by itself alone says nothing of it."""

import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, HalfNormal, Normal
from ngmp_compiler.results.loo import mixed_leave_one_out

Y, X = np.array([0.3, -1.2, 0.8, 0.1, -0.5, 1.4]), np.linspace(-1.0, 1.0, 6)


def noises(y, x):
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    noise = ngmp.sample("noise", Gamma(np.full(3, 2.0), rate=1.0))
    u = ngmp.sample("u", Normal(np.zeros(6), std=sd))
    ngmp.sample("y", Normal(u + x, std=jnp.repeat(jnp.asarray(noise), 2)), obs=y)


def test_leave_one_out_of_noises_that_may_vanish():
    """Two elements share each noise, and all share sd: with r = y - x, `p(y | rest) = E[N(r; 0, sd^2 + noise^2)]`.

    The expectation is over what all other elements leave of sd and of the noise, on a grid."""
    program = ngmp.compile(noises, integrate=("sd", "noise"))
    post = program(y=Y, x=X)
    found = program.loo(post, "y", y=Y, x=X)
    noise, sd = np.linspace(0.0, 25.0, 2501)[1:], np.linspace(0.0, 6.0, 401)
    variance = sd[:, None] ** 2 + noise**2
    density = np.exp(-0.5 * ((Y - X) ** 2)[:, None, None] / variance) / np.sqrt(2 * np.pi * variance)
    prior = noise * np.exp(-noise)
    pairs = (density[::2] * density[1::2] * prior).sum(-1)  # (3, sd)
    for i in range(6):
        own = i // 2
        rest = np.exp(-0.5 * sd**2) * np.prod(np.delete(pairs, own, 0), 0)
        other = density[i ^ 1] * prior
        expected = np.log((rest * (other * density[i]).sum(-1)).sum() / (rest * other.sum(-1)).sum())
        np.testing.assert_allclose(found.log_density[i], expected, atol=0.02)
    assert not np.any(found.doubtful)


def test_a_cavity_that_is_lost():
    """With a noise of 1e-12 an element is all that is known of its mean: it is left out by a run without it."""

    def exact(y, s):
        u = ngmp.sample("u", Normal(np.zeros(6), std=1.0))
        ngmp.sample("y", Normal(u, std=s), obs=y)

    program = ngmp.compile(exact)
    found = program.loo(program(y=Y, s=1e-12), "y", y=Y, s=1e-12)
    np.testing.assert_allclose(found.log_density, -0.5 * Y**2 - 0.5 * np.log(2 * np.pi), rtol=1e-9)
    assert np.all(found.refitted)


def test_nodes_that_have_lost_it_are_left_out():
    """A node of weight 1e-46 whose cavity is rounding may say -1e45 of an element."""
    weights = jnp.asarray([0.5, 0.5, 1e-46, 0.0])
    density = jnp.asarray([[-1.0], [-2.0], [-1e45], [-np.inf]])
    lost = jnp.asarray([[False], [False], [True], [False]])
    found, weight = mixed_leave_one_out(weights, (density, jnp.zeros((4, 1)), lost))
    np.testing.assert_allclose(found, -np.log(0.5 * np.e + 0.5 * np.e**2), rtol=1e-12)
    np.testing.assert_array_equal(weight, 0.0)
