"""Where deterministic nodes start: in the order in which their arguments are known, as a filter hears them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal


def swinging(y, dt=0.05):
    """A pendulum of which the sine of the angle is seen; see `benchmarks/hard_models.py`."""

    def each(state, y_k):
        angle, speed = state
        pull = ngmp.apply(jnp.sin, angle)
        angle, speed = (
            ngmp.sample("angle", Normal(angle + dt * speed, std=0.01)),
            ngmp.sample("speed", Normal(speed - 9.8 * dt * pull, std=0.1)),
        )
        ngmp.sample("y", Normal(ngmp.apply(jnp.sin, angle), std=0.3), obs=y_k)
        return (angle, speed), None

    start = ngmp.sample("angle0", Normal(1.5, std=0.5)), ngmp.sample("speed0", Normal(0.0, std=0.5))
    ngmp.scan(each, start, y)


def simulated(seed, n=100):
    """Angles, and what is seen of them."""
    rng, angle, speed, path, seen = np.random.default_rng(seed), 1.5, 0.0, [], []
    for _ in range(n):
        angle, speed = angle + 0.05 * speed, speed - 9.8 * 0.05 * np.sin(angle) + 0.1 * rng.standard_normal()
        path.append(angle)
        seen.append(np.sin(angle) + 0.3 * rng.standard_normal())
    return np.array(path), jnp.asarray(seen)


@pytest.fixture(scope="module")
def begins():
    """The means of the angles where an iteration starts."""
    program = ngmp.compile(swinging)

    @jax.jit
    def begins(y):
        map = program.specialise(y=y).solver.map
        plane, positions = map.plan.names["angle"]
        core = map.core.run(map.initial())
        return core.planes[plane].mean[positions], core.proper

    return begins


@pytest.mark.parametrize("seed", [0, 7, 8])
def test_a_pendulum_starts_on_its_path(begins, seed):
    """It turns over: paths with fewer turns fit the data at first, and where an iteration began on one it stayed."""
    path, seen = simulated(seed)
    assert np.abs(path).max() > 9.0
    mean, proper = begins(seen)
    assert proper
    assert np.abs(np.asarray(mean) - path).max() < 1.0  # a turn is 2 pi


def test_without_an_order_nothing_is_done():
    """Nodes of one variable start at the moments of g under a guess of it, N(0, 1)."""

    def plate(y, c):
        z = ngmp.sample("z", Normal(0.0, std=2.0))
        ngmp.sample("y", Normal(ngmp.apply(lambda z, c: jnp.sin(c * z), z, c), std=0.3), obs=y)

    c = np.array([0.1, 0.5, 1.0])
    leaves = ngmp.compile(plate).init(y=jnp.ones(3), c=jnp.asarray(c)).leaves
    (leaf,) = (leaf for key, leaf in leaves.items() if key.endswith(".out"))
    np.testing.assert_allclose(leaf.mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(leaf.variance, 0.5 - 0.5 * np.exp(-2 * c**2), rtol=1e-3)
