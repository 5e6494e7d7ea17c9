"""Structured precisions against dense linear algebra, the evidence with its rank, and tau against a grid."""

import numpy as np
import pytest
from scipy import sparse, stats

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, sample

RNG = np.random.default_rng(1)
MAP = np.zeros((6, 6))
for _i, _j in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)]:
    MAP[_i, _j] = MAP[_j, _i] = 1.0
Y = RNG.normal(size=6)
SCALE = 0.7
KNOWN = {
    "rw1": (ngmp.rw1(np.array([0.0, 1.0, 1.5, 3.0, 4.0, 4.2])), 5),
    "rw2": (ngmp.rw2(6), 4),
    "seasonal": (ngmp.seasonal(6, 3), 4),
    "icar": (ngmp.icar(sparse.csr_matrix(MAP)), 5),
    "car": (ngmp.car(MAP, 0.6), 6),
    "leroux": (ngmp.leroux(MAP, 0.6), 6),
}


def gaussian(structure, tau, basis=None):
    """Mean, covariance and log-evidence of y ~ N(x, SCALE^2) under the prior, in the coordinates of the basis."""
    R, basis = np.asarray(structure.matrix), np.eye(6) if basis is None else basis
    P = basis.T @ R @ basis
    values = np.linalg.eigvalsh(P)
    values = values[values > 1e-9]
    total = tau * P + basis.T @ basis / SCALE**2
    covariance = np.linalg.inv(total)
    mean = covariance @ basis.T @ Y / SCALE**2
    log = 0.5 * np.log(tau * values / (2 * np.pi)).sum() - 0.5 * np.linalg.slogdet(total / (2 * np.pi))[1]
    log += stats.norm.logpdf(Y, 0.0, SCALE).sum() + 0.5 * mean @ total @ mean
    return basis @ mean, basis @ covariance @ basis.T, log


@pytest.mark.parametrize("name", KNOWN)
def test_known_precision(name):
    structure, rank = KNOWN[name]
    assert structure.rank == rank

    def model(y, tau):
        x = sample("x", MvNormal(np.zeros(6), precision=tau * structure))
        sample("y", Normal(x, std=SCALE), obs=y)

    post = ngmp.compile(model)(y=Y, tau=2.0)
    mean, covariance, log = gaussian(structure, 2.0)
    np.testing.assert_allclose(post["x"].mean, mean, rtol=1e-7)
    np.testing.assert_allclose(post["x"].covariance, covariance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(-post.free_energy, log, rtol=1e-8)


def icar_model(y):
    tau = sample("tau", Gamma(2.0, rate=1.0))
    x = sample("x", MvNormal(np.zeros(6), precision=tau * KNOWN["icar"][0], constraint="sum"))
    sample("y", Normal(x, std=SCALE), obs=y)


def test_sum_to_zero_and_tau():
    """The constraint holds exactly, and tau integrated is that of a grid; by messages it is near."""
    basis = np.linalg.svd(np.ones((1, 6)))[2][1:].T
    taus = np.exp(np.linspace(-6, 4, 800))
    logs = np.array([gaussian(KNOWN["icar"][0], t, basis)[2] for t in taus]) + stats.gamma.logpdf(taus, 2.0)
    weights = np.exp(logs - logs.max()) * taus
    expected = np.sum(weights * taus) / weights.sum()
    integrated = ngmp.compile(icar_model, integrate=("tau",))(y=Y)
    np.testing.assert_allclose(integrated["tau"].mean, expected, rtol=0.01)
    post = ngmp.compile(icar_model)(y=Y)
    np.testing.assert_allclose(np.sum(post["x"].mean), 0.0, atol=1e-10)
    np.testing.assert_allclose(post["tau"].mean, expected, rtol=0.2)


def test_what_is_no_structure():
    with pytest.raises(ValueError, match=r"not symmetric: entries \[0, 1\] and \[1, 0\] are 1.0, 2.0"):
        ngmp.structure(np.array([[1.0, 1.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="positive semi-definite; it has the eigenvalue -1"):
        ngmp.structure(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="area 2 has no neighbours"):
        ngmp.icar(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))


def matrix_model(R, y, tau):
    x = sample("x", MvNormal(np.zeros(6), precision=tau * R))
    sample("y", Normal(x, std=SCALE), obs=y)


def test_matrices_as_they_come():
    """Sparse, as an input or not, times a number or a Gamma variable; divided by the square of a scale."""
    R = np.asarray(KNOWN["rw1"][0].matrix)
    mean, covariance, log = gaussian(KNOWN["rw1"][0], 2.0)
    for post in (
        ngmp.compile(lambda y: matrix_model(sparse.csr_matrix(R), y, 2.0))(y=Y),
        ngmp.compile(lambda R, y: matrix_model(ngmp.structure(R), y, 2.0))(R=sparse.csr_matrix(R), y=Y),
        ngmp.compile(lambda y, s: matrix_model(ngmp.structure(R) / s**2 * 0.5, y, 1.0))(y=Y, s=0.5),
    ):
        np.testing.assert_allclose(post["x"].mean, mean, atol=1e-8)
        np.testing.assert_allclose(post["x"].variance, np.diagonal(covariance), atol=1e-8)
        np.testing.assert_allclose(-post.free_energy, log, atol=1e-8)
    learned = [ngmp.compile(lambda y, R=R: matrix_model(R, y, sample("tau", Gamma(2.0, rate=1.0))))(y=Y)
               for R in (R, sparse.csr_matrix(R))]  # fmt: skip
    np.testing.assert_allclose(learned[0].free_energy, learned[1].free_energy, rtol=1e-9)


@pytest.mark.parametrize("R", [np.asarray(KNOWN["rw2"][0].matrix), np.eye(6) + 0.2 * np.triu(np.ones((6, 6)), 1)])
def test_a_matrix_that_is_no_precision_is_refused(R):
    """Singular, its last pivot is rounding, and the evidence would be off by half of its logarithm; not symmetric."""
    with pytest.raises(ngmp.DataError, match=r"symmetric and positive definite .* ngmp.structure\(R\)"):
        ngmp.compile(matrix_model)(R=R, y=Y, tau=2.0)
    post = ngmp.compile(matrix_model)(R=R.T @ R + 0.1 * np.eye(6), y=Y, tau=2.0)
    Q = 2.0 * (R.T @ R + 0.1 * np.eye(6))
    expected = stats.multivariate_normal(np.zeros(6), np.linalg.inv(Q) + SCALE**2 * np.eye(6)).logpdf(Y)
    np.testing.assert_allclose(-post.free_energy, expected, rtol=1e-8)
