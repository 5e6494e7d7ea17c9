"""Implicit derivatives of the fixed point: rules, orders, modes, networks, and runs that have not converged."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp
from ngmp_compiler.solve.krylov import solve
from ngmp_models import mean_precision

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="finite differences need float64")

RNG = np.random.default_rng(3)
COUNTS = np.array([0, 3, 1, 6, 2, 2])
READINGS = 1.0 + RNG.standard_normal(12)


def shared(y, mask=None, sigma2=0.1):
    """A log-rate that all counts share: their messages depend on each other."""
    z = ngmp.sample("z", Normal(0.0, variance=sigma2))
    ngmp.sample("y", Poisson(exp(z)), obs=y, mask=mask)


def outputs(post):
    return jnp.stack([post.free_energy, jnp.sum(post["z"].mean ** 2) + jnp.sum(post["z"].variance)])


def difference(f, x, h=1e-5):
    return (f(x + h) - f(x - h)) / (2 * h)


RULES = {
    "NGMP": ngmp.NGMP(),  # of one interface: the free energy is stationary in the leaves
    "NGMP, three points": ngmp.NGMP(projection=ngmp.Unscented()),  # it is not: the projection is no exact gradient
    "EP": ngmp.EP(),
    "EP, power": ngmp.EP(power=0.5),
    "PVMP": ngmp.PVMP(),  # has a loop on every edge
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in RULES if name not in ("NGMP", "PVMP")]


@pytest.mark.parametrize("rule", ["NGMP", "PVMP", *SLOW])
def test_both_modes_under_every_rule(rule):
    program = ngmp.compile(shared, method=RULES[rule], tol=1e-12)
    f = jax.jit(lambda s: outputs(program(y=COUNTS, sigma2=s)))
    expected = difference(f, 0.1)
    np.testing.assert_allclose(jax.jit(jax.jacrev(f))(0.1), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(f))(0.1), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [ngmp.NGMP(), ngmp.EP(), ngmp.NGMP(power={"tau": 0.5}), ngmp.VMP()], ids=str)
def test_data_of_a_two_interface_factor(rule):
    program = ngmp.compile(mean_precision, method=rule, tol=1e-12)

    @jax.jit
    def f(y):
        post = program(y=y)
        return jnp.stack([post.free_energy, post["x"].variance + post["tau"].mean])

    slopes = jax.jit(jax.jacrev(f))(READINGS)
    expected = difference(lambda h: f(jnp.asarray(READINGS).at[3].add(h)), 0.0)
    np.testing.assert_allclose(slopes[:, 3], expected, rtol=1e-6)


@pytest.mark.slow
def test_second_derivatives():
    program = ngmp.compile(shared, tol=1e-13)
    for output in (0, 1):
        slope = jax.jit(jax.grad(lambda s, o=output: outputs(program(y=COUNTS, sigma2=s))[o]))
        expected = difference(slope, 0.1)
        np.testing.assert_allclose(jax.jit(jax.jacfwd(slope))(0.1), expected, rtol=1e-6)


def rates(features, y, network):
    z = ngmp.sample("z", Normal(jax.vmap(network)(features)[:, 0], variance=0.5))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_parameters_of_a_network_and_its_inputs():
    network = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    features = jnp.asarray(RNG.normal(size=(6, 2)))
    program = ngmp.compile(rates, tol=1e-12)

    @eqx.filter_jit
    def loss(given):
        network, features = given
        post = program(features=features, y=COUNTS, network=network)
        return post.free_energy + jnp.sum(post["z"].mean ** 2)

    slopes = eqx.filter_jit(eqx.filter_grad(loss))((network, features))
    arrays, rest = eqx.partition((network, features), eqx.is_inexact_array)
    step = jax.tree.map(lambda x: jnp.asarray(RNG.normal(size=x.shape)), arrays)

    def along(h):
        return loss(eqx.combine(jax.tree.map(lambda x, d: x + h * d, arrays, step), rest))

    found = sum(jnp.sum(s * d) for s, d in zip(jax.tree.leaves(slopes), jax.tree.leaves(step), strict=True))
    np.testing.assert_allclose(found, difference(along, 0.0), rtol=1e-6)


@pytest.mark.slow
def test_vmap_of_grad_is_a_loop_of_grads():
    program = ngmp.compile(shared, tol=1e-12)
    gradient = jax.jit(jax.grad(lambda s: jnp.sum(outputs(program(y=COUNTS, sigma2=s)))))
    values = jnp.array([0.05, 0.2])
    np.testing.assert_allclose(jax.jit(jax.vmap(gradient))(values), [gradient(v) for v in values], rtol=1e-9)


def level(y, s0_mean=0.0):
    s = ngmp.sample("s", Normal(s0_mean, variance=1.0))
    ngmp.sample("y", Normal(0.0, precision=exp(s)), obs=y)


def test_prediction_from_marginals_at_new_inputs():
    program = ngmp.compile(level, carry=("s",), tol=1e-12)

    @jax.jit
    def score(mean):
        carry, _ = program.update({"s": ngmp.families.Gaussian.from_mean_variance(mean, 1.0)}, {"y": READINGS})
        return jnp.sum(program.predict(carry, "y", y=READINGS[:3]).log_density)

    np.testing.assert_allclose(jax.jit(jax.grad(score))(0.2), difference(score, 0.2), rtol=1e-6)


# -- runs that have not converged -------------------------------------------------------------------------------------


def test_a_run_that_has_not_converged_has_no_gradient_unless_it_is_left_out():
    program = ngmp.compile(shared, max_sweeps=2)

    def loss(s, seen):
        post = program(y=COUNTS, mask=seen, sigma2=s)
        return post.free_energy + post["z"].variance, post.converged

    values, seen = jnp.array([0.1, 0.2]), np.array([[False] * 6, [True] * 6])  # without data there is nothing to do
    (value, converged), slope = jax.jit(jax.vmap(jax.value_and_grad(loss, has_aux=True)))(values, seen)
    assert converged.tolist() == [True, False] and np.isfinite(value).all()
    np.testing.assert_allclose(slope, [1.0, np.nan])  # the free energy is zero and the variance that of the prior

    def left_out(values):
        value, converged = jax.vmap(loss)(values, seen)
        return jnp.sum(jnp.where(converged, value, 0.0))

    np.testing.assert_allclose(jax.jit(jax.grad(left_out))(values), [1.0, 0.0])


def test_invalid_data_raise_under_grad():
    program = ngmp.compile(shared)
    with pytest.raises(ngmp.DataError, match="variance"):
        jax.grad(lambda s: program(y=COUNTS, sigma2=s).free_energy)(-0.1)


def test_integer_data_have_no_gradient():
    program = ngmp.compile(shared)
    with pytest.raises(TypeError, match="real- or complex-valued inputs"):
        jax.grad(lambda y: program(y=y).free_energy)(COUNTS)


# -- linear systems ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 70])
def test_krylov_against_dense_algebra(n):
    a = np.eye(n) + 0.3 * RNG.normal(size=(n, n)) / np.sqrt(n)
    rotation = np.roll(np.eye(n), 1, axis=0)  # the residual stagnates until the last step
    for matrix in (a, rotation) if n < 20 else (a,):
        b = {"u": RNG.normal(size=(1,)), "v": RNG.normal(size=(n - 1,))}
        both = jnp.concatenate([b["u"], b["v"]])

        def product(x, matrix=matrix):
            y = matrix @ jnp.concatenate([x["u"], x["v"]])
            return {"u": y[:1], "v": y[1:]}

        x, solved, _ = jax.jit(lambda b, product=product: solve(product, b, 1e-12))(b)
        assert solved
        np.testing.assert_allclose(jnp.concatenate([x["u"], x["v"]]), np.linalg.solve(matrix, both), atol=1e-9)


def test_krylov_says_when_there_is_no_solution():
    x, solved, _ = solve(lambda x: x * jnp.array([1.0, 0.0]), jnp.ones(2), 1e-10)
    assert not solved and np.isfinite(x).all()
    x, solved, _ = solve(lambda x: x, jnp.zeros(2), 1e-10)
    assert solved and not x.any()
