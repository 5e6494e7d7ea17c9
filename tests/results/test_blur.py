"""What single precision loses is said: matrices, data far away, differences of variables that are tied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, StructuredVMP, Wishart
from ngmp_compiler.results.blur import blurred, doubted, unusable
from ngmp_kernels import families

pytestmark = pytest.mark.filterwarnings("ignore:.*has not converged", "ignore:the whole model is computed in float32")


def both(program, *given):
    """Posteriors in double and in single precision."""
    return (program(*(jnp.asarray(x, d) for x in given)) for d in (np.float64, np.float32))


def scatter(y, scale):
    w = ngmp.sample("W", Wishart(4.0, scale=scale * jnp.eye(2)))
    ngmp.sample("y", MvNormal(jnp.ones(2), precision=w), obs=y)


@pytest.mark.parametrize(("size", "lost"), [(3.0, False), (1e4, True), (1e5, True)])
def test_a_wishart_whose_prior_is_rounded_away(size, lost):
    """One datum: the inverse scale is I / s + d d', and its inverse s (I - s d d' / (1 + s d'd))."""
    y, s = size * np.array([[1.0, 0.9]]), 0.1
    good, poor = both(ngmp.compile(scatter), y, s)
    d = y[0].astype(np.float32).astype(float) - 1
    exact = 5 * s * (np.eye(2) - s * np.outer(d, d) / (1 + s * d @ d))
    assert bool(good.converged) and bool(poor.converged) != lost
    np.testing.assert_allclose(good["W"].mean, exact, rtol=1e-5)
    if lost:
        assert "float32 loses digits here; use float64" in poor.reason
    else:
        np.testing.assert_allclose(poor["W"].mean, exact, rtol=1e-3)


def test_no_marginal_is_improper_where_rounding_leaves_no_matrix():
    """Two columns that are nearly copies, 10^5 in size: the inverse scale has no Cholesky factor in float32."""
    u = np.random.default_rng(0).normal(size=(8, 1))
    good, poor = both(ngmp.compile(scatter), 1e5 * np.concatenate([u, u * (1 + 1e-7)], 1) + 1, 100.0)
    assert bool(good.converged) and not bool(poor.converged)
    assert "float32 loses digits here" in poor.reason
    assert bool(poor["W"].is_proper()) and not bool(unusable(poor["W"]))


def test_what_is_unusable():
    assert not unusable(families.Gaussian.from_mean_variance(jnp.zeros(2), jnp.ones(2)))
    assert unusable(families.Gaussian(jnp.zeros(2), jnp.array([-0.5, 0.5])))
    assert unusable(families.Gaussian(jnp.array([0.0, jnp.nan]), jnp.array([-0.5, -0.5])))
    assert not unusable(families.Categorical(jnp.array([0.0, -jnp.inf])))  # a class may be impossible


def walk(y, q, r):
    def step(z, y):
        z = ngmp.sample("z", Normal(z, variance=q))
        ngmp.sample("y", Normal(z, variance=r), obs=y)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y)


@pytest.mark.parametrize(("size", "lost"), [(1.0, False), (1e6, True)])
def test_data_of_a_million_standard_deviations(size, lost):
    y = size * np.random.default_rng(0).normal(size=20).astype(np.float32) * 0.02
    good, poor = both(ngmp.compile(walk), y, 1e-5, 4e-4)
    assert bool(good.converged) and bool(poor.converged) != lost
    apart = np.abs(np.asarray(poor["z"].mean, float) - good["z"].mean) / good["z"].std
    assert lost or apart.max() < 1e-2


def steady(y, v, b):
    q = ngmp.sample("q", Gamma(2.4, rate=b))

    def step(z, y):
        z = ngmp.sample("z", Normal(z, precision=q))
        ngmp.sample("y", Normal(z, precision=1e-4), obs=y)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=v)), y)


@pytest.mark.parametrize(("rate", "lost"), [(1.0, False), (5e-4, True)])
def test_steps_far_smaller_than_what_is_known_of_a_level(rate, lost):
    good, poor = both(ngmp.compile(steady, method=StructuredVMP()), np.zeros(20), 63.0, rate)
    assert bool(good.converged) and bool(poor.converged) != lost
    assert lost or abs(poor["q"].mean / good["q"].mean - 1) < 1e-2


def test_double_precision_is_not_looked_at():
    d = np.array([1e5, 0.9e5])
    q = families.Wishart.from_df_inverse_scale(jnp.asarray(4.0), jnp.asarray(np.outer(d, d) + np.eye(2)))
    assert q.dtype == jnp.float64 and not blurred(q)


def test_a_cavity_of_which_a_subtraction_leaves_no_digits_is_flagged():
    """Two data on a line: each alone says as little of the other as its prior, 1e-7 of what a leaf says of it.

    Whether they are noise or not hangs on that, where the precision may be anything.
    """

    def line(y, v):
        a, b = (ngmp.sample(k, Normal(0.0, variance=v)) for k in "ab")
        tau = ngmp.sample("tau", Gamma(0.05, rate=5e-6))
        ngmp.sample("y", Normal(a + b * jnp.array([-1.0, 1.0]), precision=tau), obs=y)

    @jax.jit
    def lost(v):
        y = jnp.array([1.0, 3.0], jnp.float32)
        map = ngmp.compile(line).specialise(y=y, v=v).solver.map
        leaves = {"y.r": families.Gaussian(0 * y, 0 * y - 5e3), "y.tau": families.Gamma(0 * y, 0 * y)}

        def half(_, leaves):
            return jax.tree.map(lambda x, y: 0.5 * (x + y), leaves, map.evaluate(leaves).target)

        leaves = jax.lax.fori_loop(0, 100, half, leaves)
        return doubted(map, leaves, map.core.run(leaves))

    assert [bool(lost(jnp.float32(v))) for v in (1.0, 1e3)] == [False, True]
