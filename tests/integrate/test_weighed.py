"""Hyperparameters are weighed by the evidence of matched moments, not by a bound that gets looser with the width."""

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, Normal, exp

N = 60


def volatility(y):
    sd = ngmp.sample("sd", HalfNormal(std=0.5))

    def step(h, y_k):
        h = ngmp.sample("h", Normal(0.9 * h, std=sd))
        ngmp.sample("y", Normal(0.0, std=exp(0.5 * h)), obs=y_k)
        return h, None

    ngmp.scan(step, ngmp.sample("h0", Normal(0.0, std=0.5)), y)


def data():
    rng, h = np.random.default_rng(3), np.zeros(N + 1)
    for k in range(N):
        h[k + 1] = 0.9 * h[k] + 0.5 * rng.normal()
    return np.exp(0.5 * h[1:]) * rng.normal(size=N)


def evidence(y, sd):
    """Forward over a lattice of log-variances."""
    x = np.linspace(-8.0, 8.0, 401)
    p = np.exp(-0.5 * (x / 0.5) ** 2)
    p, total = p / p.sum(), 0.0
    step = np.exp(-0.5 * ((x[:, None] - 0.9 * x) / sd) ** 2)
    step /= step.sum(0)
    for y_k in y:
        p = (step @ p) * np.exp(-0.5 * y_k**2 * np.exp(-x) - 0.5 * x - 0.5 * np.log(2 * np.pi))
        total += np.log(p.sum())
        p /= p.sum()
    return total


@pytest.fixture(scope="module")
def program():
    return ngmp.compile(volatility, integrate="sd")


def test_the_scale_of_a_log_variance(program):
    """By the bound of NGMP: 0.08 deviations too low, 3 % too narrow, and an evidence that is off by 0.1 nats."""
    y = data()
    grid = np.linspace(0.04, 2.4, 60)
    log = np.array([evidence(y, s) for s in grid]) + 0.5 * np.log(2 / np.pi) - np.log(0.5) - 0.5 * (grid / 0.5) ** 2
    weights = np.exp(log - log.max())
    total = log.max() + np.log(weights.sum() * (grid[1] - grid[0]))
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    post = program(y=y)
    assert bool(post.converged)
    assert float(post["sd"].mean) == pytest.approx(mean, abs=0.025 * sd)
    assert float(post["sd"].std) == pytest.approx(sd, rel=0.02)
    assert -float(post.free_energy) == pytest.approx(total, abs=0.05)


def test_its_derivative(program):
    y = data()
    energy = jax.jit(lambda c: program(y=c * y).free_energy)
    slope = (energy(1.01) - energy(0.99)) / 0.02
    np.testing.assert_allclose(jax.grad(energy)(1.0), slope, rtol=1e-4)


def test_a_rule_that_was_asked_for_keeps_its_own(program):
    asked = ngmp.compile(volatility, integrate="sd", method=ngmp.NGMP())
    line = "weighed by the evidence of matched moments"
    assert line not in asked.lower(y=data()).describe() and line in program.lower(y=data()).describe()
