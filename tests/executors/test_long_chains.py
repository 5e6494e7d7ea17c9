"""Long chains: against dense linear algebra and plain recursions, and transformed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_compiler.linalg import discrete_chain, vector_chain
from tests.linalg.problems import scalar_chain

LONG = 333


def scalar_problem(seed):
    rng = np.random.default_rng(seed)
    unary, linear = rng.gamma(1.0, 2.0, LONG), rng.normal(0, 2, LONG)
    unary[::7] = -0.01  # leaves may have negative precision
    return unary, linear, 1 + rng.gamma(1.0, 3.0, LONG - 1), rng.normal(1, 0.1, LONG - 1), rng.normal(1, 0.1, LONG - 1)


def dense(unary, linear, link, a, b):
    precision = np.diag(unary)
    at = np.arange(LONG - 1)
    precision[at, at] += link * b * b
    precision[at + 1, at + 1] += link * a * a
    precision[at, at + 1] -= link * a * b
    precision[at + 1, at] -= link * a * b
    covariance = np.linalg.inv(precision)
    mean = covariance @ linear
    log_z = 0.5 * linear @ mean - 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * LONG * np.log(2 * np.pi)
    return mean, np.diagonal(covariance), np.diagonal(covariance, 1), log_z


@pytest.fixture(scope="module")
def solved():
    """Two problems, solved in one vmap, and the derivative of the log-integral of the first."""
    problems = [scalar_problem(seed) for seed in (0, 1)]
    arguments = tuple(jnp.asarray(np.stack(x)) for x in zip(*problems, strict=True))
    first = tuple(x[0] for x in arguments)
    gradient = jax.jit(jax.grad(lambda h: scalar_chain(first[0], h, *first[2:]).log_partition))(first[1])
    return problems, jax.jit(jax.vmap(scalar_chain))(*arguments), gradient


def test_long_chain_matches_dense(solved):
    problems, found, _ = solved
    for i, problem in enumerate(problems):
        assert found.proper[i]
        for got, want in zip(found[:4], dense(*problem), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-9, atol=1e-10)


def test_long_chain_derivative_is_the_mean(solved):
    problems, _, gradient = solved
    np.testing.assert_allclose(gradient, dense(*problems[0])[0], rtol=1e-9, atol=1e-10)


def test_long_chain_says_when_it_is_improper():
    unary, linear, link, a, b = map(jnp.asarray, scalar_problem(0))
    assert not scalar_chain(unary.at[300].set(-100.0), linear, link, a, b).proper


@pytest.mark.parametrize("shared", [True, False])
def test_vector_chain_matches_dense(shared):
    length, d, rng = 40, 3, np.random.default_rng(0)
    steps = 1 if shared else length - 1
    root = rng.normal(size=(length, d, d))
    unary, linear = root @ root.swapaxes(1, 2), rng.normal(size=(length, d))
    link, A, B = (np.broadcast_to(x, (steps, d, d)) for x in (2 * np.eye(d), np.eye(d), 0.3 * rng.normal(size=(d, d))))
    precision = np.zeros((length * d, length * d))
    for k in range(length):
        row = np.zeros((d, length * d))
        precision[k * d : (k + 1) * d, k * d : (k + 1) * d] += unary[k]
        if k + 1 < length:
            row[:, k * d : (k + 1) * d], row[:, (k + 1) * d : (k + 2) * d] = -B[0], A[0]
            precision += row.T @ link[0] @ row
    covariance = np.linalg.inv(precision)
    found = jax.jit(vector_chain)(*map(jnp.asarray, (unary, linear, link, A, B)))
    assert found.proper
    np.testing.assert_allclose(found.mean.reshape(-1), covariance @ linear.reshape(-1), rtol=1e-10, atol=1e-10)
    for k in range(length - 1):
        here, after = slice(k * d, (k + 1) * d), slice((k + 1) * d, (k + 2) * d)
        np.testing.assert_allclose(found.covariance[k], covariance[here, here], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.cross[k], covariance[here, after], rtol=1e-9, atol=1e-10)


@pytest.fixture(scope="module")
def discrete():
    return jax.jit(discrete_chain)


@pytest.mark.parametrize("kind", ["mild", "forbidden", "one way"])
def test_discrete_chain_in_probabilities_and_in_logarithms(discrete, kind):
    """A mild table runs as probabilities; with zeros, and where only underflowing weights leave a path, it does not."""
    length, states, rng = 60, 3, np.random.default_rng(0)
    unary = rng.normal(0, 2, (length, states))
    table = rng.dirichlet(np.ones(states), states)
    if kind == "forbidden":
        table = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    if kind == "one way":  # state 0 is all but impossible for 30 steps, and the only one after them
        table = np.eye(3)
        unary[:30, 0] -= 60.0
        unary[30:, 1:] -= 1e4
    with np.errstate(divide="ignore"):
        link = np.log(table)
    past, beta = np.zeros((length, states)), np.zeros((length, states))
    for k in range(1, length):
        past[k] = np.logaddexp.reduce((past[k - 1] + unary[k - 1])[:, None] + link, axis=0)
        beta[-k - 1] = np.logaddexp.reduce(link + (unary[-k] + beta[-k]), axis=1)
    joint = past + unary + beta
    log_z = np.logaddexp.reduce(joint[0])
    found = discrete(jnp.asarray(unary), jnp.asarray(link)[None])
    np.testing.assert_allclose(found.log_partition, log_z, rtol=1e-12)
    np.testing.assert_allclose(found.probs, np.exp(joint - log_z), rtol=1e-9, atol=1e-12)
