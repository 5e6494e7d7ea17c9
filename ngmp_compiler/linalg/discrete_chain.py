"""Marginals of a discrete chain by the forward-backward recursion.

The probability is $p(x) \\propto \\exp\\{\\sum_k u_k(x_k) + \\sum_k l_k(x_k, x_{k+1})\\}$, with tables that may hold
$-\\infty$ (forbidden states and transitions).

Scaled probabilities are many times faster than logarithms, but a state whose weight underflows is lost for good, and
may be the only one that a later forbidden transition leaves possible. They are used where that cannot happen: if all
steps share one table whose entries are all within `_REACH` of each other, every state is reached from every other with
a weight that does not underflow, whatever the unary terms are. Otherwise the recursion stays in the log domain.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.numerics.lanes import if_any
from ngmp_kernels.numerics.logarithm import log

from ._small import multiply

SHORT = 32  # steps below which two recursions are not worth compiling
_REACH = 250.0  # in double precision, where weights underflow beyond 708


class DiscreteMarginals(NamedTuple):
    """Marginals of a discrete chain and its log-normaliser."""

    probs: Float[Array, "T K"]
    log_probs: Float[Array, "T K"]
    log_partition: Float[Array, ""]
    pair: Float[Array, "T-1 K K"] | None  # log p(x_k, x_{k+1}); row = x_k, column = x_{k+1}


def discrete_chain(
    unary: Float[Array, "T K"], tie: Float[Array, "steps K K"], *, pairs: bool = True
) -> DiscreteMarginals:
    """Marginals, pair marginals and log-normaliser of the chain (see the module docstring).

    With the messages $\\alpha_0 = \\beta_{T-1} = 0$ and
    $$ \\alpha_{k+1}(j) = \\log\\sum_i e^{\\alpha_k(i) + u_k(i) + l_k(i,j)}, \\qquad
       \\beta_k(i) = \\log\\sum_j e^{l_k(i,j) + u_{k+1}(j) + \\beta_{k+1}(j)}, $$
    $\\log p(x_k) = \\alpha_k + u_k + \\beta_k - \\log Z$. Each step subtracts the largest entry, so that the messages
    of a long chain keep their digits.

    Args:
        unary: log-potentials $u_k$.
        tie: log-potentials $l_k$, row = $x_k$, column = $x_{k+1}$; T-1 leading entries, or one shared by all steps.
        pairs: whether the marginals of neighbours are wanted.

    Returns:
        The marginals. If no path is possible, `log_partition` is $-\\infty$ and every probability is zero.
    """
    if tie.shape[0] > 1 or unary.shape[0] < SHORT:
        found = _in_logarithms(unary, tie)
    else:
        reach = _REACH * float(jnp.finfo(unary.dtype).maxexp) / 1024
        mild = jnp.max(tie) - jnp.min(tie) < reach  # False for infinite and NaN entries
        top = jnp.max(unary, 1, keepdims=True)
        mild &= jnp.all(top > -jnp.inf)  # otherwise no path is possible
        most = 4 if pairs else 2  # outputs of a condition cost, used or not
        found = if_any(
            ~mild, lambda *x: _in_logarithms(*x[:2])[:most], lambda *x: _in_probabilities(*x)[:most], unary, tie, top
        )
    log_probs, log_partition, *messages = found
    pair = None
    if pairs:
        past, beta = messages
        future = beta[1:] + unary[1:]
        pair = _normalise((past + unary)[:-1, :, None] + tie + future[:, None, :], (1, 2))
    return DiscreteMarginals(jnp.exp(log_probs), log_probs, log_partition, pair)


def _in_logarithms(unary, tie):
    """Log-marginals, log-normaliser, and the messages $\\alpha$ and $\\beta$ (T, K), each up to a constant."""
    own = () if tie.shape[0] == 1 else (tie,)  # a shared table is not repeated

    def forward(alpha, step):
        unary, *own = step
        joint, scale = _shift(alpha + unary)
        moved = _log_sum_exp(joint[:, None] + (own or tie)[0], 0)
        return moved, (moved, scale)

    def backward(beta, step):
        unary, *own = step
        joint, _ = _shift(beta + unary)
        beta = _log_sum_exp((own or tie)[0] + joint, 1)
        return beta, beta

    zero = jnp.zeros_like(unary[0])
    alpha, (past, scales) = jax.lax.scan(forward, zero, (unary[:-1], *own))
    _, beta = jax.lax.scan(backward, zero, (unary[1:], *own), reverse=True)
    past, beta = jnp.concatenate([zero[None], past]), jnp.concatenate([beta, zero[None]])
    log_partition = jnp.sum(scales) + _log_sum_exp(alpha + unary[-1], 0)
    return _normalise(past + unary + beta, 1), log_partition, past, beta


def _in_probabilities(unary, tie, top):
    """The same, given the largest entry of every row of `unary`. With $f_k = e^{u_k}$ and $A = e^{l}$,
    $$ \\alpha_{k+1} = A^T \\frac{\\alpha_k f_k}{c_k}, \\quad c_k = \\sum_i \\alpha_k f_k, \\qquad
       \\beta_{k-1} = A \\frac{f_k \\beta_k}{\\sum_j f_k \\beta_k}, \\qquad
       p(x_k) = \\frac{\\alpha_k f_k \\beta_k}{\\sum_i \\alpha_k f_k \\beta_k}. $$
    A message is a mean of entries of A, so that none leaves the reach of the table. Neither recursion needs the other:
    they run as two lanes of one loop, at little more than the cost of one.
    """
    peak = jnp.max(tie)
    likelihood, table = jnp.exp(unary - top), jnp.exp(tie[0] - peak)
    tables = jnp.stack([table, table.T])

    def step(messages, likelihoods):
        joint = messages * likelihoods
        moved = multiply(joint[:, None], tables)[:, 0] / jnp.sum(joint, 1, keepdims=True)
        return moved, messages

    start = jnp.ones_like(likelihood, shape=(2, unary.shape[1]))
    _, messages = jax.lax.scan(step, start, jnp.stack([likelihood, likelihood[::-1]], 1))
    past, beta = messages[:, 0], messages[::-1, 1]
    product = past * beta
    one = jnp.ones_like(table[0])  # products with it are several times faster than sums of short rows
    scale = jnp.matmul(product * likelihood, one, precision="highest")[:, None]
    # Not the logarithm of the product with the likelihood, which may be too small for a number.
    log_probs = log(product / scale) + (unary - top)
    norms = jnp.matmul(past * likelihood, one, precision="highest")
    log_partition = jnp.sum(log(norms)) + jnp.sum(top) + (unary.shape[0] - 1) * peak
    return log_probs, log_partition, log(past), log(beta)


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
