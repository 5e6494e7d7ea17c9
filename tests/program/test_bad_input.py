"""Bad input: every kind gets an error that names the site, what was given and what would work; all of them at once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
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

Y = np.array([1.0, 2.0, 3.0])
N01 = {"variance": 1.0}


def gaussian(name: str = "x", mean: Any = 0.0) -> Any:
    return sample(name, Normal(mean, **N01))


def vector(name: str = "w", d: int = 2) -> Any:
    return sample(name, MvNormal(np.zeros(d), covariance=1.0))


def gamma(name: str = "tau") -> Any:
    return sample(name, Gamma(2.0, rate=1.0))


def fails(error: type[Exception], model: Callable, *words: str, **inputs: Any) -> str:
    """Declaring, or running, the model raises this error, whose text has all these words."""
    with pytest.raises(error) as info:
        ngmp.compile(model)(**inputs)
    text = str(info.value)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    return text


def refused(*words: str, **inputs: Any) -> Callable:
    """Decorator: a model that must not compile, with words of its message; becomes a test."""

    def decorate(model: Callable) -> Callable:
        def test() -> None:
            fails(ModelError, model, *words, **inputs)

        test.__name__ = model.__name__
        return test

    return decorate


# -- shapes ----------------------------------------------------------------------------------------------------------


@refused("site 'y'", "mean (2,)", "obs (3,)", "broadcast", y=Y)
def test_plates_of_unequal_length(y):
    sample("y", Normal(gaussian(mean=np.zeros(2)), **N01), obs=y)


@refused("'x' and 'z'", "(2,) and (3,)", "broadcast")
def test_sum_of_unequal_plates():
    sample("y", Normal(gaussian("x", np.zeros(2)) + gaussian("z", np.zeros(3)), **N01), obs=Y)


@refused("'x'", "(2,) and (3,)", "product")
def test_product_with_a_constant_of_another_shape():
    sample("y", Normal(gaussian("x", np.zeros(2)) * Y, **N01), obs=Y)


@refused("'w'", "'x'", "vectors of equal length")
def test_sum_of_a_scalar_and_a_vector():
    vector() + gaussian()


@refused("'w'", "length 1", "(3,)", "last axes")
def test_a_constant_may_not_stretch_a_vector():
    vector(d=1) + Y


@refused("site 'w'", "covariance=", "got shape (3, 3)", "(2, 2)")
def test_covariance_of_another_size():
    sample("w", MvNormal(np.zeros(2), covariance=np.eye(3)))


@pytest.mark.parametrize(
    ("distribution", "word"),
    [
        (lambda: MvNormal(0.0, covariance=1.0), "mean"),
        (lambda: Dirichlet(1.0), "concentration"),
        (lambda: Categorical(probs=0.5), "probs"),
    ],
)
def test_outcome_of_unknown_length(distribution, word):
    fails(ModelError, lambda: sample("x", distribution()), "site 'x'", "length", f"{word} as a vector")


@pytest.mark.parametrize("y", [Y, np.float64(1.0), np.ones((2, 3))])
def test_observed_vector_of_another_length(y):
    def model(y):
        sample("y", MvNormal(vector(), covariance=1.0), obs=y)

    fails(ModelError, model, "site 'y', obs", f"shape {np.shape(y)}", "length 2", y=y)


@refused("site 'y', obs", "(2,)", "length 3", y=Y[:2])
def test_observed_simplex_of_another_length(y):
    sample("y", Dirichlet(np.ones(3)), obs=y)


@refused("features of shape (3, 4)", "'w'", "length 2", "must be 2", x=np.zeros((3, 4)))
def test_features_of_another_width(x):
    sample("y", Normal(dot(x, vector()), **N01), obs=Y)


@refused("features of shape (3, 4)", "'w'", "length 2", "must be 2")
def test_matrix_of_another_width():
    np.zeros((3, 4)) @ vector()


@refused("'x'", "scalar", "MvNormal")
def test_features_meet_a_plate_of_scalars():
    dot(np.zeros((3, 2)), gaussian("x", np.zeros(2)))


@refused("'z'", "2 rows", "3 classes")
def test_take_from_a_table_of_another_size():
    take(np.eye(2), sample("z", Categorical(probs=np.ones(3) / 3)))


@refused("site 'y', argument probs", "table of shape (3,)", "3 rows")
def test_take_from_a_vector():
    z = sample("z", Categorical(probs=np.ones(3) / 3))
    sample("y", Categorical(probs=take(np.ones(3) / 3, z)), obs=1)


# -- names -----------------------------------------------------------------------------------------------------------


@refused("site 'x'", "batch shape ()", "batch shape (2,)", "the same thing", "ngmp.scope")
def test_name_reused_with_another_shape():
    gaussian("x")
    gaussian("x", np.zeros(2))


@refused("site 'x'", "Gaussian", "Gamma")
def test_name_reused_with_another_family():
    gaussian("x")
    gamma("x")


@refused("site 'y'", "(3,)", "()", "the same thing")
def test_observed_name_reused_with_another_shape():
    sample("y", Normal(0.0, **N01), obs=Y)
    sample("y", Normal(0.0, **N01), obs=1.0)


@pytest.mark.parametrize("first", [None, 1.0])
def test_name_both_latent_and_observed(first):
    def model():
        sample("x", Normal(0.0, **N01), obs=first)
        sample("x", Normal(0.0, **N01), obs=None if first else 1.0)

    fails(ModelError, model, "site 'x'", "obs=", "mask=")


@pytest.mark.parametrize("call", [lambda: sample(Normal(0.0, **N01), "x"), lambda: ngmp.factor(3, abs, gaussian())])  # type: ignore[arg-type]
def test_names_are_strings(call):
    fails(ModelError, call, "the name is of type", "a string")


def test_unknown_variable_of_a_posterior():
    post = ngmp.compile(lambda: gaussian("x"))()
    with pytest.raises(KeyError, match="no variable 'nope'.*declares x"):
        post["nope"]
    assert "nope" not in post and "x" in post


@pytest.mark.parametrize("site", ["nope", "x"])
def test_prediction_of_an_unknown_or_latent_site(site):
    def model(y):
        sample("y", Normal(gaussian(), **N01), obs=y)

    program = ngmp.compile(model)
    post = program(y=Y)
    with pytest.raises(ModelError, match=f"site '{site}': not an observed site.*'y'"):
        program.predict(post, site, y=Y)


def test_unknown_sites_and_families_in_options():
    def model():
        gaussian("x")

    options = {"rules": {"q": ngmp.NGMP()}, "families": {"r": ngmp.families.Gamma, "x": ngmp.families.Gamma}}
    with pytest.raises(ModelError) as info:
        ngmp.compile(model, **options)()
    assert len(info.value.problems) == 3
    for word in ("'q'", "rules=", "'r'", "families=", "['x']", "Gamma", "family is Gaussian"):
        assert word in str(info.value)


def test_options_of_the_wrong_kind():
    with pytest.raises(ModelError) as info:
        ngmp.compile(
            gaussian, method="ngmp", rules={"x": 3, "y": ngmp.NGMP(projection="gh")}, families={"x": "gaussian"}
        )
    assert len(info.value.problems) == 4
    for word in ("method= is 'ngmp'", "NGMP()", "site 'x' is 3", "projection='gh'", "GaussHermite(n)", "'gaussian'"):
        assert word in str(info.value)
    with pytest.raises(TypeError, match="solver=0.5 is not an optax transformation"):
        ngmp.compile(gaussian, solver=0.5)  # type: ignore[arg-type]
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="max_sweeps must be an integer of at least 1"):
            ngmp.compile(gaussian, max_sweeps=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tol must be positive"):
        ngmp.compile(gaussian, tol=0.0)
    ngmp.compile(gaussian, solver=optax.sgd(0.1), max_sweeps=np.int64(3), tol=1e-3)


def test_belief_propagation_is_refused_where_it_is_not_exact():
    def model(y):
        sample("y", Poisson(exp(gaussian())), obs=y)

    with pytest.raises(ModelError, match="site 'y'.*BP.*NGMP"):
        ngmp.compile(model, method=ngmp.BP())(y=Y)


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
        (lambda v: Gamma(v, rate=1.0), "shape must be positive"),
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

    text = fails(DataError, model, "site 'z'", "shape must", "rate (or scale)", "counts must", y=-Y, v=-1.0)
    assert text.count("\n") == 4


def test_exp_times_a_negative_number():
    fails(ModelError, lambda: -2.0 * exp(gaussian()), "multiplied or divided by -2.0", "positive constant")


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Normal(0.0), "exactly one of variance=, precision= or std=; got none of them"),
        (lambda: Normal(0.0, variance=1.0, std=1.0), "got variance= and std="),
        (lambda: MvNormal(np.zeros(2)), "exactly one of covariance= or precision="),
        (lambda: MvNormal(np.zeros(2), covariance=1.0, precision=1.0), "got covariance= and precision="),
        (lambda: Gamma(1.0), "exactly one of rate= or scale="),
        (lambda: Gamma(1.0, rate=1.0, scale=1.0), "got rate= and scale="),
        (lambda: Bernoulli(), "exactly one of probs= or logits="),
        (lambda: Categorical(probs=np.ones(2) / 2, logits=np.zeros(2)), "got probs= and logits="),
        (lambda: Binomial(3), "exactly one of probs= or logits="),
        (lambda: Normal(0.0, 1.0), "by keyword variance=, precision=, std=; got 2 positional arguments"),
        (lambda: Normal(0.0, sigma=1.0), "by keyword variance=, precision=, std=; got sigma="),
        (lambda: Bernoulli(0.5), "nothing by position and by keyword probs=, logits="),
    ],
)
def test_scales_given_twice_or_not_at_all(call, words):
    def model():
        gaussian("before")
        sample("x", call())

    with pytest.raises(TypeError) as info:
        ngmp.compile(model)()
    assert words in str(info.value)
    assert any("after site 'before'" in note for note in info.value.__notes__)


@pytest.mark.parametrize("value", [None, "0", np.array(["a"]), np.array([None]), object(), {1: 2}])
def test_arguments_that_are_no_numbers(value):
    fails(ModelError, lambda: sample("x", Normal(value, **N01)), "site 'x', argument mean", "a number, an array")


@pytest.mark.parametrize("value", ["abc", [[1.0], [1.0, 2.0]], {"a": 1}])
def test_observations_that_are_no_numbers(value):
    fails(ModelError, lambda: sample("x", Normal(0.0, **N01), obs=value), "site 'x', obs", "numbers or an array")


@refused("site 'y', obs", "complex", "real numbers", y=np.array([1j]))
def test_complex_observations(y):
    sample("y", Normal(gaussian(), **N01), obs=y)


@refused("site 'y', argument mean", "a list of random variables")
def test_lists_of_variables():
    sample("y", Normal([gaussian("a"), gaussian("b")], **N01), obs=Y[:2])


@refused("site 'y', obs", "random expression", "tie two variables")
def test_observing_a_variable():
    sample("y", Normal(0.0, **N01), obs=gaussian())


@refused("site 'x'", "3.0 is not a distribution", "Normal(0.0, variance=1.0)")
def test_something_else_than_a_distribution():
    sample("x", 3.0)


@refused("site 'y'", "Poisson", "no family for a latent outcome", "obs=")
def test_latent_counts():
    sample("y", Poisson(3.0))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "missing a required argument: 'y'"),
        ({"y": 1.0, "q": 1.0}, "unexpected keyword argument 'q'"),
        ({"y": np.array(["a"])}, "input 'y' is an array of dtype <U1"),
        ({"y": {"a": [np.array([None])]}}, "input 'y['a'][0]' is an array of dtype object"),
        ({"y": 1.0, "option": {1, 2}}, "input 'option' is a set"),
    ],
)
def test_wrong_inputs_of_a_program(inputs, words):
    def model(y, option=None):
        sample("y", Normal(0.0, **N01), obs=y)

    with pytest.raises(TypeError) as info:
        ngmp.compile(model)(**inputs)
    assert words in str(info.value)
    if "input" not in words:
        assert "model(y, option=None)" in str(info.value)


def test_variadic_models():
    with pytest.raises(TypeError, match="'values' must be usable by name"):
        ngmp.compile(lambda *values: None)(1.0)


def test_outside_a_model():
    for call in (lambda: gaussian(), lambda: ngmp.factor("f", abs, 1.0), lambda: ngmp.scan(lambda c, x: (c, x), 0, Y)):
        with pytest.raises(RuntimeError, match="inside a model function"):
            call()
    with pytest.raises(RuntimeError, match="ngmp.scope may only"), ngmp.scope("a"):
        pass


def test_the_frame_is_left_after_an_error():
    fails(ModelError, lambda: sample("y", Poisson(3.0)), "site 'y'")
    with pytest.raises(RuntimeError, match="inside a model function"):
        gaussian()


# -- interfaces without a kernel -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            lambda: sample("y", Poisson(gaussian()), obs=Y),
            ("interface rate", "Gaussian variable", "exp(z)", "did you mean rate=exp(...)?"),
        ),
        (lambda: sample("y", Gamma(2.0, rate=gamma()), obs=None), ("interface rate", "a Gamma variable", "a constant")),
        (
            lambda: sample("y", Categorical(logits=vector(d=3)), obs=1),
            ("interface logits", "a Gaussian vector", "take(table, z)", "a constant"),
        ),
        (
            lambda: sample("y", Normal(0.0, variance=gamma()), obs=Y),
            ("interface variance", "exp(z)", "a Gamma variable may be given as precision="),
        ),
        (lambda: sample("y", Normal(vector(), **N01), obs=1.0), ("interface mean", "a Gaussian vector")),
        (
            lambda: sample(
                "y", Poisson(take(gaussian("m", Y[:2]), sample("z", Categorical(probs=np.ones(2) / 2)))), obs=1
            ),
            ("interface rate", "a Gaussian variable", "did you mean rate=exp(...)?"),
        ),
        (lambda: sample("y", Bernoulli(probs=gaussian()), obs=1), ("interface probs", "as logits=")),
        (lambda: ngmp.factor("y", jnp.sum, vector()), ("interface z1", "ngmp.factor", "a Gaussian vector")),
        (lambda: ngmp.factor("y", jnp.log, exp(gaussian())), ("interface z1", "exp(z)")),
    ],
)
def test_interfaces_without_a_kernel(model, words):
    fails(ModelError, model, "site 'y'", *words)


def test_every_interface_without_a_kernel_is_listed():
    def model(y):
        x, tau = gaussian(), gamma()
        sample("a", Poisson(x), obs=y)
        sample("b", Normal(0.0, variance=tau), obs=y)
        sample("c", Gamma(tau, rate=tau), obs=y)
        for k in range(3):
            sample("d", Bernoulli(probs=x), obs=y[k])

    with pytest.raises(ModelError) as info:
        ngmp.compile(model)(y=Y)
    found = [(p.site, p.interface) for p in info.value.problems]
    interfaces = ["rate", "variance", "shape", "rate", "probs"]
    assert found == [(s, f"interface {i}") for s, i in zip("abccd", interfaces, strict=True)]
    assert "5 problems" in str(info.value)


def test_declaration_problems_are_collected():
    """Everything that leaves the declaration able to go on is in one error, with what stops it in the end."""

    def model(y, m):
        x = sample("x", Normal(0.0, **N01), mask=m)
        for k in range(3):
            sample("a", Normal(x, **N01), obs=y[k], mask=m)
        sample("b", Normal(x, **N01), obs=y, mask=y)
        sample("x", Normal(np.zeros(2), **N01))
        sample("c", Normal(np.zeros(2), **N01), obs=y)
        x**2

    with pytest.raises(ModelError) as info:
        ngmp.compile(model)(y=Y, m=np.ones(2, bool))
    assert [p.site for p in info.value.problems] == ["x", "a", "b", "x", "c", None]
    text = str(info.value)
    assert "6 problems" in text and "without obs=" in text and "a power of 'x'" in text and "after site 'x'" in text


# -- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.array([True, False]), ("shape (2,)", "site has shape (3,)")),
        (np.ones((3, 1), bool), ("shape (3, 1)",)),
        (np.array([1, 0, 1]), ("dtype int64", "booleans")),
        (np.array([1.0, 0.0, 1.0]), ("dtype float64",)),
        (1, ("dtype int",)),
        ("all", ("mask is 'all' (str)",)),
        ([True, False], ("shape (2,)",)),
    ],
)
def test_masks_of_another_length_or_type(mask, words):
    def model(mask):
        sample("y", Normal(gaussian(), **N01), obs=Y, mask=mask)

    fails(ModelError, model, "site 'y'", *words, "True where the value was seen", mask=mask)


@refused("site 'y'", "mask is a random variable")
def test_random_masks():
    x = gaussian()
    sample("y", Normal(x, **N01), obs=Y, mask=x)


@refused("site 'x'", "mask= was given without obs=")
def test_masked_variables():
    sample("x", Normal(0.0, **N01), mask=np.array(True))


def test_masks_of_a_scan():
    def model(y, m):
        def step(z, x):
            z = sample("z", Normal(z, **N01))
            sample("y", Normal(z, **N01), obs=x[0], mask=x[1])
            return z, None

        ngmp.scan(step, gaussian("z0"), (y, m))

    fails(ModelError, model, "ngmp.scan", y=Y, m=np.ones(4, bool))
    fails(ModelError, model, "site 'y'", "dtype int64", y=Y, m=np.ones(3, int))


# -- structure -------------------------------------------------------------------------------------------------------

STRUCTURE = ("structure", "traced", "after site 'x'", "shapes and static arguments", "mask=")


@refused(*STRUCTURE, y=Y)
def test_branching_on_data(y):
    x = gaussian()
    if y[0] > 0:
        sample("y", Normal(x, **N01), obs=y)


@refused(*STRUCTURE, n=np.array(3))
def test_looping_up_to_a_traced_number(n):
    gaussian()
    for _ in range(int(n)):
        gaussian("z")


@refused(*STRUCTURE, n=np.array(3))
def test_looping_up_to_a_traced_number_as_it_is(n):
    gaussian()
    for _ in range(n):
        gaussian("z")


@refused(*STRUCTURE, y=Y)
def test_numpy_on_data(y):
    sample("y", Normal(gaussian(), **N01), obs=np.asarray(y))


@refused(*STRUCTURE, y=Y)
def test_boolean_selection_of_data(y):
    sample("y", Normal(gaussian(), **N01), obs=y[y > 1])


@refused("structure", "traced", y=Y)
def test_branching_inside_a_scan(y):
    def step(z, y_k):
        z = sample("z", Normal(z, **N01))
        if y_k > 0:
            sample("y", Normal(z, **N01), obs=y_k)
        return z, None

    ngmp.scan(step, gaussian(), y)


@refused("truth value of 'x'", "static arguments")
def test_branching_on_a_variable():
    if gaussian("x"):
        gaussian("z")


@refused("truth value of 'x'", "static arguments")
def test_comparing_a_variable():
    if gaussian("x") > 0:
        gaussian("z")


@pytest.mark.parametrize("index", [np.array([0, 1, 1]), np.array(1)])
def test_indexing_a_variable_with_a_traced_array(index):
    def model(index):
        gaussian("x", np.zeros(2))[index]

    fails(ModelError, model, "'x' was indexed with a traced array", "indices must be static", index=index)


def test_indexing_out_of_range():
    with pytest.raises(IndexError, match=r"variable 'x' of shape \(2,\)"):
        ngmp.compile(lambda: gaussian("x", np.zeros(2))[5])()
    with pytest.raises(IndexError, match="index 3 is out of range for an input of length 3"):
        ngmp.compile(lambda y: gaussian("x", y[3]))(y=Y)


# -- expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda a, b: a * b * a, ("product of three random variables", "ngmp.factor")),
        (lambda a, b: a * b + b * a, ("sum of two products", "variable of its own")),
        (lambda a, b: a / b, ("'a' / 'b'",)),
        (lambda a, b: 1 / a, ("division by 'a'",)),
        (lambda a, b: a**2, ("a power of 'a'",)),
        (lambda a, b: dot(a, b), ("dot('a', 'b')", "product")),
        (lambda a, b: a @ b, ("'a' @ 'b'",)),
        (lambda a, b: jnp.exp(a), ("numpy or jax function", "ngmp.exp")),
        (lambda a, b: np.exp(a), ("numpy or jax function", "ngmp.exp")),
        (lambda a, b: exp(a) + exp(b), ("a sum with exp(z)", "added inside")),
        (lambda a, b: 1.0 - exp(b), ("a sum with exp(z)",)),
        (lambda a, b: 2.0 * gamma(), ("'tau', a Gamma variable", "directly as a parameter")),
        (lambda a, b: exp(gamma()), ("'tau', a Gamma variable",)),
        (lambda a, b: take(np.eye(2), a), ("take(table, 'a')", "Categorical")),
        (lambda a, b: take(a, 0), ("'a'", "constant table")),
        (lambda a, b: 2.0 @ a, ("scalar @ 'a'",)),
        (lambda a, b: dot(2.0, a), ("dot of a scalar",)),
    ],
)
def test_expressions_that_are_not_affine(form, words):
    fails(ModelError, lambda: form(gaussian("a"), gaussian("b")), *words, "after site")


def test_a_product_where_none_can_be():
    def model():
        sample("c", Poisson(gaussian("a") * gaussian("b")), obs=1)

    fails(ModelError, model, "'c'", "argument rate", "product of two", "mean of a scalar Normal")


def test_errors_of_the_model_itself_pass_through():
    def model():
        gaussian("x")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as info:
        ngmp.compile(model)()
    assert info.value.__notes__[0] == "while declaring model 'model', after site 'x'"


# -- scan and factor -------------------------------------------------------------------------------------------------


def _scan(body: Callable, init: Callable = lambda: gaussian("z0"), xs: Any = Y, length: int | None = None) -> Callable:
    return lambda: ngmp.scan(body, init(), xs, length)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_scan(lambda z, y: (sample("z", Normal(np.zeros(2), **N01)), None)), ("carry changes", "family and shape")),
        (_scan(lambda z, y: (gamma("z"), None)), ("carry changes", "Gamma")),
        (_scan(lambda z, y: (2 * sample("z", Normal(z, **N01)), None)), ("carry", "carries are variables")),
        (_scan(lambda z, y: ((z, z), None)), ("carry", "the initial one")),
        (_scan(lambda z, y: z), ("returned Variable", "(carry, output)")),
        (_scan(lambda z, y: (z, exp(z))), ("outputs", "variables or arrays")),
        (_scan(lambda z, y: (z, None), init=lambda: 0.0), ("initial carry is 0.0", "random variables")),
        (_scan(lambda z, y: (z, None), xs=(Y, np.ones(4))), ("3", "4")),
        (_scan(lambda z, y: (z, None), length=5), ("3", "5")),
        (_scan(lambda z, y: (z, None), xs=None), ("length=",)),
        (_scan(lambda z, y: (z, None), xs=1.0), ("ngmp.scan",)),
    ],
)
def test_scans(model, words):
    text = fails(ModelError, model, "ngmp.scan")
    for word in words:
        assert word.lower() in text.lower()


@refused("site 'late', argument mean", "body of an ngmp.scan that has ended", "carry and outputs")
def test_variables_that_leave_their_scan():
    kept = []

    def step(z, _):
        kept.append(sample("z", Normal(z, **N01)))
        return kept[-1], None

    ngmp.scan(step, gaussian("z0"), None, length=3)
    sample("late", Normal(kept[0], **N01))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ngmp.factor("f", 3.0, x), ("3.0 cannot be called",)),
        (lambda x: ngmp.factor("f", jnp.square, 2.0), ("touches no random variable",)),
        (lambda x: ngmp.factor("f", lambda: 0.0), ("touches no random variable",)),
        (lambda x: ngmp.factor("f", lambda a, b, c, d: -(a**2), *x), ("one to three", "got 4")),
        (lambda x: ngmp.factor("f", lambda a, b: -(a**2), x[0]), ("1 scalar(s)", "missing 1 required")),
        (lambda x: ngmp.factor("f", lambda a: -a * jnp.ones(3), x[0]), ("must return a scalar", "(3,)")),
        (lambda x: ngmp.factor("f", lambda a: a if a > 0 else -a, x[0]), ("boolean conversion",)),
        (lambda x: ngmp.factor("f", lambda a, b: a * b, x, Y), ("broadcast", "(4,)", "(3,)")),
        (lambda x: ngmp.factor("f", lambda a, b: a * b, x, "b"), ("argument z2", "'b' (str)")),
    ],
)
def test_factors(call, words):
    fails(ModelError, lambda: call(gaussian("x", np.zeros(4))), "site 'f'", *words)
