"""Chains of the model itself: NUTS from a posterior, and the check by chains where weights fail."""

import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Beta, Binomial, Categorical, Dirichlet, Gamma, Normal, Poisson, Wishart, exp
from ngmp_compiler.results import coordinates
from ngmp_compiler.results.decouple import decoupled

Y = np.array([3, 0, 1, 5, 2])


def skewed(y, counts):
    t = ngmp.sample("t", Gamma(2.0, rate=1.0))
    p = ngmp.sample("p", Beta(2.0, 3.0))
    ngmp.sample("counts", Poisson(t), obs=counts)
    ngmp.sample("y", Binomial(6, probs=p), obs=y)


def test_draws_are_those_of_the_exact_posterior(key):
    pytest.importorskip("blackjax", reason="BlackJAX is not installed: program.refine is not tried")
    program = ngmp.compile(skewed)
    inputs = {"y": Y, "counts": np.array([1, 4, 2])}
    found = program.refine(program(**inputs), key, draws=500, chains=2, warmup=100, **inputs)
    assert found.ok and "R-hat" in repr(found) and found.draws["t"].shape == (2, 500)
    exact = {"t": stats.gamma(2 + 7, scale=1 / (1 + 3)), "p": stats.beta(2 + 11, 3 + 19)}
    for name, q in exact.items():
        error = q.std() / np.sqrt(found.ess[name])
        assert abs(found.draws[name].mean() - q.mean()) < 4 * error
        assert abs(np.log(found.draws[name].std() / q.std())) < 4 / np.sqrt(found.ess[name])


def test_supports_are_mapped_and_volumes_counted():
    """Densities on the real line integrate to one: by importance sampling from a wide normal."""

    def model(y):
        ngmp.sample("d", Dirichlet(np.array([2.0, 3.0, 1.5])))
        ngmp.sample("W", Wishart(5.0, scale=np.array([[0.4, 0.1], [0.1, 0.3]])))
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Normal(x, variance=1.0), obs=y)

    program = ngmp.compile(model)
    entries = coordinates.layout(program.declared(y=0.0))
    assert {e.name: (e.support, e.size) for e in entries} == {"d": ("simplex", 2), "W": ("matrix", 3), "x": ("real", 1)}
    wide = stats.multivariate_normal(np.array([0.3, 0.6, 0.3, 0.2, -0.3, 0.0]), np.diag([1.5, 1.5, 0.4, 0.6, 0.4, 0.6]))
    u = wide.rvs(4000, random_state=np.random.default_rng(0))
    import jax

    def joint(row):
        values, volume = coordinates.unflat(entries, row)
        return program._density(*program._split((), {"y": 0.0}), program.declared(y=0.0))(values) + volume

    logs = np.asarray(jax.vmap(joint)(u)) - wide.logpdf(u)
    assert abs(np.log(np.mean(np.exp(logs))) - stats.norm.logpdf(0.0, scale=np.sqrt(2))) < 0.1
    values, _ = coordinates.unflat(entries, u[0])
    np.testing.assert_allclose(coordinates.flat(entries, values), u[0], rtol=1e-8, atol=1e-10)


def test_effects_are_freed_of_their_scale():
    """Given mean and scale, effects of Gaussian data have a normal posterior: in these coordinates a standard one."""
    import jax

    def effects(y, sd):
        mu, lt = ngmp.sample("mu", Normal(0.0, std=10.0)), ngmp.sample("lt", Normal(1.5, std=1.0))
        theta = ngmp.sample("theta", Normal(mu + np.zeros(4), std=exp(lt)))
        ngmp.sample("y", Normal(theta, std=sd), obs=y)

    inputs = {"y": np.array([28.0, 8.0, -3.0, 7.0]), "sd": np.array([15.0, 10.0, 16.0, 11.0])}
    rng = np.random.default_rng(0)
    mu, lt = rng.normal(5.0, 5.0, 300), rng.normal(1.0, 1.0, 300)
    precision = np.exp(-2 * lt)[:, None] + inputs["sd"] ** -2.0
    mean = (mu * np.exp(-2 * lt))[:, None] + inputs["y"] / inputs["sd"] ** 2
    u = rng.normal(size=(300, 4))
    draws = {"mu": mu, "lt": lt, "theta": mean / precision + u / np.sqrt(precision)}
    program = ngmp.compile(effects)
    front = program.declared(**inputs)
    maps = decoupled(front, program._located(*program._split((), inputs), front), draws)
    inside = jax.jit(jax.vmap(maps.into))(draws)
    np.testing.assert_allclose(inside["theta"], u, atol=1e-5)
    back, volume = jax.jit(jax.vmap(maps.out))(inside)
    np.testing.assert_allclose(back["theta"], draws["theta"], rtol=1e-5)
    np.testing.assert_allclose(volume, -0.5 * np.log(precision).sum(1), rtol=1e-5)


def test_chains_are_freed_of_their_step():
    """There and back, with the volume of the map: its Jacobian's, by derivatives."""
    import jax

    def walk(y):
        ls = ngmp.sample("ls", Normal(-1.0, std=0.5))

        def step(z, y):
            z = ngmp.sample("z", Normal(0.9 * z + 0.1, std=exp(ls)))
            ngmp.sample("y", Poisson(exp(z)), obs=y)
            return z, None

        ngmp.scan(step, ngmp.sample("z0", Normal(0.0, std=1.0)), y)

    rng, inputs = np.random.default_rng(0), {"y": Y}
    draws = {"ls": rng.normal(-1, 0.3, 50), "z0": rng.normal(size=50), "z": rng.normal(size=(50, 5))}
    program = ngmp.compile(walk)
    front = program.declared(**inputs)
    maps = decoupled(front, program._located(*program._split((), inputs), front), draws)
    inside = jax.jit(jax.vmap(maps.into))(draws)
    assert abs(np.asarray(inside["z"]) - draws["z"]).max() > 0.1
    back, volume = jax.jit(jax.vmap(maps.out))(inside)
    np.testing.assert_allclose(back["z"], draws["z"], atol=1e-5)
    one = {name: x[0] for name, x in inside.items()}
    slope = jax.jacfwd(lambda z: maps.out({**one, "z": z})[0]["z"])(one["z"])
    np.testing.assert_allclose(volume[0], np.linalg.slogdet(slope)[1], rtol=1e-4)


def test_directions_that_are_narrow_stay_narrow():
    """Smooth curves: of 40 numbers most combinations are known a hundred times as well as each number."""
    t = np.linspace(0.0, 5.0, 40)
    root = np.linalg.cholesky(np.exp(-0.5 * (t[:, None] - t) ** 2) + 1e-4 * np.eye(40))
    scale = coordinates.standardise(np.random.default_rng(0).normal(size=(320, 40)) @ root.T)
    sizes = np.linalg.svd(np.linalg.solve(np.asarray(scale.root), root), compute_uv=False)
    assert sizes.max() < 2.0 and sizes.min() > 0.5


def test_discrete_variables_are_refused(key):
    pytest.importorskip("blackjax")

    def mixture(y):
        z = ngmp.sample("z", Categorical(probs=np.array([0.3, 0.7])))
        ngmp.sample("y", Normal(ngmp.take(np.array([-1.0, 1.0]), z), variance=1.0), obs=y)

    program = ngmp.compile(mixture)
    with pytest.raises(ngmp.ModelError, match="site 'z': it is discrete"):
        program.refine(program(y=0.2), key, y=0.2)


def walk(y):
    def step(z, y_k):
        z = ngmp.sample("z", Normal(0.95 * z, variance=0.1))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y)


@pytest.mark.parametrize("broken", [False, True])
def test_long_chains_are_checked_by_chains(key, broken):
    """Weights fail in so many dimensions; a mean-field posterior, far too narrow, is told from one that is fine."""
    y = np.random.default_rng(4).poisson(1.0, 120)
    options = {"method": ngmp.NCVMP()} if broken else {}
    program = ngmp.compile(walk, **options)
    found = program.check(program(y=y), key, draws=1000, y=y)
    if broken:
        assert not found.ok and "z" in found.verdict and found.ratio["z"] < 0.85
    else:
        assert found.ok and abs(found.shift["z"]) < 0.15
