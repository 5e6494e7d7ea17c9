"""Free energies where rows of a regression are known far better than others: the same in weight and function space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, StudentT, dot
from ngmp_kernels.families import Gaussian

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="needs float64")


def test_free_energies_do_not_depend_on_the_space_or_on_how_features_are_turned():
    """Thirty rows of precisions 1 to 1e8, of thirty features as large as 30.

    The mean of the weights was found from a difference of numbers as large as these, and the free energy, a sum of
    squared residuals there, lost tens to thousands of nats: those of hierarchies of precisions could not be compared.
    """
    n, rng = 30, np.random.default_rng(0)
    x = 30 * rng.standard_normal((n, n)) / (1 + np.arange(n)) ** 2
    y, precision = x @ rng.standard_normal(n), 10.0 ** rng.uniform(0, 8, n)
    turn = np.linalg.qr(rng.standard_normal((n, n)))[0]

    def model(x, y, m):
        w = ngmp.sample("w", MvNormal(m, covariance=1.0))
        ngmp.sample("y", StudentT(4.0, dot(x, w), scale=1.0), obs=y)

    def found(x, m, space):
        program = ngmp.compile(model, executors={"w": space})
        core = program.specialise(x=x, y=y, m=m).solver.map.core
        (key,) = core.keys[1:]  # of r = y - x w
        leaves = {key: Gaussian.from_information(jnp.zeros(n), jnp.asarray(precision))}
        return jax.jit(lambda leaves: core.run(leaves).log_partition)(leaves)

    # Of y under N(x m, x x' + 1/precision), less the normalisers of the leaves and their exponents at the marginals.
    covariance = x @ x.T + np.diag(1 / precision)
    inverse = np.linalg.inv(covariance)
    log_density = -0.5 * (y @ inverse @ y + np.linalg.slogdet(2 * np.pi * covariance)[1])
    mean, variance = inverse @ y / precision, 1 / precision - np.diag(inverse) / precision**2
    exact = log_density - 0.5 * np.sum(np.log(precision / (2 * np.pi)) - precision * (mean**2 + variance))
    zero = np.zeros(n)
    for space in ("weight", "function"):
        for features in (x, x @ turn):
            np.testing.assert_allclose(found(features, zero, space), exact, atol=1e-4)
