"""Branches on data, expressions that are not affine, scans and factors that cannot be: what would work is said."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    ModelError,
    Normal,
    Poisson,
    dot,
    exp,
    sample,
    take,
)
from tests.refusals import N01, Y, fails, gamma, gaussian, refused

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


def test_indexing_a_variable_with_a_traced_mask():
    def model(index):
        gaussian("x", np.zeros(2))[index]

    index = np.array([True, False])
    fails(ModelError, model, "'x' was indexed with a traced array of dtype bool", "use mask=", index=index)


def test_indexing_out_of_range():
    with pytest.raises(IndexError, match=r"variable 'x' of shape \(2,\)"):
        ngmp.compile(lambda: gaussian("x", np.zeros(2))[5])()
    with pytest.raises(IndexError, match="index 3 is out of range for an input of length 3"):
        ngmp.compile(lambda y: gaussian("x", y[3]))(y=Y)


# -- expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (lambda a, b: sample("c", Normal(a * b * a, **N01)), ("product of three random variables", "what is observed")),
        (lambda a, b: a / b, ("'a' / 'b'",)),
        (lambda a, b: 1 / a, ("division by 'a'",)),
        (lambda a, b: a**0.5, ("'a' ** 0.5", "z ** 2")),
        (lambda a, b: np.sqrt(a), ("sqrt('a')", "may be negative")),
        (lambda a, b: dot(a, b), ("dot('a', 'b')", "vectors")),
        (lambda a, b: a @ b, ("'a' @ 'b'",)),
        (lambda a, b: np.add.reduce(a), ("np.add of a random variable", "ngmp.apply")),
        (lambda a, b: sample("c", Normal(np.tanh(a * b), **N01)), ("tanh of a product",)),
        (lambda a, b: 2.0 + gamma(), ("'tau', a Gamma variable", "directly as a parameter")),
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

    fails(ModelError, model, "'c'", "argument rate", "product of two", "the mean of a Normal")


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
        (_scan(lambda z, y: (z, 2 * z)), ("outputs", "variables or arrays")),
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
        (lambda x: ngmp.factor("f", lambda *z: -(z[0] ** 2), *x, *x[:3]), ("one to three", "up to six", "got 7")),
        (lambda x: ngmp.factor("f", lambda a, b: -(a**2), x[0]), ("1 scalar(s)", "missing 1 required")),
        (lambda x: ngmp.factor("f", lambda a: -a * jnp.ones(3), x[0]), ("must return a scalar", "(3,)")),
        (lambda x: ngmp.factor("f", lambda a: a if a > 0 else -a, x[0]), ("boolean conversion",)),
        (lambda x: ngmp.factor("f", lambda a, b: a * b, x, Y), ("broadcast", "(4,)", "(3,)")),
        (lambda x: ngmp.factor("f", lambda a, b: a * b, x, "b"), ("argument z2", "'b' (str)")),
    ],
)
def test_factors(call, words):
    fails(ModelError, lambda: call(gaussian("x", np.zeros(4))), "site 'f'", *words)
