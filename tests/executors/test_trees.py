"""Trees and sums of Gaussian scalars against dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, exp
from ngmp_compiler.linalg import tree_gaussian, tree_order


def random_tree(rng, n, forest=0.0, back=None):
    """The parent of every node but the first; -1 for a new root."""
    low = [0 if back is None else max(0, i - back) for i in range(n)]
    return [-1] + [-1 if rng.random() < forest else int(rng.integers(low[i], i)) for i in range(1, n)]


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2]), st.sampled_from([None, 1, 3]))
def test_elimination_equals_dense_algebra(n, seed, forest, back):
    rng = np.random.default_rng(seed)
    parents = random_tree(rng, n, forest, back)
    ends = np.asarray([(p, i) if rng.random() < 0.5 else (i, p) for i, p in enumerate(parents) if p >= 0], int)
    ends = ends.reshape(-1, 2)
    lam, a, b = np.exp(2 * rng.normal(size=len(ends))), rng.normal(size=len(ends)), rng.normal(size=len(ends))
    u, h = np.exp(rng.normal(size=n)), rng.normal(size=n)
    precision = np.diag(u)
    for (i, j), tie, x, y in zip(ends, lam, a, b, strict=True):
        for s, t, c in ((i, i, x * x), (j, j, y * y), (i, j, x * y), (j, i, x * y)):
            precision[s, t] += tie * c
    covariance = np.linalg.inv(precision)
    blocks, couplings = jnp.asarray(np.stack([lam * a * a, lam * b * b])), jnp.asarray(lam * a * b)
    out = tree_gaussian(tree_order(n, ends), jnp.asarray(u), jnp.asarray(h), blocks, couplings)
    assert out.proper
    np.testing.assert_allclose(out.mean, covariance @ h, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(out.variance, np.diag(covariance), rtol=1e-9)
    np.testing.assert_allclose(out.covariance, covariance[ends[:, 0], ends[:, 1]], rtol=1e-8, atol=1e-10)
    evidence = 0.5 * h @ covariance @ h - 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * n * np.log(2 * np.pi)
    np.testing.assert_allclose(out.log_partition, evidence, rtol=1e-9, atol=1e-9)


def test_cycles_are_refused():
    with pytest.raises(ValueError, match="cycles"):
        tree_order(3, np.asarray([(0, 1), (1, 2), (2, 0)]))


def tree_model(parents):
    def model(y):
        x = []
        for i, parent in enumerate(parents):
            mean = 0.0 if parent < 0 else 0.8 * x[parent] + 0.1
            x.append(ngmp.sample("x", Normal(mean, variance=1.0 if parent < 0 else 0.3)))
            ngmp.sample("y", Normal(x[i], variance=0.5), obs=y[i])

    return model


def test_a_declared_tree_is_a_tree():
    rng = np.random.default_rng(3)
    parents = random_tree(rng, 60)
    y = rng.normal(size=60)
    program = ngmp.compile(tree_model(parents))
    post = program(y=jnp.asarray(y))
    assert "tree: 60 scalars" in program.lower(y=jnp.asarray(y)).describe()
    precision, linear = np.zeros((60, 60)), y / 0.5
    precision[np.diag_indices(60)] += 1 / 0.5
    for i, p in enumerate(parents):
        row = np.zeros(60)
        row[i], noise, shift = 1.0, 1.0, 0.0
        if p >= 0:
            row[p], noise, shift = -0.8, 0.3, 0.1
        precision += np.outer(row, row) / noise
        linear = linear + row * shift / noise
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(post["x"].mean, covariance @ linear, atol=1e-11)
    np.testing.assert_allclose(post["x"].variance, np.diag(covariance), atol=1e-12)
    # The evidence of y, from its joint covariance.
    prior, mean = np.zeros((60, 60)), np.zeros(60)
    for i, p in enumerate(parents):
        prior[i, i] = 1.0
        if p >= 0:
            mean[i] = 0.8 * mean[p] + 0.1
            prior[i, :i] = prior[:i, i] = 0.8 * prior[p, :i]
            prior[i, i] = 0.64 * prior[p, p] + 0.3
    total = prior + 0.5 * np.eye(60)
    gap = y - mean
    energy = 0.5 * gap @ np.linalg.solve(total, gap) + 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-12)


def test_program_size_does_not_grow_with_a_tree():
    def count(n):
        program = ngmp.compile(tree_model(random_tree(np.random.default_rng(0), n)))
        return str(jax.make_jaxpr(lambda y: program(y=y).free_energy)(jnp.zeros(n))).count(" = ")

    assert count(4000) <= 1.5 * count(400)


def test_projected_leaves_on_a_tree():
    """Counts on a tree against the same joint solved densely: a redundant tie closes a cycle."""
    rng = np.random.default_rng(1)
    parents = random_tree(rng, 12)
    y = jnp.asarray(rng.poisson(2.0, 12))

    def model(y, cycle=False):
        x = []
        for i, p in enumerate(parents):
            x.append(ngmp.sample("x", Normal(0.0 if p < 0 else x[p], variance=0.4)))
            ngmp.sample("y", Poisson(exp(x[i])), obs=y[i])
        if cycle:
            for i, j in ((0, 5), (5, 9), (9, 0)):
                ngmp.sample("tie", Normal(x[i] - x[j], variance=1e12), obs=0.0)

    tree, loop = ngmp.compile(model)(y=y), ngmp.compile(model)(y=y, cycle=True)
    assert tree.converged and loop.converged
    np.testing.assert_allclose(tree["x"].mean, loop["x"].mean, atol=1e-7)
    np.testing.assert_allclose(tree["x"].variance, loop["x"].variance, rtol=1e-7)


def sums_model(y, noise=0.2):
    """Every observation is a sum of three variables of its own and two shared ones."""
    b, c = ngmp.sample("b", Normal(0.5, variance=2.0)), ngmp.sample("c", Normal(0.0, variance=1.0))
    z = ngmp.sample("z", Normal(jnp.linspace(-1.0, 1.0, 3 * len(y)).reshape(len(y), 3), variance=0.7))
    ngmp.sample("y", Normal(z.sum(-1) + b - 0.5 * c + 0.1, variance=noise), obs=y)


def test_sums_are_integrated_out():
    y = np.random.default_rng(0).normal(size=6)
    program = ngmp.compile(sums_model)
    post = program(y=jnp.asarray(y))
    assert "sums: 18 scalars" in program.lower(y=jnp.asarray(y)).describe()
    mean = np.concatenate([np.linspace(-1, 1, 18), [0.5, 0.0]])
    prior = np.diag([0.7] * 18 + [2.0, 1.0])
    rows = np.concatenate([np.kron(np.eye(6), np.ones(3)), np.full((6, 1), 1.0), np.full((6, 1), -0.5)], axis=1)
    total = rows @ prior @ rows.T + 0.2 * np.eye(6)
    gain = prior @ rows.T @ np.linalg.inv(total)
    gap = y - rows @ mean - 0.1
    found, covariance = mean + gain @ gap, prior - gain @ rows @ prior
    np.testing.assert_allclose(post["z"].mean.reshape(-1), found[:18], atol=1e-12)
    np.testing.assert_allclose(post["b"].mean, found[18], atol=1e-12)
    np.testing.assert_allclose(post["z"].variance.reshape(-1), np.diag(covariance)[:18], atol=1e-12)
    np.testing.assert_allclose(post["c"].variance, covariance[19, 19], atol=1e-12)
    energy = 0.5 * gap @ np.linalg.solve(total, gap) + 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-12)


@pytest.mark.slow
def test_sums_with_unknown_noise_equal_the_joint_solution():
    """The same model with a tie that makes the variables not private, and so solved densely."""

    def model(y, tied=False):
        tau = ngmp.sample("tau", Gamma(3.0, rate=1.0))
        z = ngmp.sample("z", Normal(jnp.zeros((len(y), 3)), variance=0.7))
        b = ngmp.sample("b", Normal(0.0, variance=2.0))
        ngmp.sample("y", Normal(z.sum(-1) + b, precision=tau), obs=y)
        if tied:
            ngmp.sample("tie", Normal(z[:, 0] - z[:, 1] + z[:, 2] - b, variance=1e13), obs=jnp.zeros(len(y)))

    y = jnp.asarray(np.random.default_rng(0).normal(size=7))
    alone, tied = ngmp.compile(model)(y=y), ngmp.compile(model)(y=y, tied=True)
    assert alone.converged and tied.converged
    for name in ("tau", "b", "z"):
        np.testing.assert_allclose(alone[name].mean, tied[name].mean, atol=1e-7)
