"""Prediction with new inputs and of later steps, against dense linear algebra."""

import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, sample

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2)) + 2.0
Y = 1.0 + X @ np.array([1.0, -1.0]) + 0.5 * RNG.normal(size=12)


def regression(X, y=None, prior=2.0):
    a = sample("a", Normal(0.0, std=prior))
    w = sample("w", MvNormal(np.zeros(2), covariance=1.0))
    u = sample("u", Normal(np.zeros(X.shape[0]), std=0.3))  # of every row: new rows have new ones
    sample("y", Normal(a + X @ w + u, std=0.5), obs=y)


def exact(new):
    rows, noise = np.c_[np.ones(len(X)), X], 0.25 + 0.09
    covariance = np.linalg.inv(rows.T @ rows / noise + np.diag([1 / 9, 1.0, 1.0]))
    ahead = np.c_[np.ones(len(new)), new]
    return ahead @ covariance @ rows.T @ Y / noise, np.einsum("ij,jk,ik->i", ahead, covariance, ahead) + noise


@pytest.fixture(scope="module")
def fitted():
    program = ngmp.compile(regression)
    return program, program(X, Y, prior=3.0)


def test_new_rows_without_outcomes(fitted):
    """What is shared is known jointly, parameters that are not given are those of the run, outcomes are not needed."""
    program, post = fitted
    found, (mean, variance) = program.predict(post, "y", X=NEW), exact(NEW)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(found.quantile(0.5), mean, rtol=1e-6)
    assert np.isnan(found.log_density).all()


def test_new_rows_are_scored_and_not_learned_from(fitted):
    program, post = fitted
    mean, variance = exact(NEW)
    found = program.predict(post, "y", X=NEW, y=mean + 1.0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    expected = -0.5 * np.log(2 * np.pi * variance) - 0.5 / variance
    np.testing.assert_allclose(found.log_density, expected, rtol=1e-8)


def test_the_inputs_of_the_run_need_not_be_given_again(fitted):
    program, post = fitted
    np.testing.assert_allclose(program.predict(post, "y").mean, program.predict(post, "y", X, Y, 3.0).mean)


def level(y, x=None, phi=0.9):
    def step(z, now):
        y_k, x_k = now
        z = sample("z", Normal(phi * z, std=1.0))
        sample("y", Normal(z if x_k is None else z + x_k, std=0.5), obs=y_k)
        return z, None

    ngmp.scan(step, sample("z0", Normal(0.0, std=3.0)), (y, x))


def test_a_chain_goes_on():
    program = ngmp.compile(level)
    post = program(y=Y, x=X[:, 0])
    later = np.array([1.0, 2.0])
    found = program.forecast(post, 2, x=later)
    mean, variance = post["z"].mean[-1] * 0.9 ** np.arange(1, 3), []
    for k in range(2):
        variance.append(0.81 * (variance[-1] if k else post["z"].variance[-1]) + 1.0)
    np.testing.assert_allclose(found.mean, mean + later, rtol=1e-8)
    np.testing.assert_allclose(found.variance, np.array(variance) + 0.25, rtol=1e-8)
    np.testing.assert_allclose(found.quantile(0.5), mean + later, rtol=1e-6)
    with pytest.raises(ValueError, match=r"site 'y' needs later values .* among x, y"):
        program.forecast(post, 2)


def grouped(group, y, groups):
    a = sample("a", Normal(np.zeros(groups), std=1.0))
    sample("y", Normal(a[group], std=0.5), obs=y)


def test_groups_are_no_rows_though_they_are_as_many_and_new_groups_have_their_prior():
    """Twelve groups and twelve rows: which belongs to which is read off the model."""
    program = ngmp.compile(grouped)
    where = np.arange(12) % 5
    post = program(group=where, y=Y, groups=12)
    found = program.predict(post, "y", group=np.arange(12)[::-1].copy())
    np.testing.assert_allclose(found.mean, np.asarray(post["a"].mean)[::-1], rtol=1e-8)
    np.testing.assert_allclose(found.variance, np.asarray(post["a"].variance)[::-1] + 0.25, rtol=1e-8)
    found = program.predict(post, "y", group=np.array([0, 12, 13]), groups=14)
    np.testing.assert_allclose(found.mean, [post["a"].mean[0], 0.0, 0.0], atol=1e-8)
    np.testing.assert_allclose(found.variance, [post["a"].variance[0] + 0.25, 1.25, 1.25], rtol=1e-8)
