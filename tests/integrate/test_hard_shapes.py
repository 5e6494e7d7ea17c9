"""Integrals with several modes, with nodes that fail, and with too many numbers for points; models of new users."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Dirichlet, Exponential, HalfNormal, LogNormal, Normal, Poisson, Uniform, exp
from ngmp_compiler.integrate.sample import draw


def squared(y):
    """Only the square of b is heard of: two narrow modes, of which the prior likes one more."""
    b = ngmp.sample("b", Normal(0.3, std=2.0))
    m = ngmp.sample("m", Normal(0.0, std=0.1))
    ngmp.sample("y", Normal(ngmp.broadcast_to(m, (6,)) + b**2, std=0.3), obs=y)


def test_two_modes_far_apart():
    y = np.array([4.1, 3.7, 4.3, 4.0, 3.9, 4.4])
    post = ngmp.compile(squared, integrate="b")(y=y)
    b = np.linspace(-4.0, 4.0, 40001)
    cov = 0.09 * np.eye(6) + 0.01
    off = y - b[:, None] ** 2
    log = -0.5 * np.sum(off @ np.linalg.inv(cov) * off, -1) - 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    log += -0.5 * ((b - 0.3) / 2.0) ** 2 - np.log(2.0 * np.sqrt(2 * np.pi)) + np.log(b[1] - b[0])
    total = np.logaddexp.reduce(log)
    weights = np.exp(log - total)
    assert bool(post.converged) and float(post.free_energy) == pytest.approx(-total, abs=0.01)
    mean, mass = weights @ b, weights[b < 0].sum()
    assert 0.1 < mass < 0.45
    assert float(post["b"].mean) == pytest.approx(mean, abs=0.02)
    assert float(post["b"].std) == pytest.approx(np.sqrt(weights @ (b - mean) ** 2), rel=0.01)
    assert float(post["b"].cdf(0.0)) == pytest.approx(mass, abs=0.01)


def test_nodes_that_fail_are_dropped():
    """Beyond three, the model has no posterior: those nodes weigh nothing, are counted, and the rest is right."""

    def partly(y):
        a = ngmp.sample("a", HalfNormal(std=2.0))
        ngmp.factor("cut", lambda a: jnp.where(a < 3.0, 0.0, jnp.nan), a)
        m = ngmp.sample("m", Normal(0.0, std=1.0))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (3,)), std=1.0), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ngmp.ConvergenceWarning)  # a density that is cut off may or may not settle
        post = ngmp.compile(partly, integrate="a")(y=np.zeros(3))
    assert int(post.nodes.failed) > 0
    assert np.all(np.asarray(post.nodes.weights)[np.asarray(post.nodes.values["a"]) > 3.0] == 0)


def test_draws_of_many():
    """The sampler that takes over beyond sixteen numbers, on a correlated Gaussian."""
    pytest.importorskip("blackjax")
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])
    precision, mean = np.linalg.inv(cov), np.array([1.0, -2.0])
    found = draw(lambda v: -0.5 * (v - mean) @ precision @ (v - mean), 2, jnp.result_type(float))
    assert float(found.r_hat) < 1.05
    assert float(found.log_evidence) == pytest.approx(0.5 * np.linalg.slogdet(2 * np.pi * cov)[1], abs=0.05)
    np.testing.assert_allclose(found.v.mean(0), mean, atol=0.15)
    np.testing.assert_allclose(np.cov(found.v.T), cov, atol=0.25)


@pytest.mark.slow
def test_eighteen_numbers():
    """Three plates of six, all Gaussian: against the exact posterior."""
    pytest.importorskip("blackjax")
    rng = np.random.default_rng(0)
    designs = [rng.normal(size=(30, 6)) for _ in range(3)]
    y = rng.normal(size=30)

    def many(y):
        parts = [ngmp.sample(f"w{i}", Normal(np.zeros(6), std=1.0)) for i in range(3)]
        m = ngmp.sample("m", Normal(0.0, std=1.0))
        mean = sum(jnp.asarray(x) @ jnp.asarray(w) for x, w in zip(designs, parts, strict=True))
        ngmp.sample("y", Normal(ngmp.broadcast_to(m, (30,)) + mean, std=1.0), obs=y)

    post = ngmp.compile(many, integrate=("w0", "w1", "w2"))(y=y)
    x = np.concatenate([*designs, np.ones((30, 1))], 1)
    cov = np.linalg.inv(x.T @ x + np.eye(19))
    mean, sd = cov @ x.T @ y, np.sqrt(np.diag(cov))
    whole = x @ x.T + np.eye(30)
    energy = 0.5 * np.linalg.slogdet(2 * np.pi * whole)[1] + 0.5 * y @ np.linalg.solve(whole, y)
    assert bool(post.converged) and float(post.free_energy) == pytest.approx(energy, abs=0.1)
    for i in range(3):
        own = slice(6 * i, 6 * i + 6)
        np.testing.assert_allclose((post[f"w{i}"].mean - mean[own]) / sd[own], 0, atol=0.12)
        np.testing.assert_allclose(post[f"w{i}"].std / sd[own], 1, atol=0.1)
    np.testing.assert_allclose(post["m"].mean, mean[18], atol=0.1 * sd[18])


def _auto(model, **inputs):
    lowered = ngmp.compile(model, integrate="auto").lower(**inputs)
    return set(lowered.integrated)


def test_what_new_users_write():
    """Priors without a family, where people put them: each is found by integrate="auto"."""
    y, t = np.arange(8.0), np.linspace(0.0, 1.0, 8)

    def effects(y):
        tau = ngmp.sample("tau", HalfNormal(std=1.0))
        mu = ngmp.sample("mu", Normal(0.0, std=5.0))
        b = ngmp.sample("b", Normal(mu * jnp.ones(8), std=tau))
        ngmp.sample("y", Poisson(exp(b)), obs=y)

    def coefficient(y):
        phi = ngmp.sample("phi", Uniform(-1.0, 1.0))

        def step(x, y_k):
            x = ngmp.sample("x", Normal(phi * x, std=jnp.sqrt(1 - phi**2)))
            ngmp.sample("y", Normal(x, std=1.0), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), y)

    def decay(y, t):
        rate = ngmp.sample("rate", Exponential(rate=1.0))
        a = ngmp.sample("a", Normal(0.0, std=5.0))
        ngmp.sample("y", Normal(a * jnp.exp(-rate * t), std=1.0), obs=y)

    def process(y, t):
        ell = ngmp.sample("ell", LogNormal(0.0, std=1.0))
        cov = jnp.exp(-0.5 * ((t[:, None] - t) / ell) ** 2) + 1e-6 * jnp.eye(8)
        f = ngmp.sample("f", ngmp.MvNormal(np.zeros(8), covariance=cov))
        ngmp.sample("y", ngmp.MvNormal(f, covariance=np.eye(8)), obs=y)

    assert _auto(effects, y=y) == {"tau"}
    assert _auto(coefficient, y=y) == {"phi"}
    assert _auto(decay, y=y, t=t) == {"rate"}
    assert _auto(process, y=y, t=t) == {"ell"}


def test_weights_of_a_mixture():
    def mixture(y):
        w = ngmp.sample("w", Dirichlet(np.ones(3)))
        z = ngmp.sample("z", ngmp.Categorical(probs=jnp.broadcast_to(jnp.asarray(w), (5, 3))))
        ngmp.sample("y", Normal(ngmp.take(np.array([-3.0, 0.0, 3.0]), z), std=1.0), obs=y)

    post = ngmp.compile(mixture, integrate="w")(y=np.array([-3.0, -2.5, 0.1, 3.2, -3.1]))
    assert bool(post.converged)
    np.testing.assert_allclose(jnp.sum(post["w"].mean), 1.0, rtol=1e-9)
    np.testing.assert_allclose(post["w"].mean, [4 / 8, 2 / 8, 2 / 8], atol=0.03)
