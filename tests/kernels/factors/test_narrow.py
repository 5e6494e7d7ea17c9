"""Projections on Gaussians so narrow that differences of log-densities are rounding: derivatives at the mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_kernels import AbstractProjected, Quadrature
from ngmp_kernels.families import Gaussian
from tests.kernels.factors.grids import call, case
from tests.kernels.factors.references import FACTORS

CASES = [
    (c, j) for c in FACTORS if issubclass(c, AbstractProjected)
    for j, q in enumerate(case(c).marginals) if isinstance(q, Gaussian) and case(c).factor.has_projection()
]  # fmt: skip


@pytest.mark.parametrize(("cls", "j"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_the_limit_of_no_width(cls, j):
    """`E[l'] = l'(m)`, `E[l''] = l''(m)`, by Bonnet and Price, at variances of 1e-12 and 1e-30."""
    factor, cavities, marginals = case(cls)
    m = marginals[j].mean

    def both(m):
        def first(x):
            return jax.jvp(factor.log_message(j, cavities), (x,), (jnp.ones_like(x),))[1]

        d1, d2 = jax.jvp(first, (m[None],), (jnp.ones_like(m[None]),))
        found = []
        for variance in (1e-12, 1e-30):
            q = Gaussian.from_mean_variance(m, jnp.full_like(m, variance))
            eta = factor.project(j, q, cavities, Quadrature())
            found.append((eta.eta1 + 2 * m * eta.eta2, 2 * eta.eta2))
        return d1[0], d2[0], found

    d1, d2, found = call(both, m)
    for (first, second), tol in zip(found, (1e-2, 1e-6), strict=True):
        np.testing.assert_allclose(first, d1, rtol=tol, atol=tol)
        np.testing.assert_allclose(second, d2, rtol=tol, atol=tol)
