r"""Edges with log-messages `l(z) = k z - c e^z` (counts, log-precisions), solved with all else held fixed.

With the cavity N(m_c, V) and $\rho = c\, E_q[e^z] = c\, e^{m + v/2}$ the projection at q = N(m, v) is
$\eta = (k + (m - 1)\rho, -\rho/2)$, so that on the edge $1/v = 1/V + \rho$ and $m = m_c + V (k - \rho)$: one unknown.
With $w = V \rho$,

$$ F(w) = w + \log w - \frac{V/2}{1 + w} - \left(m_c + V k + \log c + \log V\right) = 0. $$

F rises and is concave: Newton's steps come from the left after the first, and never overshoot. Taking one projection a
sweep instead multiplies an error of v by about -v/2: under a vague prior, a count of zero would oscillate.
"""

import jax.numpy as jnp
from jaxtyping import ArrayLike

from ..families import Gaussian

_STEPS = 2  # a sweep; they start where the last one ended


def settle(k: ArrayLike, log_c: ArrayLike, marginal: Gaussian, cavity: Gaussian) -> Gaussian:
    """The message `eta` of `l(z) = k z - c e^z` with `eta = project(cavity + eta)`, or some steps on the way there.

    Args:
        k, log_c: of every factor.
        marginal: q, (n,), the cavity times the leaf where the steps start.
        cavity: (n,), proper.
    """
    variance = 1.0 / cavity.precision
    level = cavity.mean + variance * k + log_c + jnp.log(variance)
    # F(w) <= w + log w - level, which is negative here.
    least = jnp.where(level > 1.0, 0.5 * level, jnp.exp(jnp.minimum(level, 1.0) - 1.0))
    least = jnp.maximum(least, jnp.finfo(level.dtype).tiny)
    # At the rho of the leaf: steps then go on from sweep to sweep, and stop nowhere but at the solution.
    w = jnp.maximum(variance * marginal.precision - 1.0, least)
    for _ in range(_STEPS):
        part = 0.5 * variance / (1.0 + w)
        gap = w + jnp.log(w) - part - level
        w = jnp.maximum(w - gap / (1.0 + 1.0 / w + part / (1.0 + w)), least)
    rho = w / variance
    # log rho - v/2 rather than m_c + V (k - rho), which loses the digits of a sharp message.
    m = jnp.log(rho) - log_c - 0.5 * variance / (1.0 + w)
    return Gaussian(jnp.asarray(k) + (m - 1.0) * rho, -0.5 * rho)
