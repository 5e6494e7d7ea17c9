"""Function space: its moments and derivatives against dense numpy, and factors of nearly singular matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_compiler.linalg import factor, function_space
from tests.linalg.problems import close

# -- linear algebra -------------------------------------------------------------------------------------------------


def _functionals(n=6, d=8):
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, d))
    return a @ a.T, rng.uniform(0.1, 2.0, n), rng.normal(size=n)


NEGATIVE = {
    "none": [],
    "zero": [(0, 0.0), (1, 0.0)],
    "some": [(0, -0.02), (2, 0.0)],
    "small": [(i, -0.01) for i in range(6)],
}


def _by_inverse(k, lam, e):
    k = 0.5 * (k + k.T)
    c = jnp.linalg.inv(jnp.linalg.inv(k) + jnp.diag(lam))
    return c @ e, jnp.diag(c), 0.5 * e @ c @ e - 0.5 * jnp.linalg.slogdet(jnp.eye(len(e)) + k * lam)[1]


@pytest.mark.slow
@pytest.mark.parametrize("case", NEGATIVE)
def test_function_space_and_its_derivatives(case):
    k, lam, e = _functionals()
    for i, x in NEGATIVE[case]:
        lam[i] = x
    found = function_space(k, lam, e)
    for a, b in zip(found[:3], _by_inverse(k, lam, e), strict=True):
        close(a, b)
    assert found.jitter == 0

    def ours(k, lam, e):
        return function_space(0.5 * (k + k.T), lam, e)[:3]

    for mode in (jax.jacfwd, jax.jacrev):
        expected = jax.jacfwd(_by_inverse, (0, 1, 2))(k, lam, e)
        for a, b in zip(jax.tree.leaves(mode(ours, (0, 1, 2))(k, lam, e)), jax.tree.leaves(expected), strict=True):
            close(a, b)
    second = jax.jacfwd(jax.jacrev(lambda *x: ours(*x)[1], 1), 0)(k, lam, e)
    close(second, jax.jacfwd(jax.jacfwd(lambda *x: _by_inverse(*x)[1], 1), 0)(k, lam, e))


def test_function_space_keeps_its_digits_under_sharp_potentials():
    k, lam, _ = _functionals()
    lam = 1e12 * lam
    y = np.arange(6.0)
    found = function_space(k, lam, lam * y)
    # C = S^-1 (I + (S K S)^-1)^-1 S^-1 = 1/lambda - O(1/(lambda^2 K)): to twelve digits the noise alone.
    close(found.variance * lam, np.ones(6), 1e-10)
    close(found.mean, y, 1e-10)
    # e - lambda m, of numbers as large as 1e12, is K^-1 m.
    close(found.pull, np.linalg.solve(k, y), 1e-9)
    lam[:2] = -1e-3
    found = function_space(k, lam, lam * y)
    close(k @ found.pull, found.mean, 1e-9)
    close(found.pull[:2], (lam * (y - found.mean))[:2], 1e-9)


def test_function_space_of_a_singular_prior_and_an_improper_posterior():
    k = np.ones((3, 3))  # three times the same functional
    found = function_space(k, np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, -1.0]))
    close(found.variance, np.full(3, 1 / 7))
    close(found.mean, np.zeros(3))
    assert not np.isfinite(function_space(k, np.array([1.0, -2.0, -0.5]), np.zeros(3)).log_expectation)


def test_factor_raises_the_diagonal_only_where_rounding_calls_for_it():
    chol, jitter = factor(jnp.eye(3) * 2.0)
    assert jitter == 0
    close(chol, np.sqrt(2.0) * np.eye(3))
    singular = np.ones((3, 3)) * np.array([1e6, 1.0, 1e-6]) * np.array([1e6, 1.0, 1e-6])[:, None]
    chol, jitter = factor(singular)
    assert 0 < jitter < 1e-13
    np.testing.assert_allclose(chol @ chol.T, singular, rtol=1e-12)
    for improper in (np.diag([1e6, -1e-6]), np.array([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]]), np.zeros((2, 2))):
        chol, jitter = factor(improper)
        assert np.isnan(np.asarray(chol)).any() and jitter == 0
    many = jax.jit(jax.vmap(factor))(jnp.stack([jnp.ones((3, 3)), jnp.eye(3), -jnp.eye(3)]))
    assert many[1][0] > 0 and many[1][1] == 0 and not np.isfinite(many[0][2]).all()
    root = np.random.default_rng(0).normal(size=(4, 4))
    symmetric = jnp.asarray(root @ root.T + np.eye(4))

    def both(f):
        return jax.jacrev(lambda x: f(0.5 * (x + x.T)))(symmetric)

    close(both(lambda x: factor(x)[0]), both(jnp.linalg.cholesky))
    # At a singular matrix the derivative is that of the raised one: large, but a number.
    assert np.isfinite(jax.grad(lambda x: jnp.sum(factor(x)[0]))(jnp.ones((3, 3)))).all()
