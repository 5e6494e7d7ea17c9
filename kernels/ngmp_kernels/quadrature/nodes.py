r"""Quadrature rules: nodes and weights for expectations under one edge marginal.

A rule speaks only for the families it names; on any other family the default `Quadrature()` acts, so that a single
rule can be passed for a whole graph:

    rule             Gaussian               Gamma                       Beta
    GaussHermite     n Hermite nodes        (default)                   (default)
    LogTrapezoid     (default)              n nodes in log tau          n nodes in logit p
    Unscented        3 sigma points         3 asymmetric sigma points   (default)
    Delta            the mean               the mean                    the mean

InverseGamma edges use the nodes of the Gamma edge of the reciprocal, with `LogTrapezoid` or the default. Bernoulli and
Categorical edges are always enumerated. On MvGaussian edges of up to `MOST_DIMENSIONS` entries nodes are products of
Gauss-Hermite rules, of n nodes an axis, of three with `Unscented`, and of `_PER_AXIS` by default.
"""

import functools
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import polygamma
from jaxtyping import Array, Float

from ..families import AbstractFamily, Bernoulli, Beta, Categorical, Gamma, Gaussian, InverseGamma, MvGaussian
from ..numerics.cholesky import cholesky, unwhiten
from ..numerics.logarithm import log1p

Nodes = tuple[Array, Array]
_PER_AXIS = {1: 32, 2: 16, 3: 10, 4: 5, 5: 3, 6: 3}  # by dimension; three are exact to degree five, with no weight < 0
MOST_DIMENSIONS = max(_PER_AXIS)


class AbstractRule(eqx.Module):
    """How expectations under an edge marginal, and the projections built on them, are computed."""


class GaussHermite(AbstractRule):
    """Gauss-Hermite quadrature with `n` nodes on Gaussian edges: exact for polynomials of degree 2n - 1."""

    n: int = eqx.field(static=True, default=32)


class LogTrapezoid(AbstractRule):
    """Trapezoidal rule with `n` nodes in log tau (Gamma edges) or logit p (Beta edges), tails stretched.

    129 nodes reach about 1e-13 for Gamma shapes from 0.3 up and for Beta parameters from 1 up (float64). Beta messages
    are functions of p, which cannot come closer to 1 than the rounding unit: Beta(a, b) with b = 0.3 has 1e-5 of its
    mass there, and no rule in p does better than that.
    """

    n: int = eqx.field(static=True, default=129)


class Unscented(AbstractRule):
    """The paper's three-point sigma rule.

    Gaussian edges: m and m ± sqrt(3 V), which is 3-point Gauss-Hermite. Gamma edges: three asymmetric points in
    log tau that match four moments of the log-Gamma density; the projection there pairs *discrete* covariances with the
    *exact* Fisher matrix and is therefore biased even on conjugate messages: at Gamma(258, 258) the message
    (log tau - tau) / 2 comes back with 0.50097 instead of 0.5. Use it to reproduce the paper, not for accuracy.
    """


class Delta(AbstractRule):
    """The delta method: the message is replaced by the family member with the same two derivatives at the mean."""


class Quadrature(AbstractRule):
    """The default: Gauss-Hermite on Gaussian edges, the trapezoidal rule on Gamma and Beta edges."""

    gaussian: int = eqx.field(static=True, default=32)
    gamma: int = eqx.field(static=True, default=129)
    beta: int = eqx.field(static=True, default=129)


def nodes(rule: AbstractRule, q: AbstractFamily) -> tuple[Array, Float[Array, "Q *b"]]:
    r"""Nodes and normalised log-weights with $E_q[g] \approx \sum_i e^{\log w_i} g(z_i)$.

    Args:
        rule: a rule; see the table of this module.
        q: a proper instance of a scalar family, or a short vector, with batch axes `*b`.

    Returns:
        `z` and `log_weights`, both `(Q, *b)`; vectors have one more axis. Classes of a Categorical are integers.
    """
    for actual in (rule, Quadrature()):
        make = _NODES.get((type(actual), type(q)))
        if make is not None:
            return make(actual, q)
    raise TypeError(f"No quadrature on {type(q).__name__} edges: messages toward them must be conjugate.")


# -- Gaussian -----------------------------------------------------------------------------------------------------


@functools.lru_cache
def hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and normalised log-weights for the standard normal."""
    u, w = np.polynomial.hermite_e.hermegauss(n)
    return u, np.log(w) - np.log(w.sum())


def _column(x: np.ndarray, q: AbstractFamily) -> Float[Array, "Q ..."]:
    """A constant table as an array that broadcasts against the batch of q, in its dtype."""
    return jnp.asarray(x, q.dtype).reshape((-1,) + (1,) * len(q.batch_shape))


def _hermite_nodes(n: int, q: Gaussian) -> Nodes:
    u, log_weights = hermite(n)
    z = q.mean + q.std * _column(u, q)
    return z, jnp.broadcast_to(_column(log_weights, q), z.shape)


@functools.lru_cache
def _hermite_product(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n^d, d) and log-weights for the standard normal in d dimensions."""
    u, log_weights = hermite(n)
    every = np.asarray(list(itertools.product(range(n), repeat=d)))
    return u[every], log_weights[every].sum(1)


def _vector_nodes(n: int | None, q: MvGaussian) -> Nodes:
    """`m + C^{-T} u`, with C the Cholesky factor of the precision."""
    (d,) = q.event_shape
    if d > MOST_DIMENSIONS:
        raise TypeError(f"No quadrature over vectors of {d} entries: at most {MOST_DIMENSIONS}.")
    u, log_weights = _hermite_product(_PER_AXIS[d] if n is None else n, d)
    chol = cholesky(q.precision)
    table = jnp.broadcast_to(jnp.asarray(u.T, q.dtype), (*q.batch_shape, *u.T.shape))
    spread = unwhiten(chol, table)
    z = q.mean + jnp.moveaxis(spread, -1, 0)
    return z, jnp.broadcast_to(_column(log_weights, q), z.shape[:-1])


# -- trapezoidal rule in a logarithmic coordinate ------------------------------------------------------------------


def _cutoff(dtype) -> float:
    """Log-density drop, relative to the mode, beyond which a tail is cut: e^-4 times the rounding unit."""
    return 4.0 - float(np.log(jnp.finfo(dtype).eps))


def _stretch(left: Float[Array, "*b"], right: Float[Array, "*b"], n: int) -> Nodes:
    r"""Trapezoidal nodes x in [-left, right] and log dx/dv, uniform in v with $x = (v + \sinh v)/2$.

    The map is the identity near 0, where the mass is, and reaches an exponential tail of length L in log L steps; a
    uniform grid would need 1/shape times more nodes at shape < 1.
    """
    reach = jnp.stack([left, right])
    # Within 6 % of the end; a step of Newton's method, v - (v + sinh v - 2 reach) / (1 + cosh v) with e = exp(v), comes
    # within 0.2 %, and from above: the function is convex.
    v = jnp.log1p(reach * (1 + 0.868 * reach) / (1 + 0.217 * reach))
    e = jnp.exp(v)
    v = v - (e * e - 1 + e * (2 * v - 4 * reach)) / (1 + e) ** 2
    start, end = -v[0], v[1]
    unit = jnp.asarray(np.linspace(0.0, 1.0, n), v.dtype).reshape((-1,) + (1,) * start.ndim)
    v = start + (end - start) * unit
    e = jnp.expm1(v)  # sinh v = (e + e / (1 + e)) / 2, cosh v = 1 + e^2 / (2 (1 + e)), accurate at small v
    ratio = e / (1 + e)
    return 0.5 * v + 0.25 * (e + ratio), log1p(0.25 * e * ratio)


def _normalised(log_weights: Float[Array, "Q *b"]) -> Float[Array, "Q *b"]:
    """Relative to the mode they are neither all tiny nor ever large: the sum needs no search for the largest."""
    return log_weights - jnp.log(jnp.sum(jnp.exp(log_weights), axis=0))


def _gamma_trapezoid(n: int, q: Gamma) -> Nodes:
    r"""In $x = \log(\tau / E\tau)$ the log-density is $-a (e^x - 1 - x)$ up to a constant.

    $e^x - 1 - x = r$ has its roots inside $-(r + \sqrt{2r})$ and $\log(1 + r + \sqrt{2r})$.
    """
    a = q.concentration
    r = _cutoff(q.dtype) / a
    reach = r + jnp.sqrt(2 * r)
    x, log_jacobian = _stretch(reach, jnp.log1p(reach), n)
    # Shapes below 0.05 put mass below the smallest positive number; the node must stay positive for log tau.
    tau = jnp.maximum(q.mean * jnp.exp(x), jnp.finfo(q.dtype).tiny)
    return tau, _normalised(log_jacobian - a * (jnp.expm1(x) - x))


def _inverse_gamma_trapezoid(n: int, q: InverseGamma) -> Nodes:
    tau, log_weights = _gamma_trapezoid(n, q.reciprocal)
    return 1 / tau, log_weights


def _beta_drop(x: Array, a: Array, b: Array) -> Array:
    r"""Log-density drop of logit p at distance x from its mode: $D(x) = (a+b) \log(1 + \frac{a}{a+b}(e^x - 1)) - a x$.

    $D(x; a, b) = D(-x; b, a)$, and the side with the smaller parameter in front does not cancel. Beyond `far` the
    exponential would overflow, and the logarithm is split.
    """
    far = 50.0
    low, high, y = jnp.minimum(a, b), jnp.maximum(a, b), jnp.where(a > b, -x, x)
    near_log = jnp.log1p(low / (a + b) * jnp.expm1(jnp.minimum(y, far)))
    far_log = y + jnp.log(low / (a + b)) + jnp.log1p(high / low * jnp.exp(-jnp.maximum(y, far)))
    return (a + b) * jnp.where(y < far, near_log, far_log) - low * y


def _beta_reach(a: Array, b: Array, cutoff: float) -> Array:
    r"""The x > 0 where `_beta_drop` equals the cutoff, from above.

    Two upper bounds: $|D'''| \le D''$ gives $D \ge h (e^{-x} - 1 + x)$, $h = ab/(a+b)$; the tail is at least
    $D \ge b x - (a+b) \log(1 + b/a)$. Newton on the convex D descends from the smaller one.
    """
    r = cutoff * (1 / a + 1 / b)
    x = jnp.minimum(r + jnp.sqrt(2 * r), (cutoff + (a + b) * jnp.log1p(b / a)) / b)
    for _ in range(4):
        slope = (a + b) * jax.nn.sigmoid(x + jnp.log(a / b)) - a
        x = x - (_beta_drop(x, a, b) - cutoff) / slope
    return x


def _beta_trapezoid(n: int, q: Beta) -> Nodes:
    r"""In $x = \operatorname{logit} p - \log(a/b)$ the log-density is minus `_beta_drop` up to a constant."""
    a, b = q.a, q.b
    cutoff = _cutoff(q.dtype)
    x, log_jacobian = _stretch(_beta_reach(b, a, cutoff), _beta_reach(a, b, cutoff), n)
    info = jnp.finfo(q.dtype)
    p = jnp.clip(jax.nn.sigmoid(x + jnp.log(a / b)), info.tiny, 1 - info.epsneg)
    return p, _normalised(log_jacobian - _beta_drop(x, a, b))


# -- sigma points --------------------------------------------------------------------------------------------------


def _gamma_sigma(q: Gamma) -> Nodes:
    r"""Three points in $s = \log\tau$ matching four moments of the log-Gamma density (paper, Unscented strategy).

    With $\sigma^2 = \psi_1(a)$, skewness $g = \psi_2 / \sigma^3$ and kurtosis $k = \psi_3/\sigma^4 + 3$, the points are
    $\bar s$, $\bar s - u\sigma$, $\bar s + w\sigma$ where $w - u = g$ and $w u = k - g^2$.
    """
    a = q.concentration
    v, third = polygamma(1, a), polygamma(2, a)
    fourth = polygamma(3, a) + 3 * v**2
    fourth = jnp.where(fourth <= third**2 / v, 1.001 * third**2 / v, fourth)  # the reference code's guard
    scale = jnp.sqrt(v)
    skew = third / scale**3
    u = 0.5 * (-skew + jnp.sqrt(4 * fourth - 3 * third**2 / v) / v)
    w = u + skew
    centre = q.to_mean()[0]
    w3 = 1 / (w * (u + w))
    w2 = w / u * w3
    s = jnp.stack([centre, centre - u * scale, centre + w * scale])
    return jnp.exp(s), jnp.log(jnp.stack([1 - w2 - w3, w2, w3]))


def _point(q: AbstractFamily) -> Nodes:
    """All mass at the mean."""
    return q.mean[None], jnp.zeros((1,) + q.batch_shape, q.dtype)


# -- discrete families ---------------------------------------------------------------------------------------------


def _two_points(q: Bernoulli) -> Nodes:
    z = jnp.broadcast_to(_column(np.array([0.0, 1.0]), q), (2,) + q.batch_shape)
    return z, q.log_density(z)


def _classes(q: Categorical) -> Nodes:
    (k,) = q.event_shape
    z = jnp.broadcast_to(jnp.arange(k).reshape((-1,) + (1,) * len(q.batch_shape)), (k,) + q.batch_shape)
    return z, jnp.moveaxis(jax.nn.log_softmax(q.eta1, axis=-1), -1, 0)


_NODES: dict[tuple[type, type], Callable[..., Nodes]] = {
    (GaussHermite, Gaussian): lambda rule, q: _hermite_nodes(rule.n, q),
    (LogTrapezoid, Gamma): lambda rule, q: _gamma_trapezoid(rule.n, q),
    (LogTrapezoid, InverseGamma): lambda rule, q: _inverse_gamma_trapezoid(rule.n, q),
    (LogTrapezoid, Beta): lambda rule, q: _beta_trapezoid(rule.n, q),
    (Unscented, Gaussian): lambda _, q: _hermite_nodes(3, q),
    (Unscented, Gamma): lambda _, q: _gamma_sigma(q),
    (Delta, Gaussian): lambda _, q: _point(q),
    (Delta, Gamma): lambda _, q: _point(q),
    (Delta, Beta): lambda _, q: _point(q),
    (Quadrature, Gaussian): lambda rule, q: _hermite_nodes(rule.gaussian, q),
    (GaussHermite, MvGaussian): lambda rule, q: _vector_nodes(rule.n, q),
    (Unscented, MvGaussian): lambda _, q: _vector_nodes(3, q),
    (Quadrature, MvGaussian): lambda _, q: _vector_nodes(None, q),
    (Quadrature, Gamma): lambda rule, q: _gamma_trapezoid(rule.gamma, q),
    (Quadrature, InverseGamma): lambda rule, q: _inverse_gamma_trapezoid(rule.gamma, q),
    (Quadrature, Beta): lambda rule, q: _beta_trapezoid(rule.beta, q),
    (Quadrature, Bernoulli): lambda _, q: _two_points(q),
    (Quadrature, Categorical): lambda _, q: _classes(q),
}
