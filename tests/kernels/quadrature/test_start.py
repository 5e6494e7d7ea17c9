"""The start of a factor given by its log-density: its peak, found by search."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ngmp_kernels.quadrature.start import peak

CASES = {
    "normal": lambda z: -0.5 * (z - 3.0) ** 2 / 0.04,
    "far and narrow": lambda z: -0.5 * ((z - 12345.0) / 0.5) ** 2,
    "gamma": lambda z: -3.0 * 20.0 * jnp.exp(-z) - 3.0 * z,
    "a count of zero": lambda z: -jnp.exp(z),
    "not a number left of zero": lambda z: 3.0 * jnp.log(z) - z,
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_found(name):
    log_density = CASES[name]
    q = peak(log_density, 1, jnp.float64)
    best = minimize_scalar(
        lambda z: -float(log_density(jnp.asarray(z))) + np.log1p(z * z), bracket=None,
        bounds=(float(q.mean[0]) - 1.0 - abs(float(q.mean[0])), float(q.mean[0]) + 1.0 + abs(float(q.mean[0]))),
        method="bounded", options={"xatol": 1e-10},
    )  # fmt: skip
    spread = float(q.std[0])
    assert abs(float(q.mean[0]) - best.x) < 0.05 * spread
    h = 1e-3 * max(spread, 1e-3)
    m = float(q.mean[0])
    curvature = sum(c * float(log_density(jnp.asarray(m + d * h))) for c, d in ((1, -1), (-2, 0), (1, 1))) / h**2
    np.testing.assert_allclose(float(q.variance[0]), min(-1 / curvature, 1 + m * m), rtol=1e-2)


def test_a_plateau_is_broad():
    q = peak(lambda z: jnp.where(z > 2.0, 0.0, -jnp.inf), 1, jnp.float64)
    assert 2.0 <= float(q.mean[0]) < 2.1 and float(q.variance[0]) == pytest.approx(1 + float(q.mean[0]) ** 2)
