"""Functions with known Gaussian moments, against dense sums."""

import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_kernels import Quadrature, residual_sine
from ngmp_kernels.factors.deterministic import DeterministicNode
from ngmp_kernels.families import Gaussian

M, V = np.array([0.3, -2.0, 40.0, 0.0]), np.array([0.5, 2.0, 1e-6, 30.0])
RHO, OMEGA = 0.8, 1.7
NODE = DeterministicNode(residual_sine, (jnp.full(1, RHO), jnp.full(1, OMEGA)))  # pyright: ignore[reportCallIssue]


def on_grid():
    """Points and weights of N(m, v), and x + (rho/omega) sin(omega x) there."""
    u = np.linspace(-9.0, 9.0, 4001)[:, None]
    w = np.exp(-0.5 * u**2)
    x = M + np.sqrt(V) * u
    return x, w / w.sum(), x + RHO / OMEGA * np.sin(OMEGA * x)


def test_forward_moments():
    _, w, g = on_grid()
    found = NODE.forward(Gaussian.from_mean_variance(jnp.asarray(M), jnp.asarray(V)), Quadrature())
    mean = (w * g).sum(0)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.variance, (w * (g - mean) ** 2).sum(0), rtol=1e-9)


@pytest.mark.parametrize("precision", [2.0, -0.3])
def test_backward_projection_and_expectation(precision):
    """Bonnet and Price, the derivatives of g written out; an improper cavity has a projection all the same."""
    x, w, g = on_grid()
    xi = 0.7 * precision
    g1, g2 = 1 + RHO * np.cos(OMEGA * x), -RHO * OMEGA * np.sin(OMEGA * x)
    first = (w * (xi - precision * g) * g1).sum(0)
    second = (w * ((xi - precision * g) * g2 - precision * g1**2)).sum(0)
    q = Gaussian.from_mean_variance(jnp.asarray(M), jnp.asarray(V))
    out = Gaussian.from_information(jnp.full(4, xi), jnp.full(4, precision))
    found = NODE.project(1, q, (out, q), Quadrature())
    np.testing.assert_allclose(found.eta2, second / 2, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.eta1, first - M * second, rtol=1e-9, atol=1e-9)
    if precision > 0:
        log_p = 0.5 * np.log(precision / (2 * np.pi)) - 0.5 * precision * (g - 0.7) ** 2
        found = NODE.expected_log_message(1, q, (out, q), Quadrature())
        np.testing.assert_allclose(found, (w * log_p).sum(0), rtol=1e-10)
