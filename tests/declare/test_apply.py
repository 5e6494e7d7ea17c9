"""Deterministic nodes and products of variables, against integrals on grids."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, Poisson, exp, log


def bent(x):
    return x + 0.5 * jnp.sin(x)


def observed_through(y, mean=1.0):
    x = ngmp.sample("x", Normal(mean, variance=1.0))
    h = ngmp.apply(bent, x, name="h")
    ngmp.sample("y", Normal(h, variance=0.5), obs=y)


def test_a_deterministic_node_against_a_grid():
    y = np.asarray([0.3, 0.9])
    post = ngmp.compile(observed_through)(y=jnp.asarray(y))
    assert post.converged
    x = np.linspace(-8, 10, 20001)
    h = x + 0.5 * np.sin(x)
    log_p = -0.5 * (x - 1) ** 2 - 0.5 * np.sum((y[:, None] - h) ** 2, 0) / 0.5
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ x
    # A Gaussian stands for both x and h: a few per cent of their width.
    np.testing.assert_allclose(post["x"].mean, mean, atol=0.02)
    np.testing.assert_allclose(post["x"].variance, p @ (x - mean) ** 2, rtol=0.03)
    np.testing.assert_allclose(post["h"].mean, p @ h, atol=0.03)


def test_without_data_the_node_has_the_moments_of_the_function():
    def model():
        ngmp.apply(bent, ngmp.sample("x", Normal(0.4, variance=0.7)), name="h")

    post = ngmp.compile(model)()
    z = 0.4 + np.sqrt(0.7) * np.linspace(-10, 10, 20001)
    w = np.exp(-0.5 * (z - 0.4) ** 2 / 0.7)
    w /= w.sum()
    h = z + 0.5 * np.sin(z)
    np.testing.assert_allclose(post["h"].mean, w @ h, rtol=1e-9)
    np.testing.assert_allclose(post["h"].variance, w @ (h - w @ h) ** 2, rtol=1e-9)
    np.testing.assert_allclose(post["x"].mean, 0.4, rtol=1e-12)


def test_an_affine_function_is_exact():
    def applied(y):
        x = ngmp.sample("x", Normal(1.0, variance=2.0))
        ngmp.sample("y", Normal(ngmp.apply(lambda x, c: 2.0 * x + c, x, 0.5), variance=0.3), obs=y)

    def affine(y):
        x = ngmp.sample("x", Normal(1.0, variance=2.0))
        ngmp.sample("y", Normal(2.0 * x + 0.5, variance=0.3), obs=y)

    y = jnp.asarray([1.0, 3.0])
    found, exact = ngmp.compile(applied)(y=y), ngmp.compile(affine)(y=y)
    np.testing.assert_allclose(found["x"].mean, exact["x"].mean, rtol=1e-7)
    np.testing.assert_allclose(found["x"].variance, exact["x"].variance, rtol=1e-7)
    np.testing.assert_allclose(found.free_energy, exact.free_energy, rtol=1e-7)


def test_nodes_in_a_loop_are_one_group():
    def model(y):
        x = ngmp.sample("x", Normal(jnp.zeros(len(y)), variance=1.0))
        for k in range(len(y)):
            ngmp.sample("y", Normal(ngmp.apply(bent, x[k]), variance=0.5), obs=y[k])

    def plate(y):
        x = ngmp.sample("x", Normal(jnp.zeros(len(y)), variance=1.0))
        ngmp.sample("y", Normal(ngmp.apply(bent, x), variance=0.5), obs=y)

    y = jnp.linspace(-1.0, 1.0, 7)
    loop, array = ngmp.compile(model), ngmp.compile(plate)
    np.testing.assert_allclose(loop(y=y)["x"].mean, array(y=y)["x"].mean, rtol=1e-12)
    assert loop.lower(y=y).describe().split("conjugate core")[0].count("DeterministicNode") == 1


@pytest.mark.parametrize("method", [ngmp.NGMP(), ngmp.VMP()])
def test_a_product_of_two_variables_against_a_grid(method):
    y = np.asarray([2.5, 3.0, 2.2])

    def model(y):
        a, b = ngmp.sample("a", Normal(1.0, variance=0.1)), ngmp.sample("b", Normal(2.0, variance=0.05))
        ngmp.sample("y", Normal(a * b + 0.1, variance=0.5), obs=y)

    post = ngmp.compile(model, method=method)(y=jnp.asarray(y))
    assert post.converged
    a, b = np.meshgrid(np.linspace(-1, 3, 801), np.linspace(0, 4, 801), indexing="ij")
    log_p = -0.5 * (a - 1) ** 2 / 0.1 - 0.5 * (b - 2) ** 2 / 0.05
    log_p = log_p - 0.5 * np.sum((y[:, None, None] - a * b - 0.1) ** 2, 0) / 0.5
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    np.testing.assert_allclose(post["a"].mean, np.sum(p * a), atol=0.02)
    np.testing.assert_allclose(post["b"].mean, np.sum(p * b), atol=0.02)


def test_a_product_with_an_unknown_precision_converges():
    def model(y):
        a, b = ngmp.sample("a", Normal(1.0, variance=0.3)), ngmp.sample("b", Normal(jnp.ones(len(y)), variance=0.2))
        tau = ngmp.sample("tau", Gamma(4.0, rate=2.0))
        ngmp.sample("y", Normal(a * b, precision=tau), obs=y)

    post = ngmp.compile(model, method=ngmp.VMP())(y=jnp.asarray([1.1, 0.4, 1.7]))
    assert post.converged and 0.5 < float(post["a"].mean) < 1.6


def test_log_undoes_exp():
    def model(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        ngmp.sample("y", Poisson(exp(log(exp(z)) + 0.0)), obs=y)

    assert ngmp.compile(model)(y=jnp.asarray(3)).converged


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: ngmp.apply(3.0, x), "cannot be called"),
        (lambda x: ngmp.apply(lambda x, y: x + y, x, name="h"), "cannot be evaluated on 1 scalar"),
        (lambda x: ngmp.apply(lambda x: jnp.stack([x, x]), x, name="h"), "must return a scalar"),
        (lambda x: ngmp.sample("y", MvNormal(jnp.zeros(2), covariance=1.0)) * x, "product of random vectors"),
        (lambda x: log(x), "log undoes ngmp.exp"),
    ],
)
def test_bad_input(model, words):
    with pytest.raises(ngmp.ModelError, match=words):
        ngmp.compile(lambda: [model(ngmp.sample("x", Normal(0.0, variance=1.0)))] and None)()
