"""Draws from the prior and from predictions, against moments and covariances written out by hand."""

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, HalfNormal, MvNormal, Normal, Poisson, exp

N = 8000
Y = np.array([1.0, 0.4, -0.3, 0.8, 0.2])


def near(found, wanted, sd, what: object = ""):
    """Within five standard errors of a mean over N draws."""
    assert np.all(np.abs(np.asarray(found) - wanted) < 5 * np.asarray(sd) / np.sqrt(N)), (what, found, wanted)


def walk(y, counts):
    tau = ngmp.sample("tau", Gamma(20.0, rate=20.0))
    x = ngmp.sample("x0", Normal(1.0, variance=0.5))
    for k in range(len(y)):
        x = ngmp.sample("x", Normal(0.5 * x, variance=0.2))
        ngmp.sample("y", Normal(x, precision=tau), obs=y[k])
    ngmp.deterministic("rate", exp(x))
    ngmp.sample("counts", Poisson(exp(x)), obs=counts)


def switching(y):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=np.array([[1.0, 0.6], [0.6, 2.0]])))
    level = ngmp.sample("level", Normal(np.array([-5.0, 5.0]), variance=1.0))
    table = np.array([[0.9, 0.1], [0.3, 0.7]])

    def step(s, y_k):
        s = ngmp.sample("s", Categorical(probs=ngmp.take(table, s)))
        ngmp.sample("y", Normal(ngmp.take(level, s) + w[0], variance=0.25), obs=y_k)
        return s, None

    ngmp.scan(step, ngmp.sample("s0", Categorical(probs=np.array([0.2, 0.8]))), y)


def test_a_chain_is_drawn_in_order(key):
    draws = ngmp.compile(walk).simulate(key, (N,), y=Y, counts=np.zeros(3))
    assert {k: v.shape[1:] for k, v in draws.items()} == {
        "x0": (), "x": (5,), "tau": (), "y": (5,), "counts": (3,), "rate": ()
    }  # fmt: skip
    mean, variance, x = 1.0, 0.5, np.asarray(draws["x"])
    for k in range(5):
        lagged = 0.5 * variance
        mean, variance = 0.5 * mean, 0.25 * variance + 0.2
        near(x[:, k].mean(), mean, np.sqrt(variance), k)
        near(x[:, k].var(), variance, np.sqrt(2) * variance, k)
        before = x[:, k - 1] if k else np.asarray(draws["x0"])
        near(np.cov(before, x[:, k])[0, 1], lagged, variance, k)
    noise = (np.asarray(draws["y"]) - x) * np.sqrt(np.asarray(draws["tau"]))[:, None]
    near(noise.var(0), 1.0, np.sqrt(2))
    np.testing.assert_allclose(draws["rate"], np.exp(x[:, -1]), rtol=1e-6)
    near(draws["counts"].mean(0), np.exp(mean + variance / 2), 2.0)
    assert np.array_equal(draws["counts"], np.round(draws["counts"]))


def test_classes_pick_what_is_drawn(key):
    draws = {k: np.asarray(x) for k, x in ngmp.compile(switching).simulate(key, (N,), y=np.zeros(4)).items()}
    p = np.array([0.2, 0.8])
    for k in range(4):
        p = p @ np.array([[0.9, 0.1], [0.3, 0.7]])
        near((draws["s"][:, k] == 1).mean(), p[1], 0.5)
    picked = np.take_along_axis(draws["level"], draws["s"], 1)
    near((draws["y"] - picked - draws["w"][:, :1]).var(0), 0.25, np.sqrt(2) * 0.25)
    near(np.cov(draws["w"].T), [[1.0, 0.6], [0.6, 2.0]], 3.0)


def grouped(y, X):
    s = ngmp.sample("s", HalfNormal(std=2.0))
    m = ngmp.sample("m", Normal(0.0, std=s))
    w = ngmp.sample("w", MvNormal(np.zeros(2), precision=4.0 * ngmp.leroux(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.5)))
    ngmp.sample("y", Normal(m + X @ w, variance=1.0), obs=y)


def test_integrated_sites_and_structures(key):
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    draws = ngmp.compile(grouped, integrate=("s",)).simulate(key, (N,), y=np.zeros(3), X=X)
    s, m, w = (np.asarray(draws[k]) for k in ("s", "m", "w"))
    near(s.mean(), 2 * np.sqrt(2 / np.pi), 1.3)
    near((m / s).var(), 1.0, np.sqrt(2))
    near(np.cov(w.T), np.linalg.inv(4.0 * np.array([[1.0, -0.5], [-0.5, 1.0]])), 1.0)
    near((draws["y"] - m[:, None] - w @ X.T).var(0), 1.0, np.sqrt(2))


def test_what_has_no_direction_is_refused(key):
    def undirected(y):
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.factor("pull", lambda x: -(x**4), x)
        ngmp.sample("y", Normal(x, variance=1.0), obs=y)

    with pytest.raises(ngmp.ModelError, match="site 'pull': an ngmp.factor has no generative direction"):
        ngmp.compile(undirected).simulate(key, (2,), y=0.0)

    def flat(y):
        x = ngmp.sample("x", MvNormal(np.zeros(4), precision=2.0 * ngmp.rw1(4)))
        ngmp.sample("y", Normal(x[0], variance=1.0), obs=y)

    with pytest.raises(ngmp.ModelError, match="site 'x': its precision is singular"):
        ngmp.compile(flat).simulate(key, (2,), y=0.0)
    with pytest.raises(ValueError, match="positive integers"):
        ngmp.compile(flat).simulate(key, (0,), y=0.0)


def line(y, x):
    a = ngmp.sample("a", Normal(0.0, variance=4.0))
    b = ngmp.sample("b", Normal(0.0, variance=4.0))
    ngmp.sample("y", Normal(a + b * x, variance=0.5), obs=y)


def test_predictions_are_drawn_jointly(key):
    x = np.linspace(-1.0, 1.0, 5)
    program = ngmp.compile(line)
    post = program(y=Y, x=x)
    X = np.stack([np.ones(5), x], 1)
    spread = np.linalg.inv(np.eye(2) / 4 + X.T @ X / 0.5)
    mean = spread @ X.T @ Y / 0.5
    prediction = program.predict(post, "y", y=Y, x=x)
    draws = np.asarray(prediction.sample(key, (2, N // 2)))
    assert draws.shape == (2, N // 2, 5)
    draws = draws.reshape(N, 5)
    near(draws.mean(0), X @ mean, 1.0)
    near(np.cov(draws.T), X @ spread @ X.T + 0.5 * np.eye(5), 1.2)
    new = np.array([[1.0, 3.0], [1.0, 4.0]])
    far = np.asarray(program.predict(post, "y", x=new[:, 1]).sample(key, N))
    near(np.cov(far.T), new @ spread @ new.T + 0.5 * np.eye(2), 6.0)
    traced = jax.jit(lambda post: program.predict(post, "y", y=Y, x=x))(post)
    with pytest.raises(ValueError, match="no longer knows the posterior"):
        traced.sample(key, 3)


def test_draws_of_a_run_that_has_not_converged_warn(key):
    def counts(y):
        w = ngmp.sample("w", Normal(0.0, variance=4.0))
        ngmp.sample("y", Poisson(exp(w)), obs=y)

    program = ngmp.compile(counts, solver=ngmp.anderson(), max_sweeps=1)
    with pytest.warns(ngmp.ConvergenceWarning, match="has not converged"):
        post = program(y=np.array([9, 4]))
    with pytest.warns(ngmp.ConvergenceWarning, match="draws from a posterior that has not converged"):
        post.sample(key, (3,))
    with pytest.warns(ngmp.ConvergenceWarning, match="leave-one-out of 'y' from a posterior that has not"):
        program.loo(post, "y", y=np.array([9, 4]))
