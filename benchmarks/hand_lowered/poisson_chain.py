r"""The Poisson random walk by hand: a Kalman filter and an RTS smoother per sweep, each one `lax.scan` over scalars.

$z_0 \sim N(0, 10)$, $z_k \sim N(z_{k-1}, \sigma^2)$, $y_k \sim \mathrm{Poisson}(e^{z_k})$. A sweep smooths under the
Gaussian sites $\exp\{h_k z - \lambda_k z^2 / 2\}$ and moves them toward $h = y + (m - 1)\rho$, $\lambda = \rho$ with
$\rho = e^{m + v/2}$: conjugate-computation variational inference, which is NGMP for unary factors.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln


def _smooth(h, precision, sigma2, unroll):
    """Means and variances of the smoother, and of the filter."""

    def forward(carry, site):
        m, v = carry
        h, precision = site
        v = v + sigma2
        gain = 1.0 / (1.0 + v * precision)
        state = gain * (m + v * h), gain * v
        return state, state

    start = jnp.zeros((), h.dtype), jnp.full((), 10.0, h.dtype)
    end, filtered = jax.lax.scan(forward, start, (h, precision), unroll=unroll)

    def backward(carry, step):
        m, v = carry
        mean, own = step
        v_pred = own + sigma2
        gain = own / v_pred
        state = mean + gain * (m - mean), own + gain * gain * (v - v_pred)
        return state, state

    steps = jax.tree.map(lambda x: x[:-1], filtered)
    _, smoothed = jax.lax.scan(backward, end, steps, reverse=True, unroll=unroll)
    return jax.tree.map(jnp.append, smoothed, end), filtered


@partial(jax.jit, static_argnames=("sweeps", "unroll"))
def poisson_chain(y, mask, sigma2, alpha, sweeps, unroll=4):
    """Marginal means and variances (K,) and the free energy after a number of damped sweeps.

    Unrolling the scans by four is best for one chain, none for a `vmap`.
    """

    def target(m, v):
        rho = jnp.exp(m + 0.5 * v)
        return jnp.where(mask, y + (m - 1.0) * rho, 0.0), jnp.where(mask, rho, 0.0)

    def sweep(_, sites):
        (m, v), _ = _smooth(*sites, sigma2, unroll)
        return jax.tree.map(lambda old, new: old + alpha * (new - old), sites, target(m, v))

    rate = y + 0.5
    first = target(jnp.log(rate), jnp.minimum(1.0 / rate, 1.0))
    h, precision = jax.lax.fori_loop(0, sweeps, sweep, first)
    (m, v), (mean, own) = _smooth(h, precision, sigma2, unroll)
    mean_pred, v_pred = jnp.append(0.0, mean[:-1]), jnp.append(10.0, own[:-1]) + sigma2
    log_z = 0.5 * jnp.sum(mean**2 / own - mean_pred**2 / v_pred + jnp.log(own / v_pred))
    expected = y * m - jnp.exp(m + 0.5 * v) - gammaln(y + 1.0)
    spent = h * m - 0.5 * precision * (v + m * m)
    return m, v, -log_z - jnp.sum(jnp.where(mask, expected - spent, 0.0))
