"""Logarithms that fill vector registers, against mpmath and against what jax does at the ends."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from ngmp_kernels.numerics import logarithm

ENDS = {
    "log": [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan],
    "log1p": [0.0, -1.0, -2.0, np.inf, -np.inf, np.nan],
    "softplus": [0.0, np.inf, -np.inf, np.nan, 1000.0, -1000.0],
}
EXACT = {"log": mpmath.log, "log1p": lambda x: mpmath.log1p(x), "softplus": lambda x: mpmath.log1p(mpmath.exp(x))}


def arguments(name, dtype):
    rng = np.random.default_rng(0)
    near, wide = 1 + 1e-3 * rng.standard_normal(500), np.exp(rng.uniform(-80, 80, 500))
    found = {
        "log": [near, wide],
        "log1p": [near - 1, wide, rng.uniform(-1, 0, 500)],
        "softplus": [50 * near - 50, near],
    }
    return np.concatenate(found[name]).astype(dtype)


@pytest.mark.core32
@pytest.mark.parametrize("name", EXACT)
def test_to_a_unit_in_the_last_place(name, x64):
    x = arguments(name, np.float64 if x64 else np.float32)
    with mpmath.workdps(40):
        exact = np.array([float(EXACT[name](mpmath.mpf(float(v)))) for v in x])
    many = np.resize(x, logarithm.FEW)
    found = np.asarray(jax.jit(getattr(logarithm, name))(many), np.float64)[: len(x)]
    units = 2 if x64 else 8  # those of XLA
    assert np.max(np.abs(found - exact) / np.abs(exact)) < units * np.finfo(x.dtype).eps


@pytest.mark.core32
@pytest.mark.parametrize("name", ENDS)
def test_at_the_ends(name):
    x = jnp.resize(jnp.asarray(ENDS[name]), logarithm.FEW)
    usual = jax.nn.softplus if name == "softplus" else getattr(jnp, name)
    np.testing.assert_array_equal(getattr(logarithm, name)(x), usual(x))


@pytest.mark.parametrize("name", EXACT)
def test_derivatives(name, monkeypatch):
    monkeypatch.setattr(logarithm, "FEW", 0)
    x = jnp.asarray([0.3, 1.0, 40.0] if name != "softplus" else [-3.0, 0.0, 2.0])
    own, usual = getattr(logarithm, name), jax.nn.softplus if name == "softplus" else getattr(jnp, name)
    for order in range(3):
        np.testing.assert_allclose(jax.vmap(own)(x), jax.vmap(usual)(x), rtol=1e-14, err_msg=f"order {order}")
        own, usual = jax.grad(own), jax.grad(usual)
