r"""Gaussian edges of one factor, solved with all else held fixed.

With the cavity N(c, V) held, the edge q = N(m, v) of a unary factor agrees with its own projection where

$$ L(m, v) = E_q[l] - \frac{(m - c)^2 + v}{2V} + \frac12 \log v $$

is stationary: $m = c + V g$, $1/v = 1/V - b$, with $g = E[l']$, $b = E[l'']$. Newton's steps need no more integrals,
since $\partial_m E[h] = E[h']$ and $\partial_v E[h] = E[h''] / 2$: all derivatives are Hermite coefficients of l.
Taking one projection a sweep instead ignores how b moves with q: an error of v comes back times $v^2 E[l''''] / 2$,
which under vague priors is beyond minus one, and the run oscillates.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..families import Gaussian
from .nodes import hermite

_MOST = 12  # evaluations a sweep, of the rows that are stiff
_STIFF = 0.02  # share of a factor in the precision of its edge from which the edge is solved
_CLOSE = 0.05  # a step, in standard deviations, that needs no trial: its error is of second order
_FACTOR = 8.0  # that a step may change the variance by
_SHORTER = 0.3  # of a step that has lost


class Moments(NamedTuple):
    """`E[l]` and the expectations of the first four derivatives of l, each (n,)."""

    value: Float[Array, " n"]
    first: Float[Array, " n"]
    second: Float[Array, " n"]
    third: Float[Array, " n"]
    fourth: Float[Array, " n"]


def by_derivatives(mean: Array, q: Moments) -> Gaussian:
    """The projection, by Bonnet and Price: `(E[l'] - m E[l''], E[l''] / 2)`."""
    return Gaussian(q.first - mean * q.second, 0.5 * q.second)


@functools.lru_cache
def _tables(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, polynomials `He_k` there (5, count), and what gives their coefficients, times k!, by regression."""
    u, log_weights = hermite(count)
    w = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    basis = np.stack([np.ones_like(u), u, u**2 - 1, u**3 - 3 * u, u**4 - 6 * u**2 + 3])
    factorials = np.array([1.0, 1.0, 2.0, 6.0, 24.0])[:, None]
    return u, basis / factorials, w * basis * factorials / (basis**2 @ w)[:, None]


def hermite_moments(log_density: Callable[[Array], Array], mean: Array, variance: Array, count: int = 32) -> Moments:
    """By Gauss-Hermite nodes, the ones of the projection: `E[l^(k)] = E[l He_k(u)] / s^k`, u = (z - m) / s."""
    u, basis, table = (jnp.asarray(x, mean.dtype) for x in _tables(count))
    s = jnp.sqrt(variance)
    values = log_density(mean + s * u[:, None])
    c = jnp.tensordot(table, values, 1, precision="highest")
    # What is left is regressed once more: a large quadratic part costs no digits.
    c += jnp.tensordot(table, values - jnp.tensordot(basis.T, c, 1, precision="highest"), 1, precision="highest")
    return Moments(c[0], c[1] / s, c[2] / variance, c[3] / (s * variance), c[4] / variance**2)


class _State(NamedTuple):
    """A row: the best point so far, N(mean, v e^x) for the v it started from, and the step that is tried next."""

    mean: Array
    x: Array
    gain: Array  # L at the best point
    step: tuple[Array, Array]  # in the mean and in x
    part: Array  # of the step
    done: Array
    count: Array


def _direction(q: Moments, mean: Array, v: Array, c: Array, precision: Array) -> tuple[Array, Array]:
    """Newton's step in the mean and in log v; where it does not ascend, the one of a single projection, which does."""
    slope, wanted = q.first - (mean - c) * precision, precision - q.second
    v1 = 1.0 / jnp.maximum(wanted, 1.0 / (_FACTOR * v))
    # 1/v' is linearised by its secant to v1: exact where b is constant, and concave for all concave l.
    a, d = q.second - precision, 0.5 * q.fourth - 1.0 / (v * v1)
    det, excess = a * d - 0.5 * q.third**2, wanted - 1.0 / v
    fine = (q.second < 0.0) & (det > 0.0) & (d < 0.0)
    safe = jnp.where(fine, det, 1.0)
    dm, dv = (-slope * d - 0.5 * q.third * excess) / safe, (a * excess + q.third * slope) / safe
    # b' = b e^{b'/b - 1} remains negative, and is exact for exponentials.
    growth = jnp.clip((q.third * dm + 0.5 * q.fourth * dv) / jnp.where(fine, q.second, -1.0), -2.0, 2.0)
    bent = jnp.log(v * (precision - jnp.where(fine, q.second * jnp.exp(growth), -1.0)))
    most = float(np.log(_FACTOR))
    step = slope * v1, jnp.clip(jnp.log(v1 / v), -most, most)
    for trial in (dv / v, -bent):  # the last that ascends
        dx = jnp.clip(trial, -most, most)
        ascends = fine & (slope * dm - 0.5 * v * excess * dx > 0.0)
        step = jnp.where(ascends, dm, step[0]), jnp.where(ascends, dx, step[1])
    return step


def settle_edge(
    moments: Callable[[Array, Array], Moments], marginal: Gaussian, cavity: Gaussian, least: float = 0.0
) -> tuple[Gaussian, Bool[Array, " n"]]:
    """The change of the message that takes the marginal to the solution, or some steps on the way; and where it is one.

    Every step is tried, and taken if L does not fall. Rows that hardly weigh on their marginal are left alone.

    Args:
        moments: of the factor, at means and variances (n,).
        marginal: (n,), the cavity times the present message: where the steps start.
        cavity: (n,), proper.
        least: the variance up to which one projection a sweep is known to do.
    """
    given = marginal.mean, marginal.variance, cavity.mean, cavity.precision
    n = jax.eval_shape(moments, *given[:2]).value.shape
    m0, v0, c, precision = (jnp.broadcast_to(x, n) for x in given)
    stiff = (1.0 - v0 * precision > _STIFF) & (v0 > least)

    def more(state: _State) -> Array:
        return (state.count < _MOST) & jnp.any(~state.done)

    def body(state: _State) -> _State:
        mean, x = state.mean + state.part * state.step[0], state.x + state.part * state.step[1]
        v = v0 * jnp.exp(x)
        q = moments(mean, v)
        loss = 0.5 * precision * ((mean - c) ** 2 + v)
        gain = q.value - loss + 0.5 * x
        noise = 16.0 * float(jnp.finfo(v.dtype).eps) * (jnp.abs(q.value) + loss + 1.0)
        dm, dx = _direction(q, mean, v, c, precision)
        usable = functools.reduce(jnp.logical_and, map(jnp.isfinite, (gain, dm, dx)))
        taken = usable & (gain >= state.gain - noise) & ~state.done
        close = taken & (jnp.abs(dm) < _CLOSE * jnp.sqrt(v)) & (jnp.abs(dx) < _CLOSE)
        return _State(
            jnp.where(close, mean + dm, jnp.where(taken, mean, state.mean)),
            jnp.where(close, x + dx, jnp.where(taken, x, state.x)),
            jnp.where(taken, gain, state.gain),
            (jnp.where(taken, dm, state.step[0]), jnp.where(taken, dx, state.step[1])),
            jnp.where(taken, 1.0, _SHORTER * state.part),
            state.done | close | ~usable & (state.count == 0),
            state.count + 1,
        )

    zero = jnp.zeros(n, m0.dtype)
    start = _State(m0, zero, zero - jnp.inf, (zero, zero), zero, ~stiff, jnp.asarray(0))
    end = jax.lax.while_loop(more, body, start)
    # A row whose steps have lost, but for a tiny part, has hardly moved; that it is solved does not follow.
    moved = (jnp.abs(end.mean - m0) > _CLOSE * jnp.sqrt(v0)) | (jnp.abs(end.x) > _CLOSE)
    known = stiff & jnp.isfinite(end.gain) & (end.done | moved)
    change = jnp.expm1(-end.x) / v0  # of the precision
    return Gaussian((end.mean - m0) * (1.0 / v0 + change) + m0 * change, -0.5 * change), known
