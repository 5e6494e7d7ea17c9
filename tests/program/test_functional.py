"""Energies of marginals: against dense algebra, against free energies minimised by scipy, and as any factor is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, DataError, Gamma, ModelError, MvNormal, Normal, Poisson
from ngmp_kernels import EnergyOf, families
from tests.inside import equations
from tests.refusals import Y, fails, gaussian

RIDGE = 2.0


def chain(y, ridge=RIDGE):
    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
        return z, z

    _, path = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y)
    ngmp.functional("ridge", lambda q, w: 0.5 * w * jnp.sum(q.mean**2 + q.variance), path, ridge)


def dense(y, ridge):
    """Mean, covariance and minus the log-evidence of the chain with a factor exp(-ridge z^2 / 2) at every z."""
    n = len(y)
    precision, linear = np.zeros((n + 1, n + 1)), np.append(0.0, y)
    precision[0, 0] = 1.0
    for k in range(n):
        precision[k : k + 2, k : k + 2] += 2.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
        precision[k + 1, k + 1] += 1.0 + ridge
    covariance = np.linalg.inv(precision)
    constant = -0.5 * n * np.log(2 * np.pi) - 0.5 * y @ y - 0.5 * np.log(2 * np.pi) * (n + 1) + 0.5 * n * np.log(2.0)
    volume = 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1] + 0.5 * linear @ covariance @ linear
    return covariance @ linear, covariance, -(constant + volume)


@pytest.fixture(scope="module")
def program():
    return ngmp.compile(chain)


Y5 = np.array([0.0, 1.0, 2.0, 3.0, 4.0])


def test_energy_that_is_a_density(program):
    """`E[w z^2 / 2]` is the energy of a Gaussian factor: marginals and free energy are those of dense algebra."""
    post = program(y=Y5)
    mean, covariance, energy = dense(Y5, RIDGE)
    assert post.converged
    np.testing.assert_allclose(post["z"].mean, mean[1:], rtol=1e-8)
    np.testing.assert_allclose(post["z"].variance, np.diag(covariance)[1:], rtol=1e-8)
    np.testing.assert_allclose(post.free_energy, energy, rtol=1e-10)


def test_derivatives_flow_through_the_fixed_point(program):
    step = 1e-4
    value = [dense(Y5, RIDGE + s) for s in (-step, step)]
    found = jax.jit(jax.grad(lambda w: program(y=Y5, ridge=w)["z"].mean.sum()))(RIDGE)
    np.testing.assert_allclose(found, (value[1][0][1:].sum() - value[0][0][1:].sum()) / 2 / step, rtol=1e-6)
    found = jax.jit(jax.grad(lambda w: program(y=Y5, ridge=w).free_energy))(RIDGE)
    np.testing.assert_allclose(found, (value[1][2] - value[0][2]) / 2 / step, rtol=1e-6)


def test_program_size_does_not_depend_on_length(program):
    sizes = [equations(jax.make_jaxpr(lambda y: program(y=y).free_energy)(np.zeros(n)).jaxpr) for n in (50, 200)]
    assert abs(sizes[0] - sizes[1]) < 20  # rounds of the chain's reduction, and not a step


def test_described_and_drawn(program, tmp_path):
    lowered = program.lower(y=Y5)
    assert "EnergyFactor" in lowered.describe()
    lowered.draw(tmp_path / "graph.svg")
    assert "ridge" in (tmp_path / "graph.svg").read_text()


def test_two_families_and_plates_of_two_sizes():
    """An energy of a plate of three, of one scalar and of a Gamma variable, where none is a log-density: the free
    energy over independent marginals, minimised by scipy."""

    def energy(x, s, t):
        return 2.0 * jnp.log(1 + jnp.sum(x.variance)) * s.mean**2 + 0.3 * t.mean * jnp.sum(x.mean) - 0.5 * jnp.sum(
            t.entropy()
        )

    def model():
        x = ngmp.sample("x", Normal(np.array([1.0, 2.0, -1.0]), variance=1.0))
        s = ngmp.sample("s", Normal(0.7, variance=0.3))
        t = ngmp.sample("t", Gamma(3.0, rate=2.0))
        ngmp.functional("j", energy, x, s, t)

    post = ngmp.compile(model)()
    gaussian, gamma = families.Gaussian, families.Gamma
    prior = gaussian.from_mean_variance(jnp.array([1.0, 2.0, -1.0, 0.7]), jnp.array([1.0, 1.0, 1.0, 0.3]))
    rate = gamma.from_concentration_rate(3.0, 2.0)

    def free(v):
        q, t = gaussian.from_mean_variance(v[:4], jnp.exp(v[4:8])), gamma.from_concentration_rate(*jnp.exp(v[8:]))
        x, s = jax.tree.map(lambda a: a[:3], q), jax.tree.map(lambda a: a[3], q)
        return jnp.sum(q.kl(prior)) + t.kl(rate) + energy(x, s, t)

    start = np.concatenate([prior.mean, np.log(prior.variance), np.log([3.0, 2.0])])
    best = minimize(jax.jit(free), start, jac=jax.jit(jax.grad(free)), method="BFGS", options={"gtol": 1e-9})
    assert post.converged
    np.testing.assert_allclose(np.append(post["x"].mean, post["s"].mean), best.x[:4], rtol=1e-5)
    np.testing.assert_allclose(np.append(post["x"].variance, post["s"].variance), np.exp(best.x[4:8]), rtol=1e-5)
    np.testing.assert_allclose(post["t"].mean, np.exp(best.x[8] - best.x[9]), rtol=1e-5)
    np.testing.assert_allclose(post.free_energy, best.fun, rtol=1e-8)


def test_classes():
    """Entropy that is paid for twice: `q ~ p^(1 / (1 + c))`, class by class."""

    def model(p, c=1.0):
        z = ngmp.sample("z", Categorical(probs=p))
        ngmp.functional("less", lambda q, c: -c * jnp.sum(q.entropy()), z, c)

    p = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    post = ngmp.compile(model)(p=p)
    expected = np.sqrt(p) / np.sqrt(p).sum(1, keepdims=True)
    np.testing.assert_allclose(post["z"].probs, expected, rtol=1e-6)
    np.testing.assert_allclose(post.free_energy, -2 * np.log(np.sqrt(p).sum(1)).sum(), rtol=1e-8)


def test_vectors_and_expressions():
    """The energy of a vector's covariance, and of an affine expression: a Gaussian factor each, by dense algebra."""
    a, w = np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([[2.0, 0.3], [0.3, 1.0]])

    def model():
        x = ngmp.sample("x", MvNormal(np.array([1.0, -1.0]), covariance=np.eye(2)))
        second = lambda q: q.covariance + jnp.outer(q.mean, q.mean)  # noqa: E731
        ngmp.functional("seen", lambda q: 0.5 * jnp.sum(w * second(q)), a @ x)

    post = ngmp.compile(model)()
    precision = np.eye(2) + a.T @ w @ a
    np.testing.assert_allclose(post["x"].covariance, np.linalg.inv(precision), rtol=1e-8)
    np.testing.assert_allclose(post["x"].mean, np.linalg.solve(precision, [1.0, -1.0]), rtol=1e-8)


def test_mean_field_rules_take_it():
    """Under VMP too, and under NGMP with the same rule named for the site."""
    mean = ngmp.compile(chain, rules={"ridge": ngmp.VMP()})(y=Y5)["z"].mean
    np.testing.assert_allclose(mean, dense(Y5, RIDGE)[0][1:], rtol=1e-8)


def test_beside_functions_of_jax():
    """A model read off its jaxpr declares the same energy."""

    def model(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("y", Normal(jnp.sum(x), variance=1.0), obs=y)
        ngmp.functional("ridge", lambda q, w: 0.5 * w * jnp.sum(q.mean**2 + q.variance), x, 3.0)

    post = ngmp.compile(model)(y=1.0)
    precision = 4.0 * np.eye(3) + np.ones((3, 3))
    np.testing.assert_allclose(post["x"].mean, np.linalg.solve(precision, np.ones(3)), rtol=1e-8)


# -- what is refused ------------------------------------------------------------------------------------------------


def _with(energy, *more):
    def model(y=None):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        ngmp.functional("j", energy, x, *more)

    return model


@pytest.mark.parametrize(
    ("energy", "words"),
    [
        (lambda q: q.mean, ("site 'j'", "one real number", "(3,)")),
        (lambda q: jnp.sum(jnp.exp(q)), ("site 'j'", "m.mean")),
        (lambda q: q.value, ("site 'j'", "m.mean")),
        (lambda q: 1.0 * jnp.argmax(q.mean), ("site 'j'", "no gradient", "integers")),
        (lambda q, r: jnp.sum(q.mean), ("site 'j'", "cannot be evaluated")),
        (3.0, ("'j'", "cannot be called")),
    ],
)
def test_energies_that_are_none(energy, words):
    fails(ModelError, _with(energy), *words)


def test_energy_that_is_nan():
    with pytest.raises(DataError, match="site j"):
        ngmp.compile(_with(lambda q: jnp.log(jnp.sum(q.mean) - 100.0)))()


def test_nothing_random():
    def model():
        gaussian()
        ngmp.functional("j", lambda c: jnp.sum(c), np.ones(3))

    fails(ModelError, model, "site 'j'", "no random variable")


def test_integrated_site():
    def model(y):
        sd = ngmp.sample("sd", ngmp.HalfNormal(std=1.0))
        ngmp.sample("y", Normal(gaussian(), std=sd), obs=y)
        ngmp.functional("j", lambda q: q.mean, sd)

    with pytest.raises(ModelError, match="integrate= names stands as a number"):
        ngmp.compile(model, integrate=("sd",))(y=Y)


def test_inside_a_scan():
    def model(y):
        def step(z, _):
            z = ngmp.sample("z", Normal(z, variance=1.0))
            ngmp.functional("j", lambda q: q.mean, z)
            return z, None

        ngmp.scan(step, gaussian(), y)

    fails(ModelError, model, "site 'j'", "after the scan", y=Y)


def test_twice_by_one_name():
    def model():
        x = gaussian()
        ngmp.functional("j", lambda q: q.mean, x)
        ngmp.functional("j", lambda q: q.mean, x)

    fails(ModelError, model, "site 'j'", "name of its own")


def test_no_density_of_values(program):
    post = program(y=Y5)
    with pytest.raises(ValueError, match="no density"):
        program.log_joint({"z0": 0.0, "z": np.zeros(5)}, y=Y5)
    with pytest.raises(ModelError, match="no generative direction"):
        program.simulate(jax.random.key(0), (2,), y=Y5)
    assert isinstance(program.declared(y=Y5).groups[-1].given.distribution, EnergyOf)
    assert post["z"].sample(jax.random.key(0), (3,)).shape == (3, 5)


# -- scheduled inputs -------------------------------------------------------------------------------------------------


def counts(y, beta=1.0, name="walk"):
    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, variance=0.5 / beta))
        ngmp.sample("y", Poisson(ngmp.exp(z)), obs=y_k)
        return z, z

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y)


@pytest.fixture(scope="module")
def scheduled():
    return ngmp.compile(counts)


BETAS = np.geomspace(1.0, 10.0, 7)
COUNTS = np.array([0, 1, 2, 3, 4])


def test_schedule_ends_at_its_last_value(scheduled):
    """The fixed point and its derivatives are those at the last value, also under jit and vmap."""
    run = jax.jit(lambda betas: scheduled(y=COUNTS, anneal={"beta": betas}))
    post, direct = run(BETAS), scheduled(y=COUNTS, beta=10.0)
    assert post.converged and post.sweeps > 6
    np.testing.assert_allclose(post["z"].mean, direct["z"].mean, rtol=1e-7)
    np.testing.assert_allclose(post.free_energy, direct.free_energy, rtol=1e-10)
    slope = jax.jit(jax.grad(lambda betas: scheduled(y=COUNTS, anneal={"beta": betas}).free_energy))(BETAS)
    step = 1e-4
    ends = [scheduled(y=COUNTS, beta=10.0 + s).free_energy for s in (-step, step)]
    np.testing.assert_allclose(slope, np.append(np.zeros(6), (ends[1] - ends[0]) / 2 / step), rtol=1e-6)
    each = jax.vmap(lambda y: run(BETAS) if y is None else scheduled(y=y, anneal={"beta": BETAS}).free_energy)
    assert jnp.all(jnp.isfinite(each(np.stack([COUNTS, COUNTS + 1]))))


@pytest.mark.parametrize(
    ("anneal", "words"),
    [
        ({"gamma": BETAS}, "no such input"),
        ({"name": BETAS}, "static"),
        ({"beta": np.ones((3, 2))}, "sweeps,"),
        ({"beta": [1.0, np.nan]}, "NaN"),
        ({"beta": "warm"}, "one value a sweep"),
        ({"beta": BETAS, "y": np.ones((3, 5))}, "several lengths"),
        (BETAS, "by its name"),
    ],
)
def test_schedules_that_are_none(scheduled, anneal, words):
    with pytest.raises((TypeError, ValueError), match=words):
        scheduled(y=COUNTS.astype(float), anneal=anneal)


def test_schedules_and_integrals():
    def model(y):
        sd = ngmp.sample("sd", ngmp.HalfNormal(std=1.0))
        ngmp.sample("y", Normal(gaussian(), std=sd), obs=y)

    with pytest.raises(TypeError, match="integrate="):
        ngmp.compile(model, integrate=("sd",))(y=Y, anneal={"y": Y[None]})
