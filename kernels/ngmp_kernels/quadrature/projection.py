r"""The tangent projection: the natural gradient of an expected log-message, as a message in the receiving family.

For a log-message l and a marginal q the projected message is

$$ \eta^* = F^{-1} Cov_q[T, l] = \nabla_\mu E_q[l], $$

which is the weighted least-squares regression of l on (1, T) under q. Here the regression is done *at the nodes*, with
the discrete Fisher matrix, by the family of q: a message already in the family comes back exactly, whatever the
accuracy of the quadrature.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families import AbstractFamily
from .regression import LogMessage as LogMessage
from .regression import average
from .rules import AbstractQuadrature as AbstractQuadrature
from .rules import Delta as Delta
from .rules import GaussHermite as GaussHermite
from .rules import LogTrapezoid as LogTrapezoid
from .rules import Quadrature as Quadrature
from .rules import Unscented as Unscented


def nodes(quadrature: AbstractQuadrature, q: AbstractFamily) -> tuple[Array, Float[Array, "Q *b"]]:
    r"""Nodes and normalised log-weights with $E_q[g] \approx \sum_i e^{\log w_i} g(z_i)$.

    Args:
        quadrature: see the table of `rules`.
        q: a proper instance of a scalar family, or a short vector, with batch axes `*b`.

    Returns:
        `z` and `log_weights`, both `(Q, *b)`; vectors have one more axis. Classes of a Categorical are integers.
    """
    return q.nodes(quadrature)


def tangent_projection(
    q: AbstractFamily, log_message: LogMessage, quadrature: AbstractQuadrature, *, centred: bool = False
) -> AbstractFamily:
    r"""$\eta^* = F^{-1} Cov_q[T, l] = \nabla_\mu E_q[l]$.

    Args:
        q: the receiving marginal, batch axes `*b`.
        log_message: l, elementwise, `(Q, *b) -> (Q, *b)`; its additive constant is irrelevant.
        quadrature: `Quadrature()` and its parts regress at the nodes; `Unscented()` on Gamma edges uses the exact
            Fisher matrix, as the paper does, and is biased on conjugate messages; `Delta()` takes two derivatives at
            the mean.
        centred: whether l is zero at the mean of q, so that its values keep their digits without one being subtracted.

    Returns:
        A message in the family of q, batch axes `*b`.
    """
    known = q.shortcut(quadrature, log_message)
    if known is not None:
        return known
    z, log_weights = nodes(quadrature, q)
    return q.regress(z, jnp.exp(log_weights), log_message(z), centred)


def expectation(q: AbstractFamily, g: LogMessage, quadrature: AbstractQuadrature) -> Float[Array, "*b"]:
    r"""$E_q[g]$ by the nodes of a quadrature.

    `Delta()` integrates the family member that osculates g at the mean: $g(m) + \eta^* \cdot (E_q[T] - T(m))$, on a
    Gaussian edge $g(m) + \frac12 V g''(m)$.
    """
    eta = q.shortcut(quadrature, g) if isinstance(quadrature, Delta) else None
    if eta is not None:
        at_mean = q.statistics(q.mean)
        excess = tuple(mu - t for mu, t in zip(q.to_mean(), at_mean, strict=True))
        return g(q.mean[None])[0] + eta.dot(excess)
    z, log_weights = nodes(quadrature, q)
    return average(jnp.exp(log_weights), g(z))
