r"""Regression whose noise has its own regression, by hand: one Cholesky factorisation of each weight posterior a sweep.

$v \sim N(0, 4 I)$, $w \sim N(0, 2.56 I)$, $s_n \sim N(\psi_n^T w, 1/c)$, $y_n \sim N(\phi_n^T v, e^{-s_n})$. A factor
sends a Gaussian site to its residual $r_n = y_n - \phi_n^T v$ and one to its log-precision $s_n$, which is integrated
out in closed form before w is solved.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from .regression import gaussian_projection


def _functionals(features, prior_precision, h, precision):
    """Mean, mean and variance of the functionals, and the Cholesky factor of the precision of the weights."""
    total = (features * precision[:, None]).T @ features + prior_precision * jnp.eye(features.shape[1], dtype=h.dtype)
    chol = jnp.linalg.cholesky(total)
    mean = cho_solve((chol, True), features.T @ h)
    white = solve_triangular(chol, features.T, lower=True)
    return mean, features @ mean, jnp.sum(white**2, 0), chol


def _scale_mixture(r, m, v, points=32):
    """`log ∫ N(r; 0, e^-s) N(s; m, v) ds`, Gauss-Hermite about the mode of the integrand (Lambert's W)."""
    tiny = jnp.finfo(r.dtype).tiny
    target = jnp.maximum(jnp.log(jnp.maximum(0.5 * v * r * r, tiny)) + m + 0.5 * v, -30.0)
    u = jax.nn.softplus(target)
    for _ in range(3):
        u = u * (1 + target - jnp.log(u)) / (1 + u)
    width, mode = jnp.sqrt(2 * v / (1 + u)), 0.5 * v - u
    k = 0.5 * r * r * jnp.exp(m + mode)
    total = jnp.zeros_like(width)
    # Relative to the mode, so that no largest value has to be found; node by node, so that no (points, Q, n) array is.
    for x, w in zip(*np.polynomial.hermite.hermgauss(points), strict=True):
        t = width * x
        total += jnp.exp(np.log(w) + x * x + 0.5 * t - k * (jnp.exp(t) - 1) - (mode * t + 0.5 * t * t) / v)
    return jnp.log(total * width) + 0.5 * (m + mode) - k - 0.5 * mode**2 / v


@partial(jax.jit, static_argnames=("sweeps",))
def heteroscedastic(phi, psi, y, c_top, alpha, sweeps):
    """Means of v and w, and mean and variance of s."""

    def solve(sites):
        h, precision, hs, ps = sites
        v_mean, f, kf, _ = _functionals(phi, 1 / 4.0, h, precision)
        # s integrated out: psi.w is seen with precision c ps / (c + ps).
        total = c_top + ps
        w_mean, g, kg, _ = _functionals(psi, 1 / 2.56, c_top * hs / total, c_top * ps / total)
        gain = c_top / total
        return v_mean, w_mean, f, kf, (hs + c_top * g) / total, 1 / total + gain**2 * kg

    def sweep(_, sites):
        h, precision, hs, ps = sites
        _, _, f, kf, m, v = solve(sites)
        cv = 1 / (1 / v - ps)
        cm = cv * (m / v - hs)
        toward_f = gaussian_projection(f, kf, lambda x: _scale_mixture(y - x, cm, cv))
        cr = 1 / (1 / kf - precision)
        error = y - cr * (f / kf - h)

        def toward_s(s):
            p = 1 / (cr + jnp.exp(-s))
            return 0.5 * jnp.log(p) - 0.5 * error**2 * p

        target = *toward_f, *gaussian_projection(m, v, toward_s)
        return jax.tree.map(lambda old, new: old + alpha * (new - old), sites, target)

    one, zero = jnp.ones_like(y), jnp.zeros_like(y)
    # The start of the compiled program: the message toward the residual at r, s ~ N(0, 1).
    h, precision = gaussian_projection(zero, one, lambda r: _scale_mixture(r, zero, one))
    sites = jax.lax.fori_loop(0, sweeps, sweep, (h + precision * y, precision, zero, zero))
    v_mean, w_mean, _, _, m, v = solve(sites)
    return v_mean, w_mean, m, v
