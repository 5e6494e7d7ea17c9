"""Scalar chains against dense algebra and high precision."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from ngmp_compiler.linalg import (
    chain_ties,
    solve_chain,
)
from tests.linalg.problems import SCALAR, close, dense_moments, float64, scalar_chain, scalar_precision, scalar_problem

LENGTHS = (1, 2, 3, 4, 9, 16, 17, 50)  # one side and the other of the block boundaries


# --- scalar chain


@float64
@pytest.mark.parametrize("levels", SCALAR)
@pytest.mark.parametrize("length", LENGTHS)
def test_scalar_chain_matches_dense(length, levels):
    problem = scalar_problem(length, length)
    mean, covariance, log_partition = dense_moments(scalar_precision(problem[0], *problem[2:]), problem[1])
    result = SCALAR[levels](*problem)
    assert result.proper
    close(result.mean, mean)
    close(result.variance, np.diag(covariance))
    close(result.covariance, np.diag(covariance, 1))
    close(result.log_partition, log_partition)


@float64
@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("length", [2, 3, 8, 9, 10, 17])
def test_a_scalar_chain_of_equal_links_matches_dense(length, levels):
    unary, linear, *_ = scalar_problem(length, length)
    link = np.array([3.0]), np.array([1.0]), np.array([-0.7])
    every = (np.repeat(x, length - 1) for x in link)
    mean, covariance, log_partition = dense_moments(scalar_precision(unary, *every), linear)
    result = jax.jit(lambda u, h, *link: solve_chain(u, h, chain_ties(*link), levels))(unary, linear, *link)
    assert result.proper
    for got, want in zip(result, (mean, np.diag(covariance), np.diag(covariance, 1), log_partition), strict=False):
        close(got, want)
    assert not solve_chain(unary - 50.0, linear, chain_ties(*link), levels).proper


@float64
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), length=st.sampled_from((2, 5, 16, 33)), levels=st.sampled_from((0, 2)))
def test_scalar_chain_random(seed, length, levels):
    problem = scalar_problem(seed, length)
    mean, covariance, log_partition = dense_moments(scalar_precision(problem[0], *problem[2:]), problem[1])
    result = SCALAR[levels](*problem)
    assert result.proper
    for got, want in zip(result, (mean, np.diag(covariance), np.diag(covariance, 1), log_partition), strict=False):
        close(got, want)


@float64
@pytest.mark.parametrize("levels", SCALAR)
def test_scalar_chain_keeps_nearly_flat_unary_terms(levels):
    """Unary terms of 1e-9 next to links of 10: an elimination that subtracts would lose all but six digits."""
    length = 33
    linear = np.random.default_rng(0).normal(size=length)
    problem = np.full(length, 1e-9), linear, np.full(length - 1, 10.0), np.ones(length - 1), np.ones(length - 1)
    # The matrix itself is made in high precision: 20 + 1e-9 rounds.
    with mpmath.workdps(60):
        exact = mpmath.matrix(scalar_precision(np.zeros(length), *problem[2:]).tolist())
        exact += mpmath.mpf(1e-9) * mpmath.eye(length)
        covariance = mpmath.inverse(exact)
        mean = np.array((covariance * mpmath.matrix(linear.tolist())).tolist(), float)[:, 0]
        covariance = np.array(covariance.tolist(), float)
    result = SCALAR[levels](*problem)
    np.testing.assert_allclose(result.variance, np.diag(covariance), rtol=1e-12)
    np.testing.assert_allclose(result.covariance, np.diag(covariance, 1), rtol=1e-12)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-12)


@float64
@pytest.mark.parametrize("levels", SCALAR)
def test_scalar_chain_negative_unary_and_link(levels):
    unary = np.where(np.arange(20) % 3 == 1, -0.5, 3.0)
    link = np.where(np.arange(19) % 7 == 2, -0.2, 10.0)
    problem = unary, np.linspace(-1, 2, 20), link, np.full(19, 1.1), np.full(19, 0.9)
    mean, covariance, log_partition = dense_moments(scalar_precision(unary, *problem[2:]), problem[1])
    result = SCALAR[levels](*problem)
    assert result.proper
    close(result.mean, mean)
    close(result.variance, np.diag(covariance))
    close(result.log_partition, log_partition)


@pytest.mark.core32
@pytest.mark.parametrize("levels", SCALAR)
@pytest.mark.parametrize("change", [{0: -3.0}, {7: -40.0}, {19: -9.0}, {4: np.nan}, {4: np.inf}])
def test_scalar_chain_reports_improper(levels, change):
    problem = [np.float32(x) for x in scalar_problem(1, 20, negative=False)]
    assert SCALAR[levels](*problem).proper
    for index, value in change.items():
        problem[0][index] = value
    if np.isfinite(value):
        assert np.linalg.eigvalsh(scalar_precision(problem[0], *problem[2:]))[0] < 0
    assert not SCALAR[levels](*problem).proper


@pytest.mark.core32
def test_scalar_chain_flat_is_improper():
    assert not scalar_chain(jnp.zeros(4), jnp.zeros(4), jnp.ones(3), jnp.ones(3), jnp.ones(3)).proper


@float64
@pytest.mark.parametrize("levels", [0, 3])
def test_scalar_chain_gradients(levels):
    """The log-integral is the log-partition function: its gradients are expected statistics."""
    problem = tuple(map(jnp.asarray, scalar_problem(3, 21)))
    result = scalar_chain(*problem, levels=levels)
    gradient = jax.jit(jax.grad(lambda *p: scalar_chain(*p, levels=levels).log_partition, (0, 1, 2)))
    unary, linear, link = gradient(*problem)
    a, b = problem[3:]
    residual = a * result.mean[1:] - b * result.mean[:-1]
    spread = a**2 * result.variance[1:] + b**2 * result.variance[:-1] - 2 * a * b * result.covariance
    close(linear, result.mean)
    close(unary, -0.5 * (result.variance + result.mean**2))
    close(link, -0.5 * (residual**2 + spread))
    moments = jax.jit(lambda *p: scalar_chain(*p, levels=levels)[:3])
    check_grads(moments, problem, order=1, modes=["rev"], atol=1e-5, rtol=1e-5)


@pytest.mark.core32
@pytest.mark.parametrize("levels", SCALAR)
def test_scalar_chain_float32_and_vmap(levels):
    problems = [scalar_problem(seed, 50, negative=False) for seed in range(3)]
    stacked = [jnp.asarray(np.stack(x), jnp.float32) for x in zip(*problems, strict=True)]
    result = jax.vmap(SCALAR[levels])(*stacked)
    assert all(x.dtype == jnp.float32 for x in result[:4])
    for n, problem in enumerate(problems):
        mean, covariance, log_partition = dense_moments(scalar_precision(problem[0], *problem[2:]), problem[1])
        close(result.mean[n], mean, 2e-5)
        close(result.variance[n], np.diag(covariance), 2e-5)
        close(result.log_partition[n], log_partition, 2e-5)
