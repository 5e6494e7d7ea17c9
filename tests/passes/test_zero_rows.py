"""Rows of zero coefficients are constants: a factor on one adds its log-density and says nothing of the variables.

The same model without these rows, their log-densities added, is what every run is compared with.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import EP, NCVMP, NGMP, Bernoulli, Gamma, MvNormal, Normal, Poisson, dot, exp

RNG = np.random.default_rng(3)
N, D = 16, 2
ZERO = np.isin(np.arange(N), [4, 11])
X = np.where(ZERO[:, None], 0.0, RNG.normal(size=(N, D)))
COUNTS = RNG.poisson(np.exp(X @ [0.5, -0.3] + 0.5)).astype(float)
Y = X @ [0.5, -0.3] + 0.3 * RNG.normal(size=N)


def _weights():
    return ngmp.sample("w", MvNormal(np.zeros(D), covariance=2.0))


def poisson(x, y):
    ngmp.sample("y", Poisson(exp(dot(x, _weights()) + 0.5)), obs=y)


def logistic(x, y):
    ngmp.sample("y", Bernoulli(logits=dot(x, _weights()) + 0.5), obs=y > 1)


def _log_density(z, k):
    return k * z - jnp.exp(z) - jax.scipy.special.gammaln(k + 1)


def generic(x, y):
    ngmp.factor("y", _log_density, dot(x, _weights()) + 0.5, y)


def _constant(model):
    """The log-densities of the rows that are constants."""
    if model is logistic:
        return stats.bernoulli.logpmf(COUNTS[ZERO] > 1, 1 / (1 + np.exp(-0.5))).sum()
    return stats.poisson.logpmf(COUNTS[ZERO], np.exp(0.5)).sum()


@pytest.mark.parametrize("method", [NGMP(), EP()], ids=str)
@pytest.mark.parametrize("model", [poisson, logistic, generic], ids=lambda m: m.__name__)
def test_a_row_of_zeros_adds_its_log_density(model, method):
    program = ngmp.compile(model, method=method)
    post, rest = program(X, COUNTS), program(X[~ZERO], COUNTS[~ZERO])
    assert post.converged
    np.testing.assert_allclose(post.free_energy, rest.free_energy - _constant(model), rtol=1e-9)
    np.testing.assert_allclose(post["w"].mean, rest["w"].mean, atol=1e-7)
    np.testing.assert_allclose(post["w"].covariance, rest["w"].covariance, atol=1e-7)


def noise(x, y, still):
    """Residuals that move, and those that are known to be constants."""
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(dot(x, _weights()), precision=tau), obs=y)
    if still is not None:
        ngmp.sample("still", Normal(0.0, precision=tau), obs=still)


@pytest.mark.parametrize("method", [NGMP(), EP(), NCVMP(), NGMP(power={"tau": 0.5})], ids=str)
def test_a_constant_residual_is_seen_by_its_precision(method):
    program = ngmp.compile(noise, method=method)
    post, known = program(X, Y, None), program(X[~ZERO], Y[~ZERO], Y[ZERO])
    assert post.converged and known.converged
    np.testing.assert_allclose(post.free_energy, known.free_energy, atol=1e-7)
    np.testing.assert_allclose(post["tau"].mean, known["tau"].mean, rtol=1e-6)
    np.testing.assert_allclose(post["w"].mean, known["w"].mean, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_a_constant_residual_beside_broad_ones_is_seen_in_single_precision():
    """The only datum that is not masked lies on a row of zeros: tau ~ Gamma(a + 1/2, b + y^2 / 2), exactly."""
    a, b, y = 26.0, 0.0035, 3.7

    def model(x, y, seen, v):
        w, tau = ngmp.sample("w", MvNormal(np.zeros(D), covariance=v)), ngmp.sample("tau", Gamma(a, rate=b))
        ngmp.sample("y", Normal(dot(x, w), precision=tau), obs=y, mask=seen)

    given = [np.asarray(x, np.float32) for x in (X, np.full(N, y))]
    post = ngmp.compile(model)(*given, np.arange(N) == 4, np.float32(450.0))
    assert post.converged
    np.testing.assert_allclose(post["tau"].mean, (a + 0.5) / (b + 0.5 * y**2), rtol=1e-4)


def scaled(c, y):
    z = ngmp.sample("z", Normal(0.3, variance=np.full(3, 2.0)))
    ngmp.sample("y", Poisson(exp(c * z + 0.2)), obs=y)


def test_a_zero_coefficient_of_a_scalar():
    post = ngmp.compile(scaled)(jnp.array([1.0, 0.0, 2.0]), COUNTS[:3])
    assert post.converged
    np.testing.assert_allclose(post["z"].mean[1], 0.3, rtol=1e-9)
    np.testing.assert_allclose(post["z"].variance[1], 2.0, rtol=1e-9)
    others = [ngmp.compile(_one)(c, COUNTS[k]).free_energy for k, c in ((0, 1.0), (2, 2.0))]
    right = sum(others) - stats.poisson.logpmf(COUNTS[1], np.exp(0.2))
    np.testing.assert_allclose(post.free_energy, right, rtol=1e-8)


def _one(c, y):
    ngmp.sample("y", Poisson(exp(c * ngmp.sample("z", Normal(0.3, variance=2.0)) + 0.2)), obs=y)


def test_all_rows_zero_and_padded_lanes():
    """Under vmap one lane may have no information at all; in single precision too."""
    program = ngmp.compile(noise)
    energies = jax.vmap(lambda x: program(x, Y, None).free_energy)(jnp.stack([X, 0 * X]))
    np.testing.assert_allclose(energies[0], program(X, Y, None).free_energy, rtol=1e-8)
    shape, rate = 2.0 + 0.5 * N, 1.0 + 0.5 * np.sum(Y**2)  # w has no data, and the residuals are those of zero
    right = shape * np.log(rate) - jax.scipy.special.gammaln(shape) + 0.5 * N * np.log(2 * np.pi)
    np.testing.assert_allclose(energies[1], right, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
def test_single_precision():
    program = ngmp.compile(generic)
    post, right = program(X.astype(np.float32), COUNTS.astype(np.float32)), program(X, COUNTS)
    assert post.converged and post["w"].dtype == np.float32
    np.testing.assert_allclose(post.free_energy, right.free_energy, atol=1e-3)
    np.testing.assert_allclose(post["w"].mean, right["w"].mean, atol=1e-3)


@pytest.mark.parametrize("model", [poisson, generic], ids=lambda m: m.__name__)
def test_derivatives_in_the_features(model):
    """A row that is zero may be anything else: energy and means have their derivatives in it."""
    program, h = ngmp.compile(model, tol=1e-12), 1e-5
    step = np.zeros_like(X)
    step[4, 0] = h
    for quantity in (lambda p: p.free_energy, lambda p: p["w"].mean[0]):
        slope = jax.grad(lambda x, q=quantity: q(program(x, COUNTS)))(jnp.asarray(X))
        difference = (quantity(program(X + step, COUNTS)) - quantity(program(X - step, COUNTS))) / (2 * h)
        assert np.all(np.isfinite(slope))
        np.testing.assert_allclose(slope[4, 0], difference, rtol=1e-5)


def test_masked_rows():
    def masked(x, y, seen):
        ngmp.sample("y", Poisson(exp(dot(x, _weights()) + 0.5)), obs=y, mask=seen)

    post = ngmp.compile(masked)(X, COUNTS, ~ZERO)
    rest = ngmp.compile(poisson)(X[~ZERO], COUNTS[~ZERO])
    assert post.converged
    np.testing.assert_allclose(post.free_energy, rest.free_energy, rtol=1e-9)


def test_prediction_of_a_row_of_zeros():
    program = ngmp.compile(noise)
    predicted = program.predict(program(X, Y, None), "y", X, Y, None)
    assert np.all(np.isfinite(predicted.mean)) and np.all(np.isfinite(predicted.log_density))
    np.testing.assert_allclose(predicted.mean[ZERO], 0.0, atol=1e-9)
