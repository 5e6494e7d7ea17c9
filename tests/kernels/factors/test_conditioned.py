"""Moments of products by conditioning on one side, against brute-force quadrature over all of it."""

import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_kernels.factors.bilinear import Bilinear
from ngmp_kernels.factors.conditioned import independent
from ngmp_kernels.families import MvGaussian


def brute(factor, cavity, power, points=40):
    """Mass, mean and covariance of `cavity f^power`, by a fine grid in coordinates where the cavity is standard."""
    d = cavity.mean.shape[-1]
    axis = np.linspace(-7.0, 7.0, points)
    eps = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)
    root = np.linalg.cholesky(np.asarray(cavity.covariance[0]))
    x = np.asarray(cavity.mean[0]) + eps @ root.T
    log = power * np.asarray(factor.log_density(jnp.asarray(x)[:, None]))[:, 0] - 0.5 * (eps**2).sum(1)
    log += d * np.log((axis[1] - axis[0]) / np.sqrt(2 * np.pi))
    total = np.logaddexp.reduce(log)
    w = np.exp(log - total)
    mean = w @ x
    return total, mean, (x - mean).T @ ((x - mean) * w[:, None])


def random_cavity(d, seed, scale=0.3):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(d, d))
    mean = rng.normal(size=d) + 0.5
    return MvGaussian.from_mean_covariance(mean[None], scale**2 * (a @ a.T / d + 0.3 * np.eye(d))[None])


@pytest.mark.parametrize(
    ("size", "out", "noise", "rows", "power", "pivots"),
    [
        ((1, 1), None, True, None, 1.0, (2,)),
        ((1, 1), 0.4, False, None, 1.0, (1, 2)),
        ((1, 2), 0.7, True, None, 1.0, (2, 3)),
        ((1, 2), 0.7, True, None, 0.5, (2, 3)),
        # phi h - phi mu + noise: of (phi, h, mu), one number of the first side is all that has to be known.
        ((1, 2), 0.3, True, [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 1]], 1.0, (0,)),
        ((1, 1), None, False, [[0, 0, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0]], 1.0, (3, 2)),
    ],
    ids=["product", "log-precision", "dot", "fraction", "shared", "log-precision-shared"],
)
def test_moments_are_those_of_a_grid(size, out, noise, rows, power, pivots):
    data = None if out is None else jnp.array([[out]])
    precision = jnp.array([[[2.5]]]) if noise else None
    rows = None if rows is None else np.array(rows, float)[None]
    offset = None if rows is None else jnp.full((1, rows.shape[1]), 0.1)
    factor = Bilinear.of(size, data, precision, rows, offset)
    assert factor.pivots is not None and len(factor.pivots) == len(pivots)
    d = factor.dimensions
    cavity = random_cavity(d, 3)
    expected = brute(factor, cavity, power, 45 if d <= 3 else 41)
    near = MvGaussian.from_mean_covariance(expected[1][None], expected[2][None])  # the receiving marginal at the end
    found, total = factor.matched(near, cavity, power)
    assert float(total[0]) == pytest.approx(expected[0], abs=1e-5)
    np.testing.assert_allclose(found.mean[0], expected[1], atol=1e-5)
    np.testing.assert_allclose(found.covariance[0], expected[2], atol=2e-5)


def test_a_matrix_times_a_vector_against_draws():
    """Eight unknowns, of which two have to be known: importance sampling from the cavity."""
    rng = np.random.default_rng(0)
    factor = Bilinear.of((2, 2), None, jnp.asarray([[[2.0, 0.4], [0.4, 1.5]]]))
    assert factor.pivots == (6, 7) and factor.matchable
    cavity = random_cavity(8, 1)
    root = np.linalg.cholesky(np.asarray(cavity.covariance[0]))
    x = np.asarray(cavity.mean[0]) + rng.normal(size=(400_000, 8)) @ root.T
    log = np.asarray(factor.log_density(jnp.asarray(x)[:, None]))[:, 0]
    w = np.exp(log - log.max())
    mean = w @ x / w.sum()
    spread = (x - mean).T @ ((x - mean) * w[:, None]) / w.sum()
    near = MvGaussian.from_mean_covariance(mean[None], spread[None])
    found, total = factor.matched(near, cavity, 1.0)
    assert float(total[0]) == pytest.approx(np.log(w.mean()) + log.max(), abs=0.01)
    std = np.sqrt(np.diag(spread))
    np.testing.assert_allclose((found.mean[0] - mean) / std, 0.0, atol=0.02)
    np.testing.assert_allclose(found.covariance[0] / np.outer(std, std), spread / np.outer(std, std), atol=0.02)


def test_rows_that_differ_from_factor_to_factor():
    same = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]]])
    assert independent(same, [0, 1]) == (0,)
    differ = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    assert independent(differ, [0, 1]) is None


def test_single_precision_stays():
    """Also where double precision is enabled: scalars of numpy are double, and make all of it so."""
    out, precision = jnp.array([[0.7]], jnp.float32), jnp.array([[[2.5]]], jnp.float32)
    factor, cavity = Bilinear.of((1, 2), out, precision, None, None), random_cavity(4, 3)
    cavity = MvGaussian(cavity.eta1.astype(jnp.float32), cavity.eta2.astype(jnp.float32))
    found, total = factor.matched(cavity, cavity, 1.0)
    assert found.eta1.dtype == found.eta2.dtype == total.dtype == jnp.float32
