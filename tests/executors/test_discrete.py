"""Networks of categorical variables against enumeration: loops, tables of several indices, the approximate executor."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Categorical
from ngmp_compiler.errors import DataError, ModelError
from tests.executors.categorical_graphs import (
    enumerate_states,
    random_tree,
    tree_data,
    tree_model,
)
from tests.inside import core_line, tables_of

# -- named networks ---------------------------------------------------------------------------------------------------

SPRINKLER = {0: (0.36101, 0.11873, 0.06206), 1: (0.57580, 0.70793, 0.42976)}


@pytest.mark.core32
@pytest.mark.parametrize("wet", [0, 1])
@pytest.mark.parametrize("executor", [None, "enumeration"])
def test_sprinkler_is_exact(wet, executor, x64):
    program = ngmp.compile(ngmp_models.sprinkler, executors={"rain": executor} if executor else {})
    post = program(wet=np.asarray(wet))
    found = [float(post[name].probs[1]) for name in ("cloudy", "rain", "sprinkler")]
    np.testing.assert_allclose(found, SPRINKLER[wet], atol=6e-6)
    weights = np.zeros((2, 2, 2))
    for c, r, s in itertools.product(range(2), repeat=3):
        rain, spray = [[0.8, 0.2], [0.2, 0.8]][c][r], [[0.5, 0.5], [0.9, 0.1]][c][s]
        dry = [[1.0, 0.1], [0.1, 0.01]][s][r]
        weights[c, r, s] = 0.5 * rain * spray * (1 - dry if wet else dry)
    tol = 1e-12 if x64 else 1e-5
    np.testing.assert_allclose(found, [weights[1].sum(), weights[:, 1].sum(), weights[..., 1].sum()] / weights.sum(),
                               rtol=tol)  # fmt: skip
    np.testing.assert_allclose(-post.free_energy, np.log(weights.sum()), rtol=tol)
    assert bool(post.converged) and post.approximate == ()
    assert core_line(program, wet=np.asarray(wet)).startswith(f"  {executor or 'elimination'}:")


def test_sprinkler_by_flooding_is_flagged():
    program = ngmp.compile(ngmp_models.sprinkler, executors={"rain": "flooding"})
    post = program(wet=np.asarray(1))
    assert bool(post.converged)
    assert post.approximate == ("flooding over ['cloudy', 'rain', 'sprinkler']",)
    assert "approximate: flooding" in post.reason
    assert "approximate (damped loopy belief propagation)" in core_line(program, wet=np.asarray(1))
    assert "exact" not in program.lower(wet=np.asarray(1)).describe().split("solver")[1]
    found = [float(post[name].probs[1]) for name in ("cloudy", "rain", "sprinkler")]
    np.testing.assert_allclose(found, SPRINKLER[1], atol=0.1)
    assert abs(found[1] - SPRINKLER[1][1]) > 0.01
    # Dry grass has a table of rank one, which cuts the loop: there it is exact.
    post = program(wet=np.asarray(0))
    found = [float(post[name].probs[1]) for name in ("cloudy", "rain", "sprinkler")]
    np.testing.assert_allclose(found, SPRINKLER[0], atol=6e-6)


def test_a_plate_of_networks_shares_one_executor():
    program = ngmp.compile(ngmp_models.sprinkler)
    wet = np.array([0, 1, 1, 0])
    post = program(wet=wet)
    np.testing.assert_allclose(post["rain"].probs[:, 1], [SPRINKLER[w][1] for w in wet], atol=6e-6)
    assert core_line(program, wet=wet).count("elimination") == 1 and "4 networks" in core_line(program, wet=wet)
    batched = jax.vmap(lambda w: program(wet=w)["rain"].probs[1])(jnp.asarray(wet))
    np.testing.assert_allclose(batched, post["rain"].probs[:, 1], rtol=1e-12)


def test_skills():
    post = ngmp.compile(ngmp_models.skills)(score=np.full(3, 0.1))
    found = [float(post[f"s{i}"].probs[1]) for i in range(3)]
    np.testing.assert_allclose(found, [0.9872448979591837, 0.06377551020408162, 0.4719387755102041], rtol=1e-14)


def test_prediction_with_several_indices():
    """`P(wet)` in gardens where it was not seen, under the joint of its two causes."""
    program = ngmp.compile(_masked_sprinkler)
    wet, seen = np.array([1, 1]), np.array([True, False])
    post = program(wet=wet, seen=seen)
    found = program.predict(post, "wet", wet=wet, seen=seen)
    # Summed over clouds, rain and sprinkler by hand.
    expected = sum(
        0.5 * rain * spray * [[0.0, 0.9], [0.9, 0.99]][s][r]
        for c in range(2)
        for r, rain in enumerate([[0.8, 0.2], [0.2, 0.8]][c])
        for s, spray in enumerate([[0.5, 0.5], [0.9, 0.1]][c])
    )
    np.testing.assert_allclose(found.mean[1], [1 - expected, expected], rtol=1e-10)
    np.testing.assert_allclose(found.log_density[1], np.log(expected), rtol=1e-10)
    np.testing.assert_allclose(post["rain"].probs[1, 1], 0.5, rtol=1e-12)


def _masked_sprinkler(wet, seen):
    cloudy = ngmp.sample("cloudy", Categorical(probs=np.full((2, 2), 0.5)))
    rain = ngmp.sample("rain", Categorical(probs=ngmp.take(np.array([[0.8, 0.2], [0.2, 0.8]]), cloudy)))
    spray = ngmp.sample("sprinkler", Categorical(probs=ngmp.take(np.array([[0.5, 0.5], [0.9, 0.1]]), cloudy)))
    table = np.array([[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]])
    ngmp.sample("wet", Categorical(probs=ngmp.take(table, spray, rain)), obs=wet, mask=seen)


# -- loops ------------------------------------------------------------------------------------------------------------


def loopy_model(scopes, sizes):
    """Every variable has a flat prior; factors are observed outcomes of tables with several indices."""

    def model(tables):
        z = [ngmp.sample(f"z{i}", Categorical(probs=np.full(k, 1 / k))) for i, k in enumerate(sizes)]
        for a, scope in enumerate(scopes):
            ngmp.sample(f"f{a}", Categorical(probs=ngmp.take(tables[a], *(z[i] for i in scope))), obs=0)

    return model


def loopy_case(seed, strength=1.0):
    rng = np.random.default_rng(seed)
    sizes = [int(k) for k in rng.integers(2, 4, 6)]
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4, 5), (5, 0)]
    tables = []
    for scope in scopes:
        first = 0.5 * np.exp(-strength * rng.random([sizes[i] for i in scope]))
        tables.append(np.stack([first, 1 - first], -1))
    logs = [((i,), np.full(k, -np.log(k))) for i, k in enumerate(sizes)]
    return sizes, scopes, tables, logs + [(s, np.log(t[..., 0])) for s, t in zip(scopes, tables, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_loops_are_exact_by_elimination(seed):
    sizes, scopes, tables, logs = loopy_case(seed, 3.0)
    program = ngmp.compile(loopy_model(scopes, sizes))
    post = program(tables=tables)
    marginal, log_z = enumerate_states(sizes, logs)
    for i in range(len(sizes)):
        np.testing.assert_allclose(post[f"z{i}"].probs, marginal((i,)), rtol=1e-12)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-12)
    assert post.approximate == ()
    joints = tables_of(program, tables=tables)
    for a, scope in enumerate(scopes):
        np.testing.assert_allclose(*joints[f"f{a}"].values(), marginal(scope), rtol=1e-11)


@pytest.mark.slow
def test_flooding_is_near_on_weak_loops_and_exact_without():
    sizes, scopes, tables, logs = loopy_case(1, 0.3)
    post = ngmp.compile(loopy_model(scopes, sizes), executors={"z0": "flooding"})(tables=tables)
    marginal, log_z = enumerate_states(sizes, logs)
    for i in range(len(sizes)):
        np.testing.assert_allclose(post[f"z{i}"].probs, marginal((i,)), atol=1e-3)
    np.testing.assert_allclose(-post.free_energy, log_z, atol=1e-3)
    rng = np.random.default_rng(2)
    parents, data = random_tree(rng, 12), tree_data(rng, 12, 3)
    tree, flood = (ngmp.compile(tree_model(parents, 3), executors={"z": e}) for e in ("tree", "flooding"))
    exact, found = tree(**data), flood(**data)
    assert bool(found.converged) and found.approximate
    np.testing.assert_allclose(found["z"].probs, exact["z"].probs, atol=1e-11)
    np.testing.assert_allclose(found.free_energy, exact.free_energy, atol=1e-10)
    for (name, rows), other in zip(tables_of(flood, **data).items(), tables_of(tree, **data).values(), strict=True):
        np.testing.assert_allclose(list(rows.values()), list(other.values()), atol=1e-10, err_msg=name)


def test_wide_loops_are_flooded_and_say_why():
    """An Ising grid of 81 variables: the default is flooding; by force it would be summed out."""
    side = 9
    rng = np.random.default_rng(0)
    field = rng.normal(size=(side, side)) * 0.3

    def grid(field, coupling):
        agree = jnp.exp(coupling * jnp.array([[0.0, -1.0], [-1.0, 0.0]]))
        z = ngmp.sample("z", Categorical(logits=jnp.stack([jnp.zeros((side, side)), field], -1)))
        tie = jnp.stack([agree, 1 - agree], -1)
        across, down = Categorical(probs=ngmp.take(tie, z[:, 1:], z[:, :-1])), ngmp.take(tie, z[1:], z[:-1])
        ngmp.sample("across", across, obs=np.zeros((side, side - 1), int))
        ngmp.sample("down", Categorical(probs=down), obs=np.zeros((side - 1, side), int))

    program = ngmp.compile(grid)
    post = program(field=field, coupling=0.2)
    assert post.approximate and bool(post.converged)
    assert "more than the 64 variables" in core_line(program, field=field, coupling=0.2)
    forced = ngmp.compile(grid, executors={"z": "elimination"})
    assert "elimination: 81 categorical variables, as asked" in core_line(forced, field=field, coupling=0.2)
    # Row by row, with the 2^9 states of a row.
    spins = np.array(list(itertools.product([0, 1], repeat=side)))
    within = -0.2 * (spins[:, 1:] != spins[:, :-1]).sum(1)
    between = -0.2 * (spins[:, None] != spins[None]).sum(-1)
    rows = [within + spins @ f - np.logaddexp(0, f).sum() for f in field]
    down, up = [rows[0]], [np.zeros(len(spins))]
    for row in rows[1:]:
        down.append(row + logsumexp(down[-1][:, None] + between, axis=0))
    for row in rows[:0:-1]:
        up.append(logsumexp(between + (row + up[-1])[None], axis=1))
    log_z = logsumexp(down[-1])
    exact = [np.exp(a + b - log_z) @ spins for a, b in zip(down, reversed(up), strict=True)]
    np.testing.assert_allclose(post["z"].probs[..., 1], exact, atol=0.01)
    np.testing.assert_allclose(-post.free_energy, log_z, atol=0.1)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_flooding_that_does_not_settle_says_so():
    """Strong and frustrated: three variables that all want to differ, with fields against it."""
    differ = np.array([[1e-8, 1.0], [1.0, 1e-8]])
    tie = np.stack([differ, 1 - differ], -1)

    def model(tilt):
        z = [ngmp.sample(f"z{i}", Categorical(probs=tilt)) for i in range(5)]
        for i, j in itertools.combinations(range(5), 2):
            ngmp.sample(f"t{i}{j}", Categorical(probs=ngmp.take(tie, z[i], z[j])), obs=0)

    post = ngmp.compile(model, executors={"z0": "flooding"})(tilt=np.array([0.3, 0.7]))
    assert not bool(post.converged)
    assert "flooding" in post.reason and "not converged" in post.reason
    assert np.isfinite(float(post.free_energy))
    assert all(np.isfinite(np.asarray(post[f"z{i}"].probs)).all() for i in range(5))


# -- transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["tree", "elimination", "flooding"])
def test_gradients_and_vmap(executor):
    rng = np.random.default_rng(4)
    parents, data = np.array([0, 0, 0, 1, 1, 2]), tree_data(rng, 6, 2)
    program = ngmp.compile(tree_model(parents, 2), executors={"z": executor})

    def value(theta):
        emission = jax.nn.softmax(jnp.asarray(theta).reshape(2, 3))
        post = program(y=data["y"], transition=data["transition"], emission=emission)
        return post.free_energy + jnp.sum(jnp.sin(3 * post["z"].probs[3]))

    theta = rng.normal(size=6)
    step = 1e-5 * np.eye(6)
    numeric = [(value(theta + s) - value(theta - s)) / 2e-5 for s in step]
    np.testing.assert_allclose(jax.grad(value)(theta), numeric, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(value)(jnp.asarray(theta)), numeric, rtol=1e-6, atol=1e-8)
    batch = theta + rng.normal(size=(3, 6))
    np.testing.assert_allclose(jax.vmap(value)(batch), [value(b) for b in batch], rtol=1e-10)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_overrides_are_checked_all_at_once():
    def model():
        a = ngmp.sample("a", Categorical(probs=np.full(2, 0.5)))
        b = ngmp.sample("b", Categorical(probs=ngmp.take(np.eye(2), a)))
        ngmp.sample("c", Categorical(probs=ngmp.take(np.full((2, 2, 2), 0.5), a, b)))
        ngmp.sample("lone", Categorical(probs=np.full(2, 0.5)))

    with pytest.raises(ModelError) as error:
        ngmp.compile(model, executors={"a": "chain", "lone": "tree", "b": "magic"})()
    text = str(error.value)
    assert "3 problems" in text
    assert "asks for 'chain'" in text and "no path" in text and "elimination is the default" in text
    assert "nothing to choose" in text and "he executors of categorical variables are" in text
    with pytest.raises(ModelError, match="names no variable"):
        ngmp.compile(model, executors={"nobody": "chain"})()


def test_bad_tables():
    def model(table, out=1):
        a, b = (ngmp.sample(n, Categorical(probs=np.full(2, 0.5))) for n in "ab")
        ngmp.sample("c", Categorical(probs=ngmp.take(table, a, b)), obs=out)

    good = np.full((2, 2, 3), 1 / 3)
    program = ngmp.compile(model)
    assert bool(program(table=good).converged)
    with pytest.raises(DataError, match="site 'c'.*sum to one"):
        program(table=good * 2)
    with pytest.raises(DataError, match="outcomes must be integers from 0 to 2"):
        program(table=good, out=np.asarray(3))
    with pytest.raises(ModelError, match="2 x 3 rows.*2 x 2 classes"):
        program(table=np.full((2, 3, 3), 1 / 3))
    with pytest.raises(ModelError, match=r"table of shape \(2, 2\)"):
        program(table=np.full((2, 2), 0.5))


def test_a_variable_twice_in_one_table():
    def model():
        a = ngmp.sample("a", Categorical(probs=np.full(2, 0.5)))
        ngmp.sample("c", Categorical(probs=ngmp.take(np.full((2, 2, 2), 0.5), a, a)))

    with pytest.raises(ModelError, match="one variable stands in two places"):
        ngmp.compile(model)()


def test_mean_field_takes_tables_apart():
    """VMP without clusters: q(a) q(b) q(c), against coordinate ascent in numpy."""
    rng = np.random.default_rng(6)
    table, pa, pb = rng.dirichlet(np.ones(2), (2, 3)), np.array([0.4, 0.6]), np.array([0.2, 0.5, 0.3])

    def model():
        a, b = ngmp.sample("a", Categorical(probs=pa)), ngmp.sample("b", Categorical(probs=pb))
        ngmp.sample("c", Categorical(probs=ngmp.take(table, a, b)))

    post = ngmp.compile(model, method=ngmp.VMP(), tol=1e-12)()
    a, b, c = (np.asarray(post[n].probs) for n in "abc")
    log_table = np.log(table)

    def softmax(x):
        return np.exp(x - logsumexp(x))

    np.testing.assert_allclose(a, softmax(np.log(pa) + np.einsum("abc,b,c->a", log_table, b, c)), rtol=1e-8)
    np.testing.assert_allclose(b, softmax(np.log(pb) + np.einsum("abc,a,c->b", log_table, a, c)), rtol=1e-8)
    np.testing.assert_allclose(c, softmax(np.einsum("abc,a,b->c", log_table, a, b)), rtol=1e-8)
    with pytest.raises(ModelError, match="some of the classes"):
        ngmp.compile(model, method=ngmp.VMP(), factorise=[(("a", "b"), "c")])()
