"""The declared joint density against scipy and the evidence, and leave-one-out against refits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, HalfNormal, MvNormal, Normal, Poisson, dot, exp
from ngmp_compiler.emit.surrogate import log_density
from ngmp_compiler.results.density import by_plane

RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 2))
Y = X @ [1.0, -0.5] + 0.3 * RNG.normal(size=6)
SEEN = np.array([True, True, False, True, True, True])


def regression(y, mask=None):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=2.0))
    ngmp.sample("y", Normal(dot(X, w), std=0.5), obs=y, mask=mask)


def level(y, mask=None):
    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=0.3))
        ngmp.sample("y", Normal(z, variance=0.2), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), (y, mask))


TABLE = np.array([[0.8, 0.2], [0.3, 0.7]])


def hmm(y, mask=None):
    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Categorical(probs=ngmp.take(TABLE, z)))
        ngmp.sample("y", Normal(ngmp.take(np.array([-1.0, 1.0]), z), std=0.7), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.array([0.4, 0.6]))), (y, mask))


@pytest.mark.parametrize("model", [regression, level, hmm])
def test_conjugate_models_are_exact(model, key):
    """log p(x, y) - log q(x) is the evidence, wherever x is; and leaving out is what a refit predicts."""
    program = ngmp.compile(model)
    post = program(y=Y, mask=SEEN)
    draws = post.sample(key, (5,))
    p = jax.vmap(lambda v: program.log_joint(v, y=Y, mask=SEEN))(draws)
    static, dynamic = program._split((), {"y": Y, "mask": SEEN})
    front, core = program._front_at(static, dynamic), program.specialise(y=Y, mask=SEEN).map.core
    q = jax.vmap(log_density(core, {}))(jax.vmap(lambda v: by_plane(front, v, {})[0])(draws))
    np.testing.assert_allclose(p - q, -post.free_energy, rtol=1e-9)

    loo = program.loo(post, "y", y=Y, mask=SEEN)
    assert np.isnan(loo.log_density[2])
    for n in (0, 5):
        rest = SEEN & (np.arange(6) != n)
        ratio = program(y=Y, mask=rest).free_energy - post.free_energy
        np.testing.assert_allclose(loo.log_density[n], ratio, atol=1e-9)
    np.testing.assert_allclose(loo.elpd, np.nansum(loo.log_density))
    assert "elpd" in repr(loo)


def mixed(y, scale=1.0):
    sd = ngmp.sample("sd", HalfNormal(std=scale))
    m = ngmp.sample("m", Normal(0.0, variance=4.0))
    t = ngmp.sample("t", Gamma(2.0, rate=1.0))
    s = ngmp.apply(jnp.sin, m, name="s")
    ngmp.sample("a", Normal(s, std=sd), obs=0.3)
    ngmp.sample("b", Normal(m, precision=t), obs=y)


def by_hand(sd, m, t, y, scale=1.0):
    total = stats.halfnorm.logpdf(sd, scale=scale) + stats.norm.logpdf(m, 0, 2) + stats.gamma.logpdf(t, 2.0)
    total += stats.norm.logpdf(0.3, np.sin(m), sd) + stats.norm.logpdf(y, m, t**-0.5).sum()
    return total


def test_the_joint_density_is_the_declared_one():
    program = ngmp.compile(mixed, integrate=("sd",))
    at = {"sd": 0.7, "m": 0.4, "t": 1.3}
    np.testing.assert_allclose(program.log_joint(at, y=Y), by_hand(**at, y=Y), rtol=1e-12)
    slope = jax.grad(lambda m: program.log_joint({**at, "m": m}, y=Y))(0.4)
    expected = (by_hand(0.7, 0.4 + 1e-5, 1.3, Y) - by_hand(0.7, 0.4 - 1e-5, 1.3, Y)) / 2e-5
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    np.testing.assert_allclose(program.log_joint(at, y=Y, scale=2.0), by_hand(**at, y=Y, scale=2.0), rtol=1e-12)
    with pytest.raises(ngmp.DataError, match=r"(?s)'m'.*no value.*'t'.*shape \(2,\).*'q'.*no variable"):
        program.log_joint({"sd": 0.7, "t": np.ones(2), "q": 1.0}, y=Y)


def test_scales_are_given_by_their_names():
    """Though the variable is their logarithm: the density is that of the scale."""

    def model(y):
        t = ngmp.sample("t", HalfNormal(std=2.0))
        ngmp.sample("y", Normal(0.0, std=t), obs=y)

    program = ngmp.compile(model)
    expected = stats.halfnorm.logpdf(0.7, scale=2.0) + stats.norm.logpdf(Y, 0.0, 0.7).sum()
    np.testing.assert_allclose(program.log_joint({"t": 0.7}, y=Y), expected, rtol=1e-9)
    np.testing.assert_allclose(program.log_joint({"log_t": np.log(0.7)}, y=Y), expected + np.log(0.7), rtol=1e-9)


def counts(y, mask=None):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    ngmp.sample("y", Poisson(exp(dot(np.resize(X, (20, 2)), w))), obs=y, mask=mask)


def test_leaving_out_without_a_refit_is_close_to_one():
    y = np.random.default_rng(2).poisson(np.exp(np.resize(X, (20, 2)) @ [0.5, -0.3]))
    program = ngmp.compile(counts)
    post = program(y=y, mask=np.ones(20, bool))
    loo = program.loo(post, "y", y=y, mask=np.ones(20, bool))
    found = loo.log_density
    refits = jax.vmap(lambda m: program.predict(program(y=y, mask=m), "y", y=y, mask=m).log_density)
    off = np.abs(found - np.diag(refits(jnp.asarray(~np.eye(20, dtype=bool)))))
    assert off.max() < 0.02
    again = np.asarray(loo.refitted)
    assert off[again].max(initial=0.0) < 1e-6 and not np.asarray(loo.doubtful).any()
    assert again.any() and (np.asarray(loo.weight)[again] > np.asarray(loo.weight)[~again].max()).all()
    inside = jax.jit(lambda post: program.loo(post, "y", y=y, mask=np.ones(20, bool)))(post)  # nothing is run again
    assert np.asarray(inside.doubtful).sum() == again.sum() and "DOUBTFUL" in repr(inside)
    with pytest.raises(ngmp.ModelError, match="not an observed site"):
        program.loo(post, "w", y=y, mask=np.ones(20, bool))
