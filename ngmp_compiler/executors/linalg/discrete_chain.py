"""Marginals of a discrete chain by the forward-backward recursion in the log domain.

The probability is $p(x) \\propto \\exp\\{\\sum_k u_k(x_k) + \\sum_k l_k(x_k, x_{k+1})\\}$, with tables that may hold
$-\\infty$ (forbidden states and transitions).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class DiscreteMarginals(NamedTuple):
    """Marginals of a discrete chain and its log-normaliser."""

    probs: Float[Array, "T K"]
    log_probs: Float[Array, "T K"]
    log_partition: Float[Array, ""]
    pair: Float[Array, "T-1 K K"]  # log p(x_k, x_{k+1}); row = x_k, column = x_{k+1}


def discrete_chain(unary: Float[Array, "T K"], link: Float[Array, "steps K K"]) -> DiscreteMarginals:
    """Marginals, pair marginals and log-normaliser of the chain (see the module docstring).

    Args:
        unary: log-potentials $u_k$.
        link: log-potentials $l_k$, row = $x_k$, column = $x_{k+1}$; T-1 leading entries, or one shared by all steps.

    Returns:
        The marginals. `pair` costs nothing when unused under `jit`. If no path is possible, `log_partition` is
        $-\\infty$ and every probability is zero.
    """
    length, states = unary.shape
    link = jnp.broadcast_to(link, (length - 1, states, states))

    def forward(alpha, step):
        unary, link = step
        joint, scale = _normalise(alpha + unary, 0)
        return _log_sum_exp(joint[:, None] + link, 0), (joint, scale)

    def backward(beta, step):
        unary, link = step
        joint, _ = _normalise(beta + unary, 0)
        return _log_sum_exp(link + joint, 1), joint

    zero = jnp.zeros_like(unary[0])
    alpha, (filtered, scales) = jax.lax.scan(forward, zero, (unary[:-1], link))
    beta, smoothed = jax.lax.scan(backward, zero, (unary[1:], link), reverse=True)
    last, scale = _normalise(alpha + unary[-1], 0)
    pair = filtered[:, :, None] + link + smoothed[:, None, :]
    pair, _ = _normalise(pair, (1, 2))
    first, _ = _normalise(unary[0] + beta, 0)
    log_probs = jnp.concatenate([first[None], _log_sum_exp(pair, 1)])
    return DiscreteMarginals(jnp.exp(log_probs), log_probs, jnp.sum(scales) + scale, pair)


def _log_sum_exp(value, axis):
    """Log-sum-exp whose value and gradient stay free of NaN when every entry is $-\\infty$."""
    top = jax.lax.stop_gradient(jnp.max(value, axis, keepdims=True))
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    total = jnp.sum(jnp.exp(value - top), axis)
    positive = total > 0
    log_total = jnp.log(jnp.where(positive, total, 1.0))
    return jnp.where(positive, log_total + jnp.squeeze(top, axis), -jnp.inf)


def _normalise(value, axis):
    """Subtract the log-sum-exp over `axis`; an impossible table ($-\\infty$ throughout) stays as it is."""
    total = _log_sum_exp(value, axis)
    return value - jnp.expand_dims(jnp.where(jnp.isfinite(total), total, 0.0), axis), total
