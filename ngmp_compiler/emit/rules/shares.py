"""Shares of a factor in the free energy, at powers that may differ from interface to interface."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels import AbstractProjected, Quadrature, nodes
from ngmp_kernels.families import AbstractFamily

from .base import Families


def power_of(power: Any, factor: AbstractProjected, j: int) -> float:
    """The power toward interface j."""
    return dict(power).get(factor.interfaces[j], 1.0) if isinstance(power, tuple) else power


def unequal(j: int, marginals: Families, leaves: Families, found: Families, p: float) -> Float[Array, " n"]:
    r"""What makes the shares of interfaces with unequal powers comparable; with equal ones these terms add up to zero.

    With $D_i = (A(\lambda_i) - A(c_i)) / p$ of the cavities at the power p of interface j, the message $\ell_j$ holds
    $\sum_{i \ne j} D_i$ and the local evidence $\sum_i D_i$ of what is in the family. Each is taken off where it
    stands, so that a factor which is all in the family has no share, whatever its powers. $D_i$ is computed as
    $\eta_i \cdot \mu_i - KL[q_i \| q_{c_i}] / p$, without a difference of large numbers.
    """
    d, total = len(marginals), jnp.zeros((), marginals[0].dtype)
    for i, (q, leaf, cavity) in enumerate(zip(marginals, leaves, found, strict=True)):
        gap = leaf.dot(q.to_mean()) - q.kl(cavity) / p
        total += ((d - 1) / d - (i != j)) * gap
    return total


def nodes_expectation(q: AbstractFamily, message: Any) -> Float[Array, " n"]:
    """`E_q[message]`."""
    z, log_weights = nodes(Quadrature(), q)
    return jnp.sum(jnp.exp(log_weights) * message(z), axis=0)


def local_evidence(factor: AbstractProjected, found: Families, power: float) -> Float[Array, " n"]:
    """`(1/p) log ∫ f^p Π q_c`; the last integral over the last interface, where noise factors are smoothest."""
    if power == 1 and len(found) > 1:
        return factor.log_evidence(found, Quadrature())
    j = len(found) - 1
    z, log_weights = nodes(Quadrature(), found[j])
    message = factor.fractional_message(j, found, power, Quadrature())
    return jax.nn.logsumexp(log_weights + power * message(z), axis=0) / power
