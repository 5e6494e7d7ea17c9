"""Every family against scipy's distributions and adaptive quadrature."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special, stats

from ngmp_kernels.families import (
    Dirichlet,
    Gamma,
)
from tests.kernels.families.cases import CASES, FAST_COMPILE, PROBS, one, results

pytestmark = pytest.mark.core32
DISCRETE = {"bernoulli": 2, "categorical": 3}

# -- against scipy -------------------------------------------------------------------------------------------------


COORDINATES = {  # s -> (z, dz/ds): where the density is smooth and its tails are short
    "gaussian": (lambda z: z, lambda s: (s, np.ones_like(s))),
    "gamma": (np.log, lambda s: (np.exp(s), np.exp(s))),
    "inversegamma": (np.log, lambda s: (np.exp(s), np.exp(s))),
    "beta": (
        lambda z: special.logit(min(z, 1 - 1e-15)),
        lambda s: (special.expit(s), special.expit(s) * special.expit(-s)),
    ),
}


def grid(dist, coordinate):
    """Trapezoidal points and weights for integrals dz over all but 1e-14 of the mass."""
    forward, back = COORDINATES[coordinate]
    s = np.linspace(forward(dist.ppf(1e-14)), forward(dist.isf(1e-14)), 4001)
    z, jacobian = back(s)
    return z, jacobian * (s[1] - s[0])


_log_density = jax.jit(lambda q, z: q.log_density(z))


@pytest.fixture(params=list(COORDINATES))
def scalar(request, only64):
    del only64
    case = CASES[request.param]
    return case, case.make(jnp.float64), case.other(jnp.float64), results(request.param, jnp.dtype("float64"))


def test_log_density_is_scipys(name, case, q, r, dtype):
    ours, z = r["log density"], np.asarray(r["draws"][:7], float)
    tol = 1e-9 if dtype == jnp.float64 else 2e-3
    assert ours.shape == (7,) + q.batch_shape
    for i in range(q.batch_shape[0]):
        dist = case.scipy(q, i)
        if name == "dirichlet":
            expected = [dist.logpdf(x / x.sum()) for x in z[:, i]]
        elif name == "wishart":
            expected = [dist.logpdf(x) for x in z[:, i]]
        else:
            expected = getattr(dist, "logpmf" if name in DISCRETE else "logpdf")(z[:, i])
        np.testing.assert_allclose(ours[:, i], expected, rtol=tol, atol=tol)


def test_log_density_is_eta_dot_t_minus_a(r, dtype):
    magnitude = np.max(np.abs(r["log partition"]))  # the plain formula cancels; that is why log_density is not it
    atol = 1e3 * float(jnp.finfo(dtype).eps) * magnitude
    np.testing.assert_allclose(r["log density"], r["plain log density"], rtol=1e-5, atol=atol)


def test_density_integrates_to_one(scalar):
    case, q, _, _ = scalar
    for i in range(q.batch_shape[0]):
        z, w = grid(case.scipy(q, i), q.kind)
        np.testing.assert_allclose(w @ np.exp(_log_density(one(q, i), z)), 1.0, atol=1e-9)


def test_entropy_and_kl_by_quadrature(scalar):
    case, q, p, r = scalar
    for i in range(q.batch_shape[0]):
        z, w = grid(case.scipy(q, i), q.kind)
        log_q, log_p = case.scipy(q, i).logpdf(z), case.scipy(p, i).logpdf(z)
        np.testing.assert_allclose(r["entropy"][i], w @ (-np.exp(log_q) * log_q), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(r["kl"][i], w @ (np.exp(log_q) * (log_q - log_p)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", list(DISCRETE))
def test_discrete_families_by_enumeration(name, dtype, tol):
    case, r = CASES[name], results(name, dtype)
    q, p = case.make(dtype), case.other(dtype)
    z = np.arange(DISCRETE[name])
    for i in range(q.batch_shape[0]):
        log_q, log_p = case.scipy(q, i).logpmf(z), case.scipy(p, i).logpmf(z)
        np.testing.assert_allclose(jnp.exp(one(q, i).log_density(z)), np.exp(log_q), rtol=tol)
        np.testing.assert_allclose(r["entropy"][i], -np.sum(np.exp(log_q) * log_q), rtol=tol)
        np.testing.assert_allclose(r["kl"][i], np.sum(np.exp(log_q) * (log_q - log_p)), rtol=tol, atol=tol)


@pytest.mark.usefixtures("only64")
def test_mvgaussian_against_textbook():
    case, r = CASES["mvgaussian"], results("mvgaussian", jnp.dtype("float64"))
    q, p = case.make(jnp.float64), case.other(jnp.float64)
    for i in range(2):
        dist, other = case.scipy(q, i), case.scipy(p, i)
        np.testing.assert_allclose(r["entropy"][i], dist.entropy(), rtol=1e-10)
        ratio, d = np.linalg.solve(other.cov, dist.cov), dist.mean - other.mean
        kl = 0.5 * (np.trace(ratio) - 3 + d @ np.linalg.solve(other.cov, d) - np.linalg.slogdet(ratio)[1])
        np.testing.assert_allclose(r["kl"][i], kl, rtol=1e-10)


@pytest.mark.usefixtures("only64")
def test_dirichlet_by_quadrature():
    case, r = CASES["dirichlet"], results("dirichlet", jnp.dtype("float64"))
    dist, other = case.scipy(case.make(jnp.float64), 1), case.scipy(case.other(jnp.float64), 1)
    np.testing.assert_allclose(r["entropy"][1], dist.entropy(), rtol=1e-10)
    x, w = np.polynomial.legendre.leggauss(80)
    x, w = 0.5 * (x + 1), 0.5 * w
    first, rest = (g.ravel() for g in np.meshgrid(x, x, indexing="ij"))
    points = np.stack([first, (1 - first) * rest, (1 - first) * (1 - rest)])  # the square onto the simplex
    weights = np.outer(w, w).ravel() * (1 - first)
    log_q, log_p = dist.logpdf(points), other.logpdf(points)
    np.testing.assert_allclose(weights @ np.exp(log_q), 1.0, rtol=1e-8)
    np.testing.assert_allclose(r["kl"][1], weights @ (np.exp(log_q) * (log_q - log_p)), rtol=1e-8)


@pytest.mark.usefixtures("only64")
def test_wishart_against_scipy():
    """Entropy from scipy; the divergence of two from E[log q - log p] with scipy's densities at many draws."""
    case, r = CASES["wishart"], results("wishart", jnp.dtype("float64"))
    q, p = case.make(jnp.float64), case.other(jnp.float64)
    for i in range(3):
        dist, other = case.scipy(q, i), case.scipy(p, i)
        np.testing.assert_allclose(r["entropy"][i], dist.entropy(), rtol=1e-9)
        z = np.moveaxis(dist.rvs(20_000, np.random.default_rng(i)), 0, -1)
        gap = dist.logpdf(z) - other.logpdf(z)
        np.testing.assert_allclose(r["kl"][i], gap.mean(), atol=5 * gap.std() / np.sqrt(20_000))


def test_mean_and_variance_are_scipys(name, case, q, r, tol):
    if name == "categorical":
        np.testing.assert_allclose(r["mean"], PROBS(q.dtype), rtol=tol)
        np.testing.assert_allclose(r["variance"], np.einsum("...ii->...i", r["hessian"]), rtol=tol, atol=tol)
        return
    for i in range(q.batch_shape[0]):
        dist = case.scipy(q, i)
        mean, variance = (dist.mean, np.diag(dist.cov)) if name == "mvgaussian" else (dist.mean(), dist.var())
        np.testing.assert_allclose(r["mean"][i], mean, rtol=tol, atol=tol)
        np.testing.assert_allclose(r["variance"][i], variance, rtol=tol, atol=tol)


def test_large_concentrations_keep_their_digits(dtype):
    """Log-gammas of 1e7 must not cancel at a = 1e6, where float32 would have no digit left."""
    q = Gamma.from_concentration_rate(*jnp.full((2, 1), 1e6, dtype))
    p = Gamma.from_concentration_rate(*jnp.asarray([[1.01e6], [1.011e6]], dtype))
    (a0, b0), (a1, b1) = ((float(x.concentration[0]), float(x.rate[0])) for x in (q, p))
    z = jnp.asarray([0.999, 1.0, 1.002], dtype)
    run = jax.jit(lambda q, p: (q.entropy(), q.kl(p), q.log_density(z)), compiler_options=FAST_COMPILE)
    entropy, kl, log_density = run(q, p)
    with mpmath.workdps(40):
        exact = mpmath.mpf(a0)
        exact_entropy = exact - mpmath.log(b0) + mpmath.loggamma(exact) + (1 - exact) * mpmath.digamma(exact)
        exact_kl = (
            (exact - a1) * mpmath.digamma(exact)
            - mpmath.loggamma(exact)
            + mpmath.loggamma(a1)
            + a1 * (mpmath.log(b0) - mpmath.log(b1))
            + exact * (mpmath.mpf(b1) - b0) / b0
        )
    tol = 1e-11 if dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(entropy, float(exact_entropy), rtol=tol)
    np.testing.assert_allclose(kl, float(exact_kl), rtol=10 * tol)
    expected = stats.gamma(a0, scale=1 / b0).logpdf(np.asarray(z, float))
    np.testing.assert_allclose(log_density, expected, rtol=1e2 * tol)  # scipy itself is good to 1e-9 here


def test_the_variance_of_a_class_that_is_nearly_certain():
    """Of one count of 10^8, in single precision: 1 - mean is rounding, the variance is not."""
    alpha = np.array([[0.5, 1e8, 2.0, 0.25], [3.0, 1.0, 2.0, 5e7]], np.float32)
    found = Dirichlet.from_concentration(jnp.asarray(alpha)).variance
    exact = np.stack([stats.dirichlet(a).var() for a in alpha.astype(np.float64)])
    np.testing.assert_allclose(found, exact, rtol=1e-5)
