"""Chains of the model itself: NUTS from a posterior, and the check by chains where weights fail."""

import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Beta, Binomial, Categorical, Dirichlet, Gamma, Normal, Poisson, Wishart, exp
from ngmp_compiler.results import coordinates

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
