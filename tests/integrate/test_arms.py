"""Scales that may vanish: the density of their logarithms has arms, which points of low discrepancy must follow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from ngmp_compiler import HalfNormal
from ngmp_compiler.integrate.explore import explore
from ngmp_compiler.integrate.nodes import place
from ngmp_compiler.integrate.run import _error
from ngmp_compiler.results.mixture import heavy
from ngmp_compiler.results.numeric import Numeric
from ngmp_kernels.numerics.supports import from_real, log_slope, stretched

ENDS = (0.0, 1.0)
Y = np.array([0.5, -0.9, 0.3, 1.1, -0.2, 0.7, -0.6, 0.1])


def pair(a, b):
    """Half-normal scales whose squares add up to a variance: what one of them loses the other has to win."""
    return 2 * np.log(2.0) + norm.logpdf(a) + norm.logpdf(b) + jnp.sum(norm.logpdf(Y, 0.0, jnp.sqrt(a**2 + b**2)))


def log_density(v):
    off, slope = stretched("positive", v, jnp.full(4, 1.1))
    x = jnp.exp(off - 0.6)
    return pair(x[0], x[1]) + pair(x[2], x[3]) + jnp.sum(off - 0.6 + slope), x


def test_four_scales_that_may_vanish():
    grid = np.linspace(0.0, 5.0, 1201)
    middle = 0.5 * (grid[1:] + grid[:-1])
    log = np.asarray(jax.vmap(lambda a: jax.vmap(lambda b: pair(a, b))(middle))(middle)) + 2 * np.log(grid[1])
    weights = np.exp(log - logsumexp(log)).sum(1)
    mean = weights @ middle
    sd = np.sqrt(weights @ (middle - mean) ** 2)

    def run():
        extent = explore(lambda p, _, __: (jax.vmap(lambda v: log_density(v)[0])(p), ()), 4, (), jnp.float64)[0].extent
        nodes = place(extent)
        f, x = jax.vmap(log_density)(nodes.v)
        return f + nodes.log_volume, x, nodes.v

    mass, x, v = jax.jit(run)()
    total = logsumexp(mass)
    w = np.exp(mass - total)
    np.testing.assert_allclose(total, 2 * logsumexp(log), atol=0.05)
    np.testing.assert_allclose((w @ x - mean) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(np.sqrt(w @ (x - w @ x) ** 2) / sd, 1.0, atol=0.05)
    assert _error(mass[None], total, v[None]) < 0.2


def test_few_effective_points_are_an_error():
    # Both halves agree, but two points hold all the mass.
    mass = jnp.full(64, -40.0).at[jnp.array([3, 40])].set(0.0)
    assert _error(mass[None], logsumexp(mass), jnp.zeros((1, 64, 4)).at[0, 3].set(1.0)) > 2.0


def test_a_grid_that_ends_too_early_is_an_error():
    """Every second node agrees with all of them on a bell that is cut at one deviation; the faces hold too much."""
    for reach, fine in ((1.0, False), (5.0, True)):
        axis = np.linspace(-5.0, reach, 19)
        v = np.stack(np.meshgrid(axis, np.linspace(-5.0, 5.0, 19), indexing="ij"), -1).reshape(1, -1, 2)
        mass = jnp.asarray(-0.5 * np.sum(v**2, -1))
        assert bool(_error(mass, logsumexp(mass), jnp.asarray(v)) < 0.2) == fine


def test_one_point_that_holds_the_variance_is_an_error():
    """A thousand points of equal weight are enough for the evidence; one of them is forty deviations off."""
    v = jax.random.normal(jax.random.key(0), (1024, 4))
    mass = jnp.zeros(1024)
    assert _error(mass[None], logsumexp(mass), v[None]) < 0.2
    assert _error(mass[None], logsumexp(mass), v.at[7, 2].set(40.0)[None]) > 0.2


def test_what_weighs_nothing_is_nowhere():
    """A scale of 1e200 at a node far out has an infinite square: its weight of zero must win."""
    weights, values = jnp.array([0.0, 0.25, 0.75, 1e-200]), jnp.array([1e200, 1.0, 2.0, jnp.inf])
    kept = heavy(weights, values)
    np.testing.assert_array_equal(kept, [2.0, 1.0, 2.0, 2.0])
    log = jnp.log(values)
    q = Numeric(weights, kept, log, jnp.log(weights), ENDS, "positive", (4,))
    assert float(q.mean) == pytest.approx(1.75) and float(q.variance) == pytest.approx(0.1875)


@pytest.mark.parametrize("support", ["real", "positive", "unit"])
def test_stretched_has_the_slope_it_says(support):
    v = jnp.array([-6.0, -1.0, 0.0, 0.3, 4.0])

    def value(v):
        return from_real(support, 0.2 + stretched(support, v, jnp.asarray(1.3))[0], ENDS)

    off, slope = stretched(support, v, jnp.asarray(1.3))
    whole = log_slope(support, 0.2 + off, ENDS) + slope
    step = 1e-5
    np.testing.assert_allclose((value(v + step) - value(v - step)) / (2 * step), jnp.exp(whole), rtol=1e-5)


def test_a_thin_arm_of_a_local_trend():
    """Noise of a local linear trend that may vanish: an arm between the nodes of a box, 3 nats high where that ended.

    The evidence, the mean and the standard deviation of the noise are those of a grid of 48 points an axis."""
    rng, n = np.random.default_rng(5), 40
    y = np.cumsum(np.cumsum(0.1 * rng.normal(size=n)) + 0.4 * rng.normal(size=n)) + 0.8 * rng.normal(size=n)
    k = np.arange(1.0, n + 1)
    paths = np.maximum(k[:, None] - k[:-1], 0.0)
    parts = jnp.asarray(np.stack([np.minimum.outer(k, k), paths @ paths.T, np.eye(n)]))
    start, stds = 4.0 + np.outer(k, k), np.array([1.0, 0.5, 1.0])
    centre, spread = HalfNormal(std=stds).standard(std=jnp.asarray(stds))

    def log_density(v):
        off, slope = stretched("positive", v, jnp.broadcast_to(spread, 3))
        sd = jnp.exp(centre + off)
        cov = start + jnp.einsum("k,kij->ij", sd**2, parts)
        prior = jnp.sum(jnp.log(sd) + slope - 0.5 * (sd / stds) ** 2 - jnp.log(stds)) + 1.5 * np.log(2 / np.pi)
        return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(n), cov) + prior, sd[2]

    @jax.jit
    def run():
        evaluate = lambda points, *_: (jax.vmap(log_density)(points)[0], jnp.zeros(len(points)))  # noqa: E731
        extent = explore(evaluate, 3, jnp.zeros(()), jnp.float64)[0].extent
        nodes = place(extent, True)
        log, noise = jax.vmap(log_density)(nodes.v)
        return log + nodes.log_volume, noise

    mass, noise = run()
    total = np.logaddexp.reduce(mass)
    weights = np.exp(mass - total)
    mean = weights @ noise
    assert total == pytest.approx(-60.0842, abs=0.01)
    assert abs(mean - 0.6211) < 0.05 * 0.1461
    assert np.sqrt(weights @ (noise - mean) ** 2) == pytest.approx(0.1461, rel=0.05)
