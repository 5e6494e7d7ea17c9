"""Mixtures by mean field, against coordinate ascent written out in numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import digamma, gammaln, logsumexp, multigammaln

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import (
    VMP,
)
from tests.program.mixture_references import LOG_2PI, SCALAR, two_clusters

# -- references: coordinate ascent, written out ------------------------------------------------------------------------


def _softmax(logits):
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def _gamma_bound(a, b, a0, b0):
    mean_log, mean = digamma(a) - np.log(b), a / b
    prior = a0 * np.log(b0) - gammaln(a0) + (a0 - 1) * mean_log - b0 * mean
    return np.sum(prior + a - np.log(b) + gammaln(a) + (1 - a) * digamma(a))


def _dirichlet_bound(alpha, alpha0):
    mean_log = digamma(alpha) - digamma(alpha.sum())

    def log_normaliser(a):
        return gammaln(a).sum() - gammaln(a.sum())

    return log_normaliser(alpha) - log_normaliser(alpha0) + np.sum((alpha0 - alpha) * mean_log)


def _class_entropy(r):
    return -np.sum(r * np.log(np.where(r > 0, r, 1)))


def scalar_cavi(y, centres, v0, a0, b0, alpha0, seen=None, sweeps=3000):
    """Mean field of a scalar mixture: returns means, variances, shapes, rates, weights, bound by sweep."""
    k, seen = len(centres), np.ones(len(y)) if seen is None else seen
    m, v, a, b = centres.copy(), np.full(k, v0), np.full(k, a0), np.full(k, b0)
    alpha0 = np.full(k, alpha0)
    alpha, bounds = alpha0, []
    for _ in range(sweeps):
        square = (y[:, None] - m) ** 2 + v
        energy = 0.5 * (digamma(a) - np.log(b) - LOG_2PI - a / b * square)
        r = _softmax(digamma(alpha) - digamma(alpha.sum()) + seen[:, None] * energy)
        counted = r * seen[:, None]
        alpha = alpha0 + r.sum(0)
        precision = 1 / v0 + a / b * counted.sum(0)
        m, v = (centres / v0 + a / b * (counted.T @ y)) / precision, 1 / precision
        square = (y[:, None] - m) ** 2 + v
        a, b = a0 + 0.5 * counted.sum(0), b0 + 0.5 * np.sum(counted * square, 0)
        bound = np.sum(r * (digamma(alpha) - digamma(alpha.sum()))) + _class_entropy(r)
        bound += np.sum(counted * 0.5 * (digamma(a) - np.log(b) - LOG_2PI - a / b * square))
        bound += np.sum(0.5 * (np.log(v / v0) + 1 - ((m - centres) ** 2 + v) / v0))
        bounds.append(bound + _gamma_bound(a, b, a0, b0) + _dirichlet_bound(alpha, alpha0))
    return m, v, a, b, alpha, np.array(bounds)


def _mean_log_det(df, inverse_scale):
    d = inverse_scale.shape[-1]
    halves = 0.5 * (df[:, None] - np.arange(d))
    return digamma(halves).sum(1) + d * np.log(2) - np.linalg.slogdet(inverse_scale)[1]


def _wishart_log_normaliser(df, inverse_scale):
    d = inverse_scale.shape[-1]
    return 0.5 * df * (d * np.log(2) - np.linalg.slogdet(inverse_scale)[1]) + np.array(
        [multigammaln(x / 2, d) for x in np.atleast_1d(df)]
    )


def vector_cavi(y, centres, v0, df0, scale0, alpha0, sweeps=500):
    """Mean field q(m) q(W) of a vector mixture; Bishop's updates but for the product of the two."""
    k, d = centres.shape
    inverse0 = np.broadcast_to(np.linalg.inv(scale0), (k, d, d))
    m, cov = centres.copy(), np.broadcast_to(v0 * np.eye(d), (k, d, d))
    df, inverse = np.full(k, df0), inverse0
    alpha0 = np.full(k, alpha0)
    alpha = alpha0
    for _ in range(sweeps):
        w = df[:, None, None] * np.linalg.inv(inverse)
        gap = y[:, None] - m
        square = gap[..., :, None] * gap[..., None, :] + cov
        energy = 0.5 * (_mean_log_det(df, inverse) - d * LOG_2PI - np.einsum("nkij,kij->nk", square, w))
        r = _softmax(digamma(alpha) - digamma(alpha.sum()) + energy)
        alpha = alpha0 + r.sum(0)
        cov = np.linalg.inv(np.eye(d) / v0 + r.sum(0)[:, None, None] * w)
        m = np.einsum("kij,kj->ki", cov, centres / v0 + np.einsum("kij,kj->ki", w, r.T @ y))
        gap = y[:, None] - m
        square = gap[..., :, None] * gap[..., None, :] + cov
        df, inverse = df0 + r.sum(0), inverse0 + np.einsum("nk,nkij->kij", r, square)
    w, log_det = df[:, None, None] * np.linalg.inv(inverse), _mean_log_det(df, inverse)
    bound = np.sum(r * (digamma(alpha) - digamma(alpha.sum()))) + _class_entropy(r) + _dirichlet_bound(alpha, alpha0)
    bound += np.sum(r * 0.5 * (log_det - d * LOG_2PI - np.einsum("nkij,kij->nk", square, w)))
    spread = np.einsum("kii->k", cov) + np.sum((m - centres) ** 2, 1)
    bound += np.sum(0.5 * (np.linalg.slogdet(cov / v0)[1] + d - spread / v0))
    bound += np.sum(_wishart_log_normaliser(df, inverse) - _wishart_log_normaliser(np.full(k, df0), inverse0))
    bound += np.sum(0.5 * (df0 - df) * log_det - 0.5 * np.einsum("kij,kij->k", inverse0 - inverse, w))
    return m, cov, df, inverse, alpha, bound


CAVI = [("y.selector",), ("z.p",), ("y.r",), ("y.tau",)]  # the order of the reference


@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True], ids=["all seen", "masked"])
def test_scalar_mixture_is_coordinate_ascent(masked):
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    seen = np.arange(60) % 7 != 0 if masked else None
    expected = scalar_cavi(y, centres, 10.0, 2.0, 1.0, 1.5, None if seen is None else seen.astype(float))
    program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP(), tol=1e-11, max_sweeps=2000)
    post = program(y=y, centres=centres, mask=seen, **SCALAR)
    assert post.converged
    m, v, a, b, alpha, bounds = expected
    for actual, reference in [
        (post["m"].mean, m), (post["m"].variance, v), (post["w"].concentration, a), (post["w"].rate, b),
        (post["pi"].concentration, alpha), (-post.free_energy, bounds[-1]),
    ]:  # fmt: skip
        np.testing.assert_allclose(actual, reference, rtol=1e-8, atol=1e-8)


def test_free_energy_of_a_mixture_decreases():
    """Blocks updated one at a time, each undamped: coordinate ascent, whose bound never falls."""
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    program = ngmp.compile(
        ngmp_models.gaussian_mixture, method=VMP(), schedule=[*CAVI, ("z.out",)], solver=optax.sgd(1.0)
    )
    inputs = {"y": y, "centres": centres, **SCALAR}
    state = program.init(**inputs)

    @jax.jit
    def step(state):
        state = program.step(state, **inputs)
        return state, program.posterior(state, **inputs).free_energy

    values = []
    for _ in range(25):
        state, energy = step(state)
        values.append(float(energy))
    assert np.all(np.diff(values[1:]) < 1e-9)
    np.testing.assert_allclose(values[-1], -scalar_cavi(y, centres, 10.0, 2.0, 1.0, 1.5)[-1][-1], rtol=1e-4)


def _triangle(n=90):
    rng = np.random.default_rng(0)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(0, 3, n)] + rng.normal(size=(n, 2)), centres


def test_vector_mixture_is_coordinate_ascent():
    y, truth = _triangle()
    centres = 0.2 * truth
    m, cov, df, inverse, alpha, bound = vector_cavi(y, centres, 100.0, 3.0, 2.0 * np.eye(2), 1.0)
    program = ngmp.compile(ngmp_models.vector_mixture, method=VMP(), tol=1e-11)
    post = program(y=y, centres=centres, variance=100.0, scale=2.0)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-8)
    np.testing.assert_allclose(post["m"].covariance, cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post["W"].df, df, rtol=1e-8)
    np.testing.assert_allclose(post["W"].inverse_scale, inverse, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(post["pi"].concentration, alpha, rtol=1e-8)
    np.testing.assert_allclose(-post.free_energy, bound, rtol=1e-9)
    assert np.max(np.abs(post["m"].mean - truth)) < 0.6
    prediction = program.predict(post, "y", y=y, centres=centres, variance=100.0, scale=2.0)
    assert prediction.mean.shape == (90, 2) and prediction.log_density.shape == (90,)


def test_ngmp_treats_matrices_by_structured_vmp_and_says_so():
    y, truth = _triangle(30)
    program = ngmp.compile(ngmp_models.vector_mixture)
    text = program.lower(y=y, centres=truth, variance=100.0, scale=2.0).describe()
    assert "StructuredVMP" in text and "Gated(NoiseWishart)" in text


def test_a_mixture_runs_from_a_perturbed_state(key):
    """A state with other leaves is a start of its own; the labels it ends with may differ, the evidence hardly."""
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    inputs = {"y": y, "centres": centres, **SCALAR}
    program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP())
    state = program.init(**inputs)
    leaf = state.leaves["y.selector"]
    noise = type(leaf)(leaf.eta1 + jax.random.normal(key, leaf.eta1.shape))
    state = eqx.tree_at(lambda s: s.leaves["y.selector"], state, noise)
    post = program(init=state, **inputs)
    assert post.converged and jnp.isfinite(post.free_energy)
