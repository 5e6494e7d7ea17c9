"""Chains in blocks, and the same as dense matrices."""

from functools import partial

import jax
import numpy as np
import pytest

from ngmp_compiler.linalg import (
    chain_ties,
    discrete_chain,
    solve_chain,
    vector_chain,
)

TOLERANCE = 1e-10


def scalar_chain(unary, linear, link, a, b, levels=0):
    """`solve_chain` of links as the docstring of its module writes them."""
    return solve_chain(unary, linear, chain_ties(link, a, b), levels)


SCALAR = {levels: jax.jit(partial(scalar_chain, levels=levels)) for levels in (0, 1, 2, 3)}
VECTOR, DISCRETE = jax.jit(vector_chain), jax.jit(discrete_chain)
float64 = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="needs float64")


def close(got, want, tolerance=TOLERANCE):
    want = np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (1 + np.abs(want).max(initial=0)))


def scalar_problem(seed, length, negative=True):
    """A proper chain, some of whose unary terms are negative."""
    rng = np.random.default_rng(seed)
    unary, linear = rng.normal(0.5, 1.0, length), rng.normal(0, 2, length)
    link, a, b = rng.gamma(1.0, 3.0, length - 1), rng.normal(1, 0.5, length - 1), rng.normal(-0.3, 1, length - 1)
    low = np.linalg.eigvalsh(scalar_precision(unary, link, a, b))[0]
    unary = unary + max(0.0, 0.2 - low) if negative else np.abs(unary) + 0.1
    return unary, linear, link, a, b


def scalar_precision(unary, link, a, b):
    precision = np.diag(unary)
    for k in range(len(link)):
        row = np.zeros(len(unary))
        row[k], row[k + 1] = -b[k], a[k]
        precision += link[k] * np.outer(row, row)
    return precision


def dense_moments(precision, linear):
    covariance = np.linalg.inv(precision)
    mean = np.linalg.solve(precision, linear)
    sign, log_det = np.linalg.slogdet(precision)
    assert sign > 0
    return mean, covariance, 0.5 * linear @ mean - 0.5 * log_det + 0.5 * len(linear) * np.log(2 * np.pi)
