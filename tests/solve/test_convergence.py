"""When a run has converged, and that it does: stopping rule, starts at the data, bounded and long steps, the ladder."""

import contextlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.stats import norm
from scipy.optimize import brentq

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, Poisson, dot, exp
from ngmp_compiler import options as _options
from ngmp_compiler.results.blur import blurred
from ngmp_compiler.solve.moves import broadens, within
from ngmp_compiler.solve.step import as_step
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian, MvGaussian


def plate(y, variance=100.0):
    z = ngmp.sample("z", Normal(jnp.zeros(y.shape), variance=variance))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def best_gaussian(y, variance):
    """Mean and variance of the best Gaussian for N(z; 0, V) Poisson(y; e^z): the stationary point, by bisection.

    With rho = e^{m + v/2}: m = V (y - rho) and 1/v = 1/V + rho.
    """

    def gap(log_rho):
        rho = np.exp(log_rho)
        return variance * (y - rho) + 0.5 / (1 / variance + rho) - log_rho

    log_rho = brentq(gap, -60, 60, xtol=1e-15)
    rho = np.exp(log_rho)
    v = 1 / (1 / variance + rho)
    return log_rho - 0.5 * v, v


@pytest.mark.parametrize("counts", [[2000.0, 0.0, 1.0, 3.0], [1e8, 0.0, 1.0, 3.0, 50.0], [0.0, 0.0]])
def test_large_elements_do_not_hide_small_ones(counts):
    for dtype, error in ((np.float64, 1e-6), (np.float32, 1e-2)):
        with pytest.warns(UserWarning) if dtype is np.float32 else contextlib.nullcontext():
            post = ngmp.compile(plate)(y=np.array(counts, dtype))
        assert bool(post.converged)
        mean, variance = np.array([best_gaussian(y, 100.0) for y in counts]).T
        # A single-precision mean is no better than its last digit.
        slack = error + 4 * np.finfo(dtype).eps * np.abs(mean) / np.sqrt(variance)
        assert (np.abs(post["z"].mean - mean) / np.sqrt(variance) < slack).all()
        np.testing.assert_allclose(post["z"].variance, variance, rtol=3 * error)


def volatility(y, step=0.3):
    def each(h, y_k):
        h = ngmp.sample("h", Normal(h, std=step))
        ngmp.sample("y", Normal(0.0, variance=exp(h)), obs=y_k)
        return h, None

    ngmp.scan(each, ngmp.sample("h0", Normal(0.0, std=3.0)), y)


def test_volatility_that_drifts_by_decades_converges(rng):
    h = np.cumsum(0.3 * rng.standard_normal(800)) + np.linspace(0, 25, 800)
    post = ngmp.compile(volatility)(y=np.exp(0.5 * h) * rng.standard_normal(800))
    assert bool(post.converged) and int(post.sweeps) <= 25
    assert np.sqrt(np.mean((post["h"].mean - h) ** 2)) < 1.5


def gamma_regression(x, y):
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[-1]), covariance=25.0))
    ngmp.factor("y", lambda f, y: 2 * jnp.log(y) - 3 * y * jnp.exp(-f) - 3 * f, dot(x, w), y)


def test_factors_of_any_log_density_start_at_their_data(rng):
    x = np.column_stack([np.ones(60), rng.normal(size=60)])
    y = rng.gamma(3.0, np.exp(x @ [1.0, -0.5]) / 3)
    post = ngmp.compile(gamma_regression)(x=x, y=y)
    assert bool(post.converged) and int(post.sweeps) <= 20
    np.testing.assert_allclose(post["w"].mean, [1.0, -0.5], atol=0.4)


PAIRS = np.array([[0, 1], [1, 2], [0, 2], [2, 3], [1, 3], [3, 0], [2, 0]])


def skills(won, hard):
    skill = ngmp.sample("skill", Normal(jnp.zeros(4), std=3.0))
    gap = skill[PAIRS[:, 0]] - skill[PAIRS[:, 1]]
    if hard:
        lead = ngmp.sample("lead", Normal(gap, variance=2.0))
        ngmp.factor("won", lambda d, w: jnp.where(d * w > 0, 0.0, -jnp.inf), lead, won)
    else:
        ngmp.factor("won", lambda d, w: norm.logcdf(d * w / jnp.sqrt(2.0)), gap, won)


def test_hard_indicators_equal_their_integral():
    """EP with a hard indicator on a noisy lead is EP with a probit on the gap: one integral is done by hand."""
    won = np.array([1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
    hard, soft = (ngmp.compile(skills, method=ngmp.EP())(won=won, hard=h) for h in (True, False))
    assert bool(hard.converged) and bool(soft.converged)
    np.testing.assert_allclose(hard["skill"].mean, soft["skill"].mean, atol=1e-6)
    np.testing.assert_allclose(hard["skill"].variance, soft["skill"].variance, rtol=1e-6)
    np.testing.assert_allclose(hard.free_energy, soft.free_energy, atol=1e-6)


def level(y):
    q, r = ngmp.sample("q", Gamma(1.0, rate=1.0)), ngmp.sample("r", Gamma(1.0, rate=1.0))

    def each(z, y_k):
        z = ngmp.sample("z", Normal(z, precision=q))
        ngmp.sample("y", Normal(z, precision=r), obs=y_k)
        return z, None

    ngmp.scan(each, ngmp.sample("z0", Normal(0.0, std=5.0)), y)


def test_mixing_ends_at_the_same_place_sooner(rng):
    y = np.cumsum(0.3 * rng.standard_normal(60)) + rng.standard_normal(60)
    runs = [
        ngmp.compile(level, method=ngmp.StructuredVMP(), solver=ngmp.adaptive(memory=memory), max_sweeps=3000)(y=y)
        for memory in (3, 0)
    ]
    assert all(bool(p.converged) for p in runs)
    assert int(runs[0].sweeps) < 0.6 * int(runs[1].sweeps)
    np.testing.assert_allclose(runs[0].free_energy, runs[1].free_energy, atol=1e-8)


def test_a_run_that_fails_climbs_the_ladder_and_says_so(rng, monkeypatch):
    y = np.cumsum(0.3 * rng.standard_normal(30)) + rng.standard_normal(30)
    program = ngmp.compile(level)
    good = program(y=y)
    # A first rung that cannot get there: steps of a thousandth.
    monkeypatch.setattr(_options, "_LADDER", (as_step(optax.sgd(1e-3)), *_options._LADDER[1:]))
    crippled = ngmp.compile(level)
    post = crippled(y=y)
    assert bool(post.converged) and int(post.state.rung) >= 1 and int(post.sweeps) > 60
    assert "acceleration" in post.reason
    np.testing.assert_allclose(post.free_energy, good.free_energy, atol=1e-6)
    again = crippled.posterior(post.state, y=y)  # the state goes on with the program's own solver
    np.testing.assert_allclose(again["z"].mean, post["z"].mean, atol=1e-8)
    assert not bool(jax.jit(lambda y: crippled(y=y).converged)(y))  # traced, there is the first rung only


def rates(x, y):
    w = ngmp.sample("w", MvNormal(jnp.zeros(x.shape[-1]), covariance=0.005))
    ngmp.sample("y", Poisson(exp(dot(x, w))), obs=y)


@pytest.mark.filterwarnings("ignore:.*has not converged", "ignore:the whole model is computed in float32")
def test_single_precision_that_loses_a_mean_is_not_called_converged():
    """One count of 2e7 and features that are alike: P = 2e7 x x' + 200 I. In double precision there is no doubt."""
    x, y = np.array([[0.8, 1.4, 1.4]]), np.array([2e7])
    good, lost = (ngmp.compile(rates)(x=x.astype(d), y=y.astype(d)) for d in (np.float64, np.float32))
    assert bool(good.converged)
    assert not bool(lost.converged) and "ill-conditioned" in lost.reason
    plain = ngmp.compile(rates)(x=x.astype(np.float32), y=np.array([20.0], np.float32))
    assert bool(plain.converged)


def test_a_variance_that_rounding_takes_away_is_blurred():
    """P = c x x' + I: for large c, the inverse of its rounded entries has other variances."""
    x = np.random.default_rng(3).normal(size=3)
    for c, lost in ((1e3, False), (1e6, True)):
        p = c * np.outer(x, x) + np.eye(3)
        exact, rounded = (np.diag(np.linalg.inv(a.astype(np.float64))) for a in (p, p.astype(np.float32)))
        assert (np.abs(rounded / exact - 1).max() > 0.01) == lost
        q = MvGaussian.from_information(jnp.zeros((1, 3), np.float32), jnp.asarray(p, np.float32)[None])
        assert bool(blurred(q)) == lost


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_lost_run_has_no_free_energy():
    y = np.array([3.0, 7.0])
    program = ngmp.compile(plate)
    state = program(y=y).state
    leapt = eqx.tree_at(lambda s: (s.moves.distance, s.moves.whole), state, (jnp.full(1, 1e6), jnp.zeros(1, bool)))
    post = program.posterior(leapt, y=y)
    assert not bool(post.converged) and "run off" in post.reason
    assert float(post.free_energy) == np.inf and not np.isnan(float(post.residual))


def test_steps_leave_a_quarter_of_what_a_marginal_has():
    q = Gaussian.from_mean_variance(jnp.array([1.0, 1.0, 1.0]), jnp.array([0.5, 0.5, 0.5]))
    step = Gaussian(jnp.array([0.2, 0.2, 0.2]), jnp.array([0.9, 0.1, -5.0]))
    bounded = within(q, step)
    np.testing.assert_allclose((q + bounded).precision, [0.5, 1.8, 12.0])
    np.testing.assert_allclose(bounded.eta1, [0.2 * 0.75 / 0.9, 0.2, 0.2])  # a row is shortened as a whole
    assert broadens(step).tolist() == [True, True, False]
    narrow = GammaFamily(jnp.array([-4.0]), jnp.array([-1.0]))
    after = GammaFamily.from_concentration_rate(jnp.array([2.0]), jnp.array([3.0]))
    after = after + within(after, narrow)
    np.testing.assert_allclose([after.concentration, after.rate], [[0.5], [3.375]])
