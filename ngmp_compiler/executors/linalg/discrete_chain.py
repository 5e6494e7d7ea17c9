"""Marginals of a discrete chain by the forward-backward recursion.

The probability is $p(x) \\propto \\exp\\{\\sum_k u_k(x_k) + \\sum_k l_k(x_k, x_{k+1})\\}$, with tables that may hold
$-\\infty$ (forbidden states and transitions).

The recursion stays in the log domain. Scaled probabilities are a few times faster (K = 5: 4), but a state whose weight
underflows is lost for good, and may be the only one that a later forbidden transition leaves possible.
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

    With the messages $\\alpha_0 = \\beta_{T-1} = 0$ and
    $$ \\alpha_{k+1}(j) = \\log\\sum_i e^{\\alpha_k(i) + u_k(i) + l_k(i,j)}, \\qquad
       \\beta_k(i) = \\log\\sum_j e^{l_k(i,j) + u_{k+1}(j) + \\beta_{k+1}(j)}, $$
    $\\log p(x_k) = \\alpha_k + u_k + \\beta_k - \\log Z$. Each step subtracts the largest entry, so that the messages
    of a long chain keep their digits.

    Args:
        unary: log-potentials $u_k$.
        link: log-potentials $l_k$, row = $x_k$, column = $x_{k+1}$; T-1 leading entries, or one shared by all steps.

    Returns:
        The marginals; `pair` costs nothing under `jit` when it is not used. If no path is possible, `log_partition` is
        $-\\infty$ and every probability is zero.
    """
    length, states = unary.shape
    link = jnp.broadcast_to(link, (length - 1, states, states))

    def forward(alpha, step):
        unary, link = step
        joint, scale = _shift(alpha + unary)
        return _log_sum_exp(joint[:, None] + link, 0), (joint, scale)

    def backward(beta, step):
        unary, link = step
        joint, _ = _shift(beta + unary)
        beta = _log_sum_exp(link + joint, 1)
        return beta, (beta, joint)

    zero = jnp.zeros_like(unary[0])
    alpha, (past, scales) = jax.lax.scan(forward, zero, (unary[:-1], link))
    _, (beta, future) = jax.lax.scan(backward, zero, (unary[1:], link), reverse=True)
    last = alpha + unary[-1]
    log_probs = _normalise(jnp.concatenate([past + beta, last[None]]), 1)
    pair = _normalise(past[:, :, None] + link + future[:, None, :], (1, 2))
    return DiscreteMarginals(jnp.exp(log_probs), log_probs, jnp.sum(scales) + _log_sum_exp(last, 0), pair)


def _shift(message):
    """Subtract the largest entry and return it; an impossible message ($-\\infty$ throughout) stays as it is."""
    top = _finite(jax.lax.stop_gradient(jnp.max(message)))
    return message - top, top


def _log_sum_exp(value, axis):
    """Log-sum-exp whose value and gradient stay free of NaN when every entry is $-\\infty$."""
    top = jax.lax.stop_gradient(jnp.max(value, axis, keepdims=True))
    total = jnp.sum(jnp.exp(value - _finite(top)), axis)
    # The largest term is one, so that the floor acts only on impossible tables: there log(1/2) - inf = -inf.
    return jnp.log(jnp.maximum(total, 0.5)) + jnp.squeeze(top, axis)


def _normalise(value, axis):
    return value - _finite(jnp.expand_dims(_log_sum_exp(value, axis), axis))


def _finite(value):
    return jnp.where(value > -jnp.inf, value, 0.0)
