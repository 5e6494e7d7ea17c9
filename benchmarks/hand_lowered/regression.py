"""What the two regressions share: weighted least squares of log-messages at quadrature nodes, Gauss-Hermite nodes."""

import jax.numpy as jnp
import numpy as np

LOG_2PI = float(np.log(2 * np.pi))


def hermite(n, dtype):
    """Nodes and weights of the standard normal, as columns."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return jnp.asarray(x[:, None], dtype), jnp.asarray((w / w.sum())[:, None], dtype)


def slopes(w, values, x1, x2):
    """Coefficients of x1 and x2 in the regression of values (Q, n) on (1, x1, x2), all (Q, 1), with weights w (Q, 1).

    They are linear in the values, the same function for every column: one product of matrices.
    """
    x1, x2 = (x - jnp.sum(w * x) for x in (x1, x2))
    norm, cross = jnp.sum(w * x1**2), jnp.sum(w * x1 * x2)
    other = x2 - cross / norm * x1
    second = w * other / jnp.sum(w * other**2)
    first = w * x1 / norm - cross / norm * second
    out = jnp.hstack([first, second]).T @ values
    return out[0], out[1]


def gaussian_projection(mean, variance, values_at, points=32):
    """(h, precision) of the Gaussian that regresses a log-message under N(mean, variance), all (n,)."""
    u, w = hermite(points, mean.dtype)
    s = jnp.sqrt(variance)
    first, second = slopes(w, values_at(mean + s * u), u, u**2)
    precision = -2 * second / variance
    return first / s + mean * precision, precision
