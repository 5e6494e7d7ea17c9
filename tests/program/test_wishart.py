"""Wishart and inverse Gamma: known conjugates, and incomplete data against structured updates in numpy."""

import numpy as np
import pytest
from scipy.special import gammaln

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import (
    EP,
    NGMP,
    VMP,
    InverseGamma,
    MvNormal,
    Normal,
    Wishart,
    broadcast_to,
    dot,
)
from tests.program.mixture_references import LOG_2PI, refused

# -- Wishart and inverse Gamma -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_normal_with_inverse_gamma_variance_is_the_gamma_precision():
    """1/v is a Gamma variable: the same posterior, residuals and evidence, under every rule."""
    y = np.random.default_rng(0).normal(1.0, 2.0, 12)

    def by_variance(y):
        x = ngmp.sample("x", Normal(0.0, variance=25.0))
        v = ngmp.sample("v", InverseGamma(2.0, scale=1.0))
        ngmp.sample("y", Normal(x, variance=v), obs=y)

    for method in (VMP(), NGMP(), EP()):
        post = ngmp.compile(by_variance, method=method)(y=y)
        reference = ngmp.compile(ngmp_models.mean_precision, method=method)(y=y)
        assert post.converged
        np.testing.assert_allclose(post["x"].mean, reference["x"].mean, rtol=1e-6)
        np.testing.assert_allclose(post["v"].concentration, reference["tau"].concentration, rtol=1e-6)
        np.testing.assert_allclose(post.free_energy, reference.free_energy, rtol=1e-8)


def test_known_mean_and_inverse_gamma_variance_is_conjugate():
    y = np.array([0.3, -1.2, 2.0])

    def model(y):
        v = ngmp.sample("v", InverseGamma(3.0, scale=2.0))
        ngmp.sample("y", Normal(0.5, variance=v), obs=y)

    post = ngmp.compile(model)(y=y)
    square = np.sum((y - 0.5) ** 2)
    np.testing.assert_allclose(post["v"].concentration, 4.5, rtol=1e-12)
    np.testing.assert_allclose(post["v"].scale, 2.0 + 0.5 * square, rtol=1e-12)
    log_evidence = 3 * np.log(2.0) - gammaln(3) + gammaln(4.5) - 4.5 * np.log(2.0 + 0.5 * square) - 1.5 * LOG_2PI
    np.testing.assert_allclose(-post.free_energy, log_evidence, rtol=1e-12)


def _incomplete(y, seen, variance=1.0, noise=1e-6):
    """Rows of which entries are missing: latent vectors, seen through their entries."""
    n, d = y.shape
    w = ngmp.sample("W", Wishart(float(d), scale=np.eye(d)))
    m = ngmp.sample("m", MvNormal(np.zeros(d), covariance=variance))
    x = ngmp.sample("x", MvNormal(broadcast_to(m, (n,)), precision=w))
    ngmp.sample("y", Normal(dot(np.eye(d), x[:, None]), variance=noise), obs=y, mask=seen)


def _incomplete_reference(y, seen, variance, sweeps=200):
    """Structured q(x, m) q(W) in numpy, observed entries exact: given E[W], one Gaussian over m and what is missing."""
    n, d = y.shape
    df, inverse = float(d), np.eye(d)
    for _ in range(sweeps):
        w = df * np.linalg.inv(inverse)
        # x_o | m ~ N(m_o, (W^-1)_oo), the missing entries integrated out
        cov = np.linalg.inv(w)
        precision, shift = np.eye(d) / variance, np.zeros(d)
        for i in range(n):
            o = np.flatnonzero(seen[i])
            inner = np.zeros((d, d))
            inner[np.ix_(o, o)] = np.linalg.inv(cov[np.ix_(o, o)])
            precision, shift = precision + inner, shift + inner @ y[i]
        v = np.linalg.inv(precision)
        m = v @ shift
        total = np.zeros((d, d))
        for i in range(n):
            o, u = np.flatnonzero(seen[i]), np.flatnonzero(~seen[i])
            # r = x - m: observed part y_o - m_o; missing part is regressed on it
            gain = cov[np.ix_(u, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
            a = np.zeros((d, len(o)))
            a[o], a[u] = np.eye(len(o)), gain
            r, spread = a @ (y[i, o] - m[o]), a @ v[np.ix_(o, o)] @ a.T
            spread[np.ix_(u, u)] += cov[np.ix_(u, u)] - gain @ cov[np.ix_(o, u)]
            total += np.outer(r, r) + spread
        df, inverse = d + n, np.eye(d) + total
    return m, np.linalg.inv(df * np.linalg.inv(inverse))


def _incomplete_data(n, truth):
    rng = np.random.default_rng(0)
    y = truth + rng.normal(size=(n, len(truth)))
    return y, np.arange(len(truth)) != rng.integers(0, len(truth), n)[:, None]


def test_incomplete_data_is_structured_vmp():
    """q(x, m) q(W) against numpy, in three dimensions under a wide prior."""
    y, seen = _incomplete_data(25, np.array([3.0, -2.0, 1.0]))
    m, covariance = _incomplete_reference(y, seen, 10.0)
    program = ngmp.compile(_incomplete)
    post = program(y=np.where(seen, y, 0.0), seen=seen, variance=10.0)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.inv(post["W"].mean), covariance, rtol=1e-3, atol=1e-4)
    assert "StructuredVMP" in program.lower(y=y, seen=seen, variance=10.0).describe()


def test_mean_field_between_vectors():
    """x and m in clusters of their own: plain coordinate ascent in numpy, W with both."""
    rng = np.random.default_rng(2)
    y = np.array([2.0, -1.0]) + rng.normal(size=(6, 2))

    def model(y):
        w = ngmp.sample("W", Wishart(4.0, scale=np.eye(2)))
        m = ngmp.sample("m", MvNormal(np.zeros(2), covariance=4.0))
        x = ngmp.sample("x", MvNormal(broadcast_to(m, (6,)), precision=w))
        ngmp.sample("y", MvNormal(x, covariance=0.5), obs=y)

    df, inverse, m, v = 4.0, np.eye(2), np.zeros(2), 4.0 * np.eye(2)
    for _ in range(2000):
        w = df * np.linalg.inv(inverse)
        s = np.linalg.inv(w + 2.0 * np.eye(2))
        x = (2.0 * y + m @ w) @ s
        v = np.linalg.inv(np.eye(2) / 4.0 + 6 * w)
        m = v @ w @ x.sum(0)
        gap = x - m
        df, inverse = 10.0, np.eye(2) + gap.T @ gap + 6 * (s + v)
    post = ngmp.compile(model, method=VMP(), tol=1e-11, max_sweeps=2000)(y=y)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-7)
    np.testing.assert_allclose(post["x"].mean, x, rtol=1e-7)
    np.testing.assert_allclose(post["x"].covariance, np.broadcast_to(s, (6, 2, 2)), rtol=1e-7)
    np.testing.assert_allclose(post["W"].inverse_scale, inverse, rtol=1e-7)


@pytest.mark.slow
def test_incomplete_data_reaches_the_good_fixed_point():
    """The gallery's model: the prior is twenty of its standard deviations off, and a bad fixed point exists."""
    truth = np.array([13.0, 1.0, 5.0, 4.0, -20.0, 10.0])
    y, seen = _incomplete_data(100, truth)
    post = ngmp.compile(_incomplete, tol=1e-5)(y=np.where(seen, y, 0.0), seen=seen)
    assert post.converged
    assert np.max(np.abs(post["m"].mean - truth)) < 0.3
    assert np.all(np.diagonal(np.linalg.inv(post["W"].mean)) < 1.3)


def test_bad_wishart_and_inverse_gamma():
    def wishart(df, scale):
        w = ngmp.sample("W", Wishart(df, scale=scale))
        v = ngmp.sample("v", InverseGamma(-1.0, scale=0.0))
        ngmp.sample("y", MvNormal(np.zeros(2), precision=w), obs=np.zeros(2))
        ngmp.sample("u", Normal(0.0, variance=v), obs=1.0)

    every = ("df must be finite and above 1", "positive definite", "concentration must be positive", "scale must be")
    refused(wishart, *every, df=0.5, scale=np.array([[1.0, 2.0], [2.0, 1.0]]))

    def sizes():
        w = ngmp.sample("W", Wishart(4.0, scale=np.eye(3)))
        ngmp.sample("y", MvNormal(np.zeros(2), precision=w), obs=np.zeros(2))

    refused(sizes, "site 'y'", "the mean has 2 entries", "3 x 3")

    def square():
        ngmp.sample("W", Wishart(4.0, scale=np.ones((2, 3))))

    refused(square, "site 'W'", "square")


def test_a_learned_precision_outside_of_a_scan():
    """It has no batch axes to count: the scan is that of a loop."""
    y = np.random.default_rng(0).normal(size=(4, 2))

    def model(y, looped):
        w = ngmp.sample("W", Wishart(4.0, scale=np.eye(2)))
        z = ngmp.sample("z0", MvNormal(np.zeros(2), covariance=1.0))

        def step(z, y):
            z = ngmp.sample("z", MvNormal(z, covariance=0.3))
            ngmp.sample("y", MvNormal(z, precision=w), obs=y)
            return z, None

        if not looped:
            ngmp.scan(step, z, y)
        for k in range(4 if looped else 0):
            z, _ = step(z, y[k])

    one, other = (ngmp.compile(model)(y=y, looped=looped) for looped in (False, True))
    assert one.converged
    assert "as if independent of each other" in one.approximate[0]  # 0.66 of the width by NUTS, of 50 rows
    np.testing.assert_allclose(one.free_energy, other.free_energy, rtol=1e-8)
    np.testing.assert_allclose(one["W"].mean, other["W"].mean, rtol=1e-6)
