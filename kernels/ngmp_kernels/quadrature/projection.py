r"""The tangent projection: the natural gradient of an expected log-message, as a message in the receiving family.

For a log-message l and a marginal q the projected message is

$$ \eta^* = F^{-1} Cov_q[T, l] = \nabla_\mu E_q[l], $$

which is the weighted least-squares regression of l on (1, T) under q. Here the regression is done *at the nodes*, with
the discrete Fisher matrix: a message already in the family comes back exactly, whatever the accuracy of the rule.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families import AbstractFamily, Bernoulli, Beta, Categorical, Gamma, Gaussian, InverseGamma, MvGaussian
from ..numerics.cholesky import cholesky
from ..numerics.gamma_functions import trigamma_minus_inverse
from ..numerics.logarithm import log, log1p
from .nodes import AbstractRule as AbstractRule
from .nodes import Delta as Delta
from .nodes import GaussHermite as GaussHermite
from .nodes import LogTrapezoid as LogTrapezoid
from .nodes import Quadrature as Quadrature
from .nodes import Unscented as Unscented
from .nodes import hermite
from .nodes import nodes as nodes

LogMessage = Callable[[Array], Array]


def tangent_projection(
    q: AbstractFamily, log_message: LogMessage, rule: AbstractRule, *, centred: bool = False
) -> AbstractFamily:
    r"""$\eta^* = F^{-1} Cov_q[T, l] = \nabla_\mu E_q[l]$.

    Args:
        q: the receiving marginal, batch axes `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`; its additive constant is irrelevant.
        rule: `Quadrature()` and its parts regress at the nodes; `Unscented()` on Gamma edges uses the exact Fisher
            matrix, as the paper does, and is biased on conjugate messages; `Delta()` takes two derivatives at the mean.
        centred: whether l is zero at the mean of q, so that its values keep their digits without one being subtracted.

    Returns:
        A message in the family of q, batch axes `*b`.
    """
    special = _SPECIAL.get((type(rule), type(q)))
    if special is not None:
        return special(q, log_message)
    z, log_weights = nodes(rule, q)
    values = log_message(z)
    if isinstance(q, Gamma):
        return _gamma(q, z, jnp.exp(log_weights), values, centred)
    return _REGRESSION[type(q)](q, z, jnp.exp(log_weights), values)


def expectation(q: AbstractFamily, g: LogMessage, rule: AbstractRule) -> Float[Array, "*b"]:
    r"""$E_q[g]$ by the nodes of the rule.

    `Delta()` integrates the family member that osculates g at the mean: $g(m) + \eta^* \cdot (E_q[T] - T(m))$, on a
    Gaussian edge $g(m) + \frac12 V g''(m)$.
    """
    if (type(rule), type(q)) in _SPECIAL and isinstance(rule, Delta):
        at_mean = q.statistics(q.mean)
        excess = tuple(mu - t for mu, t in zip(q.to_mean(), at_mean, strict=True))
        return g(q.mean[None])[0] + tangent_projection(q, g, rule).dot(excess)
    z, log_weights = nodes(rule, q)
    return _average(jnp.exp(log_weights), g(z))


# -- weighted least squares at the nodes ---------------------------------------------------------------------------


def _average(w: Float[Array, "Q *b"], x: Float[Array, "Q *b"]) -> Float[Array, "*b"]:
    """Weighted mean over nodes; a node of weight zero may hold an infinite value."""
    return jnp.sum(jnp.where(w > 0, w * jnp.where(w > 0, x, 0), 0), axis=0)


def _slopes(w: Array, values: Array, x1: Array, x2: Array, centred: bool = False) -> tuple[Array, Array]:
    """Coefficients of x1 and x2 in the weighted regression of values on (1, x1, x2), by Gram-Schmidt.

    No normal equations are formed; the second coefficient is found first and its part removed, so that an exact
    relation is recovered to rounding.
    """
    if w.shape != values.shape:
        return _shared_slopes(w, values, x1, x2, centred)
    y, x1, x2 = (x - _average(w, x) for x in (values, x1, x2))
    norm1 = _average(w, x1**2)
    orthogonal = x2 - _average(w, x1 * x2) / norm1 * x1
    beta2 = _average(w, orthogonal * y) / _average(w, orthogonal**2)
    beta1 = _average(w, x1 * (y - beta2 * x2)) / norm1
    return beta1, beta2


def _shared_slopes(w: Array, values: Array, x1: Array, x2: Array, centred: bool) -> tuple[Array, Array]:
    """`_slopes` where all regressions share nodes and weights, (Q, 1): they are then two sums over the values."""
    x1, x2 = (x - _average(w, x) for x in (x1, x2))
    norm1 = _average(w, x1**2)
    slope = _average(w, x1 * x2) / norm1
    orthogonal = x2 - slope * x1
    y = jnp.where(w > 0, values, 0)
    if not centred:  # the weights of a row add up to zero only to rounding
        y = y - _combine(w, y)
    first, beta2 = (_combine(row, y) for row in (w * x1 / norm1, w * orthogonal / _average(w, orthogonal**2)))
    return first - slope * beta2, beta2


def _combine(row: Array, y: Float[Array, "Q *b"]) -> Float[Array, "*b"]:
    """`sum_q row_q y_q` of a row that is shared by all, (Q, 1, ...): on a CPU a product is several times a sum."""
    if row.size > row.shape[0]:
        return jnp.sum(row * y, 0)
    return jnp.tensordot(row.reshape(-1), y, 1, precision="highest")


def log_quotient(z: Array, m: Array) -> Array:
    """log(z / m) for positive numbers: by log1p near 1, where a regression needs its curvature."""
    return _log_quotient(z - m, m, log(z) - log(m))


def _log_quotient(delta: Array, m: Array, far: Array) -> Array:
    """log((m + delta) / m): by log1p near 1, otherwise the given value."""
    near = jnp.abs(delta) < 0.5 * m
    return jnp.where(near, log1p(jnp.where(near, delta / m, 0)), far)


@functools.lru_cache
def _hermite_slopes(n: int) -> np.ndarray:
    """(3, n): coefficients of 1, u and u^2 - 1 in the regression of values at the Hermite nodes u on them."""
    u, log_weights = hermite(n)
    w = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    square = u**2 - w @ u**2  # orthogonal to 1, and to u by symmetry
    return np.stack([w, w * u / (w @ u**2), w * square / (w @ square**2)])


def _gaussian(q: Gaussian, z: Array, w: Array, values: Array) -> Gaussian:
    """Basis u and u^2 with u = (z - m) / s.

    Every rule has Hermite nodes, so the regression is one product with a constant matrix. What is left, at the u of
    the rounded nodes that the message has seen, is regressed once more: an exact relation is recovered to rounding,
    whatever the constant.
    """
    del w
    m, s = q.mean, q.std
    table = jnp.asarray(_hermite_slopes(z.shape[0]), values.dtype)

    def regress(y: Array) -> Array:
        return jnp.tensordot(table, y, 1, precision="highest")

    u = (z - m) / s
    centre, beta1, beta2 = regress(values)
    _, more1, more2 = regress(values - (centre + u * (beta1 + beta2 * u)))
    eta2 = (beta2 + more2) / s**2
    return Gaussian((beta1 + more1) / s - 2 * m * eta2, eta2)


def _mv_gaussian(q: MvGaussian, z: Array, w: Array, values: Array) -> MvGaussian:
    """In `u = C^T (z - m)`, C C^T the precision, 1, u_i and u_i u_j - [i = j] are orthogonal at three nodes an axis."""
    m, chol = q.mean, cholesky(q.precision)
    u = jnp.einsum("...ji,q...j->q...i", chol, z - m)
    y = values - _average(w, values)
    y = w * jnp.where(w > 0, y, 0)
    slope = jnp.einsum("...ij,q...j,q...->...i", chol, u, y)
    bend = chol @ jnp.einsum("q...i,q...j,q...->...ij", u, u, y) @ jnp.swapaxes(chol, -1, -2)
    return MvGaussian(slope - (bend @ m[..., None])[..., 0], 0.5 * bend)


def _gamma(q: Gamma, z: Array, w: Array, values: Array, centred: bool = False) -> Gamma:
    """Basis log t and t - 1 - log t with t = tau / E[tau]: nearly u and u^2 / 2 at large shape."""
    m = q.mean
    t1, log_t = (z - m) / m, log_quotient(z, m)
    beta1, beta2 = _slopes(w, values, log_t, t1 - log_t, centred)
    return Gamma(beta1 - beta2, beta2 / m)


def _inverse_gamma(q: InverseGamma, z: Array, w: Array, values: Array) -> InverseGamma:
    """The regression on log t and t of t = 1/v."""
    eta = _gamma(q.reciprocal, 1 / z, w, values)
    return InverseGamma(-eta.eta1, eta.eta2)


def _beta(q: Beta, z: Array, w: Array, values: Array) -> Beta:
    """Basis: the logit and the binary divergence, both relative to the mean m; first and second order in z - m."""
    total = q.a + q.b
    m1, m0 = q.a / total, q.b / total
    log1 = log_quotient(z, m1)
    log0 = _log_quotient(m1 - z, m0, log1p(-z) - log(m0))
    beta1, beta2 = _slopes(w, values, log1 - log0, -(m1 * log1 + m0 * log0))
    return Beta(beta1 - m1 * beta2, -beta1 - m0 * beta2)


def _bernoulli(q: Bernoulli, z: Array, w: Array, values: Array) -> Bernoulli:
    """Exact: the log-odds of the message, whatever q."""
    del q, z, w
    return Bernoulli(values[1] - values[0])


def _categorical(q: Categorical, z: Array, w: Array, values: Array) -> Categorical:
    """Exact, whatever q; of the equivalent logits the ones that sum to zero."""
    del q, z, w
    return Categorical(jnp.moveaxis(values - jnp.mean(values, axis=0), 0, -1))


_REGRESSION = {
    Gaussian: _gaussian,
    MvGaussian: _mv_gaussian,
    Gamma: _gamma,
    InverseGamma: _inverse_gamma,
    Beta: _beta,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
}


# -- rules that are not regressions --------------------------------------------------------------------------------


def _gamma_unscented(q: Gamma, log_message: LogMessage) -> Gamma:
    r"""Discrete covariances against the exact Fisher matrix; biased on conjugate messages (see `Unscented`).

    With t = tau / E[tau], $c_1 = Cov[\log t, l]$ and $c_2 = Cov[t, l]$:
    $\Delta a = a (c_1 - c_2) / (a\psi_1 - 1)$, $-\Delta b = b (a\psi_1 c_2 - c_1) / (a\psi_1 - 1)$.
    """
    a, m = q.concentration, q.mean
    tau, log_weights = nodes(Unscented(), q)
    w, t = jnp.exp(log_weights), tau / m
    y, log_t, t = (x - _average(w, x) for x in (log_message(tau), jnp.log(t), t))
    c2, difference = _average(w, t * y), _average(w, (log_t - t) * y)
    excess = a * trigamma_minus_inverse(a)  # a psi_1(a) - 1, about 1 / (2a)
    return Gamma(a * difference / excess, q.rate * (c2 - difference / excess))


def derivatives(f: LogMessage, z: Float[Array, "*b"]) -> tuple[Array, Array]:
    """f' and f'' of an elementwise function, by forward mode."""

    def first(x):
        return jax.jvp(f, (x,), (jnp.ones_like(x),))[1]

    d1, d2 = jax.jvp(first, (z[None],), (jnp.ones_like(z[None]),))
    return d1[0], d2[0]


def _gaussian_delta(q: Gaussian, log_message: LogMessage) -> Gaussian:
    d1, d2 = derivatives(log_message, q.mean)
    return Gaussian(d1 - q.mean * d2, 0.5 * d2)


def _gamma_delta(q: Gamma, log_message: LogMessage) -> Gamma:
    """eta1 log t + eta2 t has derivatives eta1 / m + eta2 and -eta1 / m^2."""
    m = q.mean
    d1, d2 = derivatives(log_message, m)
    return Gamma(-(m**2) * d2, d1 + m * d2)


def _beta_delta(q: Beta, log_message: LogMessage) -> Beta:
    """eta1 log p + eta2 log(1 - p) has derivatives eta1 / p - eta2 / (1-p) and -eta1 / p^2 - eta2 / (1-p)^2."""
    p = q.mean
    d1, d2 = derivatives(log_message, p)
    return Beta(p**2 * (d1 - (1 - p) * d2), -((1 - p) ** 2) * (d1 + p * d2))


_SPECIAL = {
    (Unscented, Gamma): _gamma_unscented,
    (Delta, Gaussian): _gaussian_delta,
    (Delta, Gamma): _gamma_delta,
    (Delta, Beta): _beta_delta,
}
