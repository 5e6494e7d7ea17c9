"""Chains driven by noise of any rank, against dense algebra of all that drives them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from ngmp_compiler.linalg import Driven, driven_chain, driven_draws
from tests.linalg.problems import close, float64

SOLVE = jax.jit(driven_chain)


def problem(seed, length, d, k, shared, started):
    rng = np.random.default_rng(seed)
    steps = 1 if shared else length - 1
    unary, linear = rng.normal(size=(length, d, 2)), rng.normal(size=(length, d))
    unary = unary @ unary.swapaxes(1, 2)  # singular as well
    start = rng.normal(size=d), rng.normal(size=(d, max(1, d - 1)))
    if not started:
        unary[0] += np.eye(d)
    shift = rng.normal(size=(length - 1, d))
    A, root = rng.normal(size=(steps, d, d)) / d**0.5, rng.normal(size=(steps, d, k))
    A[..., -1, :] = 0.0  # nor need the transition be regular
    return unary, linear, Driven(start if started else None, A, shift, root)


def dense(unary, linear, driven):
    """Mean and covariance of all variables, and the log-integral: x = c + M w of all noise w, the start included."""
    length, d = linear.shape
    first = (np.zeros(d), np.eye(d)) if driven.start is None else driven.start
    rows, centre = [np.hstack([first[1], np.zeros((d, (length - 1) * driven.root.shape[2]))])], [first[0]]
    for j in range(length - 1):
        A, root = (x[0] if len(x) == 1 else x[j] for x in (driven.A, driven.root))
        row = A @ rows[-1]
        row[:, first[1].shape[1] + j * root.shape[1] :][:, : root.shape[1]] += root
        rows.append(row)
        centre.append(A @ centre[-1] + driven.shift[j])
    m, c = np.vstack(rows), np.concatenate(centre)
    own = np.eye(m.shape[1])
    if driven.start is None:
        own[:d, :d] = 0.0  # flat: its precision is among the unary ones
    u = np.zeros((length * d, length * d))
    for j in range(length):
        u[j * d : (j + 1) * d, j * d : (j + 1) * d] = unary[j]
    covariance = np.linalg.inv(own + m.T @ u @ m)
    mean = c + m @ covariance @ m.T @ (linear.reshape(-1) - u @ c)
    log_volume = 0.5 * np.linalg.slogdet(covariance)[1] + (0.5 * d * np.log(2 * np.pi) if driven.start is None else 0)
    return mean.reshape(length, d), m @ covariance @ m.T, log_volume


@float64
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("length,d,k", [(2, 1, 1), (7, 3, 1), (5, 4, 4), (4, 10, 3)])
def test_driven_chain_matches_dense(length, d, k, shared, started):
    given = problem(length + d, length, d, k, shared, started)
    mean, covariance, log_volume = dense(*given)
    blocks = covariance.reshape(length, d, length, d).swapaxes(1, 2)
    result, index = SOLVE(*given), np.arange(length)
    assert result.proper
    close(result.mean, mean, 1e-9)
    close(result.covariance, blocks[index, index], 1e-9)
    close(result.cross, blocks[index[:-1], index[1:]], 1e-9)
    close(result.log_volume, log_volume, 1e-9)


@float64
def test_driven_chain_has_derivatives():
    unary, linear, driven = problem(3, 4, 3, 1, True, True)

    def value(linear, shift, A, root):
        found = driven_chain(jnp.asarray(unary), linear, Driven(driven.start, A, shift, root))
        return found.log_volume + jnp.sum(jnp.sin(found.mean)) + jnp.sum(found.covariance**2)

    check_grads(value, (linear, driven.shift, driven.A, driven.root), order=1, modes=("fwd", "rev"))


@float64
@pytest.mark.parametrize("started", [True, False])
def test_draws_have_the_moments_of_the_chain(started):
    unary, linear, driven = problem(5, 4, 3, 1, False, started)
    first, rest = np.random.default_rng(0).normal(size=(100_000, 2 if started else 3)), np.random.default_rng(1)
    draws = driven_draws(jnp.asarray(unary), driven, first, rest.normal(size=(3, 100_000, 1)))
    covariance = dense(unary, linear, driven)[1]
    found = np.cov(np.asarray(draws).reshape(len(draws), -1).T)
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(found / scale / scale[:, None], covariance / scale / scale[:, None], atol=0.02)
