r"""Posterior of n jointly Gaussian functionals under one potential on each, in n x n matrices.

With $g \sim N(0, K)$ and the potentials $\exp\{e_n g_n - \tfrac12 \lambda_n g_n^2\}$ of any sign,
$$ C = (K^{-1} + \Lambda)^{-1}, \qquad m = C e, \qquad
   \log E[\cdot] = \tfrac12 e^T m - \tfrac12 \log\det(I + K \Lambda), $$
and K may be singular. The positive precisions $\Lambda_+ = S^2$ go in by $B = I + S K S = L L^T$, the negative ones, if
there are any, by $I - S_- C_+ S_-$, which is positive definite if and only if the posterior is proper.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ngmp_kernels.numerics.cholesky import cholesky, log_det, unwhiten, whiten
from ngmp_kernels.numerics.lanes import if_any

from .factor import factor


class FunctionMoments(NamedTuple):
    """Mean and variance of the functionals, the log-expectation, and that at e = 0; NaN where it is improper.

    And `pull`, $e - \\lambda m$, by which the potentials have moved what g is made of.
    """

    mean: Float[Array, "*b n"]
    variance: Float[Array, "*b n"]
    log_expectation: Float[Array, "*b"]
    jitter: Float[Array, "*b"]
    log_volume: Float[Array, "*b"]
    pull: Float[Array, "*b n"]


class _Positive(NamedTuple):
    """The posterior under the positive precisions: S, L and `W = L^-1 S K`, so that `C_+ = K - W^T W`."""

    scale: Array
    chol: Array
    white: Array
    jitter: Array


def _positive(prior, precision) -> _Positive:
    s = jnp.sqrt(jnp.maximum(precision, 0))
    half = s[..., None] * prior
    chol, jitter = factor(jnp.eye(s.shape[-1], dtype=s.dtype) + half * s[..., None, :])
    return _Positive(s, chol, whiten(chol, half), jitter)


def _matvec(matrix, vector):
    return (matrix @ vector[..., None])[..., 0]


def _transposed(matrix):
    return jnp.swapaxes(matrix, -1, -2)


def _remove(prior, precision, white):
    """`L_-` and `Q = L_-^-1 S_- C_+`: taking the negative precisions back out adds `Q^T Q` to C_+."""
    s = jnp.sqrt(jnp.maximum(-precision, 0))
    half = s[..., None] * (prior - _transposed(white) @ white)
    inner = jnp.eye(s.shape[-1], dtype=s.dtype) - half * s[..., None, :]
    chol = cholesky(inner)  # no jitter here: it fails where the posterior is improper
    return s, chol, whiten(chol, half)


def _without(mean, variance, prior, precision, white):
    """Mean and variance with the negative precisions taken out, and half of the log-determinant of that."""
    s, chol, gain = _remove(prior, precision, white)
    pull = whiten(chol, (s * mean)[..., None])[..., 0]
    extra = jnp.sum(gain * pull[..., None], -2), jnp.sum(gain**2, -2)
    return mean + extra[0], variance + extra[1], 0.5 * log_det(chol)


def _as_it_is(mean, variance, *_):
    return mean, variance, jnp.zeros_like(mean[..., 0])


@jax.custom_jvp
def function_space(
    prior: Float[Array, "*b n n"], precision: Float[Array, "*b n"], linear: Float[Array, "*b n"]
) -> FunctionMoments:
    """Moments under the potentials; see the module docstring.

    Args:
        prior: K, positive semi-definite.
        precision: lambda, of any sign.
        linear: e.
    """
    s, chol, white, jitter = _positive(prior, precision)
    pull = _pull(prior, s, chol, linear)
    mean, safe = _matvec(prior, pull), jnp.where(s > 0, s, 1)
    # C_nn is K_nn - |W_n|^2, which cancels for large lambda K, and (1 - (B^-1)_nn) / lambda, which does for small.
    own = jnp.diagonal(prior, axis1=-2, axis2=-1)
    root = _transposed(chol) - white * s[..., None, :]  # L^-1
    large = s**2 * own > 1
    shrunk = (1 - jnp.sum(root**2, -2)) / safe**2
    variance = jnp.where(large, shrunk, own - jnp.sum(white**2, -2))

    negative = precision < 0
    mean, variance, removed = if_any(negative, _without, _as_it_is, mean, variance, prior, precision, white)
    # The mean is that under the positive precisions alone and what the negative ones pull by.
    moved = linear - jnp.minimum(precision, 0) * mean
    pull = if_any(negative, _pull, lambda *_: pull, prior, s, chol, moved)
    log_volume = -0.5 * log_det(chol) - removed
    return FunctionMoments(mean, variance, 0.5 * jnp.sum(linear * mean, -1) + log_volume, jitter, log_volume, pull)


def _pull(prior, s, chol, linear):
    """`alpha = S B^-1 S^-1 e` where S > 0, and C e = K alpha: nothing is subtracted, however large lambda K is."""
    seen = s > 0
    free = jnp.where(seen, 0, linear)
    right = jnp.where(seen, linear / jnp.where(seen, s, 1), 0) - s * _matvec(prior, free)
    return free + s * unwhiten(chol, whiten(chol, right[..., None]))[..., 0]


def _taken_out(prior, precision, white):
    gain = _remove(prior, precision, white)[2]
    return _transposed(gain) @ gain


@jax.custom_jvp
def _covariance(prior, precision):
    """All of C; only derivatives need it."""
    white = _positive(prior, precision).white

    extra = if_any(precision < 0, _taken_out, lambda prior, *_: jnp.zeros_like(prior), prior, precision, white)
    return prior - _transposed(white) @ white + extra


@_covariance.defjvp
def _covariance_jvp(primals, tangents):
    """`dC = G dK G^T - C dLambda C` with `G = I - C Lambda`: smooth where lambda changes sign, unlike its root."""
    (prior, precision), (d_prior, d_precision) = primals, tangents
    c = _covariance(prior, precision)
    gain = jnp.eye(c.shape[-1], dtype=c.dtype) - c * precision[..., None, :]
    return c, gain @ d_prior @ _transposed(gain) - (c * d_precision[..., None, :]) @ c


def _function_space_jvp(primals, tangents):
    prior, precision, linear = primals
    out = function_space(*primals)
    mean, variance = out.mean, out.variance
    c = _covariance(prior, precision)
    zero = jnp.zeros_like(mean)
    d_precision, d_linear = (zero if isinstance(t, SymbolicZero) else t for t in tangents[1:])
    d_mean = _matvec(c, d_linear - d_precision * mean)
    d_variance = -_matvec(c**2, d_precision)
    d_value = jnp.sum(mean * d_linear - 0.5 * mean**2 * d_precision, -1)
    d_volume = -0.5 * jnp.sum(variance * d_precision, -1)
    moved = tangents[0]
    if not isinstance(moved, SymbolicZero):  # the leaves move without K: n^3 saved
        moved = 0.5 * (moved + _transposed(moved))
        gain = jnp.eye(c.shape[-1], dtype=c.dtype) - c * precision[..., None, :]
        alpha = out.pull
        half = gain @ moved
        d_mean += _matvec(half, alpha)
        d_variance += jnp.sum(half * gain, -1)
        d_value += 0.5 * jnp.sum(alpha * _matvec(moved, alpha), -1)
        # tr(Lambda (I - C Lambda) dK), since Lambda - Lambda C Lambda = (K + Lambda^-1)^-1
        d_volume -= 0.5 * jnp.sum(precision * jnp.diagonal(half, axis1=-2, axis2=-1), -1)
    d_pull = d_linear - d_precision * mean - precision * d_mean
    return out, FunctionMoments(d_mean, d_variance, d_value + d_volume, jnp.zeros_like(out.jitter), d_volume, d_pull)


function_space.defjvp(_function_space_jvp, symbolic_zeros=True)
