"""Trees of categorical variables of any depth, against enumeration and a two-pass sum-product in plain numpy."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical
from ngmp_compiler.linalg import discrete_tree, plan_rounds
from tests.executors.categorical_graphs import (
    enumerate_states,
    random_tree,
    tree_data,
    tree_model,
)
from tests.inside import core_line, tables_of


def sum_product(parents, log_tables, unary):
    """Log-marginals of nodes and of (parent, child), and the log-partition, leaves to root and back."""
    up, messages = unary.copy(), np.zeros_like(unary)
    for i in range(len(parents) - 1, 0, -1):
        messages[i] = logsumexp(log_tables[i] + up[i][None], axis=1)
        up[parents[i]] += messages[i]
    log_z = logsumexp(up[0])
    node, pair = np.zeros_like(unary), np.zeros_like(log_tables)
    node[0] = up[0] - log_z
    for i in range(1, len(parents)):
        pair[i] = (node[parents[i]] - messages[i])[:, None] + log_tables[i] + up[i][None]
        node[i] = logsumexp(pair[i], axis=0)
    return node, pair, log_z


# -- trees ------------------------------------------------------------------------------------------------------------


@pytest.mark.core32
@pytest.mark.parametrize("seed", range(4))
def test_random_trees_by_enumeration(seed, x64):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(4, 10)), 3 if seed % 2 else 2
    parents = random_tree(rng, n)
    if (np.bincount(parents[1:], minlength=n) < 2).all():
        parents[-1] = parents[1]  # no path
    data = tree_data(rng, n, k)
    data["transition"][1, 0] = np.eye(k)[1]  # zeros
    program = ngmp.compile(tree_model(parents, k), executors={"z": "tree"})
    with np.errstate(divide="ignore"):
        log_tables = np.maximum(np.log(data["transition"]), -1e4)
    tables = [((0,), np.full(k, -np.log(k)))]
    tables += [((parents[i], i), log_tables[i]) for i in range(1, n)]
    tables += [((i,), np.log(data["emission"][:, data["y"][i]])) for i in range(n)]
    marginal, log_z = enumerate_states([k] * n, tables)
    post = program(**data)
    tol = 1e-12 if x64 else 1e-5
    np.testing.assert_allclose(post["z"].probs, [marginal((i,)) for i in range(n)], atol=tol)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=tol)
    pairs = [joint for rows in tables_of(program, **data).values() for joint in rows.values()]
    assert len(pairs) == n - 1
    for joint, i in zip(pairs, range(1, n), strict=True):
        np.testing.assert_allclose(joint, marginal((parents[i], i)), atol=tol)


@pytest.mark.slow
@pytest.mark.parametrize("span", [None, 3, 1])
def test_rake_and_compress_on_large_trees(span, x64):
    """Shallow, deep and path-like forests: nodes, edges and the log-partition."""
    rng = np.random.default_rng(5)
    n, k = 400, 4
    parents = random_tree(rng, n, span)
    unary, log_tables = 3 * rng.normal(size=(n, k)), 3 * rng.normal(size=(n, k, k))
    node, pair, log_z = sum_product(parents, log_tables, unary)
    rounds = plan_rounds(n, np.stack([parents[1:], np.arange(1, n)], 1))
    result = jax.jit(lambda unary, link: discrete_tree(unary, link, rounds))(unary, log_tables[1:])
    np.testing.assert_allclose(np.exp(result.log_probs), np.exp(node), atol=1e-11)
    np.testing.assert_allclose(np.exp(result.pairs), np.exp(pair[1:]), atol=1e-11)
    np.testing.assert_allclose(result.log_partition, log_z, rtol=1e-12)
    assert len(rounds) <= 16


@pytest.mark.slow
def test_ten_thousand_nodes(capsys):
    rng = np.random.default_rng(0)
    n, k = 10_000, 3
    parents, data = random_tree(rng, n), tree_data(rng, n, k)
    program = ngmp.compile(tree_model(parents, k))
    start = time.perf_counter()
    post = program(**data)
    first = time.perf_counter() - start
    unary = np.log(data["emission"][:, data["y"]].T)
    unary[0] -= np.log(k)
    node, _, log_z = sum_product(parents, np.log(data["transition"]), unary)
    np.testing.assert_allclose(post["z"].probs, np.exp(node), atol=1e-10)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-12)
    assert "tree: 1 tree of 10000" in core_line(program, **data)
    with capsys.disabled():
        print(f"\n  10,000-node tree: trace, compile and run {first:.1f} s", end="")


def test_program_size_grows_like_the_logarithm():
    def equations(n):
        rng = np.random.default_rng(1)
        rounds = plan_rounds(n, np.stack([random_tree(rng, n)[1:], np.arange(1, n)], 1))
        shapes = jnp.zeros((n, 2)), jnp.zeros((n - 1, 2, 2))
        return len(jax.make_jaxpr(lambda unary, link: discrete_tree(unary, link, rounds))(*shapes).eqns)

    small, medium, large = map(equations, (100, 1_000, 10_000))
    assert large - medium < 1.3 * (medium - small)
    assert large < 2_500


def test_forests_and_mixed_classes():
    """Two trees of unlike variables, padded in one executor, and two tables between the same two variables."""
    rng = np.random.default_rng(3)
    root, leaf, more = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3), 2), rng.dirichlet(np.ones(4), 3)

    def model(twice):
        for _ in range(2):
            a = ngmp.sample("a", Categorical(probs=root))
            b = [ngmp.sample("b", Categorical(probs=ngmp.take(leaf, a))) for _ in range(3)]
            ngmp.sample("c", Categorical(probs=ngmp.take(more, b[0])))
            ngmp.sample("d", Categorical(probs=ngmp.take(twice, a, b[1])), obs=2)

    twice = rng.dirichlet(np.ones(3), (2, 3))
    program = ngmp.compile(model)
    post = program(twice=twice)
    tables = [((0,), np.log(root)), *(((0, i), np.log(leaf)) for i in (1, 2, 3)), ((1, 4), np.log(more))]
    marginal, log_z = enumerate_states([2, 3, 3, 3, 4], [*tables, ((0, 2), np.log(twice[..., 2]))])
    assert "tree: 2 trees of 10" in core_line(program, twice=twice)
    for tree in range(2):
        np.testing.assert_allclose(post["a"].probs[tree], marginal((0,)), rtol=1e-12)
        b = post["b"].probs[3 * tree : 3 * tree + 3]
        np.testing.assert_allclose(b, [marginal((i,)) for i in (1, 2, 3)], rtol=1e-12)
        np.testing.assert_allclose(post["c"].probs[tree], marginal((4,)), rtol=1e-12)
    np.testing.assert_allclose(-post.free_energy, 2 * log_z, rtol=1e-12)


@pytest.mark.core32
def test_deep_evidence_keeps_its_digits(x64):
    """A log-evidence in the thousands does not cost the marginals their accuracy."""
    rng = np.random.default_rng(9)
    n, k = 2000, 2
    parents, data = random_tree(rng, n, 4), tree_data(rng, n, k, 8)
    dtype = np.float64 if x64 else np.float32
    post = ngmp.compile(tree_model(parents, k))(**{a: x.astype(dtype) if a != "y" else x for a, x in data.items()})
    unary = np.log(data["emission"][:, data["y"]].T)
    unary[0] -= np.log(k)
    node, _, log_z = sum_product(parents, np.log(data["transition"]), unary)
    np.testing.assert_allclose(post["z"].probs, np.exp(node), atol=1e-11 if x64 else 1e-4)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-12 if x64 else 1e-5)
