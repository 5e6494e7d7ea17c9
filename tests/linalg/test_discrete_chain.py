"""Discrete chains against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_compiler.linalg import (
    discrete_chain,
)
from tests.linalg.problems import DISCRETE, close, float64

DISCRETE_GRADIENT = jax.jit(jax.grad(lambda *p: discrete_chain(*p).log_partition, (0, 1)))


# --- discrete chain


def enumerate_chain(unary, link):
    """Log-normaliser, marginals and pair marginals by summing over every path."""
    length, states = unary.shape
    table = np.zeros((states,) * length)
    for path in itertools.product(range(states), repeat=length):
        table[path] = sum(unary[k, x] for k, x in enumerate(path))
        table[path] += sum(link[0 if len(link) == 1 else k][path[k], path[k + 1]] for k in range(length - 1))
    weight = np.exp(table)
    total, axes = weight.sum(), range(length)
    probs = [weight.sum(tuple(i for i in axes if i != k)) / total for k in axes]
    pairs = [weight.sum(tuple(i for i in axes if i not in (k, k + 1))) / total for k in range(length - 1)]
    return np.log(total), np.stack(probs), np.array(pairs).reshape(length - 1, states, states)


def discrete_problem(seed, length, states, shared, zeros):
    rng = np.random.default_rng(seed)
    unary, link = rng.normal(size=(length, states)), rng.normal(size=(1 if shared else length - 1, states, states))
    if zeros:
        unary[:, 1:][rng.random((length, states - 1)) < 0.3] = -np.inf  # the path 0, 0, ... stays possible
        link[(rng.random(link.shape) < 0.4) & (np.arange(states) + np.arange(states)[:, None] > 0)] = -np.inf
    return unary, link


@float64
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("length,states", [(1, 3), (2, 2), (6, 3), (9, 2)])
def test_discrete_chain_matches_enumeration(length, states, shared, zeros):
    for seed in range(4):
        problem = discrete_problem(seed, length, states, shared, zeros)
        log_partition, probs, pairs = enumerate_chain(*problem)
        result = DISCRETE(*problem)
        close(result.log_partition, log_partition)
        close(result.probs, probs)
        np.testing.assert_allclose(np.exp(result.log_probs), probs, atol=1e-12)
        close(np.exp(result.pair), pairs)
        gradient = DISCRETE_GRADIENT(*problem)
        close(gradient[0], probs)
        close(gradient[1], pairs.sum(0, keepdims=True) if shared else pairs)


@pytest.mark.core32
def test_discrete_chain_finds_the_path_that_scaled_probabilities_lose():
    """State 0 looks hopeless for 50 steps, yet the end is reachable from nowhere else."""
    unary = jnp.zeros((51, 2)).at[:50, 0].set(-40.0).at[50, 1].set(-jnp.inf)
    link = jnp.array([[[0.0, 0.0], [-jnp.inf, 0.0]]])
    result = DISCRETE(unary, link)
    np.testing.assert_allclose(result.log_partition, -2000.0, rtol=1e-6)
    np.testing.assert_array_equal(result.probs, np.tile([1.0, 0.0], (51, 1)))


@pytest.mark.core32
def test_discrete_chain_without_a_path():
    result = DISCRETE(jnp.zeros((4, 2)), jnp.full((1, 2, 2), -jnp.inf))
    assert result.log_partition == -jnp.inf
    np.testing.assert_array_equal(result.probs, 0.0)


@pytest.mark.core32
def test_discrete_chain_long_and_float32():
    """Independent steps: the log-normaliser of 1e5 equal steps is known."""
    length = 100_000
    unary = jnp.tile(jnp.array([[3.0, -200.0, 2.0]], jnp.float32), (length, 1))
    result = DISCRETE(unary, jnp.zeros((1, 3, 3), jnp.float32))
    assert result.probs.dtype == result.log_partition.dtype == jnp.float32
    np.testing.assert_allclose(result.log_partition, length * np.log(np.exp(3) + np.exp(2)), rtol=1e-5)
    np.testing.assert_allclose(result.log_probs[:, 0], -np.log1p(np.exp(-1)), rtol=1e-5)
    np.testing.assert_allclose(result.log_probs[:, 1], -203 - np.log1p(np.exp(-1)), rtol=1e-5)


@float64
def test_discrete_chain_vmap():
    problems = [discrete_problem(seed, 5, 3, False, True) for seed in range(3)]
    result = jax.vmap(discrete_chain)(*map(np.stack, zip(*problems, strict=True)))
    for n, problem in enumerate(problems):
        close(result.probs[n], enumerate_chain(*problem)[1])
