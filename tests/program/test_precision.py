"""Precisions and powers: halves are converted, single precision under x64 is said, unequal powers are exact."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import EP, NGMP, Gamma, Normal, Poisson, exp

COUNTS = np.array([3, 4, 5])


def counts(y, variance):
    ngmp.sample("y", Poisson(exp(ngmp.sample("z", Normal(0.0, variance=variance)))), obs=y)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_converted_and_said(dtype):
    program = ngmp.compile(counts)
    with pytest.warns(UserWarning, match=r"'y' \(b?float16\) are converted to float32"):
        post = program(jnp.asarray(COUNTS, dtype), 2.0)
    right = program(COUNTS, 2.0)
    assert post.converged and post["z"].dtype == np.float32
    np.testing.assert_allclose(post["z"].mean, right["z"].mean, rtol=1e-4)


def test_halves_do_not_narrow_a_double():
    with pytest.warns(UserWarning, match="'variance'"):
        post = ngmp.compile(counts)(COUNTS.astype(float), np.float16(2.0))
    assert post["z"].dtype == np.float64


def test_half_precision_under_transformations():
    program = ngmp.compile(counts)
    with pytest.warns(UserWarning, match="float32"):
        slope = jax.jit(jax.grad(lambda v: program(COUNTS, v).free_energy))(jnp.asarray(2.0, jnp.bfloat16))
    assert slope.dtype == jnp.bfloat16
    np.testing.assert_allclose(float(slope), jax.grad(lambda v: program(COUNTS, v).free_energy)(2.0), rtol=1e-2)


def test_single_precision_under_x64_is_said():
    program = ngmp.compile(counts)
    with pytest.warns(UserWarning, match="whole model is computed in float32, because of inputs 'y'"):
        assert program(COUNTS.astype(np.float32), 2.0)["z"].dtype == np.float32
    with pytest.warns(UserWarning):
        text = program.lower(COUNTS.astype(np.float32), 2.0).describe()
    assert "computed in float32, as 'y' is" in text
    with warnings.catch_warnings():  # nothing to say of a double beside it, of integers and of Python numbers
        warnings.simplefilter("error")
        assert program(COUNTS.astype(np.float32), np.float64(2.0))["z"].dtype == np.float64
        assert program(COUNTS, 2.0)["z"].dtype == np.float64
        assert program([3, 4, 5], 2.0)["z"].dtype == np.float64


def _separable(a, b):
    return -0.5 * (a - 1) ** 2 - 0.2 * (b + 1) ** 2


@pytest.mark.parametrize("rule", [NGMP, EP], ids=lambda r: r.__name__)
@pytest.mark.parametrize("power", [1.0, {"z2": 0.5}, {"z1": 0.3, "z2": 0.8}], ids=str)
def test_a_factor_in_the_family_is_exact_whatever_its_powers(rule, power):
    def model(mean):
        a = ngmp.sample("a", Normal(mean, variance=2.0))
        b = ngmp.sample("b", Normal(0.5, variance=3.0))
        ngmp.factor("f", _separable, a, b)

    post = ngmp.compile(model, method=rule(power=power))(0.0)
    # int N(a; m, v) exp{-k (a - c)^2 / 2} = (1 + k v)^{-1/2} exp{-k (m - c)^2 / (2 (1 + k v))}
    exact = sum(0.5 * np.log1p(k * v) + 0.5 * k * d**2 / (1 + k * v) for k, v, d in ((1, 2, 1), (0.4, 3, 1.5)))
    assert post.converged
    np.testing.assert_allclose(post.free_energy, exact, rtol=1e-6)


def test_unequal_powers_lie_between_equal_ones():
    """A level with two unknown precisions: the free energy was off by tens of nats."""
    rng = np.random.default_rng(0)
    y = np.cumsum(0.4 * rng.normal(size=30)) + 0.9 * rng.normal(size=30)

    def model(y):
        step, noise = ngmp.sample("step", Gamma(2.0, rate=0.5)), ngmp.sample("noise", Gamma(2.0, rate=2.0))
        z = ngmp.sample("z0", Normal(0.0, variance=4.0))

        def body(z, y_k):
            z = ngmp.sample("z", Normal(z, precision=step))
            ngmp.sample("y", Normal(z, precision=noise), obs=y_k)
            return z, None

        ngmp.scan(body, z, y)

    energies = [ngmp.compile(model, method=NGMP(power=p))(y).free_energy for p in (1.0, 0.5, {"tau": 0.5}, {"r": 0.5})]
    assert np.ptp(energies) < 2.0, energies
