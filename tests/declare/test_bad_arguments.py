"""Arguments, interfaces and masks that cannot be: refused, with what would work, all of them at once."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Binomial,
    Categorical,
    Gamma,
    ModelError,
    MvNormal,
    Normal,
    Poisson,
    sample,
    take,
)
from tests.refusals import N01, Y, fails, gamma, gaussian, refused, vector

# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Normal(0.0), "exactly one of variance=, precision= or std=; got none of them"),
        (lambda: Normal(0.0, variance=1.0, std=1.0), "got variance= and std="),
        (lambda: MvNormal(np.zeros(2)), "exactly one of covariance=, precision= or covariance_root="),
        (lambda: MvNormal(np.zeros(2), covariance=1.0, precision=1.0), "got covariance= and precision="),
        (lambda: Gamma(1.0), "exactly one of rate=, scale= or mean="),
        (lambda: Gamma(1.0, rate=1.0, scale=1.0), "got rate= and scale="),
        (lambda: Bernoulli(), "exactly one of probs=, logits=, probit= or cloglog="),
        (lambda: Categorical(probs=np.ones(2) / 2, logits=np.zeros(2)), "got probs= and logits="),
        (lambda: Binomial(3), "exactly one of probs=, logits=, probit= or cloglog="),
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
            lambda: sample("y", Categorical(probs=vector(d=3)), obs=1),
            ("interface probs", "a Gaussian vector", "take(table, z)", "a constant"),
        ),
        (
            lambda: sample("y", Normal(0.0, variance=gamma()), obs=Y),
            ("interface variance", "exp(z)", "a Gamma variable may be given as precision="),
        ),
        (
            lambda: sample(
                "y", Poisson(take(gaussian("m", Y[:2]), sample("z", Categorical(probs=np.ones(2) / 2)))), obs=1
            ),
            ("interface rate", "a Gaussian variable", "did you mean rate=exp(...)?"),
        ),
        (lambda: sample("y", Bernoulli(probs=gaussian()), obs=1), ("interface probs", "logits= or probit=")),
        (lambda: ngmp.factor("y", jnp.sum, vector()), ("interface z1", "ngmp.factor", "a Gaussian vector")),
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
    interfaces = ["rate", "variance", "concentration", "probs"]
    assert found == [(s, f"interface {i}") for s, i in zip("abcd", interfaces, strict=True)]
    assert "4 problems" in str(info.value)


def test_declaration_problems_are_collected():
    """Everything that leaves the declaration able to go on is in one error, with what stops it in the end."""

    def model(y, m):
        x = sample("x", Normal(0.0, **N01), mask=m)
        for k in range(3):
            sample("a", Normal(x, **N01), obs=y[k], mask=m)
        sample("b", Normal(x, **N01), obs=y, mask=y)
        sample("x", Normal(np.zeros(2), **N01))
        sample("c", Normal(np.zeros(2), **N01), obs=y)
        x**0.5

    with pytest.raises(ModelError) as info:
        ngmp.compile(model)(y=Y, m=np.ones(2, bool))
    assert [p.site for p in info.value.problems] == ["x", "a", "b", "x", "c", None]
    text = str(info.value)
    assert "6 problems" in text and "without obs=" in text and "'x' ** 0.5" in text and "after site 'x'" in text


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
