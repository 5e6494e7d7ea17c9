r"""The Poisson random walk by hand: a Kalman filter and an RTS smoother per sweep, each one `lax.scan` over scalars.

$z_0 \sim N(0, 10)$, $z_k \sim N(z_{k-1}, \sigma^2)$, $y_k \sim \mathrm{Poisson}(e^{z_k})$. A sweep smooths under the
Gaussian sites $\exp\{h_k z - \lambda_k z^2 / 2\}$ and moves them toward $h = y + (m - 1)\rho$, $\lambda = \rho$ with
$\rho = e^{m + v/2}$: conjugate-computation variational inference, which is NGMP for unary factors.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln


def _smooth(h, precision, sigma2):
    """Means and variances of the smoother, and the log-integral of the chain with its sites."""

    def forward(carry, site):
        m, v = carry
        h, precision = site
        v_pred = v + sigma2
        v = 1.0 / (1.0 / v_pred + precision)
        mean = v * (m / v_pred + h)
        log_z = 0.5 * (mean * mean / v - m * m / v_pred + jnp.log(v / v_pred))
        return (mean, v), (mean, v, m, v_pred, log_z)

    start = jnp.zeros((), h.dtype), jnp.full((), 10.0, h.dtype)
    end, (mean, v, mean_pred, v_pred, log_z) = jax.lax.scan(forward, start, (h, precision))

    def backward(carry, step):
        m, v = carry
        mean, own, mean_pred, v_pred = step
        gain = own / v_pred
        state = mean + gain * (m - mean_pred), own + gain * gain * (v - v_pred)
        return state, state

    steps = mean[:-1], v[:-1], mean_pred[1:], v_pred[1:]
    _, (ms, vs) = jax.lax.scan(backward, end, steps, reverse=True)
    return jnp.append(ms, end[0]), jnp.append(vs, end[1]), jnp.sum(log_z)


@partial(jax.jit, static_argnames=("sweeps",))
def poisson_chain(y, mask, sigma2, alpha, sweeps):
    """Marginal means and variances (K,) and the free energy after a number of damped sweeps."""

    def target(m, v):
        rho = jnp.exp(m + 0.5 * v)
        return jnp.where(mask, y + (m - 1.0) * rho, 0.0), jnp.where(mask, rho, 0.0)

    def sweep(_, sites):
        m, v, _ = _smooth(*sites, sigma2)
        return jax.tree.map(lambda old, new: old + alpha * (new - old), sites, target(m, v))

    rate = y + 0.5
    first = target(jnp.log(rate), jnp.minimum(1.0 / rate, 1.0))
    h, precision = jax.lax.fori_loop(0, sweeps, sweep, first)
    m, v, log_z = _smooth(h, precision, sigma2)
    expected = y * m - jnp.exp(m + 0.5 * v) - gammaln(y + 1.0)
    spent = h * m - 0.5 * precision * (v + m * m)
    return m, v, -log_z - jnp.sum(jnp.where(mask, expected - spent, 0.0))
