"""Programs are pure functions: `jit`, `vmap`, loop and scan forms, the bare map, warm starts, networks, prediction."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import expit, gammaln, logsumexp

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Bernoulli, Gamma, MvNormal, Normal, Poisson, dot, exp
from tests.oracle.exact import normal_log_density
from tests.oracle.grids import grid

TIGHT = {"solver": optax.sgd(0.5), "max_sweeps": 2000, "tol": 1e-12}
RNG = np.random.default_rng(0)
N = 6
COUNTS = np.array([0, 3, 1, 6, 2, 2])
SEEN = np.array([True, True, False, True, True, False])
CHAIN = ngmp.compile(ngmp_models.poisson_chain, **TIGHT)


def _same(a, b, tol=1e-10):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol)


# -- jit and vmap ---------------------------------------------------------------------------------------------------


def test_jit_and_vmap_over_data_masks_and_parameters():
    data = np.stack([COUNTS, COUNTS[::-1], COUNTS * 0])
    masks = np.stack([SEEN, ~SEEN, np.ones(N, bool)])
    sigma2 = np.array([0.05, 0.1, 0.5])

    def run(y, mask, s):
        post = CHAIN(y=y, mask=mask, sigma2=s)
        return post["z0"].mean, post["z"].mean, post["z"].variance, post.free_energy, post.sweeps

    single = [run(*x) for x in zip(data, masks, sigma2, strict=True)]
    expected = jax.tree.map(lambda *x: jnp.stack(x), *single)
    batch = jax.jit(jax.vmap(run))(data, masks, sigma2)
    _same(batch, expected, 1e-9)
    assert (batch[-1] == expected[-1]).all()  # lanes stop on their own
    _same(jax.jit(run)(data[0], masks[0], sigma2[0]), single[0])
    parameters = jax.vmap(run, in_axes=(None, None, 0))(data[0], masks[0], sigma2)
    _same(jax.tree.map(lambda x: x[0], parameters), single[0], 1e-9)


def test_a_program_runs_inside_scan():
    def body(carry, y):
        post = CHAIN(y=y, mask=SEEN)
        return carry + post.free_energy, post["z"].mean

    data = jnp.stack([jnp.asarray(COUNTS), jnp.asarray(COUNTS[::-1])])
    total, means = jax.lax.scan(body, jnp.zeros(()), data)
    posts = [CHAIN(y=y, mask=SEEN) for y in data]
    _same(total, posts[0].free_energy + posts[1].free_energy)
    _same(means, jnp.stack([p["z"].mean for p in posts]))


# -- one graph, several spellings -----------------------------------------------------------------------------------


def _text(program, **inputs):
    """The plan in words, without the name of the model function."""
    return program.lower(**inputs).describe().split("\n", 1)[1]


@pytest.mark.parametrize("mask", [None, SEEN], ids=["all seen", "masked"])
def test_loop_and_scan_give_one_plan_and_one_answer(mask):
    loop = ngmp.compile(ngmp_models.poisson_chain_loop, **TIGHT)
    inputs = {"y": COUNTS, "mask": mask}
    assert _text(loop, **inputs) == _text(CHAIN, **inputs)
    a, b = loop(**inputs), CHAIN(**inputs)
    _same((a.marginals, a.free_energy), (b.marginals, b.free_energy))
    assert a.sweeps == b.sweeps


def _vector_chain_scan(turns, noise, phi, y):
    x0 = ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0))

    def step(x, inputs):
        turn, variance, phi_k, y_k = inputs
        x = ngmp.sample("x", MvNormal(turn @ x, covariance=0.5))
        ngmp.sample("y", Normal(dot(phi_k, x), variance=variance), obs=y_k)
        return x, None

    ngmp.scan(step, x0, (turns, noise, phi, y))


def _vector_chain_loop(turns, noise, phi, y):
    x = ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0))
    for k in range(len(y)):
        x = ngmp.sample("x", MvNormal(turns[k] @ x, covariance=0.5))
        ngmp.sample("y", Normal(dot(phi[k], x), variance=noise[k]), obs=y[k])


def test_loop_and_scan_of_vectors():
    inputs = {
        "turns": RNG.normal(size=(N, 2, 2)), "noise": RNG.uniform(0.5, 1, N),
        "phi": RNG.normal(size=(N, 2)), "y": RNG.normal(size=N),
    }  # fmt: skip
    loop, scan = ngmp.compile(_vector_chain_loop), ngmp.compile(_vector_chain_scan)
    assert _text(loop, **inputs) == _text(scan, **inputs)
    _same(loop(**inputs).marginals, scan(**inputs).marginals)
    _same(loop(**inputs).free_energy, scan(**inputs).free_energy)


def _covariances_scan(covariance, y):
    x0 = ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0))

    def step(x, inputs):
        c, y_k = inputs
        x = ngmp.sample("x", MvNormal(x, covariance=c))
        ngmp.sample("y", MvNormal(x, covariance=0.5), obs=y_k)
        return x, None

    ngmp.scan(step, x0, (covariance, y))


def _covariances_loop(covariance, y):
    x = ngmp.sample("x0", MvNormal(np.zeros(2), covariance=1.0))
    for k in range(len(y)):
        x = ngmp.sample("x", MvNormal(x, covariance=covariance[k]))
        ngmp.sample("y", MvNormal(x, covariance=0.5), obs=y[k])


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("kind", ["scalar", "diagonal", "matrix"])
def test_a_covariance_for_every_step_of_a_scan(kind, steps):
    """Two steps of two-vectors: a step's variance must not be read as an entry of a diagonal."""
    covariance = RNG.uniform(0.5, 2.0, steps)
    if kind != "scalar":
        covariance = covariance[:, None] * np.array([1.0, 3.0])
    if kind == "matrix":
        covariance = covariance[:, None] * np.eye(2) + 0.2
    inputs = {"covariance": covariance, "y": RNG.normal(size=(steps, 2))}
    a, b = ngmp.compile(_covariances_loop)(**inputs), ngmp.compile(_covariances_scan)(**inputs)
    _same((a.marginals, a.free_energy), (b.marginals, b.free_energy))


def _plate(y, scale):
    p = ngmp.sample("rate", Gamma(2.0, rate=1.0))
    x = ngmp.sample("x", Normal(np.zeros(N), variance=scale))
    ngmp.sample("y", Poisson(p), obs=y)
    ngmp.sample("u", Poisson(exp(x)), obs=y)


def _plate_loop(y, scale):
    p = ngmp.sample("rate", Gamma(2.0, rate=1.0))
    x = [ngmp.sample("x", Normal(0.0, variance=scale[k])) for k in range(N)]
    for k in range(N):
        ngmp.sample("y", Poisson(p), obs=y[k])
        ngmp.sample("u", Poisson(exp(x[k])), obs=y[k])


def test_loop_and_plate():
    inputs = {"y": COUNTS, "scale": RNG.uniform(0.5, 2.0, N)}
    loop, plate = ngmp.compile(_plate_loop, **TIGHT), ngmp.compile(_plate, **TIGHT)
    assert _text(loop, **inputs) == _text(plate, **inputs)
    a, b = loop(**inputs), plate(**inputs)
    _same((a.marginals, a.free_energy), (b.marginals, b.free_energy))


def test_plans_do_not_grow_with_the_data():
    short, long = (_text(CHAIN, y=jax.ShapeDtypeStruct((n,), int)) for n in (10, 2000))
    assert len(short.splitlines()) == len(long.splitlines())


# -- the bare map, warm starts, tracing -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_init_step_posterior_is_the_call():
    inputs = {"y": COUNTS, "mask": SEEN}
    expected = CHAIN(**inputs)
    state = CHAIN.init(**inputs)
    for _ in range(int(expected.sweeps)):
        state = CHAIN.step(state, **inputs)
    post = CHAIN.posterior(state, **inputs)
    assert post.converged and post.sweeps == expected.sweeps
    _same((post.marginals, post.free_energy), (expected.marginals, expected.free_energy))
    _same(post.residual, expected.residual)
    early = CHAIN.posterior(CHAIN.step(CHAIN.init(**inputs), **inputs), **inputs)
    assert not early.converged and "max_sweeps" in early.reason


def test_a_warm_start_continues():
    inputs = {"y": COUNTS, "mask": SEEN}
    cold = CHAIN(**inputs)
    again = CHAIN(**inputs, init=cold.state)
    assert again.converged and again.sweeps <= 4  # two to see a move, one undamped to judge by
    _same(again.marginals, cold.marginals)
    near = CHAIN(y=COUNTS, mask=SEEN, sigma2=0.1001, init=cold.state)
    assert near.converged and near.sweeps < CHAIN(y=COUNTS, mask=SEEN, sigma2=0.1001).sweeps


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_a_program_retraces_only_on_new_shapes_and_static_values():
    runs = []

    def model(y, variance=1.0, repeats=1):
        runs.append(1)
        x = ngmp.sample("x", Normal(0.0, variance=variance))
        for _ in range(repeats):
            ngmp.sample("y", Normal(x, variance=1.0), obs=y)

    program = ngmp.compile(model)
    program(y=np.zeros(3))
    once = len(runs)
    assert once > 0
    program(y=np.ones(3))
    program(y=jnp.arange(3.0), variance=2.5)  # another value of a float is no new program
    program(np.ones(3))
    assert len(runs) == once
    program(y=np.zeros(4))  # a new shape
    twice = len(runs)
    assert twice > once
    program(y=np.zeros(3), repeats=2)  # a new static value
    program(y=np.zeros(3), repeats=2)
    thrice = len(runs)
    assert thrice > twice
    program(y=np.zeros(3, np.float32))  # a new dtype
    assert len(runs) > thrice


# -- networks -------------------------------------------------------------------------------------------------------


def _rates(features, y, network):
    drift = jax.vmap(network)(features)[:, 0]
    z = ngmp.sample("z", Normal(drift, variance=0.5))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def _given_rates(drift, y):
    z = ngmp.sample("z", Normal(drift, variance=0.5))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_the_output_of_a_network_is_a_parameter():
    network = eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0))
    features = RNG.normal(size=(N, 2))
    program = ngmp.compile(_rates, **TIGHT)
    post = program(features=features, y=COUNTS, network=network)
    expected = ngmp.compile(_given_rates, **TIGHT)(drift=jax.vmap(network)(features)[:, 0], y=COUNTS)
    _same((post.marginals, post.free_energy), (expected.marginals, expected.free_energy))

    @eqx.filter_jit
    def loss(network):
        return program(features=features, y=COUNTS, network=network).free_energy

    _same(loss(network), expected.free_energy)


# -- prediction -----------------------------------------------------------------------------------------------------


def _integrate(mean, variance, log_density):
    """`log E[exp log_density(z)]` for z ~ N(mean, variance), on a dense grid, for every element."""
    out = []
    for k, (m, v) in enumerate(zip(np.asarray(mean), np.asarray(variance), strict=True)):
        z, w = grid("Gaussian", np.array([m / v, -0.5 / v]), 401)
        out.append(logsumexp(log_density(k, z), b=w))
    return np.array(out)


def test_predict_normal():
    y = RNG.normal(size=N)
    program = ngmp.compile(ngmp_models.local_level)
    post = program(y=y, mask=SEEN)
    prediction = program.predict(post, "y", y=y, mask=SEEN)
    m, v = np.asarray(post["z"].mean), np.asarray(post["z"].variance) + 1.0
    _same((prediction.mean, prediction.variance), (m, v))
    _same(prediction.log_density, -0.5 * ((y - m) ** 2 / v + np.log(2 * np.pi * v)))
    unknown = np.where(SEEN, y, np.nan)  # truly missing: no density, but a prediction
    prediction = program.predict(post, "y", y=unknown, mask=SEEN)
    _same((prediction.mean, prediction.variance), (m, v))
    assert (np.isnan(prediction.log_density) == ~SEEN).all()


def test_predict_poisson():
    post = CHAIN(y=COUNTS, mask=SEEN)
    prediction = CHAIN.predict(post, "y", y=COUNTS, mask=SEEN)
    m, v = np.asarray(post["z"].mean), np.asarray(post["z"].variance)
    rate = np.exp(m + v / 2)
    _same(prediction.mean, rate, 1e-9)
    _same(prediction.variance, rate + np.expm1(v) * rate**2, 1e-8)
    expected = _integrate(m, v, lambda k, z: COUNTS[k] * z - np.exp(z) - gammaln(COUNTS[k] + 1))
    _same(prediction.log_density, expected, 1e-9)


def _coins(features, y, b=0.0):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    ngmp.sample("y", Bernoulli(logits=dot(features, w) + b), obs=y)


def test_predict_bernoulli():
    features, y = RNG.normal(size=(N, 2)), np.array([0, 1, 1, 0, 1, 1])
    program = ngmp.compile(_coins, **TIGHT)
    post = program(features=features, y=y, b=0.3)
    prediction = program.predict(post, "y", features=features, y=y, b=0.3)
    m = features @ np.asarray(post["w"].mean) + 0.3
    v = np.einsum("nd,de,ne->n", features, np.asarray(post["w"].covariance), features)
    p = np.exp(_integrate(m, v, lambda k, z: np.log(expit(z))))
    _same((prediction.mean, prediction.variance), (p, p * (1 - p)), 1e-8)
    _same(prediction.log_density, np.log(np.where(y == 1, p, 1 - p)), 1e-8)


def test_predict_categorical():
    initial, transition, emission = (RNG.dirichlet(np.ones(k), size=s) for k, s in ((2, None), (2, 2), (3, 2)))
    inputs = {"y": COUNTS % 3, "initial": initial, "transition": transition, "emission": emission, "mask": SEEN}
    program = ngmp.compile(ngmp_models.hmm)
    post = program(**inputs)
    prediction = program.predict(post, "y", **inputs)
    probs = np.asarray(post["z"].probs) @ emission
    _same((prediction.mean, prediction.variance), (probs, probs * (1 - probs)))
    _same(prediction.log_density, np.log(probs[np.arange(N), COUNTS % 3]))


def _sensors(matrix, y, mask):
    x = ngmp.sample("x", MvNormal(np.zeros(2), covariance=np.array([[2.0, 0.3], [0.3, 1.0]])))
    ngmp.sample("y", MvNormal(matrix @ x + 0.2, covariance=np.array([0.5, 0.4, 0.3])), obs=y, mask=mask)


def test_predict_multivariate_normal():
    matrix, y, mask = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 3)), np.array([True, False, True, True])
    program = ngmp.compile(_sensors)
    post = program(matrix=matrix, y=y, mask=mask)
    prediction = program.predict(post, "y", matrix=matrix, y=y, mask=mask)
    mean = matrix @ np.asarray(post["x"].mean) + 0.2
    covariance = matrix @ np.asarray(post["x"].covariance) @ matrix.T + np.diag([0.5, 0.4, 0.3])
    _same(prediction.mean, np.tile(mean, (4, 1)))
    _same(prediction.variance, np.tile(np.diagonal(covariance), (4, 1)))
    _same(prediction.log_density, np.array([normal_log_density(row, mean, covariance) for row in y]))


def test_predict_under_unknown_precision():
    y = RNG.normal(size=N)
    program = ngmp.compile(ngmp_models.mean_precision, **TIGHT)
    post = program(y=y)
    prediction = program.predict(post, "y", y=y)
    x, tau = post["x"], post["tau"]
    a, b, m, v = (float(t) for t in (tau.concentration, tau.rate, x.mean, x.variance))
    _same(prediction.mean, np.full(N, m))
    _same(prediction.variance, np.full(N, v + b / (a - 1)), 1e-8)
    t, w = grid("Gamma", np.array([a - 1, -b]), 401)
    expected = [logsumexp(-0.5 * ((r - m) ** 2 / (v + 1 / t) + np.log(2 * np.pi * (v + 1 / t))), b=w) for r in y]
    _same(prediction.log_density, np.array(expected), 1e-8)


def _alternating(y, mask=None):
    """Sensors of two kinds, declared in turn: predictions must come in the order of declaration."""
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    w = ngmp.sample("w", Normal(1.0, variance=1.0))
    for k in range(len(y)):
        ngmp.sample("y", Normal(x if k % 2 else 2.0 * w + 0.5, variance=1.0), obs=y[k])


def test_predictions_keep_the_order_of_declaration():
    y = np.array([2.0, -1.0, 3.0, -2.0, 2.5])
    program = ngmp.compile(_alternating)
    post = program(y=y)
    prediction = program.predict(post, "y", y=y)
    even = 2 * float(post["w"].mean) + 0.5
    _same(prediction.mean, np.array([even, float(post["x"].mean)] * 3)[:5])


def _first_differs(y):
    z = None
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(0.0 if z is None else z, variance=1.0))
        ngmp.sample("y", Normal(z if k else 2.0 * z, variance=1.0), obs=y[k])


def test_a_first_step_of_its_own_kind():
    """One name, two groups of factors: marginals and predictions are still one array, in order."""
    y = np.array([2.0, 1.5, 0.5])
    program = ngmp.compile(_first_differs)
    post = program(y=y)
    gain = np.array([2.0, 1.0, 1.0])
    precision = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]) + np.diag(gain**2)
    _same(post["z"].mean, np.linalg.solve(precision, gain * y))
    _same(program.predict(post, "y", y=y).mean, gain * np.asarray(post["z"].mean))
