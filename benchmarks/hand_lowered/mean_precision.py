r"""Normal mean and precision by hand: $x \sim N(0, 25)$, $\tau \sim \mathrm{Gamma}(2, 1)$, $y_n \sim N(x, 1/\tau)$.

N factors send a Gaussian site to x and a Gamma site to tau each. All see the same marginal of tau, so nodes, weights
and regressors in tau are computed once for all of them.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .regression import gaussian_projection, slopes


def _gamma_nodes(a, b, points=129):
    """Trapezoidal nodes in log tau, stretched by sinh, and normalised weights, each (points, 1)."""
    cutoff = 4.0 - float(np.log(jnp.finfo(a.dtype).eps))
    r = cutoff / a
    reach = jnp.stack([r + jnp.sqrt(2 * r), jnp.log1p(r + jnp.sqrt(2 * r))])
    v = jnp.arcsinh(2 * reach)
    for _ in range(2):
        v = v - (v + jnp.sinh(v) - 2 * reach) / (1 + jnp.cosh(v))
    v = -v[0] + (v[0] + v[1]) * jnp.asarray(np.linspace(0, 1, points)[:, None], a.dtype)
    x = 0.5 * (v + jnp.sinh(v))
    log_w = jnp.log1p(jnp.cosh(v)) - a * (jnp.expm1(x) - x)
    return a / b * jnp.exp(x), x, jax.nn.softmax(log_w, axis=0)


@partial(jax.jit, static_argnames=("sweeps",))
def mean_precision(y, alpha, sweeps):
    """Mean and variance of x, concentration and rate of tau."""

    def marginals(sites):
        h, precision, shape, rate = sites
        p = 1 / 25.0 + jnp.sum(precision)
        return jnp.sum(h) / p, 1 / p, 2.0 + jnp.sum(shape), 1.0 + jnp.sum(rate)

    def sweep(_, sites):
        h, precision, shape, rate = sites
        m, v, a, b = marginals(sites)
        # Toward x: Student's t with the cavity of tau.
        ca, cb = a - shape, b - rate
        new_h, new_precision = gaussian_projection(
            jnp.broadcast_to(m, y.shape), jnp.broadcast_to(v, y.shape),
            lambda x: -(ca + 0.5) * jnp.log1p(0.5 * (y - x) ** 2 / cb),
        )  # fmt: skip
        # Toward tau: N(y; x, 1/tau) with the cavity of x integrated out.
        cv = 1 / (1 / v - precision)
        cm = cv * (m / v - h)
        tau, log_t, w = _gamma_nodes(a, b)
        spread = 1 + cv * tau
        values = 0.5 * (log_t - jnp.log(spread) - (y - cm) ** 2 * tau / spread)
        first, second = slopes(w, values, log_t, jnp.expm1(log_t) - log_t)
        target = new_h, new_precision, first - second, -second * b / a
        return jax.tree.map(lambda old, new: old + alpha * (new - old), sites, target)

    zero = jnp.zeros_like(y)
    # The start of the compiled program: the message toward x at the residual N(0, 1) and the prior of tau.
    h, precision = gaussian_projection(zero, zero + 1, lambda r: -2.5 * jnp.log1p(0.5 * r**2))
    sites = jax.lax.fori_loop(0, sweeps, sweep, (precision * y - h, precision, zero, zero))
    return marginals(sites)
