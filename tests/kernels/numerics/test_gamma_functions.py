"""The gamma function and its kin, against mpmath in forty digits: values and derivatives, in the precision at hand."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from ngmp_kernels.numerics import gamma_functions as _special

pytestmark = pytest.mark.core32

POINTS = np.concatenate([np.logspace(-3, -1, 8), np.linspace(0.15, 20, 60), np.logspace(1.4, 8, 15), [1, 2, 8]])
HALF = mpmath.mpf(1) / 2
# Function, exact value, exact derivative.
EXACT = {
    "gammaln": (mpmath.loggamma, mpmath.digamma),
    "digamma": (mpmath.digamma, lambda a: mpmath.psi(1, a)),
    "trigamma": (lambda a: mpmath.psi(1, a), lambda a: mpmath.psi(2, a)),
    "log_minus_digamma": (lambda a: mpmath.log(a) - mpmath.digamma(a), lambda a: 1 / a - mpmath.psi(1, a)),
    "trigamma_minus_inverse": (lambda a: mpmath.psi(1, a) - 1 / a, lambda a: mpmath.psi(2, a) + 1 / a**2),
    "stirling_error": (
        lambda a: mpmath.loggamma(a) - a * mpmath.log(a) + a,
        lambda a: mpmath.digamma(a) - mpmath.log(a),
    ),
    "log_half_ratio": (
        lambda a: mpmath.loggamma(a + HALF) - mpmath.loggamma(a),
        lambda a: mpmath.digamma(a + HALF) - mpmath.digamma(a),
    ),
}
RELATIVE = {"trigamma", "log_minus_digamma", "trigamma_minus_inverse"}  # small at large argument, with all digits


def _exact(f, points):
    with mpmath.workdps(40):
        return np.array([float(f(mpmath.mpf(float(a)))) for a in points])


@pytest.mark.parametrize("name", EXACT)
def test_gamma_functions(name, x64):
    f, eps = getattr(_special, name), 2e-16 if x64 else 1e-7
    a = jnp.asarray(POINTS)
    value, slope = (_exact(g, np.asarray(a)) for g in EXACT[name])
    found, derivative = jax.jit(lambda a: jax.jvp(f, (a,), (jnp.ones_like(a),)))(a)
    floor = 0 if name in RELATIVE else 1
    assert np.max(np.abs(found - value) / np.maximum(np.abs(value), floor)) < 100 * eps
    assert np.max(np.abs(derivative - slope) / np.maximum(np.abs(slope), floor)) < 1000 * eps


def test_log_gamma_ratio(x64):
    a, d = (x.ravel() for x in np.meshgrid([1e-3, 0.5, 3.0, 60.0], [0.0, 0.5, 2.0, 30.0, 3e5]))
    expected = [float(mpmath.loggamma(x + y) - mpmath.loggamma(x)) for x, y in zip(a, d, strict=True)]
    tol = 1e-12 if x64 else 1e-5
    found = _special.log_gamma_ratio(jnp.asarray(a), jnp.asarray(d))
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)
    large = _special.log_gamma_ratio(jnp.float32(1e6), 0.5)  # the difference of two float32 log-gammas has no digit
    np.testing.assert_allclose(large, 0.5 * np.log(1e6) - 1.25e-7, rtol=1e-6)


def test_inverse_digamma(x64):
    a = np.logspace(-3, 4, 30)
    found = _special.inverse_digamma(jnp.asarray(_exact(mpmath.digamma, a)))
    np.testing.assert_allclose(found, a, rtol=1e-11 if x64 else 1e-3)
