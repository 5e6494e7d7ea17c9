r"""Quadrature rules: how expectations under one edge marginal are computed. Families place the nodes.

A rule speaks only for the families it names; on any other family the default `Quadrature()` acts, so that a single
rule can be passed for a whole graph:

    rule             Gaussian               Gamma                       Beta
    GaussHermite     n Hermite nodes        (default)                   (default)
    LogTrapezoid     (default)              n nodes in log tau          n nodes in logit p
    Unscented        3 sigma points         3 asymmetric sigma points   (default)
    Delta            the mean               the mean                    the mean

InverseGamma edges use the nodes of the Gamma edge of the reciprocal, with `LogTrapezoid` or the default. Bernoulli and
Categorical edges are always enumerated. On MvGaussian edges of up to `MOST_DIMENSIONS` entries nodes are products of
Gauss-Hermite rules, of n nodes an axis, of three with `Unscented`; by default of fewer the longer they are, and of five
and six entries a symmetric rule that is exact to degree seven, of 135 and 232 nodes.
"""

import equinox as eqx


class AbstractQuadrature(eqx.Module):
    """How expectations under an edge marginal, and the projections built on them, are computed."""


class GaussHermite(AbstractQuadrature):
    """Gauss-Hermite quadrature with `n` nodes on Gaussian edges: exact for polynomials of degree 2n - 1."""

    n: int = eqx.field(static=True, default=32)


class LogTrapezoid(AbstractQuadrature):
    """Trapezoidal rule with `n` nodes in log tau (Gamma edges) or logit p (Beta edges), tails stretched.

    129 nodes reach about 1e-13 for Gamma shapes from 0.3 up and for Beta parameters from 1 up (float64). Beta messages
    are functions of p, which cannot come closer to 1 than the rounding unit: Beta(a, b) with b = 0.3 has 1e-5 of its
    mass there, and no rule in p does better than that.
    """

    n: int = eqx.field(static=True, default=129)


class Unscented(AbstractQuadrature):
    """The paper's three-point sigma rule.

    Gaussian edges: m and m ± sqrt(3 V), which is 3-point Gauss-Hermite. Gamma edges: three asymmetric points in
    log tau that match four moments of the log-Gamma density; the projection there pairs *discrete* covariances with the
    *exact* Fisher matrix and is therefore biased even on conjugate messages: at Gamma(258, 258) the message
    (log tau - tau) / 2 comes back with 0.50097 instead of 0.5. Use it to reproduce the paper, not for accuracy.
    """


class Delta(AbstractQuadrature):
    """The delta method: the message is replaced by the family member with the same two derivatives at the mean."""


class Quadrature(AbstractQuadrature):
    """The default: Gauss-Hermite on Gaussian edges, the trapezoidal rule on Gamma and Beta edges."""

    gaussian: int = eqx.field(static=True, default=32)
    gamma: int = eqx.field(static=True, default=129)
    beta: int = eqx.field(static=True, default=129)


def counts(quadrature: AbstractQuadrature) -> Quadrature:
    """The numbers of nodes where a rule does not speak for a family."""
    return quadrature if isinstance(quadrature, Quadrature) else Quadrature()
