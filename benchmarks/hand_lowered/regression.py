"""What the two regressions share: weighted least squares of log-messages at quadrature nodes, Gauss-Hermite nodes."""

import jax.numpy as jnp
import numpy as np

LOG_2PI = float(np.log(2 * np.pi))


def hermite(n, dtype):
    """Nodes and weights of the standard normal, as columns."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return jnp.asarray(x[:, None], dtype), jnp.asarray((w / w.sum())[:, None], dtype)


def slopes(w, values, x1, x2):
    """Coefficients of x1 and x2 in the regression of values (Q, n) on (1, x1, x2) with weights w, (Q, n) or (Q, 1)."""
    y, x1, x2 = (x - jnp.sum(w * x, 0) for x in (values, x1, x2))
    norm = jnp.sum(w * x1**2, 0)
    other = x2 - jnp.sum(w * x1 * x2, 0) / norm * x1
    second = jnp.sum(w * other * y, 0) / jnp.sum(w * other**2, 0)
    return jnp.sum(w * x1 * (y - second * x2), 0) / norm, second


def gaussian_projection(mean, variance, values_at, points=32):
    """(h, precision) of the Gaussian that regresses a log-message under N(mean, variance), all (n,)."""
    u, w = hermite(points, mean.dtype)
    s = jnp.sqrt(variance)
    first, second = slopes(w, values_at(mean + s * u), u, u**2)
    precision = -2 * second / variance
    return first / s + mean * precision, precision
