"""Rolling: index maps against numpy, and loops that become one group."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, Poisson, dot, exp
from ngmp_compiler.declare.inputs import wrap
from ngmp_compiler.declare.sample import trace
from ngmp_compiler.graph.index import index_map
from ngmp_compiler.passes.roll import Rolled, roll


@pytest.mark.parametrize(
    ("positions", "size", "kind"),
    [
        (np.arange(4), 4, "all"),
        ([0], 1, "all"),
        (np.arange(3), 4, "shift"),
        (np.arange(1, 4), 4, "shift"),
        ([2, 2, 2], 4, "one"),
        ([3], 4, "one"),
        ([0, 0], 1, "one"),
        ([0, 0, 1, 1, 2, 2], 3, "repeat"),
        ([0, 1, 2, 0, 1, 2], 3, "tile"),
        ([2, 1, 0], 3, "gather"),
        ([0, 2, 4], 6, "grid"),
        ([1, 4, 7], 8, "grid"),
        ([0, 0, 1, 1], 3, "grid"),
        ([1, 2, 1, 2], 3, "grid"),
        ([0, 1, 4, 5, 8, 9], 12, "grid"),
        ([0, 0, 4, 4, 8, 8], 9, "grid"),
        ([0, 1, 1, 2, 2, 3], 4, "gather"),
        ([0, 1, 1], 2, "gather"),
        ([], 3, "gather"),
    ],
)
def test_recognised_maps(positions, size, kind):
    found = index_map(np.asarray(positions, int), size)
    assert found.kind == kind and found.n == len(positions)
    expected = {"shift": f"shift({found.start})", "one": f"one({found.start})"}.get(kind, kind)
    assert str(found).startswith(expected)


@st.composite
def maps(draw: Any) -> tuple[np.ndarray, int]:
    """Positions of every kind: runs, constants, repeats, tiles and arbitrary ones."""
    size = draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["run", "one", "repeat", "tile", "grid", "any"]))
    times = draw(st.integers(1, 3))
    if kind == "run":
        start = draw(st.integers(0, size - 1))
        return np.arange(start, draw(st.integers(start + 1, size))), size
    if kind == "grid":
        levels = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=3))
        positions = np.asarray([draw(st.integers(0, 3))])
        for count, stride in levels:
            positions = (positions[:, None] + stride * np.arange(count)).reshape(-1)
        return positions, int(positions.max()) + draw(st.integers(1, 4))
    if kind == "one":
        return np.full(times, draw(st.integers(0, size - 1))), size
    if kind == "any":
        return np.asarray(draw(st.lists(st.integers(0, size - 1), max_size=12)), int), size
    return (np.repeat if kind == "repeat" else np.tile)(np.arange(size), times), size


@settings(max_examples=60, deadline=None)
@given(maps(), st.sampled_from([(), (2,), (2, 2)]), st.integers(0, 2**32 - 1))
def test_take_and_add_equal_numpy(case, event, seed):
    positions, size = case
    rng = np.random.default_rng(seed)
    x, values = rng.normal(size=(size, *event)), rng.normal(size=(len(positions), *event))
    found = index_map(positions, size)
    np.testing.assert_array_equal(found.take(jnp.asarray(x)), x[positions].astype(jnp.asarray(x).dtype))
    total = np.zeros((size, *event))
    np.add.at(total, positions, values)
    np.testing.assert_allclose(found.add(jnp.asarray(values)), total, rtol=1e-5, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(maps())
def test_only_gathers_index_at_run_time(case):
    """Any other map costs no gather and no scatter; of slices there may be one."""
    positions, size = case
    found = index_map(positions, size)
    jaxpr = jax.make_jaxpr(lambda x, v: (found.take(x), found.add(v)))(np.zeros(size), np.zeros(len(positions)))
    names = {equation.primitive.name for equation in jaxpr.jaxpr.eqns}
    if found.kind in ("all", "repeat", "tile", "grid"):
        assert not {n for n in names if "gather" in n or "scatter" in n}


# -- groups ----------------------------------------------------------------------------------------------------------


def rolled(model: Callable, **inputs: Any) -> Rolled:
    return roll(trace(model, {k: wrap(jnp.asarray(v)) for k, v in inputs.items()}))


def test_a_loop_is_one_group_for_every_site():
    def model(y):
        z = ngmp.sample("z0", Normal(0.0, variance=1.0))
        tau = ngmp.sample("tau", Gamma(1.0, rate=1.0))
        for k in range(5):
            z = ngmp.sample("z", Normal(z, variance=0.1))
            ngmp.sample("y", Normal(z, precision=tau), obs=y[k])

    out = rolled(model, y=np.arange(5.0))
    assert [(g.name, g.size, g.shape) for g in out.groups] == [
        ("z0", 1, ()),
        ("tau", 1, ()),
        ("z", 5, (5,)),
        ("y", 5, (5,)),
    ]
    step, seen = out.groups[2], out.groups[3]
    np.testing.assert_array_equal(step.arguments["out"].index, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(step.arguments["mean"].index, [0, 1, 2, 3, 4])
    assert step.arguments["variance"].shape == (1,)  # shared
    np.testing.assert_array_equal(seen.arguments["precision"].index, np.zeros(5))
    np.testing.assert_array_equal(seen.arguments["out"], np.arange(5.0))
    (plane, positions) = out.names["z"]
    assert plane.family is ngmp.families.Gaussian and positions.tolist() == [1, 2, 3, 4, 5]


def test_positions_do_not_depend_on_the_order_of_declaration():
    def interleaved(y):
        for _ in range(3):
            a = ngmp.sample("a", Normal(0.0, variance=1.0))
            ngmp.sample("b", Normal(a, variance=1.0))

    def apart(y):
        a = ngmp.sample("a", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("b", Normal(a, variance=1.0))

    for model in (interleaved, apart):
        out = rolled(model, y=0.0)
        assert out.names["a"][1].tolist() == [0, 1, 2] and out.names["b"][1].tolist() == [3, 4, 5]
        assert out.groups[1].arguments["mean"].index.tolist() == [0, 1, 2]


def test_plates_repeated_in_a_loop():
    def model(y):
        a = ngmp.sample("a", Normal(np.zeros(2), variance=1.0))
        for k in range(3):
            ngmp.sample("y", Normal(a, variance=np.array([1.0, 2.0])), obs=y[k])

    (_, seen) = rolled(model, y=np.arange(6.0).reshape(3, 2)).groups
    assert seen.size == 6 and seen.shape == (3, 2)
    np.testing.assert_array_equal(seen.arguments["mean"].index, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(seen.arguments["variance"], [1, 2, 1, 2, 1, 2])
    np.testing.assert_array_equal(seen.arguments["out"], np.arange(6.0))


def test_lazy_positions_are_read_together():
    """Consecutive reads are a slice, the whole array is itself, others one gather."""

    def model(y, order):
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        for k in order:
            ngmp.sample("y", Normal(x, variance=1.0), obs=y[k])

    y = jnp.arange(6.0)
    for order, expected in (((2, 3, 4), [2, 3, 4]), (range(6), range(6)), ((5, 0, 3), [5, 0, 3]), ((-1, 1), [5, 1])):
        graph = trace(model, {"y": wrap(y), "order": tuple(order)})
        (_, seen) = roll(graph).groups
        np.testing.assert_array_equal(seen.arguments["out"], np.asarray(expected, float))


def test_sites_that_differ_are_groups_apart():
    def model(y):
        w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
        for k in range(4):
            if k % 2:
                ngmp.sample("y", Normal(dot(y, w), variance=1.0), obs=y[0])
            else:
                ngmp.sample("y", Poisson(exp(dot(y, w))), obs=1)

    groups = rolled(model, y=np.ones(2)).groups
    assert [(g.name, g.size) for g in groups] == [("w", 1), ("y", 2), ("y", 2)]


def test_stacked_coefficients_and_offsets():
    def model(x):
        b = ngmp.sample("b", Normal(0.0, variance=1.0))
        for k in range(3):
            ngmp.sample("y", Normal(x[k, 0] * b + x[k, 1], variance=1.0), obs=0.0)

    x = np.arange(6.0).reshape(3, 2)
    (_, seen) = rolled(model, x=x).groups
    mean = seen.arguments["mean"]
    np.testing.assert_array_equal(mean.terms[0].coefficient, x[:, 0])
    np.testing.assert_array_equal(mean.offset, x[:, 1])
    assert seen.arguments["out"].shape == (1,)


# -- many names ------------------------------------------------------------------------------------------------------


def named_chain(y):
    z = ngmp.sample("start", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample(f"z{k}", Normal(z, variance=0.1))
        ngmp.sample(f"y{k}", Poisson(exp(z)), obs=y[k])


def repeated_chain(y):
    z = ngmp.sample("start", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=0.1))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k])


def test_a_name_for_every_step_is_still_one_group():
    out = rolled(named_chain, y=np.arange(40))
    assert [(g.name, g.size) for g in out.groups] == [("start", 1), ("z*", 40), ("y*", 40)]
    assert {key: c.positions.shape for key, c in out.collections.items()} == {"start": (), "z*": (40,)}
    y = jnp.asarray(np.random.default_rng(0).poisson(3.0, 40))
    named, repeated = ngmp.compile(named_chain)(y=y), ngmp.compile(repeated_chain)(y=y)
    np.testing.assert_array_equal(named["z7"].mean, repeated["z"].mean[7])
    assert "z39" in named and "z40" not in named
    with pytest.raises(KeyError, match="no variable 'z40'"):
        named["z40"]
    batch = jax.vmap(lambda y: ngmp.compile(named_chain)(y=y))(jnp.stack([y, y + 1]))
    np.testing.assert_allclose(batch["z7"].mean[0], named["z7"].mean, rtol=1e-10)


def test_few_names_stay_apart():
    out = rolled(named_chain, y=np.arange(4))
    assert [g.name for g in out.groups] == ["start", "z0", "y0", "z1", "y1", "z2", "y2", "z3", "y3"]


def test_names_the_options_speak_of_stay_apart():
    y = jnp.asarray(np.random.default_rng(0).poisson(3.0, 200))
    program = ngmp.compile(named_chain, rules={"y3": ngmp.EP(), "y1*": ngmp.NCVMP()})
    rows = program.lower(y=y).describe().split("factors")[1].split("conjugate core")[0]
    assert [line.split()[:2] for line in rows.splitlines() if "PoissonLog" in line] == [
        ["y*", "88"], ["y*#2", "111"], ["y3", "1"],
    ]  # fmt: skip
    with pytest.raises(ngmp.ModelError, match="rules= names no site"):
        ngmp.compile(named_chain, rules={"w*": ngmp.EP()})(y=y)


def test_equations_do_not_grow_with_names():
    def count(n):
        program = ngmp.compile(named_chain)
        return len(
            jax.make_jaxpr(lambda y: program(y=y).free_energy)(jnp.zeros(n, int)).jaxpr.eqns[0].params["jaxpr"].eqns
        )

    assert count(300) == count(900)  # chains, both of them long


def test_prediction_of_one_name_among_many():
    y = jnp.asarray(np.random.default_rng(0).poisson(3.0, 40))
    named, repeated = ngmp.compile(named_chain), ngmp.compile(repeated_chain)
    one = named.predict(named(y=y), "y5", y=y)
    every = repeated.predict(repeated(y=y), "y", y=y)
    assert one.mean.shape == ()
    np.testing.assert_allclose(one.mean, every.mean[5], rtol=1e-10)
    np.testing.assert_allclose(one.log_density, every.log_density[5], rtol=1e-10)
    with pytest.raises(ngmp.ModelError, match="not an observed site"):
        named.predict(named(y=y), "y", y=y)
