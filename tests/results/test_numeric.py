"""Quantiles of an integrated number, from its density at few nodes, against the distribution itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

from ngmp_compiler.results.numeric import Numeric

CASES = [(stats.gamma(2.0), -9.0, 3.2), (stats.halfnorm(scale=0.3), -11.0, 0.6)]


@pytest.mark.parametrize(("exact", "low", "high"), CASES)
def test_wide_nodes(exact, low, high):
    """A scale whose logarithm has a long tail: the nodes are wide, half a standard deviation of it or so."""
    u = np.linspace(low, high, 41)
    x = np.exp(u)
    log = exact.logpdf(x) + u
    mass = np.exp(log - np.logaddexp.reduce(log))
    ends = jnp.zeros(()), jnp.ones(())
    arrays = (jnp.asarray(a) for a in (mass, x, u, log))
    found = Numeric(*arrays, ends, "positive", (1, 41))
    p = np.array([0.05, 0.3, 0.5, 0.95])
    np.testing.assert_allclose(found.quantile(p), exact.ppf(p), atol=0.01 * exact.std())


@pytest.mark.parametrize("exact", [stats.halfnorm(), stats.gamma(0.7), stats.lognorm(0.5)])
def test_weighted_points(exact):
    """Points of low discrepancy from a Student t of the logarithm, weighed by importance; long tails towards zero."""
    proposal = stats.t(5, scale=1.3)
    u = proposal.ppf(qmc.Sobol(1, rng=0).random(2048)[:, 0])
    log = exact.logpdf(np.exp(u)) + u - proposal.logpdf(u)
    mass = np.exp(log - np.logaddexp.reduce(log))
    arrays = (jnp.asarray(a) for a in (mass, np.exp(u), u, log))
    found = Numeric(*arrays, (jnp.zeros(()), jnp.ones(())), "positive", (2048,))
    p = np.array([0.01, 0.05, 0.3, 0.5, 0.95, 0.99])
    np.testing.assert_allclose(found.quantile(p), exact.ppf(p), atol=0.02 * exact.std())
    np.testing.assert_allclose(found.cdf(exact.ppf(p)), p, atol=0.01)
    np.testing.assert_allclose(found.density(exact.ppf(p)), exact.pdf(exact.ppf(p)), rtol=0.1)
