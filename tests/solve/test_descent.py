"""The last rung of the ladder: a free energy that only falls, and what is returned from there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal
from ngmp_compiler import options as _options
from ngmp_compiler.ladder import climb
from ngmp_compiler.solve.step import as_step

Y = np.random.default_rng(0).normal(3.0, 1.0, 12)
NONE = as_step(optax.sgd(1e-4))  # gets nowhere in 500 sweeps
FAR = as_step(optax.sgd(2.5))  # overshoots in every sweep


def noisy(y):
    m, tau = ngmp.sample("m", Normal(0.0, variance=100.0)), ngmp.sample("tau", Gamma(1.0, rate=1.0))
    ngmp.sample("y", Normal(m, precision=tau), obs=y)


def by_hand(y):
    """Mean field of `noisy`, by coordinate ascent: the mean and variance of m, shape and rate of tau."""
    precision = 1.0
    for _ in range(500):
        v = 1 / (0.01 + len(y) * precision)
        mean = v * precision * y.sum()
        shape, rate = 1 + len(y) / 2, 1 + 0.5 * (((y - mean) ** 2).sum() + len(y) * v)
        precision = shape / rate
    return mean, v, shape, rate


@pytest.fixture
def ladder(monkeypatch):
    """Give the ladder other steps; their number stays."""
    return lambda *steps: monkeypatch.setattr(_options, "_LADDER", steps)


def test_what_nothing_else_solves_is_heard_by_mean_field_and_says_so(ladder):
    ladder(NONE, NONE, _options._LADDER[-1])
    post = ngmp.compile(noisy)(y=Y)
    mean, v, shape, rate = by_hand(Y)
    assert bool(post.converged) and "by a descent" in post.reason and "StructuredVMP" in post.approximate[0]
    np.testing.assert_allclose([post["m"].mean, post["m"].variance], [mean, v], rtol=1e-6)
    np.testing.assert_allclose([post["tau"].concentration, post["tau"].rate], [shape, rate], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_the_rules_that_were_asked_for_go_on_from_there(ladder):
    good = ngmp.compile(noisy)(y=Y)
    own, *_, last = _options._LADDER
    ladder(own, last)
    program = ngmp.compile(noisy)
    static, dynamic = program._split((), {"y": Y})
    post = climb(program, static, dynamic, ngmp.compile(noisy, max_sweeps=1)(y=Y))
    assert bool(post.converged) and "from where a descent" in post.reason and "NGMP" in post.approximate[0]
    np.testing.assert_allclose(post.free_energy, good.free_energy, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_half_of_each_factor_at_a_time(ladder):
    """What is returned is the fixed point of half the power, by name, where the whole does not go on from there."""
    ladder(NONE, _options._HALVES, _options._LADDER[-1])
    post = ngmp.compile(noisy)(y=Y)
    half = ngmp.compile(noisy, method=ngmp.NGMP(power=0.5), solver=ngmp.adaptive())(y=Y)
    assert bool(post.converged) and "half of each factor" in post.reason and "0.5" in post.approximate[0]
    np.testing.assert_allclose(post.free_energy, half.free_energy, atol=1e-8)
    np.testing.assert_allclose(post["m"].variance, half["m"].variance, rtol=1e-6)
    np.testing.assert_allclose(post["tau"].variance, half["tau"].variance, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_free_energy_never_rises_whatever_the_step(ladder):
    """Of steps two and a half times as long as the whole one the plain solver makes an oscillation."""
    ladder(NONE, FAR)
    last = ngmp.compile(noisy)._other(rung=1)
    solver = last.specialise(y=Y).solver
    assert solver.descends
    sweep, state, energies = jax.jit(solver.sweep), solver.init(solver.map.initial()), []
    for _ in range(60):
        state = sweep(state)
        energies.append(float(solver.map.energy(state.leaves)))
    assert np.diff(energies).max() < 1e-8
    mean, v, *_ = by_hand(Y)
    post = last.posterior(state, y=Y)
    np.testing.assert_allclose([post["m"].mean, post["m"].variance], [mean, v], rtol=1e-3)


def test_functions_of_variables_have_nothing_to_descend_on(ladder):
    def sine(y):
        x = ngmp.sample("x", Normal(0.5, std=0.5))
        ngmp.sample("y", Normal(ngmp.apply(jnp.sin, x), std=0.1), obs=y)

    ladder(NONE, _options._LADDER[-1])
    with pytest.warns(ngmp.ConvergenceWarning):
        post = ngmp.compile(sine)(y=0.3)
    assert int(post.state.rung) == 0
