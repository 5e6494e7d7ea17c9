"""Factors and triangular solves against numpy's, of one matrix and of batches, with their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from ngmp_kernels.numerics import cholesky as linear

SIZES = [1, 3, 8, 9, 40, 130]  # written out, LAPACK, in halves
DEEP = 70  # rows of a matrix that `small_pieces` cuts into many


def problem(d, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(*batch, d, 2 * d))
    return jnp.asarray(half @ np.swapaxes(half, -1, -2) / d), jnp.asarray(rng.normal(size=(*batch, d, 9)))


def close(a, b):
    tol = 1e-12 if jnp.asarray(a).dtype == jnp.float64 else 3e-4
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


def everything(matrix, right):
    chol, one = linear.cholesky(matrix), right[..., :1]
    solves = linear.whiten(chol, right), linear.unwhiten(chol, right)  # products
    narrow = linear.whiten(chol, one), linear.unwhiten(chol, one)  # LAPACK
    rows = linear.whiten_rows(chol, jnp.swapaxes(right, -1, -2))
    return chol, *solves, *narrow, rows, linear.inverse(chol), linear.log_det(chol)


def checked(matrix, right):
    chol, *found = jax.jit(everything)(matrix, right)
    expected = np.linalg.cholesky(np.asarray(matrix, float))
    flipped = np.swapaxes(expected, -1, -2)
    close(chol, expected)
    white, back, one, one_back, rows, inverse, log_det = found
    close(white, np.linalg.solve(expected, right))
    close(back, np.linalg.solve(flipped, right))
    close(one, white[..., :1])
    close(one_back, back[..., :1])
    close(rows, np.swapaxes(white, -1, -2))
    close(inverse, np.linalg.inv(np.asarray(matrix, float)))
    close(log_det, np.linalg.slogdet(np.asarray(matrix, float))[1])


@pytest.mark.core32
@pytest.mark.parametrize("d", SIZES)
def test_one_matrix(d):
    checked(*problem(d))


@pytest.mark.core32
@pytest.mark.parametrize("batch", [(1,), (0,), (3,), (2, 3)])
@pytest.mark.parametrize("d", [3, 20])
def test_batches(d, batch):
    checked(*problem(d, batch))


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(linear, "ALONE", 4)
    monkeypatch.setattr(linear, "BLOCK", 5)


def test_many_blocks(small_pieces):
    checked(*problem(DEEP))  # panels in a loop, below the eighth of a matrix


def test_on_several_devices_no_batch_goes_to_lapack(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    for d in (5, 20):
        matrix, right = problem(d, (3,))
        checked(matrix, right)
        text = str(jax.make_jaxpr(lambda a, x: linear.whiten(linear.cholesky(a), x[..., :1]))(matrix, right))
        assert "= cholesky" not in text
        assert "triangular_solve" not in text


@pytest.mark.parametrize("d", [5, 20])
def test_lanes_of_lanes(d):
    matrix, right = problem(d, (2, 3))

    def solve(a, x):
        return linear.whiten(linear.cholesky(a), x[:, :1])

    both = jax.jit(jax.vmap(jax.vmap(solve)))(matrix, right)
    shared = jax.jit(jax.vmap(solve, (None, 0)))(matrix[0, 0], right[0])
    solve = jax.jit(solve)
    for i in range(2):
        for j in range(3):
            close(both[i, j], solve(matrix[i, j], right[i, j]))
    close(shared[1], solve(matrix[0, 0], right[0, 1]))


@pytest.mark.parametrize("d", [5, 20, DEEP])
def test_a_factor_that_does_not_exist_is_nan_throughout(d, small_pieces):
    matrix = problem(d, (3,))[0].at[1, d - 1, d - 1].set(-1.0)
    chol = jax.jit(linear.cholesky)(matrix)
    assert np.isnan(jax.jit(linear.cholesky)(matrix[1])).all()
    assert np.isnan(chol[1]).all()
    close(chol[::2], np.linalg.cholesky(matrix[::2]))


@pytest.mark.parametrize("d", [3, 12])
def test_derivatives(d):
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        pytest.skip("finite differences")
    matrix, right = problem(d)

    def value(a, x):
        chol = linear.cholesky(0.5 * (a + a.T))  # of which only a triangle is read
        white = linear.whiten(chol, x), linear.unwhiten(chol, x[:, :2]), linear.inverse(chol)
        return sum(jnp.sum(jnp.sin(w)) for w in white) + linear.log_det(chol)

    modes = ("fwd", "rev") if d == 3 else ("rev",)
    check_grads(jax.jit(value), (matrix, right), order=2, modes=modes, rtol=1e-4)
    slope = jax.jit(jax.grad(value))
    batch = problem(d, (4,), 1)
    lanes = jax.jit(jax.vmap(slope))(*batch)
    for i in range(4):
        close(lanes[i], slope(batch[0][i], batch[1][i]))
    close(jax.lax.map(lambda x: slope(*x), batch), lanes)
