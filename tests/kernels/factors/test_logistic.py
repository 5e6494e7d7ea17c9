"""Logistic log-densities under broad Gaussians, against integrals by scipy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from ngmp_kernels.factors.binomial import BinomialLogit
from ngmp_kernels.factors.logistic import logistic_moments
from ngmp_kernels.factors.negative_binomial import NegativeBinomialLog
from ngmp_kernels.families import Gaussian
from ngmp_kernels.quadrature.projection import Quadrature

DERIVATIVES = (  # of the sigmoid
    lambda z: expit(z) * expit(-z),
    lambda z: expit(z) * expit(-z) * (1 - 2 * expit(z)),
    lambda z: expit(z) * expit(-z) * (1 - 6 * expit(z) * expit(-z)),
)


def average(g, m, s):
    """E[g(z)] under N(m, s^2); the kink at zero is a break point."""
    density = lambda z: np.exp(-0.5 * ((z - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))  # noqa: E731
    ends = sorted({m - 12 * s, m + 12 * s, *(x for x in (-40.0, -5.0, 0.0, 5.0, 40.0) if abs(x - m) < 12 * s)})
    return sum(quad(lambda z: g(z) * density(z), a, b, epsabs=0, epsrel=1e-12, limit=200)[0]
               for a, b in zip(ends, ends[1:], strict=False))  # fmt: skip


@pytest.mark.core32
@pytest.mark.parametrize("s", [1.0, 2.5, 15.0, 160.0])
def test_moments_of_the_sigmoid(s):
    m = np.array([-3.0 * s, -1.0, 0.0, 0.7 * s])
    found = logistic_moments(jnp.asarray(m), jnp.full(4, s))
    softplus = lambda z: np.logaddexp(0.0, z)  # noqa: E731
    functions = (expit, lambda z: expit(-z), softplus, lambda z: softplus(-z), *DERIVATIVES)
    for k, (value, g) in enumerate(zip(found, functions, strict=True)):
        expected = np.array([average(g, c, s) for c in m])
        tol = (1e-8 if k < 5 else 1e-6) if found[0].dtype == np.float64 else 2e-5  # the last two only guide steps
        np.testing.assert_allclose(value, expected, rtol=tol, atol=tol * 1e-2)


@pytest.mark.parametrize("s", [0.5, 0.999, 1.001, 5.0, 100.0])
def test_projections_are_right_on_both_sides_of_the_switch(s):
    m = np.array([-2.0, 0.3, 4.0])
    q = Gaussian.from_mean_variance(jnp.asarray(m), jnp.full(3, s * s))
    y, n = np.array([0.0, 3.0, 7.0]), 7.0
    factor = BinomialLogit(jnp.asarray(y), jnp.full(3, n))
    eta = factor.project(0, q, (q,), Quadrature())
    first = np.array([k - n * average(expit, c, s) for k, c in zip(y, m, strict=True)])
    second = np.array([-n * average(lambda z: expit(z) * expit(-z), c, s) for c in m])
    np.testing.assert_allclose(eta.eta2, 0.5 * second, rtol=1e-7)
    np.testing.assert_allclose(eta.eta1, first - m * second, rtol=1e-7, atol=1e-7)
    for f in (factor, NegativeBinomialLog(jnp.asarray(y), jnp.full(3, 2.0))):
        value = f.expected_log_message(0, q, (q,), Quadrature())
        row = lambda z, i, f=f: float(f.log_density(jnp.full((1, 3), z))[0, i])  # noqa: E731
        expected = [average(lambda z, i=i, row=row: row(z, i), m[i], s) for i in (0, 2)]
        np.testing.assert_allclose(np.asarray(value)[[0, 2]], expected, rtol=1e-7)


@pytest.mark.core32
def test_the_value_of_a_factor_that_is_nearly_certain_keeps_its_digits():
    """All of 10^5 trials hit, at N(30, 6^2): `l = -n softplus(-z)`, and not the difference of n z and n softplus(z)."""
    factor = BinomialLogit(jnp.full(1, 1e5), jnp.full(1, 1e5))
    found = factor.edge_moments(jnp.full(1, 30.0), jnp.full(1, 36.0))
    expected = -1e5 * average(lambda z: np.logaddexp(0.0, -z), 30.0, 6.0)
    np.testing.assert_allclose(found.value, [expected], rtol=1e-5 if found.value.dtype == np.float64 else 1e-4)
