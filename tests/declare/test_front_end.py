"""The front end: the contract's examples, inputs, models that observe nothing, and `ngmp.factor`."""

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
from tests.declare.small_models import COUNTS, RNG, Y, assert_same, plan_rows, run, start

MASK = np.array([True, True, False, True, False, True])


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
