"""Many random starts at once: the best of them, never worse than the program's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Normal

MIXTURE = {"variance": 25.0, "shape": 2.0, "rate": 1.0}


def product(y):
    """Neither factor knows its sign: no rule leaves the symmetric start, where both are zero."""
    a, b = (ngmp.sample(name, Normal(0.0, variance=4.0)) for name in "ab")
    ngmp.sample("y", Normal(a * b, variance=1.0), obs=y)


@pytest.fixture(scope="module")
def symmetric():
    program = ngmp.compile(product, method=ngmp.VMP(), tol=1e-4)
    inputs = {"y": np.full(10, 4.0)}
    return program, inputs, ngmp.restarts(program, jax.random.key(1), 4, **inputs)


def test_a_better_fixed_point_is_found(symmetric):
    _, _, found = symmetric
    assert found.free_energies.shape == found.converged.shape == (4,)
    assert float(found.best.free_energy) == float(jnp.min(found.free_energies))
    assert bool(found.best.converged) and float(found.best.free_energy) < float(found.free_energies[0]) - 10.0
    np.testing.assert_allclose(found.best["a"].mean * found.best["b"].mean, 4.0, atol=0.5)


def test_equal_components_need_no_restart():
    """Equal prior means: the data tell the components apart, and no random start does better."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-4.0, 0.7, 30), rng.normal(4.0, 0.7, 30)])
    program = ngmp.compile(ngmp_models.gaussian_mixture, method=ngmp.VMP())
    found = ngmp.restarts(program, jax.random.key(1), 4, y=y, centres=np.zeros(2), **MIXTURE)
    np.testing.assert_allclose(found.best.free_energy, found.free_energies[0], atol=1e-6)
    np.testing.assert_allclose(np.sort(found.best["m"].mean), [-4.0, 4.0], atol=0.5)


def test_the_first_start_is_the_programs_own(symmetric):
    program, inputs, found = symmetric
    np.testing.assert_allclose(found.free_energies[0], program(**inputs).free_energy, rtol=1e-10)


def test_a_conjugate_model_has_one_fixed_point():
    def model(y):
        ngmp.sample("y", Normal(ngmp.sample("x", Normal(0.0, variance=1.0)), variance=1.0), obs=y)

    found = ngmp.restarts(ngmp.compile(model), jax.random.key(0), 3, y=jnp.ones(2))
    np.testing.assert_allclose(found.best["x"].mean, 2 / 3, rtol=1e-12)
    np.testing.assert_allclose(found.free_energies, found.best.free_energy, rtol=1e-12)


def test_bad_input(symmetric):
    program, inputs, _ = symmetric
    with pytest.raises(ValueError, match="at least one run"):
        ngmp.restarts(program, jax.random.key(0), 0, **inputs)
    with pytest.raises(TypeError, match="is no integer"):
        ngmp.restarts(program, jax.random.key(0), 2.5, **inputs)  # type: ignore[arg-type]
    with pytest.raises(ngmp.DataError):
        ngmp.restarts(program, jax.random.key(0), 4, y=np.full(10, np.nan))
