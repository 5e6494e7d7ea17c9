"""The front end: what may be written in a model, and that all ways to write it compile to the same thing."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
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
from ngmp_compiler.declare.sample import trace
from ngmp_compiler.passes.lower import lower
from ngmp_compiler.passes.roll import roll

RNG = np.random.default_rng(7)
Y = RNG.normal(size=6)
COUNTS = np.array([1, 0, 3, 2, 5, 4])
MASK = np.array([True, True, False, True, False, True])


def start(model: Callable, **inputs: Any) -> ngmp.Posterior:
    """The posterior at the automatic start: the whole map without the iteration, in half the time to compile."""
    program = ngmp.compile(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ngmp.ConvergenceWarning)  # nor has it
        return program.posterior(program.init(**inputs), **inputs)


def run(model: Callable, **inputs: Any) -> ngmp.Posterior:
    post = ngmp.compile(model)(**inputs)
    assert post.converged
    return post


def assert_same(
    first: Callable, second: Callable, tol: float = 1e-10, to: Callable = run, **inputs: Any
) -> ngmp.Posterior:
    """Two ways to write a model give the same free energy and marginals, converged or at the start."""
    a, b = to(first, **inputs), to(second, **inputs)
    np.testing.assert_allclose(a.free_energy, b.free_energy, rtol=tol, atol=tol)
    assert set(a.marginals) == set(b.marginals)
    for name in a.marginals:
        for x, y in zip(jax.tree.leaves(a[name]), jax.tree.leaves(b[name]), strict=True):
            np.testing.assert_allclose(np.ravel(x), np.ravel(y), rtol=tol, atol=tol, err_msg=name)
    return a


def plan_rows(model: Callable, **inputs: Any) -> list[str]:
    """The groups of a model's plan, in words and in a canonical order."""
    text = ngmp.compile(model).lower(**inputs).describe()
    body = text.split("factors\n")[1].split("\ninitialisation")[0]
    return sorted(line for line in body.splitlines() if line)


def equations(jaxpr: Any) -> int:
    """The number of equations of a jaxpr, inner ones included."""
    total = 0
    for equation in jaxpr.eqns:
        total += 1
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(item, "jaxpr", item)
                total += equations(inner) if hasattr(inner, "eqns") else 0
    return total


# -- the contract's examples ----------------------------------------------------------------------------------------


def poisson_chain(y, mask=None, sigma2=0.1):
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def poisson_chain_loop(y, mask=None, sigma2=0.1):
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k], mask=None if mask is None else mask[k])


def mean_precision(y):
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y)


def heteroscedastic(phi, psi, y, c_top=25.0):
    v = ngmp.sample("v", MvNormal(jnp.zeros(phi.shape[-1]), covariance=4.0))
    w = ngmp.sample("w", MvNormal(jnp.zeros(psi.shape[-1]), covariance=2.56))
    s = ngmp.sample("s", Normal(dot(psi, w), precision=c_top))
    ngmp.sample("y", Normal(dot(phi, v), precision=exp(s)), obs=y)


@pytest.mark.parametrize("mask", [None, MASK], ids=["complete", "masked"])
def test_contract_chain(mask):
    post = assert_same(poisson_chain, poisson_chain_loop, y=COUNTS, mask=mask)
    assert post["z"].mean.shape == (6,) and post["z0"].variance.shape == ()
    assert post.sweeps > 1 and post.residual < 1e-8 and post.reason == "converged"
    assert plan_rows(poisson_chain, y=COUNTS, mask=mask) == plan_rows(poisson_chain_loop, y=COUNTS, mask=mask)


@pytest.fixture(scope="module")
def known_precision():
    return run(mean_precision, y=Y)


def test_contract_mean_precision(known_precision):
    assert abs(known_precision["x"].mean - Y.mean()) < 0.2
    tau = known_precision["tau"]
    assert isinstance(tau, ngmp.families.Gamma) and tau.mean.shape == ()


def test_contract_heteroscedastic():
    phi, psi = RNG.normal(size=(8, 2)), np.stack([np.ones(8), np.linspace(-1, 1, 8)], 1)
    post = ngmp.compile(heteroscedastic, max_sweeps=2000)(phi=phi, psi=psi, y=RNG.normal(size=8))
    assert post.converged
    assert post["s"].mean.shape == (8,) and post["v"].covariance.shape == (2, 2)


def test_contract_program():
    """Everything the contract says of a program, on its chain."""
    program = ngmp.compile(poisson_chain)
    post = program(y=COUNTS, mask=MASK)
    state = program.init(y=COUNTS, mask=MASK)
    for _ in range(int(post.sweeps)):
        state = program.step(state, y=COUNTS, mask=MASK)
    again = program.posterior(state, y=COUNTS, mask=MASK)
    np.testing.assert_allclose(again["z"].mean, post["z"].mean, rtol=1e-6)
    prediction = program.predict(post, "y", y=COUNTS, mask=MASK)
    assert prediction.mean.shape == prediction.variance.shape == prediction.log_density.shape == (6,)
    assert np.all(np.isfinite(prediction.log_density))
    plan = program.lower(y=COUNTS, mask=MASK)
    assert "chain" in plan.describe() and plan.draw().startswith("<svg")


def test_contract_options(known_precision):
    given = {"rules": {"y": ngmp.NGMP()}, "families": {"tau": ngmp.families.Gamma}}
    post = ngmp.compile(mean_precision, solver=optax.sgd(0.5, momentum=0.2), max_sweeps=200, tol=1e-8, **given)(y=Y)
    assert post.converged
    np.testing.assert_allclose(post["tau"].mean, known_precision["tau"].mean, rtol=1e-6)


def test_inputs_may_come_from_a_network():
    network = eqx.nn.MLP(2, "scalar", 3, 1, key=jax.random.key(0))

    def model(network, x, y):
        z = ngmp.sample("z", Normal(jax.vmap(network)(x), variance=1.0))
        ngmp.sample("y", Normal(z, variance=1.0), obs=y)

    x = RNG.normal(size=(6, 2))
    post = run(model, network=network, x=x, y=Y)
    np.testing.assert_allclose(post["z"].mean, 0.5 * (jax.vmap(network)(x) + Y), rtol=1e-6)


# -- loops, plates and scans ----------------------------------------------------------------------------------------


def test_a_loop_and_its_plate_are_the_same():
    def plate(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        z = ngmp.sample("z", Normal(a + x, variance=0.5))
        ngmp.sample("y", Poisson(exp(z)), obs=y)

    def loop(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        for k in range(len(y)):
            z = ngmp.sample("z", Normal(a + x[k], variance=0.5))
            ngmp.sample("y", Poisson(exp(z)), obs=y[k])

    def zipped(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        for y_k, x_k in zip(y, x, strict=True):
            ngmp.sample("y", Poisson(exp(ngmp.sample("z", Normal(a + x_k, variance=0.5)))), obs=y_k)

    assert_same(plate, loop, to=start, y=COUNTS, x=Y)
    rows = plan_rows(plate, y=COUNTS, x=Y)
    assert rows == plan_rows(loop, y=COUNTS, x=Y) == plan_rows(zipped, y=COUNTS, x=Y)


def gaussian_loop(y):
    z = ngmp.sample("z0", Normal(0.0, variance=1.0))
    for k in range(6):
        z = ngmp.sample("z", Normal(z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])


def test_scan_then_scan():
    def model(y):
        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return z, None

        z, _ = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y[:4])
        ngmp.scan(step, z, y[4:])

    assert_same(model, gaussian_loop, y=Y)


def test_scan_then_loop():
    def model(y):
        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return z, None

        z, _ = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y[:4])
        for k in (4, 5):
            z, _ = step(z, y[k])

    assert_same(model, gaussian_loop, y=Y)


def test_scan_outputs_and_pytrees():
    def model(y):
        def step(z, x):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            return z, {"z": z, "twice": (2 * x["y"], 1.0)}

        _, out = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), {"y": y})
        ngmp.sample("y", Normal(out["z"], variance=out["twice"][1]), obs=out["twice"][0] / 2)

    assert_same(model, gaussian_loop, y=Y)


def test_scan_without_inputs():
    def model(y):
        def step(z, _):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            return z, z

        _, z = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), None, length=6)
        ngmp.sample("y", Normal(z, variance=1.0), obs=y)

    assert_same(model, gaussian_loop, y=Y)


def test_scan_of_plates_with_shared_variables():
    def scan(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=1.0))

        def step(z, y_k):
            z = ngmp.sample("z", Normal(z + g[1], variance=0.5))
            ngmp.sample("y", Normal(z + g, variance=1.0), obs=y_k)
            return z, None

        ngmp.scan(step, ngmp.sample("z0", Normal(np.zeros(3), variance=1.0)), y)

    def loop(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=1.0))
        z = ngmp.sample("z0", Normal(np.zeros(3), variance=1.0))
        for k in range(2):
            z = ngmp.sample("z", Normal(z + g[1], variance=0.5))
            ngmp.sample("y", Normal(z + g, variance=1.0), obs=y[k])

    post = assert_same(scan, loop, y=Y.reshape(2, 3))
    assert post["z"].mean.shape == (2, 3)


def test_scan_passes_a_variable_through_its_carry():
    def scan(y):
        g = ngmp.sample("g", Normal(0.0, variance=1.0))
        z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

        def step(carry, y_k):
            z, g = carry
            z = ngmp.sample("z", Normal(z + g, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return (z, g), None

        (z, g), _ = ngmp.scan(step, (z0, g), y)
        ngmp.sample("end", Normal(z + g, variance=1.0), obs=1.0)

    def loop(y):
        g = ngmp.sample("g", Normal(0.0, variance=1.0))
        z = ngmp.sample("z0", Normal(0.0, variance=1.0))
        for k in range(6):
            z = ngmp.sample("z", Normal(z + g, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])
        ngmp.sample("end", Normal(z + g, variance=1.0), obs=1.0)

    assert_same(scan, loop, y=Y)


def test_scan_of_second_order():
    """The carry moves on by one slot: z_{k-1} becomes z_{k-2}."""

    def scan(y):
        a, b = (ngmp.sample(n, Normal(1.0, variance=2.0)) for n in "ab")

        def step(carry, y_k):
            z1, z2 = carry
            z = ngmp.sample("z", Normal(0.5 * z1 - 0.3 * z2, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return (z, z1), None

        (z1, z2), _ = ngmp.scan(step, (a, b), y)
        ngmp.sample("end", Normal(z1 - z2, variance=1.0), obs=1.0)

    def loop(y):
        z1, z2 = (ngmp.sample(n, Normal(1.0, variance=2.0)) for n in "ab")
        for k in range(6):
            z = ngmp.sample("z", Normal(0.5 * z1 - 0.3 * z2, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])
            z1, z2 = z, z1
        ngmp.sample("end", Normal(z1 - z2, variance=1.0), obs=1.0)

    assert_same(scan, loop, y=Y)


def test_scan_rotates_its_carry():
    turn = np.array([1, 2, 0])

    def scan(y):
        def step(carry, y_k):
            g, a, b = carry
            ngmp.sample("y", Normal(g[0] + a, variance=1.0), obs=y_k)
            return (g[turn], b, a), None

        g = ngmp.sample("g", Normal(np.zeros(3), variance=np.array([1.0, 2.0, 3.0])))
        a, b = (ngmp.sample(n, Normal(0.0, variance=v)) for n, v in (("a", 1.0), ("b", 2.0)))
        ngmp.scan(step, (g, a, b), y)

    def loop(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=np.array([1.0, 2.0, 3.0])))
        a, b = (ngmp.sample(n, Normal(0.0, variance=v)) for n, v in (("a", 1.0), ("b", 2.0)))
        for k in range(6):
            ngmp.sample("y", Normal(g[0] + a, variance=1.0), obs=y[k])
            g, a, b = g[turn], b, a

    assert_same(scan, loop, y=Y)


def _nested(y: Any, start: str, rows: Callable) -> None:
    """A scan of scans: the inner chain starts at the outer carry, at a shared variable, or at one of the outer body."""
    g = ngmp.sample("g", Normal(0.0, variance=1.0))
    z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

    def outer(z, row):
        first = {"carry": z, "shared": g}.get(start)
        first = ngmp.sample("w0", Normal(z, variance=0.1)) if first is None else first

        def inner(w, y_k):
            w = ngmp.sample("w", Normal(0.5 * w + 0.4 * z, variance=0.5))
            ngmp.sample("y", Normal(w + g, variance=1.0), obs=y_k)
            return w, None

        w, _ = rows(inner, first, row)
        return ngmp.sample("z", Normal(0.9 * w, variance=0.1)), None

    rows(outer, z0, y)


def _python_scan(body: Callable, carry: Any, xs: Any) -> tuple[Any, None]:
    for x in xs:
        carry, _ = body(carry, x)
    return carry, None


@pytest.mark.parametrize("start", ["carry", "shared", "own"])
def test_scans_nest(start):
    post = assert_same(
        lambda y: _nested(y, start, ngmp.scan), lambda y: _nested(y, start, _python_scan), y=Y.reshape(3, 2)
    )
    assert post["w"].mean.shape == (3, 2)


def test_sub_models_under_scope():
    def effects(n, scale):
        mean = ngmp.sample("mean", Normal(0.0, variance=4.0))
        return ngmp.sample("effect", Normal(mean + np.zeros(n), variance=scale))

    def model(y, left, right):
        with ngmp.scope("left"):
            a = effects(2, 1.0)
        with ngmp.scope("right"), ngmp.scope("inner"):
            b = effects(3, 0.5)
        ngmp.sample("y", Normal(a[np.asarray(left)] + b[np.asarray(right)], variance=0.1), obs=y)

    post = ngmp.compile(model)(y=Y, left=(0, 1, 0, 1, 0, 1), right=(0, 1, 2, 0, 1, 2))
    assert set(post.marginals) == {"left/mean", "left/effect", "right/inner/mean", "right/inner/effect"}
    assert post["left/effect"].mean.shape == (2,) and post["right/inner/effect"].mean.shape == (3,)


# -- indexing costs nothing ------------------------------------------------------------------------------------------


def _chain_loop(y, mask, x):
    del x
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=0.1))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k], mask=mask[k])


def _regression_loop(y, mask, x):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    b = ngmp.sample("b", Normal(0.0, variance=1.0))
    for k in range(len(y)):
        ngmp.sample("y", Normal(dot(x[k], w), variance=0.1), obs=y[k], mask=mask[k])
        ngmp.sample("u", Normal(x[k, 1] * b + y[k], variance=y[k]), obs=x[k][0])
        ngmp.sample("v", Normal(x[k] @ w, variance=0.1), obs=y[-1 - k])


@pytest.mark.parametrize("model", [_chain_loop, _regression_loop])
def test_indexing_inputs_costs_no_operation(model):
    program, counts = ngmp.compile(model), []
    for n in (300, 900):  # chains, both of them long
        arguments = jnp.ones(n), jnp.ones(n, bool), jnp.ones((n, 2))
        traced = jax.make_jaxpr(lambda y, m, x: program(y=y, mask=m, x=x).free_energy)(*arguments)
        counts.append(equations(traced.jaxpr))
    assert counts[0] == counts[1]


# -- expressions -----------------------------------------------------------------------------------------------------


A = RNG.normal(size=(6, 3))


def _rows(expression: Callable) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and offset of an affine expression of w, read off the lowered functional of `Normal(...)`."""

    def model():
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        value = expression(w)
        family = MvNormal if value.event_shape else Normal
        scale = {"covariance": 1.0} if value.event_shape else {"variance": 1.0}
        ngmp.sample("y", family(value, **scale), obs=np.zeros(6))

    group = lower(roll(trace(model, {})), np.float64)[1]
    (edge,) = group.edges
    (link,) = edge.links  # residual form: obs - expression
    rows = np.broadcast_to(-np.asarray(link.coefficient), (edge.n, *link.coefficient.shape[1:])).reshape(6, 3)
    return rows, np.broadcast_to(-np.asarray(edge.offset).reshape(-1), 6)


@pytest.mark.parametrize(
    "form",
    [
        lambda w: dot(A, w) + 0.7,
        lambda w: 0.7 - dot(-A, w),
        lambda w: -(dot(A, -w) - 0.7),
        lambda w: (dot(2 * A, w) + 1.4) / 2,
        lambda w: dot(w * 1.0, A) + 0.7,
        lambda w: dot(A / 4, 4 * w) + np.full(6, 0.7),
        lambda w: dot(A, np.eye(3) @ w) + 0.7,
        lambda w: dot(A * np.array([1.0, 2.0, 4.0]), w * np.array([1.0, 0.5, 0.25])) + 0.7,
        lambda w: sum(A[:, j] * w[j] for j in range(3)) + 0.7,
        lambda w: dot(A[:, :2], w[:2]) + A[:, 2] * w[-1] + 0.7,
        lambda w: dot(A[:, [1, 0]], w[np.array([1, 0])]) + A[:, 2] * w[..., 2] + 0.7,
        lambda w: dot(A, w + np.array([1.0, 2.0, 3.0])) - (A @ np.array([1.0, 2.0, 3.0]) - 0.7),
        lambda w: dot(A, w + 1.0) - (A.sum(1) - 0.7),
        lambda w: (0.7 + dot(A, w))[::-1][::-1],
        lambda w: A @ w + 0.7,
        lambda w: w @ A.T + 0.7,
        lambda w: 2 * (A @ (w / 2)) + np.full(6, 0.7),
        lambda w: 0.7 - jnp.asarray(A) @ -w,
        lambda w: (A @ w + np.full(6, 1.4) / 2)[:],
    ],
)
def test_expressions_of_a_vector(form):
    matrix, offset = _rows(form)
    np.testing.assert_allclose(matrix, A, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(offset, 0.7, rtol=1e-12)


def test_regression_is_exact():
    def model(x, y):
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("y", Normal(dot(x, w) + 0.7, variance=0.5), obs=y)

    precision = np.eye(3) + 2 * A.T @ A
    post = run(model, x=A, y=Y)
    np.testing.assert_allclose(post["w"].mean, np.linalg.solve(precision, 2 * A.T @ (Y - 0.7)), rtol=1e-9)
    np.testing.assert_allclose(post["w"].covariance, np.linalg.inv(precision), rtol=1e-9)


def test_a_variable_may_be_named_twice():
    """`x + x` is `2 x`, also where only some elements of a plate meet themselves, and for matrices."""
    index = np.array([0, 2, 1])

    def twice(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("a", Normal(x[0] + 0.5 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b", Normal(x + x[index], variance=1.0), obs=y[:3])
        ngmp.sample("c", MvNormal(2.0 * w + A[:3] @ w - w, covariance=1.0), obs=y[3:])

    def once(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("a", Normal(1.5 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b0", Normal(2.0 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b", Normal(x[1] + x[2], variance=1.0), obs=y[1:3])
        ngmp.sample("c", MvNormal((np.eye(3) + A[:3]) @ w, covariance=1.0), obs=y[3:])

    assert_same(twice, once, y=Y)


def test_random_effects_by_numpy_indices():
    group = np.array([0, 1, 1, 2, 0, 2])

    def model(y):
        b = ngmp.sample("b", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("y", Normal(b[group], variance=0.5), obs=y)

    post = ngmp.compile(model)(y=Y)
    counts = np.bincount(group)
    np.testing.assert_allclose(post["b"].mean, np.bincount(group, 2 * Y) / (1 + 2 * counts), rtol=1e-9)


def test_slices_and_broadcasting_of_plates():
    def model(y):
        a = ngmp.sample("a", Normal(np.zeros((2, 1)), variance=1.0))
        b = ngmp.sample("b", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("first", Normal(b[1:] - b[:-1], variance=1.0), obs=np.array([0.5, -0.5]))
        ngmp.sample("y", Normal(2.0 * a - b / 2, variance=0.5), obs=y)

    features = np.zeros((8, 5))
    features[0, 2:4], features[1, 3:] = (-1, 1), (-1, 1)
    for i in range(2):
        for j in range(3):
            features[2 + 3 * i + j, [i, 2 + j]] = 2.0, -0.5
    noise = np.array([1.0, 1.0, *[0.5] * 6])
    precision = np.eye(5) + (features.T / noise) @ features
    mean = np.linalg.solve(precision, features.T @ (np.array([0.5, -0.5, *Y]) / noise))
    post = ngmp.compile(model)(y=Y.reshape(2, 3))
    assert post["a"].mean.shape == (2, 1)
    np.testing.assert_allclose(np.concatenate([post["a"].mean.ravel(), post["b"].mean]), mean, rtol=1e-8)


def test_exp_keeps_products():
    """`c exp(z) = exp(z + log c)`: an exposure."""
    exposure = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])

    def product(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Poisson(exposure * exp(z) * 2.0 / exp(x)), obs=y)

    def inside(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Poisson(exp(z - x + np.log(2 * exposure))), obs=y)

    assert_same(product, inside, to=start, y=COUNTS)


# -- inputs ----------------------------------------------------------------------------------------------------------


def _normal(y, variance=1.0):
    x = ngmp.sample("x", Normal(0.0, variance=variance))
    ngmp.sample("y", Normal(x, variance=variance), obs=y)


@pytest.mark.parametrize(
    "y", [Y.tolist(), tuple(Y), list(Y), jnp.asarray(Y), Y], ids=["floats", "tuple", "scalars", "jax", "numpy"]
)
def test_lists_are_arrays(y):
    np.testing.assert_allclose(ngmp.compile(_normal)(y=y)["x"].mean, Y.sum() / 7, rtol=1e-9)


@pytest.mark.parametrize("variance", [1, 1.0, np.float64(1), np.array(1), jnp.ones(())])
def test_numbers_of_any_kind(variance):
    np.testing.assert_allclose(ngmp.compile(_normal)(y=Y, variance=variance)["x"].mean, Y.sum() / 7, rtol=1e-9)


def test_positional_and_keyword_inputs():
    program = ngmp.compile(_normal)
    np.testing.assert_allclose(program(Y, 1.0).free_energy, program(y=Y).free_energy)


def test_containers_of_inputs():
    def model(data, settings):
        x = ngmp.sample("x", Normal(np.zeros(settings["n"]), variance=data["prior"]))
        for k, y in enumerate(data["y"]):
            ngmp.sample("y", Normal(x[k], variance=1.0), obs=y)

    data = {"prior": 1.0, "y": [jnp.asarray(1.0), 2.0, np.asarray(3.0)]}
    np.testing.assert_allclose(ngmp.compile(model)(data, {"n": 3})["x"].mean, [0.5, 1.0, 1.5], rtol=1e-9)


def test_static_integers_decide_structure():
    def model(y, n):
        for _ in range(n):
            x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Normal(x, variance=1.0), obs=y)

    program = ngmp.compile(model)
    assert program(y=1.0, n=2)["x"].mean.shape == (2,)
    assert program(y=1.0, n=3)["x"].mean.shape == (3,)


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_follows_the_inputs(dtype, x64):
    if dtype is np.float64 and not x64:
        pytest.skip("float64 is off")
    post = ngmp.compile(poisson_chain)(y=COUNTS.astype(dtype))
    assert post["z"].mean.dtype == post.free_energy.dtype == dtype


# -- nothing observed, nothing random ---------------------------------------------------------------------------------


def test_a_model_that_observes_nothing_returns_the_prior():
    def model():
        x = ngmp.sample("x", Normal(1.0, variance=2.0))
        ngmp.sample("z", Normal(3.0 * x, variance=1.0))
        ngmp.sample("tau", Gamma(2.0, rate=4.0))
        ngmp.sample("p", Beta(1.0, 3.0))
        ngmp.sample("q", Dirichlet(np.array([1.0, 3.0])))
        ngmp.sample("k", Categorical(probs=np.array([0.25, 0.75])))

    post = ngmp.compile(model)()
    assert post.converged
    np.testing.assert_allclose(post.free_energy, 0.0, atol=1e-12)
    np.testing.assert_allclose([post["x"].variance, post["z"].mean, post["z"].variance], [2.0, 3.0, 19.0], rtol=1e-9)
    np.testing.assert_allclose([post["tau"].mean, post["p"].mean], [0.5, 0.25], rtol=1e-9)
    np.testing.assert_allclose([post["q"].mean, post["k"].probs], [[0.25, 0.75]] * 2, rtol=1e-9)


def test_a_model_that_declares_nothing():
    post = ngmp.compile(lambda: None)()
    assert post.converged and post.free_energy == 0.0 and not post.marginals


def test_a_fully_masked_model_returns_the_prior():
    post = ngmp.compile(poisson_chain)(y=COUNTS, mask=np.zeros(6, bool))
    np.testing.assert_allclose(post["z"].variance, 10 + 0.1 * np.arange(1, 7), rtol=1e-9)
    np.testing.assert_allclose(post.free_energy, 0.0, atol=1e-9)


def test_likelihoods_in_a_plate_and_a_loop_have_one_plan():
    def sites(z, p, y):
        ngmp.sample("a", Binomial(6, logits=z), obs=y)
        ngmp.sample("b", Binomial(6, probs=p), obs=y)
        ngmp.sample("c", NegativeBinomial(mean=exp(z), dispersion=2.0), obs=y)
        ngmp.sample("d", StudentT(4.0, z, scale=1.0), obs=y)
        ngmp.sample("e", Normal(z, std=2.0), obs=y)
        ngmp.sample("f", Poisson(2.0), obs=y)

    def plate(y):
        z, p = ngmp.sample("z", Normal(0.0, variance=1.0)), ngmp.sample("p", Beta(1.0, 1.0))
        sites(z, p, y)

    def loop(y):
        z, p = ngmp.sample("z", Normal(0.0, variance=1.0)), ngmp.sample("p", Beta(1.0, 1.0))
        for k in range(6):
            sites(z, p, y[k])

    assert plan_rows(plate, y=COUNTS) == plan_rows(loop, y=COUNTS)


# -- ngmp.factor -----------------------------------------------------------------------------------------------------


def test_factor_of_one_variable_equals_its_distribution():
    def generic(y):
        z = ngmp.sample("z", Normal(np.zeros(6), variance=1.0))
        ngmp.factor("y", lambda z, y: y * z - jnp.exp(z) - jax.scipy.special.gammaln(y + 1.0), z, y)

    def loop(y):
        for k in range(6):
            z = ngmp.sample("z", Normal(0.0, variance=1.0))
            ngmp.factor("y", lambda z, y: y * z - jnp.exp(z) - jax.scipy.special.gammaln(y + 1.0), z, y[k])

    def known(y):
        z = ngmp.sample("z", Normal(np.zeros(6), variance=1.0))
        ngmp.sample("y", Poisson(exp(z)), obs=y)

    assert_same(generic, known, tol=1e-7, y=COUNTS)
    assert plan_rows(generic, y=COUNTS) == plan_rows(loop, y=COUNTS)


def _noise(x, tau, y):
    return 0.5 * jnp.log(tau) - 0.5 * jnp.log(2 * jnp.pi) - 0.5 * tau * (y - x) ** 2


def test_factor_of_two_variables_equals_its_distribution(known_precision):
    def generic(y):
        x = ngmp.sample("x", Normal(0.0, variance=25.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.factor("y", _noise, x, tau, y)

    post = run(generic, y=Y)
    np.testing.assert_allclose(post["x"].mean, known_precision["x"].mean, rtol=1e-3)
    np.testing.assert_allclose(post["tau"].mean, known_precision["tau"].mean, rtol=1e-3)


def test_factor_of_three_variables_in_a_scan_and_a_loop():
    def tie(a, b, c):
        return -0.5 * (a + b - c) ** 2 - 0.5 * jnp.log(2 * jnp.pi)

    def prior(name, mean):
        return ngmp.sample(name, Normal(mean, variance=0.5))

    def scan(y):
        a, b = prior("a", 0.3), prior("b", -0.2)

        def step(c, y_k):
            c = ngmp.sample("c", Normal(0.5 * c, variance=1.0))
            ngmp.factor("tie", tie, a, b + y_k, c)
            return c, None

        ngmp.scan(step, prior("c0", 0.0), y)

    def loop(y):
        a, b, c = prior("a", 0.3), prior("b", -0.2), prior("c0", 0.0)
        for k in range(2):
            c = ngmp.sample("c", Normal(0.5 * c, variance=1.0))
            ngmp.factor("tie", tie, a, b + y[k], c)

    assert_same(scan, loop, tol=1e-8, to=start, y=Y[:2])


def test_a_plain_function_is_not_a_model_without_ngmp():
    with pytest.raises(TypeError, match="compile needs a model function"):
        ngmp.compile(3)  # type: ignore[arg-type]
