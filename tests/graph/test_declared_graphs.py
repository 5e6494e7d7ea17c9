"""Any declared graph: loops give the plan of their array form; mixed random trees by enumeration; what is improper."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, ModelError, Normal

# -- panel data: three series of four --------------------------------------------------------------------------------


def by_subject(y):
    """A plate of chains: one series after the other."""
    for i in range(y.shape[0]):
        z = ngmp.sample("z0", Normal(0.0, variance=1.0))
        for t in range(y.shape[1]):
            z = ngmp.sample("z", Normal(0.9 * z, variance=0.5))
            ngmp.sample("y", Normal(z, variance=0.3), obs=y[i, t])


def by_time(y):
    """A chain of plates: one time after the other."""
    z = [ngmp.sample("z0", Normal(0.0, variance=1.0)) for _ in range(y.shape[0])]
    for t in range(y.shape[1]):
        z = [ngmp.sample("z", Normal(0.9 * x, variance=0.5)) for x in z]
        for i in range(y.shape[0]):
            ngmp.sample("y", Normal(z[i], variance=0.3), obs=y[i, t])


def plates(y):
    """The same, a plate in every step of a loop."""
    z = ngmp.sample("z0", Normal(jnp.zeros(y.shape[0]), variance=1.0))
    for t in range(y.shape[1]):
        z = ngmp.sample("z", Normal(0.9 * z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=0.3), obs=y[:, t])


def scanned(y):
    """The array form."""

    def step(z, seen):
        z = ngmp.sample("z", Normal(0.9 * z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=0.3), obs=seen)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(jnp.zeros(y.shape[0]), variance=1.0)), y.T)


def plan_of(model, y):
    plan = ngmp.compile(model).lower(y=y).plan
    executors = [(e.name, e.why, e.work) for e in plan.gaussian]
    return executors, sorted((g.name, type(g.factor).__name__, g.n) for g in plan.groups)


def test_panel_data_are_one_plan_however_they_are_declared():
    y = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    expected = plan_of(scanned, y)
    assert expected[0][0][1] == "3 chains of 5 variables, neighbours tied once"
    for model in (by_subject, by_time, plates):
        assert plan_of(model, y) == expected, model.__name__
    one, other = (ngmp.compile(m)(y=y) for m in (by_subject, scanned))
    np.testing.assert_allclose(one["z"].mean.reshape(3, 4), other["z"].mean.T, atol=1e-12)
    np.testing.assert_allclose(one.free_energy, other.free_energy, rtol=1e-12)
    # One series by dense algebra: z0, z1, ..., z4.
    precision = np.diag([1.0] + [1 / 0.3] * 4)
    for t in range(4):
        row = np.zeros(5)
        row[t : t + 2] = -0.9, 1.0
        precision += np.outer(row, row) / 0.5
    mean = np.linalg.solve(precision, np.concatenate([[0.0], np.asarray(y[1]) / 0.3]))
    np.testing.assert_allclose(other["z"].mean[:, 1], mean[1:], atol=1e-12)


# -- grids and hubs ---------------------------------------------------------------------------------------------------


def lattice_loop(y):
    rows, columns = y.shape
    x = [[ngmp.sample("x", Normal(0.0, variance=4.0)) for _ in range(columns)] for _ in range(rows)]
    for i in range(1, rows):
        for j in range(columns):
            ngmp.sample("down", Normal(x[i][j] - x[i - 1][j], variance=0.5), obs=0.0)
    for i in range(rows):
        for j in range(1, columns):
            ngmp.sample("right", Normal(x[i][j] - x[i][j - 1], variance=0.5), obs=0.0)
    for i in range(rows):
        for j in range(columns):
            ngmp.sample("y", Normal(x[i][j], variance=0.7), obs=y[i, j])


def lattice_array(y):
    x = ngmp.sample("x", Normal(jnp.zeros(y.shape), variance=4.0))
    ngmp.sample("down", Normal(x[1:] - x[:-1], variance=0.5), obs=jnp.zeros_like(y[1:]))
    ngmp.sample("right", Normal(x[:, 1:] - x[:, :-1], variance=0.5), obs=jnp.zeros_like(y[:, 1:]))
    ngmp.sample("y", Normal(x, variance=0.7), obs=y)


def hubs_loop(y):
    """A ragged collection: groups of other sizes, each with a mean of its own."""
    at = 0
    for size in (3, 1, 4, 2, 6, 5):
        m = ngmp.sample("m", Normal(0.0, variance=2.0))
        for _ in range(size):
            x = ngmp.sample("x", Normal(m, variance=0.5))
            ngmp.sample("y", Normal(x, variance=0.3), obs=y[0, at])
            at += 1


def hubs_array(y):
    m = ngmp.sample("m", Normal(jnp.zeros(6), variance=2.0))
    x = ngmp.sample("x", Normal(m[np.repeat(np.arange(6), (3, 1, 4, 2, 6, 5))], variance=0.5))
    ngmp.sample("y", Normal(x, variance=0.3), obs=y[0])


@pytest.mark.parametrize(
    "loop, array, shape, kinds",
    [
        (lattice_loop, lattice_array, (9, 3), ["dense"]),
        (hubs_loop, hubs_array, (1, 21), ["chain", "chain", "star"]),  # hubs of one or two are chains
    ],
)
def test_loops_are_their_array_form(loop, array, shape, kinds):
    y = jnp.asarray(np.random.default_rng(1).normal(size=shape))
    assert plan_of(loop, y) == plan_of(array, y)
    assert [kind for kind, *_ in plan_of(loop, y)[0]] == kinds  # one executor for all parts of a kind
    one, other = (ngmp.compile(m)(y=y) for m in (loop, array))
    np.testing.assert_allclose(one["x"].mean.reshape(-1), other["x"].mean.reshape(-1), atol=1e-12)
    np.testing.assert_allclose(one.free_energy, other.free_energy, rtol=1e-12)


# -- trees that mix families ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_random_trees_of_classes_and_numbers_by_enumeration(seed):
    """Classes on a random tree, numbers on another, classes seen through numbers; all tables differ."""
    rng = np.random.default_rng(seed)
    n, k = 6, 3
    parents = [int(rng.integers(i)) if i else -1 for i in range(n)]
    first, tables = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), (n, k))
    means, y, u = rng.normal(size=(n, k)), rng.normal(size=n), rng.normal(size=n)

    def model(y, u):
        z, x = [], []
        for i, p in enumerate(parents):
            probs = first if p < 0 else ngmp.take(tables[i], z[p])
            z.append(ngmp.sample("z", Categorical(probs=probs)))
            ngmp.sample("y", Normal(ngmp.take(means[i], z[i]), variance=0.4), obs=y[i])
            x.append(ngmp.sample("x", Normal(0.0 if p < 0 else 0.7 * x[p], variance=0.8)))
            ngmp.sample("u", Normal(x[i], variance=0.5), obs=u[i])

    post = ngmp.compile(model)(y=jnp.asarray(y), u=jnp.asarray(u))
    states = np.asarray(list(itertools.product(range(k), repeat=n)))
    logs = np.log(first)[states[:, 0]]
    for i, p in enumerate(parents):
        logs = logs + (np.log(tables[i])[states[:, p], states[:, i]] if p >= 0 else 0.0)
        logs = logs - 0.5 * (y[i] - means[i][states[:, i]]) ** 2 / 0.4 - 0.5 * np.log(2 * np.pi * 0.4)
    evidence = logsumexp(logs)
    weight = np.exp(logs - evidence)
    for i in range(n):
        np.testing.assert_allclose(post["z"].probs[i], [weight @ (states[:, i] == c) for c in range(k)], atol=1e-11)
    lower = np.eye(n)
    for i, p in enumerate(parents):
        lower[i] = np.eye(n)[i] + (0.7 * lower[p] if p >= 0 else 0)
    prior = 0.8 * lower @ lower.T
    total = prior + 0.5 * np.eye(n)
    np.testing.assert_allclose(post["x"].mean, prior @ np.linalg.solve(total, u), atol=1e-11)
    energy = 0.5 * u @ np.linalg.solve(total, u) + 0.5 * np.linalg.slogdet(2 * np.pi * total)[1]
    np.testing.assert_allclose(post.free_energy, energy - evidence, rtol=1e-11)


# -- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_deterministic_cycle_cannot_be_closed():
    """A node is declared after what it depends on; a variable kept from another run is no way around it."""
    kept = []

    def model(y):
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        kept.append(ngmp.apply(jnp.sin, kept[0] if kept else x, name="h"))
        ngmp.sample("y", Normal(kept[-1], variance=1.0), obs=y)

    program = ngmp.compile(model)
    program.lower(y=0.5)
    with pytest.raises(ModelError, match="'h'.*a variable of another model"):
        program(y=np.zeros(2))  # a new shape: the function runs again


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_an_improper_joint_says_so_and_stays_finite():
    """A factor that grows faster than the prior falls: there is no posterior, and none is made up."""

    def model():
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.factor("push", lambda x: x**2, x)

    post = ngmp.compile(model, max_sweeps=200)()
    assert not bool(post.converged) and "improper" in post.reason
    assert np.isfinite(post["x"].mean) and post["x"].variance > 0
