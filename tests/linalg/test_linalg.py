"""Chains and banded Gaussians against dense algebra, high precision and enumeration, written out plainly here."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from ngmp_compiler.linalg import (
    banded_gaussian,
    chain_links,
    discrete_chain,
    scalar_chain,
    solve_chain,
    vector_chain,
)

TOLERANCE = 1e-10
LENGTHS = (1, 2, 3, 4, 9, 16, 17, 50)  # one side and the other of the block boundaries
SCALAR = {levels: jax.jit(partial(scalar_chain, levels=levels)) for levels in (0, 1, 2, 3)}
VECTOR, DISCRETE = jax.jit(vector_chain), jax.jit(discrete_chain)
DISCRETE_GRADIENT = jax.jit(jax.grad(lambda *p: discrete_chain(*p).log_partition, (0, 1)))
float64 = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="needs float64")


def close(got, want, tolerance=TOLERANCE):
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (1 + np.abs(want).max(initial=0)))


def scalar_problem(seed, length, negative=True):
    """A proper chain, some of whose unary terms are negative."""
    rng = np.random.default_rng(seed)
    unary, linear = rng.normal(0.5, 1.0, length), rng.normal(0, 2, length)
    link, a, b = rng.gamma(1.0, 3.0, length - 1), rng.normal(1, 0.5, length - 1), rng.normal(-0.3, 1, length - 1)
    low = np.linalg.eigvalsh(scalar_precision(unary, link, a, b))[0]
    unary = unary + max(0.0, 0.2 - low) if negative else np.abs(unary) + 0.1
    return unary, linear, link, a, b


def scalar_precision(unary, link, a, b):
    precision = np.diag(unary)
    for k in range(len(link)):
        row = np.zeros(len(unary))
        row[k], row[k + 1] = -b[k], a[k]
        precision += link[k] * np.outer(row, row)
    return precision


def vector_problem(seed, length, d, m, shared):
    rng = np.random.default_rng(seed)
    steps = 1 if shared else length - 1
    unary, linear = rng.normal(size=(length, d, d)), rng.normal(size=(length, d))
    root = rng.normal(size=(steps, m, m))
    link = root @ root.swapaxes(1, 2) + 0.1 * np.eye(m)
    a, b = rng.normal(size=(2, steps, m, d))
    unary = unary + unary.swapaxes(1, 2)
    low = np.linalg.eigvalsh(vector_precision(unary, link, a, b))[0]
    return unary + max(0.0, 0.3 - low) * np.eye(d), linear, link, a, b


def vector_precision(unary, link, a, b):
    length, d, _ = unary.shape
    precision = np.zeros((length * d, length * d))
    for k in range(length):
        precision[k * d : (k + 1) * d, k * d : (k + 1) * d] += unary[k]
    for k in range(length - 1):
        lam, later, earlier = (x[0] if len(x) == 1 else x[k] for x in (link, a, b))
        row = np.zeros((lam.shape[0], length * d))
        row[:, k * d : (k + 1) * d], row[:, (k + 1) * d : (k + 2) * d] = -earlier, later
        precision += row.T @ lam @ row
    return precision


def dense_moments(precision, linear):
    covariance = np.linalg.inv(precision)
    mean = np.linalg.solve(precision, linear)
    sign, log_det = np.linalg.slogdet(precision)
    assert sign > 0
    return mean, covariance, 0.5 * linear @ mean - 0.5 * log_det + 0.5 * len(linear) * np.log(2 * np.pi)


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
    result = jax.jit(lambda u, h, *link: solve_chain(u, h, chain_links(*link), levels))(unary, linear, *link)
    assert result.proper
    for got, want in zip(result, (mean, np.diag(covariance), np.diag(covariance, 1), log_partition), strict=False):
        close(got, want)
    assert not solve_chain(unary - 50.0, linear, chain_links(*link), levels).proper


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


# --- vector chain


@float64
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("d,m", [(1, 1), (2, 4), (3, 1), (5, 5), (13, 2)])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_vector_chain_matches_dense(length, d, m, shared):
    problem = vector_problem(length + 10 * d, length, d, m, shared)
    mean, covariance, log_partition = dense_moments(vector_precision(problem[0], *problem[2:]), problem[1].reshape(-1))
    blocks = covariance.reshape(length, d, length, d).swapaxes(1, 2)
    result = VECTOR(*problem)
    index = np.arange(length)
    assert result.proper
    close(result.mean, mean.reshape(length, d))
    close(result.covariance, blocks[index, index])
    close(result.cross, blocks[index[:-1], index[1:]])
    close(result.log_partition, log_partition)
    np.testing.assert_array_equal(result.covariance, result.covariance.swapaxes(1, 2))


@float64
@pytest.mark.parametrize("d", [2, 6])
def test_vector_chain_keeps_nearly_flat_unary_terms(d):
    length, eye = 12, np.eye(d)
    linear = np.random.default_rng(0).normal(size=(length, d))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(d, d)))[0][None]
    problem = np.tile(1e-8 * eye, (length, 1, 1)), linear, 10.0 * eye[None], eye[None], turn
    with mpmath.workdps(60):
        size = length * d
        exact = mpmath.mpf(1e-8) * mpmath.eye(size)
        for k in range(length - 1):
            row = mpmath.zeros(d, size)
            for i, j in itertools.product(range(d), repeat=2):
                row[i, k * d + j], row[i, (k + 1) * d + j] = -mpmath.mpf(turn[0, i, j]), mpmath.mpf(eye[i, j])
            exact += 10 * row.T * row
        covariance = np.array(mpmath.inverse(exact).tolist(), float).reshape(length, d, length, d)
    result = VECTOR(*problem)
    want = np.stack([covariance[k, :, k] for k in range(length)])
    np.testing.assert_allclose(result.covariance, want, rtol=1e-10, atol=1e-10 * np.abs(want).max())


@float64
def test_vector_chain_of_order_one_is_the_scalar_chain():
    unary, linear, link, a, b = scalar_problem(11, 30)
    one = SCALAR[0](unary, linear, link, a, b)
    two = VECTOR(unary[:, None, None], linear[:, None], *(x[:, None, None] for x in (link, a, b)))
    for got, want in zip(two, one, strict=True):
        close(got.reshape(want.shape), want)


@float64
@pytest.mark.parametrize("d", [2, 5])
def test_vector_chain_gradients(d):
    problem = tuple(map(jnp.asarray, vector_problem(4, 4, d, 2, True)))
    result = VECTOR(*problem)
    unary, linear = jax.jit(jax.grad(lambda *p: vector_chain(*p).log_partition, (0, 1)))(*problem)
    close(linear, result.mean)
    close(unary, -0.5 * (result.covariance + result.mean[:, :, None] * result.mean[:, None, :]))
    moments = jax.jit(lambda h, a, b: vector_chain(problem[0], h, problem[2], a, b)[:3])
    check_grads(moments, (problem[1], *problem[3:]), order=1, modes=["rev"], atol=1e-4, rtol=1e-4)


@pytest.mark.core32
@pytest.mark.parametrize("d", [2, 5])
def test_vector_chain_float32_vmap_and_improper(d):
    problems = [vector_problem(seed, 6, d, d, False) for seed in range(3)]
    stacked = [np.stack(x).astype(np.float32) for x in zip(*problems, strict=True)]
    stacked[0][1, 3] -= 100 * np.eye(d, dtype=np.float32)  # the second chain is improper
    result = jax.jit(jax.vmap(vector_chain))(*stacked)
    assert all(x.dtype == jnp.float32 for x in result[:4])
    np.testing.assert_array_equal(result.proper, [True, False, True])
    for n in (0, 2):
        problem = problems[n]
        precision = vector_precision(problem[0], *problem[2:])
        mean, covariance, log_partition = dense_moments(precision, problem[1].reshape(-1))
        close(result.mean[n].reshape(-1), mean, 1e-3)
        close(result.log_partition[n], log_partition, 1e-3)


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


# --- dense and banded


def banded_problem(seed, blocks, size, border):
    """Blocks of a precision with a border, and the whole matrix."""
    rng = np.random.default_rng(seed)
    line = blocks * size
    root = rng.normal(size=(line + border, line + border))
    block = np.arange(line) // size
    near = np.ones_like(root, bool)
    near[:line, :line] = np.abs(block[:, None] - block) <= 1
    precision = np.where(near, root + root.T, 0)
    precision += (0.2 - np.linalg.eigvalsh(precision)[0]) * np.eye(line + border)
    tiled = precision[:line, :line].reshape(blocks, size, blocks, size)
    diagonal = np.stack([tiled[k, :, k] for k in range(blocks)])
    beside = np.stack([tiled[k, :, k + 1] for k in range(blocks - 1)]) if blocks > 1 else np.zeros((0, size, size))
    across, corner = precision[:line, line:].reshape(blocks, size, border), precision[line:, line:]
    linear = rng.normal(size=line + border)
    parts = diagonal, beside, across, corner, linear[:line].reshape(blocks, size), linear[line:]
    return parts, precision, linear


@float64
@pytest.mark.parametrize("blocks, size, border", [(1, 1, 0), (1, 7, 0), (1, 4, 2), (5, 3, 0), (4, 2, 3)])
def test_banded_gaussian(blocks, size, border):
    parts, precision, linear = banded_problem(blocks + size, blocks, size, border)
    result = banded_gaussian(*map(jnp.asarray, parts))
    assert result.proper and result.jitter == 0
    mean, covariance, log_partition = dense_moments(precision, linear)[:3]
    line = blocks * size
    close(result.mean.reshape(-1), mean[:line])
    close(result.border, mean[line:])
    close(result.log_partition, log_partition)
    root = np.linalg.inv(result.chol) if border else np.zeros((0, 0))
    close(root.T @ root, covariance[line:, line:])
    response = result.response.reshape(line, border)
    close(-response @ (root.T @ root), covariance[:line, line:])
    # Given the border, the covariance is the inverse of the line's own precision.
    given = np.linalg.inv(precision[:line, :line]).reshape(blocks, size, blocks, size)
    for k in range(blocks):
        close(result.covariance[k], given[k, :, k])
    for k in range(blocks - 1):
        close(result.after[k], given[k, :, k + 1])
    gradient = jax.grad(lambda h: banded_gaussian(*parts[:4], h, parts[5]).log_partition)(jnp.asarray(parts[4]))
    close(gradient, result.mean)


@pytest.mark.core32
def test_banded_gaussian_improper_float32_and_vmap():
    eye = np.eye(3, dtype=np.float32)
    precision = np.stack([2 * eye, eye - 2, np.zeros_like(eye), np.nan * eye])[:, None]
    none = np.zeros((0, 3, 3), np.float32), np.zeros((1, 3, 0), np.float32), np.zeros((0, 0), np.float32)
    rest = (np.ones((1, 3), np.float32), np.zeros(0, np.float32))
    result = jax.vmap(lambda d: banded_gaussian(d, *none, *rest))(precision)
    np.testing.assert_array_equal(result.proper, [True, False, False, False])
    assert result.mean.dtype == jnp.float32
    np.testing.assert_allclose(result.covariance[0, 0], 0.5 * eye, rtol=1e-6)
