"""Data and parameters outside their support: counted, located and shown; flagged under `jit`; harmless where masked."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    DataError,
    Dirichlet,
    Gamma,
    ModelError,
    MvNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    dot,
    exp,
    sample,
    take,
)
from tests.refusals import N01, Y, fails, gamma, gaussian, vector

# -- values: data ----------------------------------------------------------------------------------------------------


LIKELIHOODS: dict[str, Callable] = {
    "normal": lambda: Normal(gaussian(), **N01),
    "vector": lambda: MvNormal(vector(d=3), covariance=1.0),
    "student": lambda: StudentT(3.0, gaussian(), scale=1.0),
    "poisson": lambda: Poisson(exp(gaussian())),
    "poisson rate": lambda: Poisson(gamma()),
    "poisson constant": lambda: Poisson(2.0),
    "negative binomial": lambda: NegativeBinomial(mean=exp(gaussian()), dispersion=2.0),
    "bernoulli": lambda: Bernoulli(logits=gaussian()),
    "bernoulli probs": lambda: Bernoulli(probs=sample("p", Beta(1.0, 1.0))),
    "binomial": lambda: Binomial(4, logits=gaussian()),
    "categorical": lambda: Categorical(probs=sample("p", Dirichlet(np.ones(3)))),
    "categorical constant": lambda: Categorical(probs=np.ones(3) / 3),
    "gamma": lambda: Gamma(2.0, rate=1.0),
    "beta": lambda: Beta(2.0, 1.0),
}


def observing(kind: str) -> Callable:
    def model(y, mask=None):
        sample("y", LIKELIHOODS[kind](), obs=y, mask=mask)

    return model


@pytest.mark.parametrize(
    ("kind", "y", "words"),
    [
        ("normal", [1.0, np.nan, 2.0], "NaN or infinite; mark missing values with mask="),
        ("vector", [1.0, np.inf, 2.0], "NaN or infinite"),
        ("poisson", [1.0, np.inf, 2.0], "NaN or infinite"),
        ("poisson", [1, -1, 2], "counts must be non-negative integers"),
        ("poisson", [1.0, 1.5, 2.0], "counts must be non-negative integers"),
        ("poisson rate", [1, -1, 2], "counts must be non-negative integers"),
        ("poisson constant", [0.5, 1.0, 2.0], "counts must be non-negative integers"),
        ("negative binomial", [1, -1, 2], "counts must be non-negative integers"),
        ("bernoulli", [0, 2, 1], "outcomes must be 0 or 1"),
        ("bernoulli probs", [0.0, 0.5, 1.0], "outcomes must be 0 or 1"),
        ("binomial", [0, 5, 4], "counts must be integers from 0 to the number of trials"),
        ("categorical", [0, 3, 2], "outcomes must be integers from 0 to 2"),
        ("categorical", [0.0, 0.5, 2.0], "outcomes must be integers from 0 to 2"),
        ("categorical constant", [0, -1, 2], "outcomes must be integers from 0 to 2"),
        ("gamma", [1.0, 0.0, 2.0], "outcomes must be positive"),
        ("beta", [0.5, 1.5, 0.2], "outcomes must lie strictly between 0 and 1"),
    ],
)
def test_data_outside_their_support(kind, y, words):
    fails(DataError, observing(kind), "site 'y'", words, y=np.asarray(y))


def test_bad_values_are_counted_located_and_shown():
    def model(y, v):
        z = sample("z", Normal(0.0, variance=v))
        sample("y", Poisson(exp(z)), obs=y)

    y = np.array([[1.0, -4.0, 2.0], [0.0, 1.5, 3.0]])
    fails(DataError, model, "2 of 6 elements, the first at [0, 1]", "obs=-4.", "mean=0., variance=-2.", y=y, v=-2.0)


@pytest.mark.parametrize("kind", ["normal", "poisson", "bernoulli", "categorical"])
def test_bad_values_inside_a_mask_do_no_harm(kind):
    good, bad, seen = np.array([1.0, 0.0, 2.0]), np.array([1.0, np.nan, -7.5]), np.array([True, False, False])
    program = ngmp.compile(observing(kind))
    expected, found = program(y=good, mask=seen), program(y=bad, mask=seen)
    assert found.converged
    np.testing.assert_allclose(found.free_energy, expected.free_energy, rtol=1e-9)
    for a, b in zip(jax.tree.leaves(found.marginals), jax.tree.leaves(expected.marginals), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_bad_covariates_only_matter_where_seen():
    def model(x, y, m):
        sample("y", Normal(dot(x, vector()), **N01), obs=y, mask=m)

    x = np.array([[1.0, 2.0], [np.nan, 1.0], [0.5, np.inf]])
    program = ngmp.compile(model)
    post = program(x=x, y=Y, m=np.array([True, False, False]))
    assert post.converged and np.all(np.isfinite(post["w"].mean))
    with pytest.raises(DataError, match="site 'y'.*mean is NaN or infinite"):
        program(x=x, y=Y, m=np.ones(3, bool))


@pytest.mark.parametrize(
    ("kind", "y"),
    [
        ("normal", [1.0, np.nan, 2.0]),
        ("normal", [1.0, np.inf, 2.0]),
        ("student", [1.0, np.nan, 2.0]),
        ("poisson", [1.0, np.nan, 2.0]),
        ("poisson", [1.0, -3.0, 2.0]),
        ("negative binomial", [1.0, np.nan, 2.0]),
        ("bernoulli", [1.0, np.nan, 2.0]),
        ("categorical", [1.0, np.nan, 7.0]),
    ],
)
def test_bad_data_under_jit_are_flagged_and_stay_finite(kind, y):
    program = ngmp.compile(observing(kind))
    post = jax.jit(lambda y: program(y=y))(jnp.asarray(y))
    assert not post.converged
    assert "invalid" in post.reason and "not finite" in post.reason
    for x in jax.tree.leaves(post.marginals):
        assert np.all(np.isfinite(x))


def test_bad_data_under_vmap_leave_the_other_runs_alone():
    program = ngmp.compile(observing("poisson"))
    batch = np.array([[1.0, 0.0, 2.0], [1.0, np.nan, 2.0], [1.0, -1.0, 2.0]])
    post = jax.vmap(lambda y: program(y=y))(jnp.asarray(batch))
    assert post.converged.tolist() == [True, False, False]
    assert "converged" in post.reason and "invalid" in post.reason
    np.testing.assert_allclose(post["x"].mean[0], program(y=batch[0])["x"].mean, rtol=1e-8)
    np.testing.assert_allclose(post["x"].mean[1], post["x"].mean[0], rtol=1e-6)  # NaN is read as the placeholder, 0
    assert np.all(np.isfinite(post["x"].mean))


# -- values: parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        (lambda v: Normal(0.0, variance=v), "scale (variance, precision or std) must be positive"),
        (lambda v: Normal(0.0, precision=v), "scale (variance, precision or std) must be positive"),
        (lambda v: Normal(0.0, std=v), "scale (variance, precision or std) must be positive"),
        (lambda v: Gamma(v, rate=1.0), "concentration must be positive"),
        (lambda v: Gamma(1.0, rate=v), "rate (or scale) must be positive"),
        (lambda v: Gamma(1.0, scale=v), "rate (or scale) must be positive"),
        (lambda v: Beta(v, 1.0), "a must be positive"),
        (lambda v: Beta(1.0, v), "b must be positive"),
        (lambda v: Dirichlet([1.0, -0.5]), "concentration must be positive"),
        (lambda v: MvNormal(np.zeros(2), covariance=v), "positive definite"),
        (lambda v: MvNormal(np.zeros(2), covariance=np.array([1.0, -1.0])), "positive definite"),
        (lambda v: MvNormal(np.zeros(2), covariance=np.array([[1.0, 2.0], [2.0, 1.0]])), "positive definite"),
        (lambda v: MvNormal(np.zeros(2), precision=np.array([[1.0, 2.0], [2.0, 1.0]])), "positive definite"),
        (lambda v: Bernoulli(probs=v), "probs must lie between 0 and 1"),
        (lambda v: Bernoulli(probs=1.0 - v), "probs must lie between 0 and 1"),
        (lambda v: Categorical(probs=np.array([1.5, -0.5])), "probs must be non-negative and sum to one"),
        (lambda v: Categorical(probs=np.array([0.5, 0.6])), "probs must be non-negative and sum to one"),
        (lambda v: Normal(np.nan, variance=1.0), "mean is NaN or infinite"),
        (lambda v: Normal(0.0, variance=np.inf), "variance is NaN or infinite"),
        (lambda v: Categorical(logits=np.array([0.0, np.nan])), "logits is NaN or infinite"),
    ],
)
def test_improper_priors(distribution, words):
    """Given as constants in the model, or traced: v is -0.25."""
    fails(DataError, lambda v: sample("x", distribution(v)), "site 'x'", words, v=-0.25)


def test_zero_scales():
    for scale in ("variance", "precision", "std"):
        fails(DataError, lambda v, s=scale: sample("x", Normal(0.0, **{s: v})), "site 'x'", "must be positive", v=0.0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda v: sample("y", StudentT(v, gaussian(), scale=1.0), obs=Y), "degrees of freedom df must be positive"),
        (lambda v: sample("y", StudentT(3.0, gaussian(), scale=v), obs=Y), "scale must be positive"),
        (lambda v: sample("y", Poisson(v), obs=Y), "rate must be non-negative"),
        (
            lambda v: sample("y", NegativeBinomial(mean=exp(gaussian()), dispersion=v), obs=Y),
            "dispersion must be positive",
        ),
        (lambda v: sample("y", Poisson(v * exp(gaussian())), obs=Y), "rate is NaN or infinite"),
        (lambda v: sample("y", Binomial(v, logits=gaussian()), obs=Y), "counts must be integers from 0"),
    ],
)
def test_improper_likelihoods(model, words):
    fails(DataError, model, "site 'y'", words, v=-1.0)


@pytest.mark.parametrize("table", [[[0.5, 0.6], [0.5, 0.5]], [[1.5, -0.5], [0.5, 0.5]]])
def test_transition_tables_that_do_not_normalise(table):
    def model(table):
        z = sample("z", Categorical(probs=np.ones(2) / 2))
        sample("next", Categorical(probs=take(table, z)))

    fails(DataError, model, "site 'next'", "sum to one", table=np.asarray(table))


def test_several_bad_values_are_one_error():
    def model(y, v):
        z = sample("z", Normal(0.0, variance=v))
        sample("tau", Gamma(0.0, rate=v))
        sample("y", Poisson(exp(z)), obs=y)

    text = fails(DataError, model, "site 'z'", "concentration must", "rate (or scale)", "counts must", y=-Y, v=-1.0)
    assert text.count("\n") == 4


def test_exp_by_a_negative_number():
    fails(ModelError, lambda: exp(gaussian()) / -2.0, "multiplied or divided by -2.0", "positive constant")
