"""Edges of `k z - c e^z` solved with the cavity held fixed, against scipy; and counts of zero under vague priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp
from ngmp_kernels.factors.normal import NormalLogPrecision
from ngmp_kernels.factors.poisson import PoissonLog
from ngmp_kernels.families import Gaussian


def reference(k, c, mean, variance):
    """Mean and variance of q: `log rho = log c + m + v/2` with `v = 1/(1/V + rho)` and `m = m_c + V (k - rho)`."""

    def gap(log_rho):
        rho = np.exp(log_rho)
        return log_rho - np.log(c) - mean - variance * (k - rho) - 0.5 / (1 / variance + rho)

    log_rho = brentq(gap, -60.0, 25.0, xtol=1e-14, rtol=1e-14)
    v = 1 / (1 / variance + np.exp(log_rho))
    return log_rho - np.log(c) - 0.5 * v, v


CASES = [
    (0.0, 1.0, 1.0, 1e6), (0.0, 1.0, -3.0, 1e-3), (3.0, 1.0, 8.0, 100.0), (1e8, 1.0, 0.0, 1e4),
    (0.5, 2e-6, 4.0, 50.0), (0.5, 1e6, 0.0, 1e4), (12.0, 1.0, -20.0, 2.0),
]  # fmt: skip


@pytest.mark.core32
@pytest.mark.parametrize("k, c, mean, variance", CASES)
def test_a_settled_edge_is_the_solution(k, c, mean, variance, x64):
    one = jnp.ones(1)
    factor = PoissonLog(k * one) if c == 1 else NormalLogPrecision(np.sqrt(2 * c) * one, 0 * one)
    cavity = Gaussian.from_mean_variance(mean * one, variance * one)
    q = cavity
    for _ in range(12):
        q = cavity + factor.settle(q, cavity, q - cavity, None)
    m, v = reference(k, c, mean, variance)
    np.testing.assert_allclose(q.mean, m, atol=(1e-7 if x64 else 0.05) * np.sqrt(v), rtol=0 if x64 else 1e-6)
    np.testing.assert_allclose(q.variance, v, rtol=1e-9 if x64 else 2e-4)
    eta = factor.project(0, q, (cavity,), None)  # and a fixed point of the projection
    np.testing.assert_allclose((cavity + eta).variance, v, rtol=1e-5 if x64 else 2e-2)


def test_counts_under_vague_priors_converge_to_the_solution():
    """One projection a sweep oscillates: the slope of the map is about -v/2."""

    def model(y, m, v):
        ngmp.sample("y", Poisson(exp(ngmp.sample("f", Normal(m, variance=v)))), obs=y)

    program, variances = ngmp.compile(model), 10.0 ** np.arange(0, 7)
    post = jax.vmap(lambda v: program(y=jnp.asarray(0.0), m=1.0, v=v))(variances)
    assert post.converged.all() and int(post.sweeps.max()) <= 25
    m, v = np.transpose([reference(0.0, 1.0, 1.0, x) for x in variances])
    tol = 1e-6 if jax.config.jax_enable_x64 else 1e-3
    np.testing.assert_allclose(post["f"].mean, m, rtol=tol, atol=tol)
    np.testing.assert_allclose(post["f"].variance, v, rtol=10 * tol)


@pytest.mark.core32
def test_a_residual_of_zero_has_no_wall(x64):
    """`l(s) = s/2` is in the family: under N(0, 10^4) twenty of them move the mean to 10^5, and nothing stops it."""

    def model(y):
        ngmp.sample("y", Normal(0.0, precision=exp(ngmp.sample("s", Normal(0.0, variance=1e4)))), obs=y)

    post = ngmp.compile(model)(y=jnp.zeros(20))
    assert post.converged
    np.testing.assert_allclose(post["s"].mean, 1e5, rtol=1e-9 if x64 else 1e-5)
    np.testing.assert_allclose(post["s"].variance, 1e4, rtol=1e-9 if x64 else 1e-5)
