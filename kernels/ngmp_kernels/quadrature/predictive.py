r"""Predictive integrals: what factors say of their outcome once the marginals of their interfaces are integrated out.

The rules of `quadrature` are made for messages, which are smooth on the scale of a marginal. A predictive density or
distribution function need not be: a count of 1000 pins its log-rate to 3 %, whatever is known of it beforehand. So

- densities are integrated on nodes placed at the mode of the integrand (`tilted_log_density`),
- normal noise of random scale keeps its residual in closed form, $y \mid s \sim N(m, V + e^{-s})$, and only the
  log-precision s is integrated (`log_precision_nodes`, `scale_mixture_cdf`),
- counts use the threshold form of their distribution function (`threshold_cdf`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from ..families import Gaussian
from ..numerics.logarithm import log, softplus
from .projection import LogMessage, nodes
from .regression import derivatives
from .rules import AbstractQuadrature, GaussHermite, Quadrature
from .tilted import tilted_evidence

MOMENTS = Quadrature(gaussian=128)  # a sigmoid under a variance of 9 to 1e-8, see tests/kernels/factors/test_cdf.py
_REACH = 8.5  # standard deviations beyond which a Gaussian has no mass in double precision
_POINTS = 257  # of the log-precision: 1e-8 up to a variance of 16, see tests/kernels/factors/test_cdf.py
_NEWTON = 20


def product_nodes(rule: AbstractQuadrature, marginals: tuple[Any, ...]) -> tuple[list[Array], Array, tuple[int, ...]]:
    """Nodes on the product of d marginals (n): values, log-weights (Q_1, ..., Q_d, n), and the axes of the nodes."""
    d, z, total = len(marginals), [], 0.0
    for j, q in enumerate(marginals):
        points, log_weights = nodes(rule, q)
        place = tuple(slice(None) if i == j else None for i in range(d))
        z.append(points[place])
        total = total + log_weights[place]
    return z, jnp.asarray(total), tuple(range(d))


def over_nodes(q: Any, given: Callable[[Array], Any]) -> tuple[Any, Array]:
    """`given(z)` at every node z (n,) of a marginal, (Q, n), and the log-weights."""
    z, log_weights = nodes(Quadrature(), q)
    return jax.vmap(given)(z), log_weights


def tilted_log_density(q: Gaussian, log_density: LogMessage, hint: Any) -> Float[Array, " n"]:
    r"""$\log \int f(z)\, q(z)\, dz$ for a log-concave f, on nodes about the mode of the integrand.

    Args:
        q: the marginal of the interface.
        log_density: `log f`, (Q, n) -> (Q, n).
        hint: a Gaussian about where f has its mass, or None; the search for the mode starts between it and q.
    """
    start = q if hint is None else q + hint
    reach = q.std + 1.0

    def newton(_: Any, z: Array) -> Array:
        slope, curvature = derivatives(log_density, z)
        step = (slope - (z - q.mean) * q.precision) / (q.precision - jnp.minimum(curvature, 0.0))
        return z + jnp.clip(step, -reach, reach)

    # Nodes do not change the integral, so they have no derivatives.
    q_fixed, start = jax.lax.stop_gradient((q, start.mean))
    mode = jax.lax.stop_gradient(jax.lax.fori_loop(0, _NEWTON, newton, start))
    curvature = jax.lax.stop_gradient(derivatives(log_density, mode)[1])
    about = Gaussian.from_mean_variance(mode, 1.0 / (q_fixed.precision - jnp.minimum(curvature, 0.0)))
    return tilted_evidence(about, q, log_density, Quadrature())


def log_precision_nodes(s: Gaussian, square: Float[Array, " n"] | None = None) -> tuple[Array, Array]:
    r"""Trapezoidal nodes of a log-precision $s \sim N(m, v)$, (Q, n), and normalised log-weights.

    The trapezoidal rule is exponentially accurate for functions of $e^{s}$ once its step is below about 0.4, whatever
    v is; Gauss-Hermite nodes spread with v. For the density of an outcome, give the squared residual: with nothing
    else uncertain, the mode of $N(r; 0, e^{-s}) N(s; m, v)$ is $m + v/2 - u$, $u e^u = (v r^2/2) e^{m + v/2}$, and its
    width $\sqrt{v / (1 + u)}$. Other uncertainty moves the mode back toward m, so nothing beyond these two matters.
    """
    m, v = s.mean, s.variance
    low, high = -_REACH * s.std, _REACH * s.std
    if square is not None:
        u = lambert(square, m, v)
        low = jnp.minimum(low, 0.5 * v - u - _REACH * jnp.sqrt(v / (1.0 + u)))
        high = high + 0.5 * v
    low, high = jax.lax.stop_gradient((low, high))
    unit = jnp.asarray(np.linspace(0.0, 1.0, _POINTS), s.dtype).reshape(-1, *(1,) * m.ndim)
    d = low + (high - low) * unit
    log_weights = -0.5 * d * d / v
    return m + d, log_weights - jax.nn.logsumexp(log_weights, axis=0)


def lambert(square: Array, m: Array, v: Array) -> Array:
    """`u` with `u + log u = L`, `L = log(v r^2/2) + m + v/2`, to a few digits: it only places nodes.

    Hence in single precision, twice as fast and more, and two steps of Newton's method; for L below -30, u at -30.
    """
    tiny = jnp.finfo(square.dtype).tiny
    log_target = log(jnp.maximum(0.5 * v * square, tiny)) + m + 0.5 * v
    log_target = jnp.clip(log_target, -30.0, 1e30).astype(jnp.float32)
    u = softplus(log_target)
    for _ in range(2):
        u = u * (1.0 + log_target - log(u)) / (1.0 + u)
    return u.astype(square.dtype)


def scale_mixture_cdf(out: Array, r: Gaussian, log_precision: Array, log_weights: Array) -> Float[Array, " n"]:
    r"""$\sum_k w_k \Phi\big((y - m) / \sqrt{V + e^{-s_k}}\big)$, with r = -y + ... at y = 0, so that $m = -E[r]$."""
    total = log_precision - softplus(log_precision + jnp.log(r.variance))  # -log(V + e^{-s})
    return jnp.sum(jnp.exp(log_weights) * ndtr((out + r.mean) * jnp.exp(0.5 * total)), axis=0)


def threshold_cdf(
    q: Gaussian, threshold: Array, log_weights: Array, conditional: Callable[[Array], Array]
) -> Float[Array, " n"]:
    r"""$F(k) = E_q[F(k \mid z)]$ of a count that is at most k exactly if z lies below a random threshold $X_k$.

    Then $F(k \mid z) = P(X_k > z)$ and $F(k) = E[\Phi((X_k - m)/\sigma)]$: an integral over $X_k$, accurate however
    narrow its distribution is beside q. Where q is the narrow one, it is integrated instead.

    Args:
        q: the marginal of z.
        threshold, log_weights: nodes of $X_k$, (Q, n).
        conditional: $z \mapsto F(k \mid z)$.
    """
    weights = jnp.exp(log_weights)
    wide = jnp.sum(weights * ndtr((threshold - q.mean) / q.std), axis=0)
    centre = jnp.sum(weights * threshold, axis=0)
    spread = jnp.sqrt(jnp.sum(weights * (threshold - centre) ** 2, axis=0))
    z, log_weights = nodes(GaussHermite(8), q)
    narrow = jnp.sum(jnp.exp(log_weights) * conditional(z), axis=0)
    return jnp.where(q.std > 0.2 * spread, wide, narrow)
