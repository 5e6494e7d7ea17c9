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
