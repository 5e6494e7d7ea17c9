"""Models, brute force and ways to run, for the tests of message rules.

References never call our quadratures or projections. Everything is compiled at the lowest optimisation level: most of
the time would be compilation.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special as sp
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, exp
from ngmp_kernels import (
    AbstractProjected,
    Quadrature,
)
from ngmp_kernels.factors.generic import GenericFactor
from ngmp_kernels.factors.noise_log_precision import NoiseLogPrecision
from ngmp_kernels.factors.normal_noise import NoisePrecision
from ngmp_kernels.families import Gaussian
from tests.inside import registered_factors
from tests.kernels.factors.cases import ORACLE
from tests.kernels.factors.cases import __name__ as case_module

FAST = {"xla_backend_optimization_level": 0}
RULE = Quadrature()
NOISE = [NoisePrecision, NoiseLogPrecision]
# Kernels of their own. Likelihoods that share the quadratures of these have their cases in other files, whatever was
# imported before, and are compared with brute force in tests/kernels/factors/test_oracle.py.
OWN = {c for c, make in ORACLE.items() if make.__module__ == case_module}
PROJECTED = dict.fromkeys([c for c in registered_factors() if issubclass(c, AbstractProjected) and c in OWN])
PROJECTED[GenericFactor] = None
Y = np.array([1.3, -0.2, 0.9, 2.1, 0.4])


def run(function, *arguments):
    """Trace and compile as a whole, hardly optimised, and run once."""
    return jax.jit(function, compiler_options=FAST)(*arguments)


def solve(model, method=None, tol=1e-12, **given):
    """The posterior of a model at inputs `given`; options of `compile` are taken out of them."""
    names = ("rules", "factorise", "schedule", "solver", "max_sweeps")
    options = {k: given.pop(k) for k in names if k in given}
    program = ngmp.compile(model, method=method, tol=tol, **{"max_sweeps": 2000, **options})
    post = run(lambda inputs: program(**inputs), given)
    assert jnp.all(post.converged), (method, post.residual, post.sweeps)
    return post


def close(actual, expected, tol=1e-10):
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def close_families(actual, expected, tol=1e-10):
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        close(a, b, tol)


@functools.cache
def case(cls):
    return ORACLE[cls](jax.random.key(5), jnp.float64)


# -- models -----------------------------------------------------------------------------------------------------------


def mean_precision(y, v=25.0):
    x = ngmp.sample("x", Normal(0.0, variance=v))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def one_count(y, v):
    z = ngmp.sample("z", Normal(0.3, variance=v))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


# -- brute force ------------------------------------------------------------------------------------------------------


def grid(q, points=1201):
    """Nodes (G, n) and log(q x spacing) by scipy alone."""
    u = np.linspace(-1.0, 1.0, points)[:, None]
    if isinstance(q, Gaussian):
        m, s = np.asarray(q.mean), np.asarray(q.std)
        z = m + 13.0 * s * u
        return z, st.norm(m, s).logpdf(z) + np.log(13.0 * s * (u[1] - u[0]))
    a, b = np.asarray(q.concentration), np.asarray(q.rate)
    low, high = sp.digamma(a) - np.log(b) - 45.0 / a, np.log((a + 60.0 + 12.0 * np.sqrt(a)) / b)
    s = 0.5 * (low + high) + 0.5 * (high - low) * u
    return np.exp(s), st.gamma(a, scale=1 / b).logpdf(np.exp(s)) + s + np.log(0.5 * (high - low) * (u[1] - u[0]))


UNARY = [c for c in PROJECTED if len(case(c).marginals) == 1]


def expected(factor, mu):
    """`E_q[log f]` as a function of the mean parameters of a Gaussian q, on a grid."""
    mean, variance = mu[0], mu[1] - mu[0] ** 2
    u = jnp.linspace(-13.0, 13.0, 3001)[:, None]
    w = jnp.exp(-0.5 * u**2) * (u[1] - u[0]) / jnp.sqrt(2 * jnp.pi)
    return jnp.sum(w * factor.log_density(mean + jnp.sqrt(variance) * u), 0)


def normal_gamma(y, v=25.0):
    """Coordinate updates of the Gaussian-Gamma model and its evidence lower bound, in closed form."""
    n, mean, variance = len(y), 0.0, 1.0
    a = 2.0 + 0.5 * n
    for _ in range(500):
        b = 1.0 + 0.5 * np.sum((y - mean) ** 2 + variance)
        variance = 1 / (1 / v + n * a / b)
        mean = variance * a / b * np.sum(y)
    b = 1.0 + 0.5 * np.sum((y - mean) ** 2 + variance)
    log_tau = sp.digamma(a) - np.log(b)
    elbo = 0.5 * n * (log_tau - np.log(2 * np.pi)) - 0.5 * a / b * np.sum((y - mean) ** 2 + variance)
    elbo += -0.5 * np.log(2 * np.pi * v) - 0.5 * (mean**2 + variance) / v + 0.5 * np.log(2 * np.pi * np.e * variance)
    elbo += 2.0 * np.log(1.0) - sp.gammaln(2.0) + (2.0 - 1) * log_tau - a / b  # E log Gamma(tau; 2, 1)
    elbo += a - np.log(b) + sp.gammaln(a) + (1 - a) * sp.digamma(a)
    return mean, variance, a, b, elbo
