"""Vector chains against dense algebra and high precision."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.test_util import check_grads

from ngmp_compiler.linalg import (
    vector_chain,
)
from tests.linalg.problems import SCALAR, VECTOR, close, dense_moments, float64, scalar_problem


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
