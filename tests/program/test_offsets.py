"""Data far from zero: free energies and their derivatives keep their digits. What is right has no offset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import EP, NGMP, Gamma, MvNormal, Normal, Poisson, dot, exp

pytestmark = pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
RNG = np.random.default_rng(0)
NOISE = 0.1
WALK = np.cumsum(0.05 * RNG.normal(size=100)) + NOISE * RNG.normal(size=100)
ROWS = np.concatenate([np.ones((40, 1)), RNG.normal(size=(40, 2))], 1)
LINE = ROWS @ [0.2, 0.5, -1.0] + NOISE * RNG.normal(size=40)


def level(y, offset, variance):
    z = ngmp.sample("z0", Normal(offset, variance=1.0))

    def step(z, y_k):
        z = ngmp.sample("z", Normal(z, std=0.05))
        ngmp.sample("y", Normal(z, variance=variance), obs=y_k)
        return z, None

    ngmp.scan(step, z, y)


def trend(y, offset, variance):
    start = jnp.stack([offset, jnp.zeros_like(offset)])
    x = ngmp.sample("x0", MvNormal(start, covariance=np.eye(2)))

    def step(x, y_k):
        x = ngmp.sample("x", MvNormal(np.array([[1.0, 1.0], [0.0, 1.0]]) @ x, covariance=np.diag([1e-3, 1e-4])))
        ngmp.sample("y", Normal(dot(np.array([1.0, 0.0]), x), variance=variance), obs=y_k)
        return x, None

    ngmp.scan(step, x, y)


def regression(y, offset, variance):
    w = ngmp.sample("w", MvNormal(jnp.zeros(3, offset.dtype).at[0].set(offset), covariance=4.0))
    ngmp.sample("y", Normal(dot(ROWS, w), variance=variance), obs=y)


def intercepts(y, offset, variance):
    top = ngmp.sample("top", Normal(offset, variance=1.0))
    district = ngmp.sample("district", Normal(top, variance=np.full(2, 0.2)))
    school = ngmp.sample("school", Normal(district[np.array([0, 0, 1, 1])], variance=0.1))
    ngmp.sample("y", Normal(school[np.arange(40) % 4], variance=variance), obs=y)


def lattice(y, offset, variance):
    z = ngmp.sample("z", Normal(offset, variance=np.full((5, 8), 1.0)))
    ngmp.sample("right", Normal(z[:, 1:] - z[:, :-1], variance=0.05), obs=np.zeros((5, 7)))
    ngmp.sample("down", Normal(z[1:] - z[:-1], variance=0.05), obs=np.zeros((4, 8)))
    ngmp.sample("y", Normal(z, variance=variance), obs=y.reshape(5, 8))


def sums(y, offset, variance):
    shared = ngmp.sample("shared", Normal(offset, variance=1.0))
    parts = [ngmp.sample(f"part{k}", Normal(0.0, variance=np.full(40, 0.1))) for k in range(2)]
    ngmp.sample("y", Normal(shared + parts[0] + parts[1], variance=variance), obs=y)


MODELS = {level: WALK, trend: WALK[:40], regression: LINE, intercepts: LINE, lattice: WALK[:40], sums: LINE}
_LOG = 2 * np.log(NOISE)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_free_energy_and_gradient(model):
    """Single precision at 10^4 standard deviations of the noise, double precision at 10^8."""
    program = ngmp.compile(model)

    @jax.jit
    def energy(log_variance, y, offset):
        return jax.value_and_grad(lambda s: program(y, offset, jnp.exp(s)).free_energy)(log_variance)

    for dtype, offset, error in ((np.float32, 1e4 * NOISE, 0.05), (np.float64, 1e8 * NOISE, 1e-5)):
        y = (MODELS[model] + offset).astype(dtype)
        found, slope = energy(dtype(_LOG), y, dtype(offset))
        right, steep = energy(_LOG, y.astype(float) - offset, np.float64(0.0))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, right, atol=error)
        np.testing.assert_allclose(slope, steep, rtol=1e-2 if dtype == np.float32 else 1e-4)


def test_second_derivatives():
    """The derivative at a fixed mean is that of the free energy to every order."""
    program = ngmp.compile(level)

    def energy(log_variance):
        return program(WALK[:10], np.float64(0.0), jnp.exp(log_variance)).free_energy

    h = 1e-4
    slopes = [jax.grad(energy)(_LOG + s * h) for s in (-1, 1)]
    np.testing.assert_allclose(jax.hessian(energy)(_LOG), (slopes[1] - slopes[0]) / (2 * h), rtol=1e-6)


def unknown_noise(y, offset):
    z = ngmp.sample("z", Normal(offset, variance=1.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=0.02))
    ngmp.sample("y", Normal(z, precision=tau), obs=y)


@pytest.mark.parametrize("method", [NGMP(), EP()], ids=str)
def test_unknown_noise(method):
    program = ngmp.compile(unknown_noise, method=method)
    y = NOISE * RNG.normal(size=40) + 1e5
    post, right = program(y, np.float64(1e5)), program(y - 1e5, np.float64(0))
    assert right.converged
    np.testing.assert_allclose(post.free_energy, right.free_energy, atol=1e-5)


def test_unknown_noise_in_single_precision():
    """Data 10^4 noise standard deviations from zero: residuals are computed about the start, so every set converges."""
    rng = np.random.default_rng(0)
    rng.normal(size=400)  # those that came before, of the data on which it was seen to fail
    y = (NOISE * rng.normal(size=(8, 40)) + 1000).astype(np.float32)
    program = jax.vmap(ngmp.compile(unknown_noise), (0, None))
    post, right = program(y, np.float32(1000)), program(y.astype(float) - 1000, np.float64(0))
    assert post.converged.all() and right.converged.all()
    assert post.sweeps.max() < 30
    np.testing.assert_allclose(post.free_energy, right.free_energy, atol=1e-3)
    np.testing.assert_allclose(post["tau"].mean, right["tau"].mean, rtol=1e-4)


def test_large_counts():
    def model(y):
        z = ngmp.sample("z", Normal(12.0, variance=np.full(20, 9.0)))
        ngmp.sample("y", Poisson(exp(z)), obs=y)

    y = RNG.poisson(np.exp(RNG.uniform(8, 15, 20)))
    program = ngmp.compile(model)
    post, right = program(y.astype(np.float32)), program(y.astype(np.float32).astype(float))
    np.testing.assert_allclose(post.free_energy, right.free_energy, atol=0.05)


def test_filtering():
    """Priors that are carried over are residuals, too."""

    def model(y, offset):
        ngmp.sample("y", Normal(ngmp.sample("z", Normal(offset, variance=1.0)), std=NOISE), obs=y)

    program = ngmp.compile(model, carry=("z",))
    y = (WALK[:40].reshape(4, 10) + 1000).astype(np.float32)

    def total(y, offset):
        carry, energy = program.start(y=y[0], offset=offset), 0.0
        for batch in y:
            carry, post = program.update(carry, {"y": batch, "offset": offset})
            energy += post.free_energy
        return energy

    right = total(y.astype(float) - 1000, np.float64(0))
    np.testing.assert_allclose(total(y, np.float32(1000)), right, atol=0.05)
