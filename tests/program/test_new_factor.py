"""A factor the registry does not know is one new file, never an edit of a pass: this file is one.

It brings the exponential distribution of waiting times, with a Gaussian log-rate (projected by the default
quadrature) and with a Gamma rate (conjugate), and the Gumbel distribution of extremes on a residual.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy.optimize import minimize

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, MvNormal, Normal, dot, exp
from ngmp_kernels import AbstractConjugate, AbstractProjected
from ngmp_kernels.distribution import (
    CONSTANT,
    EXP_GAUSSIAN,
    GAMMA,
    GAUSSIAN,
    REGISTRY,
    Distribution,
    Lowered,
    Signature,
    as_float,
    register,
)
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian


class ExponentialLog(AbstractProjected):
    """`f(z) = Waiting(out; rate e^z)`: `l(z) = z - out e^z`."""

    interfaces: ClassVar = ("z",)
    families: ClassVar = (Gaussian,)
    out: Float[Array, " #n"]

    def log_density(self, z: Array) -> Array:
        return z - self.out * jnp.exp(z)

    def checks(self) -> dict[str, Array]:
        return {"waiting times must be positive": self.out > 0.0}

    def moments(self, z: Array) -> tuple[Array, Array]:
        return jnp.exp(-z), jnp.exp(-2.0 * z)


class ExponentialRate(AbstractConjugate):
    """`f(tau) = tau e^{-tau out}`: the Gamma message (1, -out)."""

    interfaces: ClassVar = ("tau",)
    families: ClassVar = (GammaFamily,)
    out: Float[Array, " #n"]

    def log_density(self, tau: Array) -> Array:
        return jnp.log(tau) - self.out * tau

    def message(self) -> tuple[GammaFamily, Array]:
        out = jnp.asarray(self.out)
        return GammaFamily(jnp.ones_like(out), -out), jnp.zeros_like(out)

    def checks(self) -> dict[str, Array]:
        return {"waiting times must be positive": self.out > 0.0}

    def moments(self, tau: Array) -> tuple[Array, Array]:
        return 1.0 / tau, 1.0 / tau**2


class Waiting(Distribution):
    """`Waiting(rate)` of waiting times: the rate is `exp` of an affine expression or a Gamma variable."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 0, "rate": 0}
    placeholder = 1.0
    signatures = (
        Signature(
            {"out": CONSTANT, "rate": EXP_GAUSSIAN},
            lambda out, rate: Lowered(ExponentialLog(as_float(out)), (rate,)),
            ExponentialLog,
        ),
        Signature(
            {"out": CONSTANT, "rate": GAMMA},
            lambda out, rate: Lowered(ExponentialRate(as_float(out)), (rate,)),
            ExponentialRate,
        ),
    )

    def __init__(self, rate: Any):
        self.arguments = {"rate": rate}


class GumbelNoise(AbstractProjected):
    """`f(r) = Gumbel(r; 0, scale)`: `l(r) = -u - e^{-u} - log scale`, `u = r/scale`."""

    interfaces: ClassVar = ("r",)
    families: ClassVar = (Gaussian,)
    scale: Float[Array, " #n"]

    def log_density(self, r: Array) -> Array:
        u = r / self.scale
        return -u - jnp.exp(-u) - jnp.log(self.scale)

    def checks(self) -> dict[str, Array]:
        return {"the scale must be positive": self.scale > 0.0}

    def moments(self, r: Array) -> tuple[Array, Array]:
        return -r + np.euler_gamma * self.scale, jnp.broadcast_to(self.scale**2 * jnp.pi**2 / 6.0, r.shape)


class Gumbel(Distribution):
    """`Gumbel(mode, scale=)` of an observed extreme; the mode is affine in Gaussian variables."""

    __slots__ = ()
    family = None
    event_ndims: ClassVar = {"out": 0, "mode": 0, "scale": 0}
    placeholder = 0.0
    signatures = (
        Signature(
            {"out": CONSTANT, "mode": GAUSSIAN, "scale": CONSTANT},
            lambda out, mode, scale: Lowered(GumbelNoise(as_float(scale)), (out - mode,)),
            GumbelNoise,
        ),
    )

    def __init__(self, mode: Any, *, scale: Any):
        self.arguments = {"mode": mode, "scale": scale}


@pytest.fixture(autouse=True)
def registered():
    """The two distributions, known to the registry for the length of a test."""
    before = dict(REGISTRY)
    for distribution in (Waiting, Gumbel):
        register(distribution)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


GRID = np.linspace(-12.0, 12.0, 20001)
TIMES = np.array([0.4, 2.0, 0.9, 1.3, 0.1])


def exact(log_joint: np.ndarray) -> tuple[float, float, float]:
    """Mean, variance and log-evidence of a density on the grid, by brute force."""
    top = log_joint.max()
    weights = np.exp(log_joint - top)
    total = np.trapezoid(weights, GRID)
    mean = np.trapezoid(weights * GRID, GRID) / total
    return mean, np.trapezoid(weights * (GRID - mean) ** 2, GRID) / total, top + np.log(total)


def best_gaussian(log_joint: np.ndarray) -> tuple[float, float, float]:
    """The Gaussian nearest in KL[q || p], and its evidence lower bound, by brute force."""

    def loss(parameters: np.ndarray) -> float:
        mean, log_std = parameters
        log_q = -0.5 * ((GRID - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        return float(np.trapezoid(np.exp(log_q) * (log_q - log_joint), GRID))

    mean, variance, _ = exact(log_joint)
    precise = {"xatol": 1e-9, "fatol": 1e-14}
    found = minimize(loss, [mean, 0.5 * np.log(variance)], method="Nelder-Mead", options=precise)
    return found.x[0], np.exp(2 * found.x[1]), -found.fun


def check(program: ngmp.Program, log_joint: np.ndarray, **inputs: Any) -> ngmp.Posterior:
    """The fixed point is the best Gaussian, the free energy its bound, and both are close to the exact posterior."""
    post = program(**inputs)
    assert post.converged
    mean, variance, bound = best_gaussian(log_joint)
    np.testing.assert_allclose(post["z"].mean, mean, atol=1e-6)
    np.testing.assert_allclose(post["z"].variance, variance, rtol=1e-5)
    np.testing.assert_allclose(-post.free_energy, bound, atol=1e-8)
    true_mean, true_variance, evidence = exact(log_joint)
    assert abs(post["z"].mean - true_mean) < 0.05 * np.sqrt(true_variance)
    assert 0.85 < post["z"].variance / true_variance < 1.0  # a skewed posterior: the best Gaussian is narrower
    assert 0.0 < evidence - (-post.free_energy) < 0.05
    return post


def test_a_projected_factor_of_a_log_rate():
    def model(y, mask):
        z = ngmp.sample("z", Normal(0.5, variance=2.0))
        ngmp.sample("y", Waiting(exp(z)), obs=y, mask=mask)

    seen = np.array([True, True, False, True, True])
    log_joint = -0.25 * (GRID - 0.5) ** 2 - 0.5 * np.log(4 * np.pi)
    log_joint += seen.sum() * GRID - TIMES[seen].sum() * np.exp(GRID)
    program = ngmp.compile(model)
    post = check(program, log_joint, y=TIMES, mask=seen)
    with pytest.raises(ngmp.DataError, match="site 'y': waiting times must be positive"):
        program(y=-TIMES, mask=seen)
    predicted = program.predict(post, "y", y=TIMES, mask=seen)
    assert predicted.mean.shape == (5,)
    expected = jnp.exp(-post["z"].mean + 0.5 * post["z"].variance)  # E[e^{-z}]
    np.testing.assert_allclose(predicted.mean, expected, rtol=1e-6)


def test_a_projected_factor_of_a_residual():
    def model(y):
        z = ngmp.sample("z", Normal(0.0, variance=4.0))
        ngmp.sample("y", Gumbel(2.0 * z + 0.5, scale=0.7), obs=y)

    u = (TIMES[:, None] - 2.0 * GRID - 0.5) / 0.7
    log_joint = -0.125 * GRID**2 - 0.5 * np.log(8 * np.pi) + np.sum(-u - np.exp(-u) - np.log(0.7), axis=0)
    check(ngmp.compile(model), log_joint, y=TIMES)


def test_a_conjugate_factor():
    def model(y):
        rate = ngmp.sample("rate", Gamma(2.0, rate=3.0))
        for k in range(len(y)):
            ngmp.sample("y", Waiting(rate), obs=y[k])

    post = ngmp.compile(model)(y=TIMES)
    np.testing.assert_allclose([post["rate"].concentration, post["rate"].rate], [7.0, 3.0 + TIMES.sum()], rtol=1e-9)
    a, b = 7.0, 3.0 + TIMES.sum()
    evidence = 2 * np.log(3.0) - jax.scipy.special.gammaln(2.0) + jax.scipy.special.gammaln(a) - a * np.log(b)
    np.testing.assert_allclose(-post.free_energy, evidence, rtol=1e-9)


def test_it_lives_in_any_structure():
    """A chain, a regression and a loop take the new factor as they take the old ones."""

    def model(x, y):
        w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))

        def step(z, inputs):
            features, time = inputs
            z = ngmp.sample("z", Normal(z, variance=0.2))
            ngmp.sample("y", Waiting(exp(z)), obs=time)
            ngmp.sample("g", Gumbel(dot(features, w), scale=1.0), obs=time)
            return z, None

        ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), (x, y))

    x = np.stack([np.ones(5), np.linspace(-1.0, 1.0, 5)], 1)
    program = ngmp.compile(model)
    text = program.lower(x=x, y=TIMES).describe()
    assert "ExponentialLog" in text and "GumbelNoise" in text and "chain" in text and "independent" in text
    assert program(x=x, y=TIMES).converged


def test_what_it_does_not_know_is_refused():
    def model(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        ngmp.sample("y", Waiting(z), obs=y)

    with pytest.raises(ngmp.ModelError, match="site 'y', interface rate: Waiting has no kernel.*rate=exp"):
        ngmp.compile(model)(y=TIMES)
    with pytest.raises(ValueError, match="registered already"):
        register(Waiting)
