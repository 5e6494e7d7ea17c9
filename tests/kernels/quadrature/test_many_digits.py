"""The tangent projection against 50-digit sums with exact Fisher matrices (mpmath), and closed forms."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from mpmath import mp
from scipy import special

from ngmp_kernels.factors.negative_binomial import NegativeBinomialLogs
from ngmp_kernels.families import Beta, Gamma, Gaussian
from ngmp_kernels.quadrature.projection import (
    Quadrature,
)
from tests.kernels.quadrature.edges import FAST_COMPILE, SHAPES, both

# -- other messages, against many digits ---------------------------------------------------------------------------


def brute_force(log_density, statistics, log_message, lo, hi, points):
    """Cov[T, l] and E[l] by the trapezoidal rule in a coordinate s; `log_density` is that of s, unnormalised."""
    grid = [lo + (hi - lo) * mp.mpf(i) / points for i in range(points + 1)]
    w = [mp.exp(log_density(s)) for s in grid]
    total = mp.fsum(w)
    t, values = [statistics(s) for s in grid], [log_message(s) for s in grid]
    mean_l = mp.fsum(wi * x for wi, x in zip(w, values, strict=True)) / total
    centred = [wi * (x - mean_l) / total for wi, x in zip(w, values, strict=True)]
    return [mp.fsum(c * ti[k] for c, ti in zip(centred, t, strict=True)) for k in range(2)], mean_l


def gamma_truth(a, b, log_message):
    """eta* and E[l] at Gamma(a, b), in 50 digits, with the exact Fisher matrix."""
    with mp.workdps(50):
        a, b = mp.mpf(a), mp.mpf(b)
        r = 70 / a
        reach = r + mp.sqrt(2 * r)
        centre = mp.log(a / b)
        cov, mean_l = brute_force(
            lambda s: a * s - b * mp.exp(s),
            lambda s: (s, mp.exp(s)),
            lambda s: log_message(mp.exp(s), mp),
            centre - reach,
            centre + mp.log1p(reach),
            max(160, int(4 * reach)),
        )
        fisher = mp.matrix([[mp.psi(1, a), 1 / b], [1 / b, a / b**2]])
        eta = mp.lu_solve(fisher, mp.matrix(cov))
        return [float(eta[0]), float(eta[1])], float(mean_l)


def beta_truth(a, b, log_message):
    """The same at Beta(a, b), in s = logit p."""
    with mp.workdps(100):  # 1 - p falls to 1e-80
        a, b = mp.mpf(a), mp.mpf(b)
        r = 60 * (1 / a + 1 / b)
        reach, centre = r + mp.sqrt(2 * r), mp.log(a / b)
        cov, mean_l = brute_force(
            lambda s: -a * mp.log1p(mp.exp(-s)) - b * mp.log1p(mp.exp(s)),
            lambda s: (-mp.log1p(mp.exp(-s)), -mp.log1p(mp.exp(s))),
            lambda s: log_message(1 / (1 + mp.exp(-s)), mp),
            centre - reach,
            centre + reach,
            max(160, int(6 * reach)),
        )
        c = mp.psi(1, a + b)
        fisher = mp.matrix([[mp.psi(1, a) - c, -c], [-c, mp.psi(1, b) - c]])
        eta = mp.lu_solve(fisher, mp.matrix(cov))
        return [float(eta[0]), float(eta[1])], float(mean_l)


def noise(m, v):
    """The log-message of a Gaussian residual toward its precision: log N(0; m, v + 1 / tau), constants dropped."""

    def log_message(tau, xp):
        variance = v + 1 / tau
        return -xp.log(variance) / 2 - m**2 / (2 * variance)

    return log_message


GAMMA_MESSAGES = {
    "noise": noise(1.2, 0.5),
    "confident residual": noise(0.3, 0.05),
    "negative binomial": lambda tau, xp: 3 * xp.log(tau / (1 + tau)) - 2 * xp.log(1 + tau),
}

BETA_MESSAGES = {
    "noisy coin": lambda p, xp: xp.log(0.2 + 0.7 * p),
    "bell": lambda p, xp: -20 * (p - 0.3) ** 2,
}


@pytest.mark.usefixtures("only64")
@pytest.mark.parametrize("message", GAMMA_MESSAGES)
def test_gamma_edges_against_brute_force(message):
    f = GAMMA_MESSAGES[message]
    a = np.array(SHAPES)
    mean = np.array([1.0, 7.0, 0.4, 1.0, 2.0, 1.0])
    q = Gamma.from_concentration_rate(a, a / mean)
    result, value = both(q, lambda t: f(t, jnp))
    for i in range(len(a)):
        eta, expected = gamma_truth(float(q.concentration[i]), float(q.rate[i]), f)
        unit = np.array([1.0, mean[i]])
        error = np.abs((np.array([x[i] for x in result.natural]) - eta) * unit)
        assert np.max(error) < 1e-8 * np.max(np.abs(eta * unit)), (a[i], error)
        np.testing.assert_allclose(value[i], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("only64")
@pytest.mark.parametrize("message", BETA_MESSAGES)
def test_beta_edges_against_brute_force(message):
    f = BETA_MESSAGES[message]
    a, b = np.array([0.4, 1.0, 3.0, 400.0]), np.array([3.0, 1.0, 20.0, 1000.0])
    q = Beta.from_ab(a, b)
    result, value = both(q, lambda p: f(p, jnp))
    for i in range(len(a)):
        eta, expected = beta_truth(float(q.a[i]), float(q.b[i]), f)
        error = np.abs(np.array([x[i] for x in result.natural]) - eta)
        assert np.max(error) < 1e-8 * np.max(np.abs(eta)), (a[i], b[i], error)
        np.testing.assert_allclose(value[i], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("only64")
def test_gaussian_edges_against_closed_form():
    """Poisson with a log link: rho = E exp(z), eta* = (y + (m - 1) rho, -rho / 2)."""
    m, v, y = jnp.array([-1.0, 0.0, 2.0]), jnp.array([0.01, 1.0, 0.3]), 3.0
    result, value = both(Gaussian.from_mean_variance(m, v), lambda z: y * z - jnp.exp(z))
    rho = np.exp(m + v / 2)
    np.testing.assert_allclose(result.eta1, y + (m - 1) * rho, rtol=1e-12)
    np.testing.assert_allclose(result.eta2, -rho / 2, rtol=1e-12)
    np.testing.assert_allclose(value, y * m - rho, rtol=1e-12)


@pytest.mark.usefixtures("only64")
def test_gaussian_edges_against_brute_force():
    """A Student-t and a logistic message; the projection is (E l' - m E l'', E l'' / 2), by Stein's lemma."""
    m, v = np.array([0.5, -1.0]), np.array([0.2, 0.5])
    u = np.linspace(-12, 12, 4001)
    weights = np.exp(-0.5 * u**2) / np.exp(-0.5 * u**2).sum()
    messages = [
        (lambda z: -3.5 * jnp.log(8 + z**2), lambda z: (-7 * z / (8 + z**2), -7 * (8 - z**2) / (8 + z**2) ** 2)),
        (lambda z: -jax.nn.softplus(-z), lambda z: (special.expit(-z), -special.expit(-z) * special.expit(z))),
    ]
    for log_message, derivatives in messages:
        result, _ = both(Gaussian.from_mean_variance(m, v), log_message)
        d1, d2 = (weights @ d for d in derivatives(m + np.sqrt(v) * u[:, None]))
        np.testing.assert_allclose(result.eta1, d1 - m * d2, rtol=1e-8)
        np.testing.assert_allclose(result.eta2, d2 / 2, rtol=1e-8)


GRIDS = {  # a fixed fine grid z and dz, wide enough for the marginal next to it
    "gaussian": (Gaussian.from_mean_variance, (0.4, 0.7), lambda s: (s, jnp.ones_like(s)), (-9.0, 9.0)),
    "gamma": (Gamma.from_concentration_rate, (2.3, 1.7), lambda s: (jnp.exp(s), jnp.exp(s)), (-18.0, 4.0)),
    "beta": (
        Beta.from_ab,
        (2.0, 3.5),
        lambda s: (jax.nn.sigmoid(s), jax.nn.sigmoid(s) * jax.nn.sigmoid(-s)),
        (-20.0, 12.0),
    ),
}


@pytest.mark.usefixtures("only64")
@pytest.mark.parametrize("name", GRIDS)
def test_projection_is_the_gradient_in_mean_coordinates(name):
    """eta* = d E_q[l] / d mu: the definition, differentiated through mu -> q on a grid that does not move."""
    make, parameters, coordinate, (lo, hi) = GRIDS[name]
    q = make(*parameters)
    s = jnp.linspace(lo, hi, 2001)
    z, jacobian = coordinate(s)

    def log_message(z):
        return -2.0 * jnp.log(1.3 + 0.4 * z + z**2)

    def expected(mu):
        density = jnp.exp(type(q).from_mean(*mu).log_density(z)) * jacobian * (s[1] - s[0])
        return jnp.sum(density * log_message(z))

    gradient = jax.jit(jax.jacfwd(expected), compiler_options=FAST_COMPILE)(q.to_mean())
    result, _ = both(q, log_message, Quadrature(gaussian=64))
    np.testing.assert_allclose(result.natural, gradient, rtol=1e-8, atol=1e-8)


def test_mpmath_oracle_is_itself_right():
    """On a conjugate message the oracle must return its coefficients."""
    eta, _ = gamma_truth(0.7, 2.0, lambda tau, xp: 0.3 * xp.log(tau) - 0.2 * tau)
    np.testing.assert_allclose(eta, [0.3, -0.2], rtol=1e-12)
    eta, _ = beta_truth(0.7, 2.0, lambda p, xp: 0.3 * xp.log(p) - 0.2 * mpmath.log1p(-p))
    np.testing.assert_allclose(eta, [0.3, -0.2], rtol=1e-12)


def test_counts_of_millions_under_tiny_dispersions():
    """What a log-dispersion is told by one count, in single precision: differences over half a unit of it."""
    counts, d = np.array([2161365.0, 18.0, 0.0]), np.array([-24.5, -24.0, 0.0, 0.5])
    z = np.log(counts + 0.5)

    def exact(y, z, d):
        phi, m = mpmath.exp(d), mpmath.exp(z)
        own = mpmath.loggamma(y + phi) - mpmath.loggamma(phi) - mpmath.loggamma(y + 1)
        return own + phi * mpmath.log(phi / (phi + m)) + y * mpmath.log(m / (phi + m))

    factor = NegativeBinomialLogs(jnp.asarray(counts, jnp.float32))
    found = np.asarray(factor.log_density(jnp.asarray(z, jnp.float32)[None], jnp.asarray(d, jnp.float32)[:, None]))
    with mpmath.workdps(40):
        want = np.array([[float(exact(y, np.float32(m), s)) for y, m in zip(counts, z, strict=True)] for s in d])
    np.testing.assert_allclose(found[1::2] - found[::2], want[1::2] - want[::2], atol=5e-3, rtol=2e-3)
