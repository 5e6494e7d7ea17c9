"""Other spellings of one model: matrices, plates, functions of NumPy, reports."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, dot, exp, sample

X = np.array([[1.0, 0.5], [0.2, -1.0], [0.3, 0.8]])
Y = np.array([0.4, -0.3, 1.1])


def weights():
    return sample("w", MvNormal(np.zeros(2), covariance=1.0))


def test_a_matrix_times_a_vector_is_a_plate():
    def model(X, y, form):
        w, a = weights(), sample("a", Normal(0.0, std=1.0))
        sample("y", Normal(form(X, w) + a, std=0.5), obs=y)

    forms = (lambda X, w: X @ w, dot)
    posts = [ngmp.compile(lambda X, y, f=f: model(X, y, f))(X=X, y=Y) for f in forms]
    np.testing.assert_allclose(posts[0]["w"].mean, posts[1]["w"].mean, rtol=1e-9)
    np.testing.assert_allclose(posts[0].free_energy, posts[1].free_energy, rtol=1e-9)


def test_functions_of_numpy_take_inputs():
    """As those of jax do: eager, and under jit."""

    def model(x, t, y):
        features = np.stack([np.ones(len(x)), np.log(t)], axis=1)
        sample("y", Normal(features @ weights(), std=np.sqrt(np.abs(x)) + 0.5), obs=y)

    program, t = ngmp.compile(model), np.array([1.0, 2.0, 4.0])
    features, scale = np.stack([np.ones(3), np.log(t)], 1), np.sqrt(np.abs(Y)) + 0.5
    expected = stats.multivariate_normal(np.zeros(3), features @ features.T + np.diag(scale**2)).logpdf(Y)
    np.testing.assert_allclose(-program(x=Y, t=t, y=Y).free_energy, expected, rtol=1e-6)
    np.testing.assert_allclose(-jax.jit(lambda t: program(x=Y, t=t, y=Y).free_energy)(t), expected, rtol=1e-6)


def test_plates_and_reports():
    def model(y):
        with ngmp.plate("rows", 3):
            a = sample("a", Normal(0.0, std=1.0))
        ngmp.deterministic("double", 2.0 * a)
        ngmp.deterministic("rate", exp(a))
        sample("y", Normal(a, std=1.0), obs=y)

    post = ngmp.compile(model)(y=Y)
    np.testing.assert_allclose(post["double"].mean, Y, rtol=1e-9)
    np.testing.assert_allclose(post["double"].variance, 2.0, rtol=1e-9)
    np.testing.assert_allclose(post["rate"].mean, np.exp(0.5 * Y + 0.25), rtol=1e-9)


@pytest.mark.parametrize("function", [np.exp, np.tanh, lambda z: z**2 + 1.0, lambda z: 1.0 - ngmp.sigmoid(z)])
def test_functions_are_nodes_of_what_is_latent(function):
    def model(y):
        x = sample("x", Normal(function(sample("z", Normal(0.5, std=0.3))), std=0.5))
        sample("y", Normal(x, std=0.5), obs=y)

    assert "DeterministicNode" in str(ngmp.compile(model).lower(y=0.3).describe())


def test_a_vector_with_several_constants():
    def model(y):
        g = ngmp.apply(lambda x, a, b: a * x[0] + jnp.sin(b * x[1]), weights(), np.array([1.0, 2.0, 3.0]), 2.0)
        sample("y", Normal(g, std=0.5), obs=y)

    assert ngmp.compile(model).lower(y=Y)


def test_hints():
    with pytest.raises(TypeError, match=r"scale= \(did you mean std=\?\)"):
        Normal(0.0, scale=1.0)
    with pytest.raises(AttributeError, match=r"here it is Truncated\(Normal"):
        _ = ngmp.TruncatedNormal
    with pytest.raises(AttributeError, match="did you mean HalfNormal"):
        _ = ngmp.HalfNormalX


def test_names_and_mappings_are_carried():
    def model(y):
        z0, w = sample("z0", Normal(0.0, std=1.0)), sample("w", Normal(0.0, std=1.0))
        sample("y", Normal(sample("z", Normal(z0, std=1.0)) + w, std=1.0), obs=y)

    program = ngmp.compile(model, carry=("w", {"z0": "z"}))
    carry, post = program.update(program.start(y=1.0), {"y": 1.0})
    np.testing.assert_allclose(carry["z0"].mean, post["z"].mean)
