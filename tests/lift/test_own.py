"""Functions of `jax.numpy` in models of this language: the same plan as with those of `ngmp`."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import HalfNormal, MvNormal, Normal, Poisson, dot, exp

RNG = np.random.default_rng(0)
INPUTS = {"X": RNG.normal(size=(20, 3)), "g": RNG.integers(0, 4, 20), "y": RNG.poisson(2.0, 20)}


def with_jnp(X, g, y):
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    a = ngmp.sample("a", Normal(np.zeros(4), std=sd))
    ngmp.sample("y", Poisson(jnp.exp(jnp.dot(X, w) + a[g])), obs=y)


def with_ngmp(X, g, y):
    w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    a = ngmp.sample("a", Normal(np.zeros(4), std=sd))
    ngmp.sample("y", Poisson(exp(dot(X, w) + a[g])), obs=y)


def test_functions_of_jax_give_the_same_plan():
    one, other = (ngmp.compile(m, integrate="auto").lower(**INPUTS).describe() for m in (with_jnp, with_ngmp))
    assert one.split("\n", 1)[1] == other.split("\n", 1)[1]


def test_what_has_no_form_is_refused_with_its_site():
    def model(y):
        z = ngmp.sample("z", Normal(np.zeros(20), std=1.0))
        ngmp.sample("y", Normal(jnp.sort(z)[:5], std=1.0), obs=y)

    with pytest.raises(ngmp.ModelError, match="'y'.*'sort'"):
        ngmp.compile(model).lower(y=np.ones(5))

    def steps(y):
        ngmp.sample("y", Normal(jnp.floor(ngmp.sample("z", Normal(0.0, std=1.0))), std=1.0), obs=y)

    with pytest.raises(ngmp.ModelError, match="'y'.*'floor', it is flat but for jumps"):
        ngmp.compile(steps).lower(y=1.0)


def test_new_rows_are_predicted_as_without_jax():
    """As many as there were, and others: what is shared is that of the fit, and the rows are the new ones."""

    def model(X, y=None):
        w = ngmp.sample("w", Normal(np.zeros(3), std=1.0))
        ngmp.sample("y", Normal(jnp.dot(X, w), std=0.5), obs=y)

    X, y = INPUTS["X"], RNG.normal(size=20)
    covariance = np.linalg.inv(np.eye(3) + 4 * X.T @ X)
    program = ngmp.compile(model)
    post = program(X=X, y=y)
    for rows in (X[::-1] + 1.0, X[:4] + 1.0):
        found = program.predict(post, "y", X=rows)
        np.testing.assert_allclose(found.mean, rows @ covariance @ (4 * X.T @ y), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.epistemic, np.diag(rows @ covariance @ rows.T), rtol=1e-4)


def test_what_differs_by_constants_is_one_unknown():
    """A log-density of u, of u + c where a row was seen, and of -2 u: one message a row, as of one function of u."""

    def parts(X, y, seen):
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        u = jnp.log(y) - jnp.dot(X, w)
        ngmp.factor("y", lambda a, b, c: a - jnp.exp(b) - 0.1 * c**2, jnp.where(seen, u + 1.0, 0.0), u, -2.0 * u)

    def whole(X, y, seen):
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.factor("y", lambda u, s: s * (u + 1.0) - jnp.exp(u) - 0.4 * u**2, np.log(y) - dot(X, w), 1.0 * seen)

    inputs = {"X": INPUTS["X"], "y": 1.0 + INPUTS["y"], "seen": np.arange(20) % 3 > 0}
    one, other = (ngmp.compile(m)(**inputs) for m in (parts, whole))
    assert one.converged and other.converged
    np.testing.assert_allclose(one["w"].mean, other["w"].mean, atol=1e-7)
    np.testing.assert_allclose(one["w"].covariance, other["w"].covariance, atol=1e-7)
    np.testing.assert_allclose(one.free_energy, other.free_energy, atol=1e-6)
