"""The soft product with an unknown residual and precision, against brute-force sums over grids."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

from ngmp_kernels import Quadrature, tangent_projection
from ngmp_kernels.factors.product import ProductNoise
from ngmp_kernels.families import Gamma, Gaussian

R, A, B = (
    Gaussian.from_mean_variance(jnp.asarray([m]), jnp.asarray([v])) for m, v in ((0.4, 0.3), (0.7, 0.2), (-0.5, 0.4))
)
TAU = Gamma.from_concentration_rate(jnp.asarray([6.0]), jnp.asarray([4.0]))
FACTOR = ProductNoise()


def gaussian_grid(q, points=161):
    z = float(q.mean[0]) + float(q.std[0]) * np.linspace(-8, 8, points)
    w = st.norm(float(q.mean[0]), float(q.std[0])).pdf(z)
    return z, w / w.sum()


def gamma_grid(q, points=401):
    log_t = np.linspace(-4, 3, points)
    w = st.gamma(float(q.concentration[0]), scale=1 / float(q.rate[0])).pdf(np.exp(log_t)) * np.exp(log_t)
    return np.exp(log_t), w / w.sum()


GRIDS = [gaussian_grid(R), gaussian_grid(A), gaussian_grid(B), gamma_grid(TAU, 201)]


@pytest.mark.parametrize("j", range(4))
def test_messages(j):
    """log ∫ f Π q and E[log f | z_j]; r and one side are integrated on their grids as well."""
    at = np.asarray([[0.3], [1.1], [0.6]])
    others = [i for i in range(4) if i != j]
    shape = {i: tuple(-1 if k == i else 1 for k in range(4)) for i in range(4)}
    exact, expected = [], []
    for point in at[:, 0]:
        values = [np.reshape(point if i == j else GRIDS[i][0], shape[i] if i != j else (1,) * 4) for i in range(4)]
        r, a, b, tau = values
        log_f = 0.5 * np.log(tau) - 0.5 * np.log(2 * np.pi) - 0.5 * tau * (r - a * b) ** 2
        for i in others:
            weight = GRIDS[i][1].reshape(shape[i])
            log_f = (log_f, weight) if not isinstance(log_f, tuple) else (log_f[0], log_f[1] * weight)
        exact.append(np.log(np.sum(log_f[1] * np.exp(log_f[0]))))
        expected.append(np.sum(log_f[1] * log_f[0]))
    z = jnp.asarray(at)
    np.testing.assert_allclose(FACTOR.log_message(j, (R, A, B, TAU))(z)[:, 0], exact, rtol=2e-6)
    np.testing.assert_allclose(FACTOR.mean_field_message(j, (R, A, B, TAU), Quadrature())(z)[:, 0], expected, rtol=1e-6)


def test_interfaces_follow_what_is_known():
    assert ProductNoise().interfaces == ("r", "a", "b", "tau")
    assert ProductNoise(jnp.ones(1)).interfaces == ("a", "b", "tau")
    assert ProductNoise(None, jnp.ones(1)).interfaces == ("r", "a", "b")
    assert ProductNoise(jnp.ones(1), jnp.ones(1)).interfaces == ("a", "b")


@pytest.mark.parametrize("j", range(4))
def test_mean_field_projections(j):
    """In closed form what the regression of the expected logarithm gives."""
    found = FACTOR.mean_field_projection(j, (R, A, B, TAU), Quadrature())
    message = FACTOR.mean_field_message(j, (R, A, B, TAU), Quadrature())
    expected = tangent_projection((R, A, B, TAU)[j], message, Quadrature())
    for x, y in zip(found.natural, expected.natural, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
