"""Joint draws against the joint itself: dense precision matrices made row by row, and enumeration of classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, HalfNormal, MvNormal, Normal, Poisson, dot, exp
from ngmp_compiler.linalg import normals

N = 40_000
RNG = np.random.default_rng(3)
X = RNG.normal(size=(12, 3))
COUNTS = RNG.poisson(3.0, 12)


def chain(y):
    def step(z, y_k):
        z = ngmp.sample("z", Normal(0.9 * z, variance=0.3))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=2.0)), y)


def vector_chain(y):
    turn = np.array([[1.0, 0.4], [-0.2, 0.9]])

    def step(x, y_k):
        x = ngmp.sample("x", MvNormal(turn @ x, covariance=np.array([0.3, 0.2])))
        ngmp.sample("y", Poisson(exp(x[0])), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0)), y)


def star(y):
    m = ngmp.sample("m", Normal(1.0, variance=4.0))
    a = ngmp.sample("a", Normal(np.ones(len(y)) * m, variance=0.5))
    ngmp.sample("y", Poisson(exp(a)), obs=y)


def vector_star(y):
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=0.5))
    a = ngmp.sample("a", Normal(dot(X, w), variance=0.5))
    ngmp.sample("y", Poisson(exp(a)), obs=y)


def weights(y):
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=0.5))
    ngmp.sample("y", Poisson(exp(dot(X, w))), obs=y)


def tree(y):
    m = ngmp.sample("m", Normal(0.0, variance=4.0))
    g = ngmp.sample("g", Normal(m + np.zeros(4), variance=0.5))
    a = ngmp.sample("a", Normal(g[np.repeat(np.arange(4), 3)], variance=0.2))
    ngmp.sample("y", Poisson(exp(a)), obs=y)


def loop(y):
    x = ngmp.sample("x", Normal(np.zeros(12), variance=1.0))
    t = ngmp.sample("t", Gamma(2.0, rate=1.0))
    ngmp.sample("near", Normal(x[np.arange(12)] - x[(np.arange(12) + 1) % 12], precision=t), obs=np.zeros(12))
    ngmp.sample("y", Poisson(exp(x)), obs=y)


def sums(y):
    x = ngmp.sample("x", Normal(np.zeros(12), variance=0.3))
    b = ngmp.sample("b", Normal(np.zeros(12), variance=0.2))
    c = ngmp.sample("c", Normal(np.zeros(12), variance=0.1))
    ngmp.sample("y", Poisson(exp(x + b + 2.0 * c)), obs=y)


def dense_joint(program, post, **inputs):
    """Mean and covariance of all Gaussian variables, from a precision matrix summed over the rows of functionals."""
    core = program.specialise(**inputs).map.core
    start, total = {}, 0
    for plane, n in core.plan.planes.items():
        if plane.family.core == "gaussian":
            d = int(np.prod(plane.event_shape))
            start[plane], total = (total, d), total + n * d
    precision, linear = np.zeros((total, total)), np.zeros(total)
    for (_, _, edge), leaf in zip(core.plan.functionals, core.stacked(post.state.leaves), strict=True):
        width = edge.width or 1
        for n in range(edge.n):
            rows = np.zeros((width, total))
            for plane, index, _, c in edge.links:
                first, d = start[plane]
                block = np.eye(width, d) if c is None else np.asarray(c)[n if len(c) > 1 else 0]
                block = block * np.eye(width, d) if np.ndim(block) == 0 else block.reshape(width, d)
                at = first + index.positions[n] * d
                rows[:, at : at + d] += block
            offset = np.asarray(edge.offset)[n if len(edge.offset) > 1 else 0].reshape(-1)
            lam = -2 * np.asarray(leaf.eta2)[n].reshape(width, width)
            xi = np.asarray(leaf.eta1)[n].reshape(-1)
            precision += rows.T @ lam @ rows
            linear += rows.T @ (xi - lam @ offset)
    return core.plan, start, np.linalg.solve(precision, linear), precision


@pytest.mark.parametrize("model", [chain, vector_chain, star, vector_star, weights, tree, loop, sums])
def test_gaussian_draws_are_those_of_the_joint(model, key):
    program = ngmp.compile(model)
    post = program(y=COUNTS)
    draws = post.sample(key, (N,))
    plan, start, mean, precision = dense_joint(program, post, y=COUNTS)
    flat = np.zeros((N, len(mean)))
    for name, (plane, positions, _) in plan.collections.items():
        if plane in start:
            first, d = start[plane]
            dims = first + positions.reshape(-1)[:, None] * d + np.arange(d)
            flat[:, dims.reshape(-1)] = np.asarray(draws[name]).reshape(N, -1)
    white = (flat - mean) @ np.linalg.cholesky(precision)  # standard normal, all of them, if the draws are right
    assert np.abs(white.mean(0)).max() < 5 / np.sqrt(N)
    assert np.abs(white.T @ white / N - np.eye(len(mean))).max() < 7.5 / np.sqrt(N)
    if "t" in post:
        np.testing.assert_allclose(draws["t"].mean(), post["t"].mean, rtol=0.02)
    again = program.sample(post, key, (N,), y=COUNTS)
    np.testing.assert_array_equal(again["y" if "y" in again else next(iter(again))], draws[next(iter(again))])


def hmm(y, table):
    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=ngmp.take(table, z)))
        ngmp.sample("y", Categorical(probs=ngmp.take(table, z)), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.array([0.2, 0.5, 0.3]))), y)


def branches(y, table):
    z0 = ngmp.sample("z0", Categorical(probs=np.array([0.2, 0.5, 0.3])))
    z = [z0]
    for k, parent in enumerate((0, 0, 1, 1)):
        z.append(ngmp.sample(f"z{k + 1}", Categorical(probs=ngmp.take(table, z[parent]))))
        ngmp.sample("y", Categorical(probs=ngmp.take(table, z[-1])), obs=y[k])


def triangle(y, table):
    z = [ngmp.sample(f"z{k}", Categorical(probs=np.array([0.2, 0.5, 0.3]))) for k in range(4)]
    for k, (i, j) in enumerate(((0, 1), (1, 2), (2, 0), (2, 3))):
        ngmp.sample("y", Categorical(probs=ngmp.take(table[:, None] * np.ones((3, 1)), z[i], z[j])), obs=y[k])


def two_chains(y, table):
    a, b = (ngmp.sample(f"{n}0", Categorical(probs=np.array([0.3, 0.7]))) for n in "ab")
    both = (table[:, None] + table[None]) / 2

    def step(state, y_k):
        a, b = state
        a = ngmp.sample("a", Categorical(probs=ngmp.take(table, a)))
        b = ngmp.sample("b", Categorical(probs=ngmp.take(table, b)))
        ngmp.sample("y", Categorical(probs=ngmp.take(both, a, b)), obs=y_k)
        return (a, b), None

    ngmp.scan(step, (a, b), y)


CASES = [(hmm, {}), (branches, {}), (triangle, {}), (two_chains, {"a": "slices"})]


@pytest.mark.parametrize(("model", "executors"), CASES)
def test_draws_of_classes_are_those_of_the_joint(model, executors, key):
    k, steps = (2, 8) if model is two_chains else (3, 4)
    rng = np.random.default_rng(1)
    table, y = rng.dirichlet(np.ones(k), k), rng.integers(0, k, steps)
    program = ngmp.compile(model, executors=executors)
    post = program(y=y, table=table)
    draws = post.sample(key, (N,))
    core = program.specialise(y=y, table=table).map.core
    (plane,) = core.plan.planes
    unary, tables, _ = core.tables_of(core._totals({}), {})
    n = core.plan.planes[plane]
    states = np.indices((k,) * n).reshape(n, -1)
    joint = np.sum(np.asarray(unary[plane])[np.arange(n)[:, None], states], 0)
    for g, logs in tables.items():
        sides = np.stack([side.index.positions for side in core.plan.groups[g].edges[0].sides], 1)
        for r, at in enumerate(sides):
            joint += np.asarray(logs)[(0 if len(logs) == 1 else r, *states[at])]
    exact = np.exp(joint - joint.max()).reshape((k,) * n)
    exact /= exact.sum()
    flat = np.zeros((N, n), int)
    for name, (_, positions, _) in core.plan.collections.items():
        flat[:, positions.reshape(-1)] = np.asarray(draws[name]).reshape(N, -1)
    seen = np.zeros_like(exact)
    np.add.at(seen, tuple(flat.T), 1 / N)
    assert np.abs(seen - exact).max() < 5 * np.sqrt(exact.max() / N)
    assert np.abs(seen - exact).sum() < 1.2 * np.sum(np.sqrt(2 * exact / (np.pi * N))) + 0.01


def level(y):
    sd = ngmp.sample("sd", HalfNormal(std=2.0))
    m = ngmp.sample("m", Normal(0.0, variance=4.0))
    ngmp.sample("y", Normal(m, std=sd), obs=y)


def test_draws_where_a_site_is_integrated(key):
    program = ngmp.compile(level, integrate=("sd",))
    post = program(y=np.array([0.3, 1.4, -0.6, 2.0]))
    draws = post.sample(key, (4000,))
    assert draws["sd"].shape == draws["m"].shape == (4000,)
    for name in ("sd", "m"):
        np.testing.assert_allclose(draws[name].mean(), post[name].mean, atol=4 * float(post[name].std) / 60)
        np.testing.assert_allclose(draws[name].std(), post[name].std, rtol=0.1)


def test_draws_under_transformations_and_refusals(key):
    program = ngmp.compile(weights)
    eager = program(y=COUNTS).sample(key, (3, 2))
    assert eager["w"].shape == (3, 2, 3)
    jitted = jax.jit(lambda y: program(y=y).sample(key, (3, 2)))(jnp.asarray(COUNTS))
    np.testing.assert_allclose(jitted["w"], eager["w"], rtol=1e-6)
    posts = jax.vmap(lambda y: program(y=y))(jnp.stack([COUNTS, COUNTS + 1]))
    with pytest.raises(ValueError, match="program.sample"):
        posts.sample(key)
    each = jax.vmap(lambda p, y: program.sample(p, key, (3, 2), y=y))(posts, jnp.stack([COUNTS, COUNTS + 1]))
    np.testing.assert_allclose(each["w"][0], eager["w"], rtol=1e-6)
    with pytest.raises(ValueError, match="positive integers"):
        program(y=COUNTS).sample(key, (0,))
    short = ngmp.compile(weights, max_sweeps=1, solver=ngmp.adaptive())
    with pytest.warns(ngmp.ConvergenceWarning):
        post = short(y=COUNTS)
    with pytest.warns(ngmp.ConvergenceWarning, match="draws"):
        post.sample(key)


def test_many_normal_numbers_are_normal(key):
    z = np.asarray(normals(key, (500, 1000))).astype(float)
    assert stats.kstest(z.reshape(-1), "norm").pvalue > 1e-3
    for a, b in ((z[:, 1:], z[:, :-1]), (z[1:], z[:-1]), (z[:, ::2], z[:, 1::2])):
        assert abs(np.mean(a * b)) < 5 / np.sqrt(a.size) and abs(np.mean(a**2 * b**2) - 1) < 15 / np.sqrt(a.size)
    other = np.asarray(normals(jax.random.fold_in(key, 1), (500, 1000)))
    assert abs(np.mean(z * other)) < 5 / np.sqrt(z.size)
