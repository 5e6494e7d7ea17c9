"""Banded Gaussians with a border, against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_compiler.linalg import (
    banded_gaussian,
)
from tests.linalg.problems import close, dense_moments, float64

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
