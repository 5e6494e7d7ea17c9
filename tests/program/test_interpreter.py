"""Compiled equals interpreted: random declared graphs, and one small model for every projected kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Gamma,
    MvNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    dot,
    exp,
)
from tests.oracle.compare import assert_interpreted
from tests.oracle.random_graphs import SCALAR_VERBS, VECTOR_VERBS, Statement, loop_scan, model_of, recipes

EXACT = 1e-10


def random_graphs(examples: int) -> settings:
    """The same examples in every run; a deadline would only measure how busy the machine is."""
    quiet = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=quiet)


# -- conjugate Gaussian graphs --------------------------------------------------------------------------------------


@random_graphs(7)
@given(recipes(SCALAR_VERBS, 4))
def test_random_scalar_graphs(recipe):
    assert_interpreted(model_of(recipe), EXACT)


@random_graphs(7)
@given(recipes(VECTOR_VERBS + ("prior", "plate_child", "hub"), 3))
def test_random_vector_graphs(recipe):
    assert_interpreted(model_of(recipe), EXACT)


@random_graphs(4)
@given(recipes(("scan", "vector_scan", "observe", "child"), 3))
def test_random_scans_are_loops(recipe):
    """The interpreter reads what `scan` declared, so the declaration itself is checked against a Python loop."""
    a, b = (ngmp.compile(model_of(recipe, scan=scan))() for scan in (ngmp.scan, loop_scan))
    assert set(a.marginals) == set(b.marginals)
    leaves = (jax.tree.leaves((post.marginals, post.free_energy)) for post in (a, b))
    for x, y in zip(*leaves, strict=True):
        np.testing.assert_allclose(x, y.reshape(x.shape), rtol=EXACT, atol=EXACT)


@random_graphs(4)
@given(recipes(SCALAR_VERBS + VECTOR_VERBS, 2))
def test_random_graphs_seen_through_counts(recipe):
    """Not conjugate: every executor must give the marginals of all the linear functionals."""
    options = {"solver": optax.sgd(0.5), "max_sweeps": 2000, "tol": 1e-11}
    assert_interpreted(model_of(recipe, counts=True), 1e-8, options=options)


# Graphs that once came out wrong.
KNOTS = {
    "three variables in one factor": [Statement("observe", 4, 5, 2)],
    "one variable twice in a factor": [Statement("observe_plate", 2, 4, 2)],
    "a plate tied to its own reverse": [Statement("plate_child", 1, 7, 3)],
    "random ties inside a plate": [Statement("plate", 2, 0, 0), Statement("ties", 0, 3, 2)],
    "hub and satellites in one plate": [Statement("plate", 2, 0, 0), Statement("ties", 0, 3, 0)],
    "a scalar tied three times to a vector": [Statement("dot_plate", 1, 4, 1)],
    "vectors seen directly in a scan": [Statement("vector_scan", 6, 4, 3)],
    "vectors of two lengths": [Statement("wide_child", 0, 1, 1)],
    "scans joined at both ends": [
        Statement("scan", 0, 2, 3),
        Statement("scan", 1, 3, 3),
        Statement("observe", 1, 2, 1),
    ],
}


@pytest.mark.parametrize("recipe", KNOTS.values(), ids=KNOTS)
def test_knotted_graphs(recipe):
    assert_interpreted(model_of(recipe), EXACT)


# -- conjugate plates -----------------------------------------------------------------------------------------------


def _plates(counts, coins, classes, seen):
    rate = ngmp.sample("rate", Gamma(np.array([2.0, 1.5, 3.0]), rate=0.5))
    ngmp.sample("counts", Poisson(rate), obs=counts, mask=seen)
    p = ngmp.sample("p", Beta(np.array([2.0, 1.5, 3.0]), 1.2))
    ngmp.sample("coins", Bernoulli(probs=p), obs=coins, mask=seen)
    ngmp.sample("hits", Binomial(np.array([5, 6, 7]), probs=p), obs=counts[0])
    probs = ngmp.sample("probs", Dirichlet(np.array([[1.0, 2.0, 0.5], [0.7, 0.7, 3.0]])))
    for k in range(3):
        ngmp.sample("classes", Categorical(probs=probs), obs=classes[k])
    ngmp.sample("extra", Categorical(probs=probs[1]), obs=classes[:, 0])
    tau = ngmp.sample("tau", Gamma(np.array([2.0, 4.0]), scale=0.7))
    ngmp.sample("noise", Normal(0.3, precision=tau), obs=np.array([[0.1, 2.0], [0.4, -1.0], [1.0, 0.0]]))


def test_conjugate_plates():
    rng = np.random.default_rng(0)
    counts, coins = rng.integers(0, 5, (4, 3)), rng.integers(0, 2, (4, 3))
    assert_interpreted(
        _plates, EXACT, counts=counts, coins=coins, classes=rng.integers(0, 3, (3, 2)), seen=rng.random((4, 3)) < 0.6
    )


# -- categorical graphs ---------------------------------------------------------------------------------------------


def categorical_model(seed: int, parents: list[int], style: int):
    """A chain, a tree or a forest: variable k hangs on `parents[k] % k`, or on nothing where that is the last."""

    def model():
        rng = np.random.default_rng(seed)
        sizes = [2 + (k % 2 if style >= 2 else 1) for k in range(len(parents) + 1)]
        variables = [ngmp.sample("root", Categorical(probs=rng.dirichlet(np.ones(sizes[0]))))]
        for k, parent in enumerate(parents, start=1):
            above = k - 1 if style == 0 else parent % k
            table = rng.normal(size=(sizes[above], sizes[k]))
            name = "z" if style < 2 else f"z{k}"
            variables.append(ngmp.sample(name, Categorical(logits=ngmp.take(table, variables[above]))))
        for k, z in enumerate(variables):
            emission = rng.dirichlet(np.ones(3), size=sizes[k])
            if (parents + [0])[k] % 2 == 0:
                ngmp.sample(f"y{k}", Categorical(probs=ngmp.take(emission, z)), obs=int(rng.integers(3)))

    return model


@random_graphs(4)
@given(st.integers(0, 99), st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 3))
def test_random_categorical_graphs(seed, parents, style):
    assert_interpreted(categorical_model(seed, parents, style), EXACT)


def _categorical_loop(table):
    a = ngmp.sample("z", Categorical(probs=np.full(3, 1 / 3)))
    b = ngmp.sample("z", Categorical(probs=ngmp.take(table, a)))
    c = ngmp.sample("z", Categorical(probs=ngmp.take(table, b)))
    ngmp.factor("agree", lambda x, y: -0.7 * (x - y) ** 2, a, c)


def test_a_generic_factor_between_categorical_variables():
    table = np.random.default_rng(1).dirichlet(np.ones(3), size=3)
    assert_interpreted(_categorical_loop, 1e-9, options=TIGHT, table=table)


# -- projected kernels ----------------------------------------------------------------------------------------------

TIGHT = {
    "solver": optax.sgd(0.5), "max_sweeps": 2000, "tol": 1e-11,
    "method": ngmp.NGMP(projection=ngmp.Quadrature(gaussian=64)),
}  # fmt: skip
Y = np.random.default_rng(2).normal(size=4) + 0.5
COUNTS = np.array([0, 3, 1, 6])


def _mean_precision(y, mask=None):
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y, mask=mask)


def _log_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=4.0))
    s = ngmp.sample("s", Normal(0.0, variance=0.5))
    ngmp.sample("y", Normal(x, precision=exp(s)), obs=y[:2])
    ngmp.sample("u", Normal(x, variance=exp(0.5 - s)), obs=y[2])
    ngmp.sample("v", Normal(0.3, std=exp(0.5 * s)), obs=y[3])


def _walk_of_unknown_precision(y):
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    z = ngmp.sample("z0", Normal(0.0, variance=4.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(0.9 * z, precision=tau))
        ngmp.sample("y", Normal(z, variance=0.5), obs=y[k])


def _robust_walk(y):
    z0 = ngmp.sample("z0", Normal(0.0, variance=4.0))

    def step(z, y_k):
        z = ngmp.sample("z", StudentT(4.0, z, scale=0.7))
        ngmp.sample("y", StudentT(5.0, z, scale=0.6), obs=y_k)
        return z, None

    ngmp.scan(step, z0, y)


def _counts(y):
    """Poisson chain, negative binomial plate, and an offset."""
    z0 = ngmp.sample("z0", Normal(0.0, variance=2.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, variance=0.3))
        ngmp.sample("y", Poisson(exp(z + 0.2)), obs=y_k)
        return z, z

    _, z = ngmp.scan(step, z0, y)
    ngmp.sample("overdispersed", NegativeBinomial(mean=exp(0.5 * z), dispersion=3.0), obs=y)


def _logits(y, features):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=2.0))
    b = ngmp.sample("b", Normal(0.0, variance=1.0))
    ngmp.sample("y", Bernoulli(logits=dot(features, w) + b), obs=y > 1)
    ngmp.sample("k", Binomial(7, logits=dot(features, w)), obs=y)


def _generic(y):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    tau = ngmp.sample("tau", Gamma(3.0, rate=2.0))
    p = ngmp.sample("p", Beta(3.0, 2.0))
    ngmp.factor("noise", lambda x, y, t: 0.5 * jnp.log(t) - 0.5 * t * (x - y) ** 2, 0.5 * x + 0.1, y[:2], tau)
    ngmp.factor("cubic", lambda x: -0.05 * x**4 + 0.3 * x, x)
    ngmp.factor("mix", lambda p, x: p * jnp.cos(x), p, x)


def _three_interfaces(y):
    x = ngmp.sample("x", Normal(0.0, variance=0.25))
    p = ngmp.sample("p", Beta(3.0, 2.0))
    coin = ngmp.sample("coin", Bernoulli(probs=0.4))
    ngmp.factor("f", lambda x, p, c: -0.5 * (x - c * p) ** 2 + 0.3 * c, x, p, coin)


PROJECTED = {
    "mean and precision": (_mean_precision, 1e-9, {"y": Y, "mask": np.array([True, False, True, True])}),
    "log-precision, three spellings": (_log_precision, 1e-8, {"y": Y}),
    "random walk of unknown precision": (_walk_of_unknown_precision, 1e-9, {"y": Y}),
    "robust random walk": (_robust_walk, 1e-8, {"y": Y}),
    "count chain": (_counts, 1e-9, {"y": COUNTS}),
    "logits": (_logits, 1e-9, {"y": COUNTS, "features": np.random.default_rng(3).normal(size=(4, 2))}),
    "generic factors": (_generic, 1e-8, {"y": Y}),
}


@pytest.mark.parametrize(("model", "tol", "inputs"), PROJECTED.values(), ids=PROJECTED)
def test_projected_kernels(model, tol, inputs):
    assert_interpreted(model, tol, options=TIGHT, **inputs)


def test_a_generic_factor_of_three_variables():
    assert_interpreted(_three_interfaces, 1e-8, points=81, options=TIGHT, y=Y)


def test_stars_of_many_hubs_are_one_executor():
    """Panel data: scalar and vector hubs with satellites of their own, some hubs with more of them than others."""

    def model(y, phi):
        level = ngmp.sample("level", Normal(np.zeros(4), variance=2.0))
        w = ngmp.sample("w", MvNormal(np.zeros((3, 2)), covariance=1.5))
        for k in range(12):
            x = ngmp.sample("x", Normal((1.0 + k) / 6.0 * level[k % 4], variance=0.3))
            z = ngmp.sample("z", Normal(dot(phi[k], w[min(k // 3, 2)]), variance=0.4))
            ngmp.sample("y", Normal(x, variance=0.5), obs=y[k])
            ngmp.sample("n", Poisson(exp(z)), obs=y[k] ** 2 // 1)

    rng = np.random.default_rng(0)
    inputs = {"y": jnp.asarray(rng.normal(size=12)), "phi": jnp.asarray(rng.normal(size=(12, 2)))}
    assert_interpreted(model, 1e-8, options={"tol": 1e-12}, **inputs)
    text = ngmp.compile(model).lower(**inputs).describe()
    assert "4 hubs, 12 scalars" in text and "3 hubs, 12 scalars" in text
