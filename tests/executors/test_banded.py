"""Loopy Gaussian graphs of any size, dense or along a band, against dense and sparse algebra; choosing executors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import ngmp_compiler as ngmp
from ngmp_compiler import ModelError, MvNormal, Normal, Poisson, dot, exp


class Joint:
    """A Gaussian density as a list of rows: `weight (row . x - target)^2 / 2` each."""

    def __init__(self, size):
        self.size, self.rows, self.targets, self.variances = size, [], [], []

    def add(self, terms, target, variance):
        self.rows.append(terms)
        self.targets.append(target)
        self.variances.append(variance)

    def solve(self):
        """Mean, covariance and minus the log-evidence of everything that was observed or declared."""
        a = np.zeros((len(self.rows), self.size))
        for n, terms in enumerate(self.rows):
            for i, c in terms:
                a[n, i] += c
        weight, target = 1 / np.asarray(self.variances), np.asarray(self.targets)
        precision, linear = a.T @ (weight[:, None] * a), a.T @ (weight * target)
        mean = np.linalg.solve(precision, linear)
        energy = 0.5 * np.sum(weight * target**2 + np.log(2 * np.pi / weight)) - 0.5 * linear @ mean
        energy += 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * self.size * np.log(2 * np.pi)
        return mean, np.linalg.inv(precision), energy


def grid(y):
    """A lattice, by arrays."""
    x = ngmp.sample("x", Normal(jnp.zeros(y.shape), variance=4.0))
    ngmp.sample("down", Normal(x[1:] - x[:-1], variance=0.5), obs=jnp.zeros((y.shape[0] - 1, y.shape[1])))
    ngmp.sample("right", Normal(x[:, 1:] - 0.9 * x[:, :-1], variance=0.3), obs=jnp.zeros((y.shape[0], y.shape[1] - 1)))
    ngmp.sample("y", Normal(x, variance=0.7), obs=y)


def grid_loop(y):
    """The same lattice, by loops."""
    rows, columns = y.shape
    x = [[ngmp.sample("x", Normal(0.0, variance=4.0)) for _ in range(columns)] for _ in range(rows)]
    for i in range(rows):
        for j in range(columns):
            if i:
                ngmp.sample("down", Normal(x[i][j] - x[i - 1][j], variance=0.5), obs=0.0)
            if j:
                ngmp.sample("right", Normal(x[i][j] - 0.9 * x[i][j - 1], variance=0.3), obs=0.0)
            ngmp.sample("y", Normal(x[i][j], variance=0.7), obs=y[i, j])


def grid_joint(y):
    rows, columns = y.shape
    joint = Joint(y.size)
    for i in range(rows):
        for j in range(columns):
            at = i * columns + j
            joint.add([(at, 1.0)], 0.0, 4.0)
            joint.add([(at, 1.0)], y[i, j], 0.7)
            if i:
                joint.add([(at, 1.0), (at - columns, -1.0)], 0.0, 0.5)
            if j:
                joint.add([(at, 1.0), (at - 1, -0.9)], 0.0, 0.3)
    return joint


def plan_of(program, **inputs):
    return [(e.name, e.layout) for e in program.lower(**inputs).plan.gaussian if hasattr(e, "layout")]


@pytest.mark.parametrize("model, executor", [(grid, "banded"), (grid_loop, "dense")])
def test_a_lattice_is_exact(model, executor):
    y = np.random.default_rng(0).normal(size=(12, 4))
    post = ngmp.compile(model, executors={"x": executor})(y=jnp.asarray(y))
    mean, covariance, energy = grid_joint(y).solve()
    np.testing.assert_allclose(post["x"].mean.reshape(-1), mean, atol=1e-11)
    np.testing.assert_allclose(post["x"].variance.reshape(-1), np.diag(covariance), atol=1e-12)
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-11)


def test_ten_thousand_sites_of_a_lattice():
    y = np.random.default_rng(1).normal(size=(100, 100))
    program = ngmp.compile(grid)
    ((name, layout),) = plan_of(program, y=jnp.asarray(y))
    assert name == "banded" and layout.size == 100 and not layout.border
    post = program(y=jnp.asarray(y))
    joint = grid_joint(y)
    rows = [(n, i, c) for n, terms in enumerate(joint.rows) for i, c in terms]
    n, i, c = map(np.asarray, zip(*rows, strict=True))
    a = scipy.sparse.coo_array((c, (n, i))).tocsc()
    weight = scipy.sparse.diags_array(1 / np.asarray(joint.variances))
    lu = scipy.sparse.linalg.splu((a.T @ weight @ a).tocsc())
    np.testing.assert_allclose(post["x"].mean.reshape(-1), lu.solve(a.T @ (weight @ joint.targets)), atol=1e-9)
    some = [0, 57, 4950, 9999]
    unit = np.zeros((y.size, len(some)))
    unit[some, np.arange(len(some))] = 1
    np.testing.assert_allclose(post["x"].variance.reshape(-1)[np.asarray(some)], lu.solve(unit)[some, np.arange(4)])


# -- bands with a border ----------------------------------------------------------------------------------------------


def regression_series(y, phi, counts=None):
    """A level with skip links, seen together with an intercept and regression weights that all data share."""
    b = ngmp.sample("b", Normal(1.0, variance=2.0))
    w = ngmp.sample("w", MvNormal(jnp.zeros(phi.shape[1]), covariance=1.5))
    x = ngmp.sample("x", Normal(jnp.zeros(len(y)), variance=3.0))
    ngmp.sample("step", Normal(x[1:] - x[:-1], variance=0.2), obs=jnp.zeros(len(y) - 1))
    ngmp.sample("season", Normal(x[4:] - 0.5 * x[:-4] + 0.1, variance=0.4), obs=jnp.zeros(len(y) - 4))
    if counts is None:
        ngmp.sample("y", Normal(x + b + dot(phi, w), variance=0.5), obs=y)
    else:
        ngmp.sample("y", Poisson(exp(x + b + dot(phi, w))), obs=counts)


@pytest.fixture(scope="module")
def series():
    rng = np.random.default_rng(2)
    return {"y": jnp.asarray(rng.normal(size=300)), "phi": jnp.asarray(rng.normal(size=(300, 3)))}


def test_a_band_with_a_border_is_exact(series):
    program = ngmp.compile(regression_series)
    ((name, layout),) = plan_of(program, **series)
    assert name == "banded" and layout.border == 4 and layout.size == 16
    post = program(**series)
    y, phi = map(np.asarray, series.values())
    n = len(y)
    joint = Joint(n + 4)  # x, b, w
    joint.add([(n, 1.0)], 1.0, 2.0)
    for i in range(3):
        joint.add([(n + 1 + i, 1.0)], 0.0, 1.5)
    for k in range(n):
        joint.add([(k, 1.0)], 0.0, 3.0)
        joint.add([(k, 1.0), (n, 1.0), *((n + 1 + i, phi[k, i]) for i in range(3))], y[k], 0.5)
        if k >= 1:
            joint.add([(k, 1.0), (k - 1, -1.0)], 0.0, 0.2)
        if k >= 4:
            joint.add([(k, 1.0), (k - 4, -0.5)], -0.1, 0.4)
    mean, covariance, energy = joint.solve()
    np.testing.assert_allclose(post["x"].mean, mean[:n], atol=1e-11)
    np.testing.assert_allclose(post["x"].variance, np.diag(covariance)[:n], atol=1e-12)
    np.testing.assert_allclose(post["b"].variance, covariance[n, n], atol=1e-12)
    np.testing.assert_allclose(post["w"].mean, mean[n + 1 :], atol=1e-11)
    np.testing.assert_allclose(post["w"].covariance, covariance[n + 1 :, n + 1 :], atol=1e-12)
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-11)
    prediction = program.predict(post, "y", **series)
    rows = np.concatenate([np.eye(n), np.ones((n, 1)), phi], 1)
    np.testing.assert_allclose(prediction.epistemic, np.sum(rows @ covariance * rows, 1), rtol=1e-9)


@pytest.mark.slow
def test_leaves_that_move_on_a_band(series):
    """Counts on a band with a border and densely: functional moments, fixed point, and derivatives."""
    inputs = {k: v[:40] for k, v in series.items()}
    counts = jnp.asarray(np.random.default_rng(3).poisson(2.0, 40))
    dense = ngmp.compile(regression_series, executors={"x": "dense"}, tol=1e-11)(**inputs, counts=counts)
    program = ngmp.compile(regression_series, executors={"x": "banded"}, tol=1e-11)

    def run(scale):
        post = program(y=inputs["y"], phi=scale * inputs["phi"], counts=counts)
        return post.free_energy, post

    run = jax.jit(jax.value_and_grad(run, has_aux=True))
    (_, post), slope = run(1.0)
    assert bool(dense.converged) and bool(post.converged)
    for name in ("x", "b", "w"):
        np.testing.assert_allclose(post[name].mean, dense[name].mean, atol=1e-9)
    np.testing.assert_allclose(post["w"].covariance, dense["w"].covariance, atol=1e-9)
    np.testing.assert_allclose(post.free_energy, dense.free_energy, rtol=1e-10)
    numeric = (run(1.0 + 1e-5)[0][0] - run(1.0 - 1e-5)[0][0]) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)


# -- many parts -------------------------------------------------------------------------------------------------------


def equations(program, **inputs):
    return str(jax.make_jaxpr(lambda kw: program(**kw).free_energy)(inputs)).count(" = ")


def triangles(y):
    """Loops of three, one for every row: declared one by one."""
    for k in range(len(y)):
        x = [ngmp.sample("x", Normal(0.0, variance=1.0 + i)) for i in range(3)]
        for i in range(3):
            ngmp.sample("tie", Normal(x[i] - 0.7 * x[i - 1], variance=0.5), obs=y[k, i])


def test_many_small_loops_share_one_executor():
    y = np.random.default_rng(4).normal(size=(50, 3))
    program = ngmp.compile(triangles)
    ((name, layout),) = plan_of(program, y=jnp.asarray(y))
    assert (name, layout.lanes, layout.size) == ("dense", 50, 3)
    post = program(y=jnp.asarray(y))
    total = 0.0
    for k in range(50):
        joint = Joint(3)
        for i in range(3):
            joint.add([(i, 1.0)], 0.0, 1.0 + i)
            joint.add([(i, 1.0), ((i - 1) % 3, -0.7)], y[k, i], 0.5)
        mean, covariance, energy = joint.solve()
        np.testing.assert_allclose(post["x"].mean[3 * k : 3 * k + 3], mean, atol=1e-12)
        np.testing.assert_allclose(post["x"].variance[3 * k : 3 * k + 3], np.diag(covariance), atol=1e-12)
        total += energy
    np.testing.assert_allclose(post.free_energy, total, rtol=1e-11)
    assert equations(program, y=jnp.zeros((200, 3))) == equations(program, y=jnp.asarray(y))


def ragged(y, lengths, vectors=False):
    """Chains of many lengths, of scalars or of vectors."""
    at = 0
    for n in lengths:
        x = None
        for _ in range(n):
            if vectors:
                mean = jnp.zeros(2) if x is None else np.asarray([[0.9, 0.2], [-0.1, 0.8]]) @ x
                x = ngmp.sample("x", MvNormal(mean, covariance=1.0))
                ngmp.sample("y", Normal(dot(np.asarray([1.0, 0.5]), x), variance=0.5), obs=y[at])
            else:
                x = ngmp.sample("x", Normal(0.0 if x is None else 0.9 * x, variance=1.0))
                ngmp.sample("y", Normal(x, variance=0.5), obs=y[at])
            at += 1


@pytest.mark.parametrize("vectors", [False, True])
def test_ragged_chains(vectors):
    lengths = (3, 9, 4, 17, 6, 5, 2)
    y = np.random.default_rng(5).normal(size=sum(lengths))
    program = ngmp.compile(ragged)
    post = program(y=jnp.asarray(y), lengths=lengths, vectors=vectors)
    d = 2 if vectors else 1
    step, seen = (np.asarray([[0.9, 0.2], [-0.1, 0.8]]), [1.0, 0.5]) if vectors else (np.asarray([[0.9]]), [1.0])
    joint, at = Joint(d * len(y)), 0
    for n in lengths:
        for k in range(n):
            for i in range(d):
                before = [(d * (at - 1) + j, -step[i, j]) for j in range(d)] if k else []
                joint.add([(d * at + i, 1.0), *before], 0.0, 1.0)
            joint.add([(d * at + i, seen[i]) for i in range(d)], y[at], 0.5)
            at += 1
    mean, covariance, energy = joint.solve()
    np.testing.assert_allclose(post["x"].mean.reshape(-1), mean, atol=1e-11)
    spread = jnp.diagonal(post["x"].covariance, axis1=1, axis2=2) if vectors else post["x"].variance
    np.testing.assert_allclose(spread.reshape(-1), np.diag(covariance), atol=1e-11)
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-11)
    few = len(program.lower(y=jnp.asarray(y), lengths=lengths, vectors=vectors).plan.gaussian)
    assert few <= 3  # lanes of like lengths


@pytest.mark.parametrize("seed, executor", [(0, "dense"), (1, "banded")])
def test_random_loopy_graphs_of_thirty_variables(seed, executor):
    """Random ties among thirty scalars, with and without a band."""
    rng = np.random.default_rng(seed)
    ties = [tuple(int(i) for i in rng.choice(30, rng.integers(2, 4), replace=False)) for _ in range(45)]
    scales, y = rng.normal(size=(45, 3)), rng.normal(size=45)

    def model(y):
        x = [ngmp.sample("x", Normal(0.1, variance=2.0)) for _ in range(30)]
        for n, tie in enumerate(ties):
            mean = sum(scales[n, j] * x[i] for j, i in enumerate(tie))
            ngmp.sample("tie", Normal(mean, variance=0.3), obs=y[n])

    joint = Joint(30)
    for i in range(30):
        joint.add([(i, 1.0)], 0.1, 2.0)
    for n, tie in enumerate(ties):
        joint.add([(i, scales[n, j]) for j, i in enumerate(tie)], y[n], 0.3)
    mean, covariance, energy = joint.solve()
    post = ngmp.compile(model, executors={"x": executor})(y=jnp.asarray(y))
    np.testing.assert_allclose(post["x"].mean, mean, atol=1e-10)
    np.testing.assert_allclose(post["x"].variance, np.diag(covariance), atol=1e-10)
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-10)


# -- choosing ---------------------------------------------------------------------------------------------------------


def chain(y):
    z = ngmp.sample("z", Normal(0.0, variance=1.0))
    for k in range(5):
        z = ngmp.sample("z", Normal(0.8 * z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=0.3), obs=y[k])


def hub(y):
    w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
    s = ngmp.sample("s", Normal(dot(np.arange(10.0).reshape(5, 2) / 9, w), variance=0.5))
    ngmp.sample("y", Normal(s, variance=0.2), obs=y)


def weights(y):
    w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
    ngmp.sample("y", Poisson(exp(dot(np.arange(10.0).reshape(5, 2) / 9, w))), obs=jnp.asarray([1, 0, 2, 3, 1]))
    del y


def sums(y):
    b = ngmp.sample("b", Normal(0.5, variance=2.0))
    z = ngmp.sample("z", Normal(jnp.zeros((5, 3)), variance=0.7))
    ngmp.sample("y", Normal(z.sum(-1) + b, variance=0.2), obs=y)


CHOICES = {
    "z": (chain, ("chain", "tree", "dense", "banded")),
    "w": (hub, ("star", "weight", "function", "dense", "banded")),
    "w alone": (weights, ("weight", "function")),
    "z of sums": (sums, ("sums", "dense", "banded")),
}


@pytest.mark.parametrize("model, kinds", CHOICES.values(), ids=CHOICES)
def test_every_executor_that_fits_gives_the_same(model, kinds):
    y = jnp.asarray([0.1, 0.5, -0.3, 0.2, 1.0])
    name = "w" if model in (hub, weights) else "z"
    text = ngmp.compile(model).lower(y=y).describe()
    posts = []
    for kind in kinds:
        program = ngmp.compile(model, executors={name: kind}, tol=1e-11)
        posts.append(program(y=y))
        said = program.lower(y=y).describe()
        assert f"{kind} space" in said if kind in ("weight", "function") else f"  {kind}: " in said
        if kind not in ("weight", "function", "sums", "star"):
            assert kind in text  # printed as what was picked, or as what would do too
    for post in posts[1:]:
        np.testing.assert_allclose(post[name].mean, posts[0][name].mean, atol=1e-9)
        np.testing.assert_allclose(post.free_energy, posts[0].free_energy, rtol=1e-9)


@pytest.mark.parametrize("kind", ["chain", "star"])
def test_rows_of_one_functional_may_run_either_way(kind):
    """x1 - x0 and x1 - x2 along a chain, x0 - x1 and x1 - x2 about a hub: both rows of one factor move."""
    left, right = ([1, 1], [0, 2]) if kind == "chain" else ([0, 1], [1, 2])

    def model(y):
        tau = ngmp.sample("tau", ngmp.Gamma(2.0, rate=1.0))
        x = ngmp.sample("x", Normal(jnp.zeros(3), variance=1.0))
        ngmp.sample("y", Normal(x[np.asarray(left)] - x[np.asarray(right)], precision=tau), obs=y)

    y = jnp.asarray([0.5, -1.0])
    post, expected = (ngmp.compile(model, executors={"x": e}, tol=1e-11)(y=y) for e in (kind, "dense"))
    assert post.converged
    np.testing.assert_allclose(post["x"].mean, expected["x"].mean, atol=1e-9)
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=1e-9)


def test_choices_that_do_not_fit_are_listed_at_once():
    def model(y):
        x = [ngmp.sample(n, Normal(0.0, variance=1.0)) for n in "abc"]
        for i in range(3):
            ngmp.sample("tie", Normal(x[i] - x[i - 1], variance=0.5), obs=y)
        u = ngmp.sample("u", Normal(0.0, variance=1.0))
        ngmp.sample("v", Normal(u, variance=1.0))
        ngmp.sample("lone", Normal(0.0, variance=1.0))

    def refused(**asked):
        with pytest.raises(ModelError) as error:
            ngmp.compile(model, executors=asked)(y=0.5)
        return str(error.value)

    text = refused(a="chain", b="dense", u="function", lone="tree")
    assert "4 problems" in text
    assert "'a'" in text and "no path of equal ones" in text and "Here dense, banded would do" in text
    assert "'b'" in text and "'a' asks for 'chain' for the same variables" in text
    assert "no vector at the hub" in text and "nothing to choose" in text
    assert "he executors of Gaussian variables are independent, chain" in refused(a="magic")
    assert "another functional ties it" in refused(a="sums")


def test_what_is_too_large_even_for_a_band(monkeypatch):
    monkeypatch.setattr("ngmp_compiler.executors.gaussian.bands.BAND_LIMIT", 1000)
    monkeypatch.setattr("ngmp_compiler.executors.gaussian.bands.DENSE_LIMIT", 50)
    with pytest.raises(ModelError, match=r"down.*right.*120 Gaussian dimensions in loops.*band of them is \d+ wide"):
        ngmp.compile(grid)(y=jnp.zeros((12, 10)))
