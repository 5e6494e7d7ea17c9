"""Random Fourier features against the kernels they approximate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ngmp_models import fourier_features, fourier_map, matern32, rbf

EXACT = {  # kernels at unit lengthscale, as functions of the distance
    rbf: lambda r: np.exp(-0.5 * r**2),
    matern32: lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
}
X = np.random.default_rng(0).normal(size=(12, 3))


def distances(x, lengthscale):
    z = x / lengthscale
    return np.linalg.norm(z[:, None] - z[None], axis=-1)


@pytest.mark.core32
@pytest.mark.parametrize("kernel", EXACT, ids=lambda k: k.__name__)
@pytest.mark.parametrize("lengthscale", [0.7, np.array([0.5, 1.0, 4.0])], ids=["one", "each"])
def test_inner_products_approach_the_kernel(key, kernel, lengthscale):
    exact, errors = EXACT[kernel](distances(X, lengthscale)), []
    for m in (400, 40_000):
        phi = np.asarray(fourier_features(fourier_map(key, 3, m, kernel=kernel, lengthscale=lengthscale), X))
        assert phi.shape == (12, m)
        errors.append(np.abs(phi @ phi.T - exact))
        # The variance of a feature product is at most 1: sd 1/sqrt(M), 78 pairs.
        assert errors[-1].max() < 4.5 / np.sqrt(m)
    assert errors[1].mean() < 0.3 * errors[0].mean()


def test_scales_average_the_kernels(key):
    scales, m = (0.5, 1.0, 2.0), 60_001
    map = fourier_map(key, 3, m, kernel=matern32, lengthscale=1.5, scales=scales)
    phi = np.asarray(fourier_features(map, X))
    exact = np.mean([EXACT[matern32](distances(X, 1.5 * s)) for s in scales], axis=0)
    assert np.abs(phi @ phi.T - exact).max() < 4.5 / np.sqrt(m)


def test_blocks_of_a_thousand_features_are_333_333_334(key):
    one = fourier_map(key, 2, 1000)
    several = fourier_map(key, 2, 1000, scales=(0.5, 1.0, 2.0))
    ratio = np.asarray(one.frequency / several.frequency)
    np.testing.assert_allclose(ratio, np.repeat([0.5, 1.0, 2.0], [333, 333, 334])[None].repeat(2, 0), rtol=1e-6)


def test_inputs_and_the_constant_come_last(key):
    map = fourier_map(key, 3, 10)
    phi = fourier_features(map, X, inputs=True, constant=True)
    assert phi.shape == (12, 14)
    np.testing.assert_allclose(phi[:, 10:13], X, rtol=1e-6)
    np.testing.assert_array_equal(phi[:, 13], 1.0)
    np.testing.assert_allclose(phi[:, :10], fourier_features(map, X), rtol=1e-6)


def test_maps_are_pure(key):
    same, other = fourier_map(key, 3, 8), fourier_map(jax.random.fold_in(key, 1), 3, 8)
    np.testing.assert_array_equal(same.frequency, fourier_map(key, 3, 8).frequency)
    assert not np.any(np.isclose(same.frequency, other.frequency))
    inside = jax.jit(lambda k, x, scale: fourier_features(fourier_map(k, 3, 8, lengthscale=scale), x))
    np.testing.assert_allclose(inside(key, X, 1.0), fourier_features(same, X), rtol=1e-5)
    slope = jax.grad(lambda scale: jnp.sum(inside(key, X, scale)))(0.7)  # lengthscales can be learned
    step = (jnp.sum(inside(key, X, 0.71)) - jnp.sum(inside(key, X, 0.69))) / 0.02
    np.testing.assert_allclose(slope, step, rtol=0.05)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"lengthscale": 0.0}, "lengthscale must be positive"),
        ({"lengthscale": np.array([1.0, -1.0, 1.0])}, "lengthscale must be positive"),
        ({"lengthscale": np.nan}, "lengthscale must be positive"),
        ({"lengthscale": np.ones(2)}, "vector of 3, got shape"),
        ({"scales": (1.0, 0.0)}, "scales must be positive"),
        ({"scales": ()}, "a feature for every scale"),
        ({"count": 0}, "a feature for every scale"),
        ({"dimensions": 0}, "needs an input"),
    ],
    ids=lambda x: str(x),
)
def test_bad_maps_are_refused(key, arguments, said):
    with pytest.raises(ValueError, match=said):
        fourier_map(key, **{"dimensions": 3, "count": 8, **arguments})


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.ones((4, 2)), r"shape \(n, 3\); got \(4, 2\)"),
        (np.ones(3), r"shape \(n, 3\); got \(3,\)"),
        (np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 1.0), "row 2"),
    ],
    ids=["width", "vector", "nan"],
)
def test_bad_inputs_are_refused(key, x, said):
    with pytest.raises(ValueError, match=said):
        fourier_features(fourier_map(key, 3, 8), x)
