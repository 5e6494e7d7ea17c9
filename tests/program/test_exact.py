"""Conjugate problems with textbook answers: marginals and log evidence to 1e-10, with and without missing data."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, gammaln

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Bernoulli, Beta, Categorical, Dirichlet, Gamma, MvNormal, Normal, Poisson, dot
from tests.oracle.exact import (
    enumerate_hmm,
    forward_backward,
    kalman_smoother,
    linear_regression,
    normal_log_density,
)

TOL = 1e-10
MASKED = pytest.mark.parametrize("masked", [False, True], ids=["all seen", "masked"])


def _mask(masked: bool, n: int) -> tuple[np.ndarray | None, np.ndarray]:
    """What the model gets, and what it means; the first and the last are missing."""
    if not masked:
        return None, np.ones(n, bool)
    seen = np.arange(n) % 3 != 0
    seen[-1] = False
    return seen, seen


def _close(actual, expected, tol=TOL):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tol, atol=tol)


# -- state-space models ---------------------------------------------------------------------------------------------


@MASKED
def test_kalman_smoother_of_a_scalar(masked):
    y = np.random.default_rng(0).normal(size=12).cumsum()
    mask, seen = _mask(masked, 12)
    expected = kalman_smoother(
        y[:, None], seen, np.eye(1), 0.3 * np.eye(1), np.eye(1), 0.8 * np.eye(1), np.zeros(1), 10 * np.eye(1)
    )
    program = ngmp.compile(ngmp_models.local_level)
    post = program(y=y, mask=mask, level_variance=0.3, noise_variance=0.8)
    assert post.converged and post.sweeps == 1
    _close(jnp.append(post["z0"].mean, post["z"].mean), expected.mean[:, 0])
    _close(jnp.append(post["z0"].variance, post["z"].variance), expected.covariance[:, 0, 0])
    _close(-post.free_energy, expected.log_evidence)


def _turning(angle: float) -> np.ndarray:
    return 0.95 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


PROCESS = np.array([[0.3, 0.1], [0.1, 0.2]])


def _turning_state(y, turn, mask=None):
    x0 = ngmp.sample("x0", MvNormal(np.array([1.0, 0.0]), covariance=2.0))

    def step(x, inputs):
        y_k, seen = inputs
        x = ngmp.sample("x", MvNormal(turn @ x, covariance=PROCESS))
        ngmp.sample("y", Normal(dot(np.array([1.0, 0.5]), x), variance=0.4), obs=y_k, mask=seen)
        return x, None

    ngmp.scan(step, x0, (y, mask))


def _turning_state_vectors(y, turn, mask=None):
    """Both coordinates are seen, in a loop."""
    x = ngmp.sample("x0", MvNormal(np.array([1.0, 0.0]), covariance=2.0))
    for k in range(len(y)):
        x = ngmp.sample("x", MvNormal(turn @ x, covariance=PROCESS))
        ngmp.sample("y", MvNormal(x, covariance=np.array([0.4, 0.7])), obs=y[k], mask=None if mask is None else mask[k])


@MASKED
@pytest.mark.parametrize("vectors", [False, True], ids=["one projection", "both coordinates"])
def test_kalman_smoother_of_a_rotating_state(masked, vectors):
    n = 9
    y = np.random.default_rng(1).normal(size=(n, 2 if vectors else 1))
    mask, seen = _mask(masked, n)
    emission, noise = (np.eye(2), np.diag([0.4, 0.7])) if vectors else (np.array([[1.0, 0.5]]), 0.4 * np.eye(1))
    turn = _turning(0.4)
    expected = kalman_smoother(y, seen, turn, PROCESS, emission, noise, np.array([1.0, 0.0]), 2 * np.eye(2))
    model = _turning_state_vectors if vectors else _turning_state
    post = ngmp.compile(model)(y=y if vectors else y[:, 0], turn=turn, mask=mask)
    _close(jnp.concatenate([post["x0"].mean[None], post["x"].mean]), expected.mean)
    _close(jnp.concatenate([post["x0"].covariance[None], post["x"].covariance]), expected.covariance)
    _close(-post.free_energy, expected.log_evidence)


@MASKED
def test_hidden_markov_model(masked):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, size=7)
    mask, seen = _mask(masked, 7)
    initial, transition, emission = (rng.dirichlet(np.ones(k), size=s) for k, s in ((3, None), (3, 3), (4, 3)))
    post = ngmp.compile(ngmp_models.hmm)(y=y, initial=initial, transition=transition, emission=emission, mask=mask)
    probs = jnp.concatenate([post["z0"].probs[None], post["z"].probs])
    for reference in (enumerate_hmm, forward_backward):
        expected, evidence = reference(y, seen, initial, transition, emission)
        _close(probs, expected)
        _close(-post.free_energy, evidence)


def test_a_long_hidden_markov_model_neither_underflows_nor_forgets():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, size=200)
    transition, emission = rng.dirichlet(np.ones(2), size=2), rng.dirichlet(np.ones(3), size=2)
    initial = np.array([0.5, 0.5])
    post = ngmp.compile(ngmp_models.hmm)(y=y, initial=initial, transition=transition, emission=emission)
    expected, evidence = forward_backward(y, np.ones(200, bool), initial, transition, emission)
    _close(post["z"].probs, expected[1:])
    _close(-post.free_energy, evidence)


# -- regressions ----------------------------------------------------------------------------------------------------


def _regression(features, y, mask=None):
    w = ngmp.sample("w", MvNormal(np.array([0.5, 0.0, -0.5]), covariance=np.diag([1.0, 2.0, 0.5]) + 0.2))
    ngmp.sample("y", Normal(dot(features, w), std=0.7), obs=y, mask=mask)


@MASKED
def test_bayesian_linear_regression(masked):
    rng = np.random.default_rng(4)
    features, y = rng.normal(size=(10, 3)), rng.normal(size=10)
    mask, seen = _mask(masked, 10)
    prior = np.array([0.5, 0.0, -0.5]), np.diag([1.0, 2.0, 0.5]) + 0.2
    expected = linear_regression(features[seen], y[seen], *prior, 0.49 * np.eye(seen.sum()))
    post = ngmp.compile(_regression)(features=features, y=y, mask=mask)
    _close(post["w"].mean, expected.mean)
    _close(post["w"].covariance, expected.covariance)
    _close(-post.free_energy, expected.log_evidence)


def _with_intercept(features, y):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    b = ngmp.sample("b", Normal(0.3, variance=4.0))
    ngmp.sample("y", Normal(dot(features, w) + b, variance=0.5), obs=y)


def test_regression_with_a_scalar_intercept():
    rng = np.random.default_rng(5)
    features, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    rows = np.concatenate([features, np.ones((6, 1))], axis=1)
    expected = linear_regression(rows, y, np.array([0, 0, 0.3]), np.diag([1.0, 1.0, 4.0]), 0.5 * np.eye(6))
    post = ngmp.compile(_with_intercept)(features=features, y=y)
    _close(jnp.append(post["w"].mean, post["b"].mean), expected.mean)
    _close(post["w"].covariance, expected.covariance[:2, :2])
    _close(post["b"].variance, expected.covariance[2, 2])
    _close(-post.free_energy, expected.log_evidence)


def _random_effects(y, mask=None):
    """A hub, and one satellite for each of four groups of three measurements."""
    mu = ngmp.sample("mu", Normal(0.0, variance=9.0))
    effect = ngmp.sample("effect", Normal(mu, precision=np.array([1.0, 0.5, 2.0, 1.5])))
    ngmp.sample("y", Normal(effect, variance=0.3), obs=y, mask=mask)


@MASKED
def test_random_effects(masked):
    y = np.random.default_rng(6).normal(size=(3, 4)) + np.arange(4)
    mask, seen = (None, np.ones((3, 4), bool)) if not masked else (y > 0.5, y > 0.5)
    prior = np.full((5, 5), 9.0) + np.diag([0, 1, 2, 0.5, 1 / 1.5])  # mu, then the effects
    rows = np.tile(np.eye(5)[1:], (3, 1))[seen.reshape(-1)]
    expected = linear_regression(rows, y[seen], np.zeros(5), prior, 0.3 * np.eye(seen.sum()))
    post = ngmp.compile(_random_effects)(y=y, mask=mask)
    _close(jnp.append(post["mu"].mean, post["effect"].mean), expected.mean)
    _close(jnp.append(post["mu"].variance, post["effect"].variance), np.diagonal(expected.covariance))
    _close(-post.free_energy, expected.log_evidence)


# -- one conjugate variable -----------------------------------------------------------------------------------------


def _beta_bernoulli(y, mask=None):
    p = ngmp.sample("p", Beta(2.0, 3.5))
    ngmp.sample("y", Bernoulli(probs=p), obs=y, mask=mask)


@MASKED
def test_beta_bernoulli(masked):
    y = np.array([1, 0, 1, 1, 0, 1, 1])
    mask, seen = _mask(masked, 7)
    hits, misses = y[seen].sum(), (1 - y[seen]).sum()
    post = ngmp.compile(_beta_bernoulli)(y=y, mask=mask)
    _close([post["p"].a, post["p"].b], [2 + hits, 3.5 + misses])
    _close(-post.free_energy, betaln(2 + hits, 3.5 + misses) - betaln(2, 3.5))


def _gamma_poisson(y, mask=None):
    rate = ngmp.sample("rate", Gamma(2.5, rate=0.7))
    ngmp.sample("y", Poisson(rate), obs=y, mask=mask)


@MASKED
def test_gamma_poisson(masked):
    y = np.array([3, 0, 5, 2, 8, 1, 4])
    mask, seen = _mask(masked, 7)
    total, count = y[seen].sum(), seen.sum()
    post = ngmp.compile(_gamma_poisson)(y=y, mask=mask)
    _close([post["rate"].concentration, post["rate"].rate], [2.5 + total, 0.7 + count])
    evidence = gammaln(2.5 + total) - gammaln(2.5) + 2.5 * np.log(0.7) - (2.5 + total) * np.log(0.7 + count)
    _close(-post.free_energy, evidence - gammaln(y[seen] + 1).sum())


def _dirichlet_categorical(y, mask=None):
    p = ngmp.sample("p", Dirichlet(np.array([1.0, 2.0, 0.5])))
    ngmp.sample("y", Categorical(probs=p), obs=y, mask=mask)


@MASKED
def test_dirichlet_categorical(masked):
    y = np.array([0, 2, 1, 1, 2, 1, 0])
    mask, seen = _mask(masked, 7)
    prior, counts = np.array([1.0, 2.0, 0.5]), np.bincount(y[seen], minlength=3)
    post = ngmp.compile(_dirichlet_categorical)(y=y, mask=mask)
    _close(post["p"].concentration, prior + counts)
    evidence = gammaln(prior + counts).sum() - gammaln(prior.sum() + counts.sum())
    _close(-post.free_energy, evidence - gammaln(prior).sum() + gammaln(prior.sum()))


def _known_mean(y, mask=None):
    tau = ngmp.sample("tau", Gamma(3.0, scale=0.5))
    ngmp.sample("y", Normal(0.4, precision=tau), obs=y, mask=mask)


@MASKED
def test_unknown_precision_of_a_known_mean(masked):
    y = np.random.default_rng(7).normal(size=7)
    mask, seen = _mask(masked, 7)
    a, b = 3 + 0.5 * seen.sum(), 2 + 0.5 * ((y[seen] - 0.4) ** 2).sum()
    post = ngmp.compile(_known_mean)(y=y, mask=mask)
    _close([post["tau"].concentration, post["tau"].rate], [a, b])
    evidence = gammaln(a) - gammaln(3) + 3 * np.log(2) - a * np.log(b) - 0.5 * seen.sum() * np.log(2 * np.pi)
    _close(-post.free_energy, evidence)


# -- nothing to infer -----------------------------------------------------------------------------------------------


def _prior_of_everything():
    x = ngmp.sample("x", Normal(np.array([1.0, -1.0]), variance=0.5))
    w = ngmp.sample("w", MvNormal(np.array([1.0, 2.0]), covariance=np.array([[2.0, 0.3], [0.3, 1.0]])))
    ngmp.sample("child", Normal(x + dot(np.array([1.0, 1.0]), w), std=0.5))
    ngmp.sample("tau", Gamma(2.0, rate=3.0))
    ngmp.sample("p", Beta(2.0, 1.5))
    ngmp.sample("probs", Dirichlet(np.array([1.0, 2.0, 3.0])))
    ngmp.sample("coin", Bernoulli(probs=0.3))
    z = ngmp.sample("z", Categorical(probs=np.array([0.2, 0.8])))
    ngmp.sample("next", Categorical(probs=ngmp.take(np.array([[0.9, 0.1], [0.4, 0.6]]), z)))


def test_a_model_that_observes_nothing_returns_its_prior():
    post = ngmp.compile(_prior_of_everything)()
    assert post.converged
    _close(post.free_energy, 0.0)
    _close(post["x"].mean, [1.0, -1.0])
    _close(post["x"].variance, [0.5, 0.5])
    _close(post["w"].covariance, [[2.0, 0.3], [0.3, 1.0]])
    _close(post["child"].mean, [4.0, 2.0])
    _close(post["child"].variance, [0.5 + 3.6 + 0.25] * 2)
    _close([post["tau"].concentration, post["tau"].rate], [2.0, 3.0])
    _close([post["p"].a, post["p"].b], [2.0, 1.5])
    _close(post["probs"].concentration, [1.0, 2.0, 3.0])
    _close(post["coin"].probs, 0.3)
    _close(post["next"].probs, [0.2 * 0.9 + 0.8 * 0.4, 0.2 * 0.1 + 0.8 * 0.6])


def _no_randomness(y):
    ngmp.sample("y", Normal(0.5, variance=2.0), obs=y)
    ngmp.sample("k", Poisson(3.0), obs=np.array([2, 4]))


def test_a_model_without_variables_returns_its_log_density():
    y = np.array([0.1, -0.4, 2.0])
    post = ngmp.compile(_no_randomness)(y=y)
    k = np.array([2, 4])
    expected = normal_log_density(y, np.full(3, 0.5), 2.0 * np.eye(3)) + (k * np.log(3) - 3 - gammaln(k + 1)).sum()
    _close(-post.free_energy, expected)


def test_everything_masked_is_the_prior():
    none = np.zeros(5, bool)
    post = ngmp.compile(ngmp_models.local_level)(y=np.full(5, np.nan), mask=none)
    _close(post.free_energy, 0.0)
    _close(post["z"].mean, np.zeros(5))
    _close(post["z"].variance, 10.0 + 0.1 * np.arange(1, 6))


def test_no_data_at_all_is_the_prior():
    post = ngmp.compile(ngmp_models.mean_precision)(y=np.zeros(0))
    np.testing.assert_allclose([post["x"].variance, post["tau"].mean, post.free_energy], [25.0, 2.0, 0.0], atol=1e-12)
    assert bool(post.converged)
