"""Converged and wrong, once: a broad cavity that the nodes did not reach, and a slow way hidden by faster ones."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import EP, Gamma, Normal
from ngmp_compiler.solve.moves import Moves

A, B, M, V, Y = 0.1014, 0.002726, 60.63, 254.8, -1.863


def one_datum(y, m, v, a, b):
    tau = ngmp.sample("tau", Gamma(a, rate=b))
    ngmp.sample("y", Normal(ngmp.sample("x", Normal(m, variance=v)), precision=tau), obs=y)


def exact():
    """Moments of tau and x by a grid over log tau; given tau, everything is normal."""
    s = np.concatenate([np.linspace(-200.0, -12.0, 2000)[:-1], np.linspace(-12.0, 12.0, 4001)])
    tau = np.exp(s)
    log_mass = stats.gamma.logpdf(tau, A, scale=1 / B) + s + stats.norm.logpdf(Y, M, np.sqrt(V + 1 / tau))
    w = np.exp(log_mass - log_mass.max()) * np.gradient(s)
    w /= w.sum()
    variance = 1 / (1 / V + tau)
    mean = variance * (M / V + tau * Y)
    x = (w * mean).sum()
    return (w * tau).sum(), x, (w * (variance + mean**2)).sum() - x**2


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_a_datum_that_is_noise_or_not(dtype):
    """EP with one factor is exact: its precision is small, or large with the rest of the mass, far from the mean."""
    given = [jnp.asarray(x, dtype) for x in ([Y], M, V, A, B)]
    post = ngmp.compile(one_datum, method=EP())(*given)
    tau, x, variance = exact()
    assert post.converged
    np.testing.assert_allclose(post["tau"].mean, tau, rtol=1e-3)
    assert abs(post["x"].mean - x) < 1e-3 * np.sqrt(variance)
    np.testing.assert_allclose(post["x"].variance, variance, rtol=3e-3)


def test_a_leap_is_remembered():
    """After a leap of 10,000 steps, two whole ones that shrink by 0.8, both below tol, are not the end."""
    tol, far, no, one = 1e-8, jnp.full(1, jnp.inf), jnp.zeros(1, bool), jnp.ones(1)

    def after(distances):
        moves = Moves(far, no, no, no, one, far, far, one)
        for k, d in enumerate(distances):
            moves = moves._replace(next=jnp.full(1, k >= len(distances) - 2)).seen(0, jnp.asarray(d), tol)
        return bool(moves.small(tol)[0])

    assert not after([1e-6, 1e-6, 1e-2, 2e-9, 1.6e-9])
    assert after([1e-6, 1e-6, 1e-6, 2e-9, 1.6e-9])
