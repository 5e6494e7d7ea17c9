"""Expressions of variables: what they are worth, and that indexing costs nothing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    MvNormal,
    Normal,
    Poisson,
    dot,
    exp,
)
from ngmp_compiler.declare.sample import trace
from ngmp_compiler.passes.lower import lower
from ngmp_compiler.passes.roll import roll
from tests.declare.small_models import COUNTS, RNG, Y, assert_same, run, start
from tests.inside import equations

# -- indexing costs nothing ------------------------------------------------------------------------------------------


def _chain_loop(y, mask, x):
    del x
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=0.1))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k], mask=mask[k])


def _regression_loop(y, mask, x):
    w = ngmp.sample("w", MvNormal(np.zeros(2), covariance=1.0))
    b = ngmp.sample("b", Normal(0.0, variance=1.0))
    for k in range(len(y)):
        ngmp.sample("y", Normal(dot(x[k], w), variance=0.1), obs=y[k], mask=mask[k])
        ngmp.sample("u", Normal(x[k, 1] * b + y[k], variance=y[k]), obs=x[k][0])
        ngmp.sample("v", Normal(x[k] @ w, variance=0.1), obs=y[-1 - k])


@pytest.mark.parametrize("model", [_chain_loop, _regression_loop])
def test_indexing_inputs_costs_no_operation(model):
    program, counts = ngmp.compile(model), []
    for n in (300, 900):  # chains, both of them long
        arguments = jnp.ones(n), jnp.ones(n, bool), jnp.ones((n, 2))
        traced = jax.make_jaxpr(lambda y, m, x: program(y=y, mask=m, x=x).free_energy)(*arguments)
        counts.append(equations(traced.jaxpr))
    assert counts[0] == pytest.approx(counts[1], rel=0.01)  # short arrays stand end to end, which takes one or two


# -- expressions -----------------------------------------------------------------------------------------------------


A = RNG.normal(size=(6, 3))


def _rows(expression: Callable) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and offset of an affine expression of w, read off the lowered functional of `Normal(...)`."""

    def model():
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        value = expression(w)
        family = MvNormal if value.event_shape else Normal
        scale = {"covariance": 1.0} if value.event_shape else {"variance": 1.0}
        ngmp.sample("y", family(value, **scale), obs=np.zeros(6))

    group = lower(roll(trace(model, {})), np.float64)[1]
    (edge,) = group.edges
    (link,) = edge.links  # residual form: obs - expression
    rows = np.broadcast_to(-np.asarray(link.coefficient), (edge.n, *link.coefficient.shape[1:])).reshape(6, 3)
    return rows, np.broadcast_to(-np.asarray(edge.offset).reshape(-1), 6)


@pytest.mark.parametrize(
    "form",
    [
        lambda w: dot(A, w) + 0.7,
        lambda w: 0.7 - dot(-A, w),
        lambda w: -(dot(A, -w) - 0.7),
        lambda w: (dot(2 * A, w) + 1.4) / 2,
        lambda w: dot(w * 1.0, A) + 0.7,
        lambda w: dot(A / 4, 4 * w) + np.full(6, 0.7),
        lambda w: dot(A, np.eye(3) @ w) + 0.7,
        lambda w: dot(A * np.array([1.0, 2.0, 4.0]), w * np.array([1.0, 0.5, 0.25])) + 0.7,
        lambda w: sum(A[:, j] * w[j] for j in range(3)) + 0.7,
        lambda w: dot(A[:, :2], w[:2]) + A[:, 2] * w[-1] + 0.7,
        lambda w: dot(A[:, [1, 0]], w[np.array([1, 0])]) + A[:, 2] * w[..., 2] + 0.7,
        lambda w: dot(A, w + np.array([1.0, 2.0, 3.0])) - (A @ np.array([1.0, 2.0, 3.0]) - 0.7),
        lambda w: dot(A, w + 1.0) - (A.sum(1) - 0.7),
        lambda w: (0.7 + dot(A, w))[::-1][::-1],
        lambda w: A @ w + 0.7,
        lambda w: w @ A.T + 0.7,
        lambda w: 2 * (A @ (w / 2)) + np.full(6, 0.7),
        lambda w: 0.7 - jnp.asarray(A) @ -w,
        lambda w: (A @ w + np.full(6, 1.4) / 2)[:],
        lambda w: np.sum(A * w, axis=-1) + 0.7,
        lambda w: dot(A, w) + w.sum() - np.sum(w) + np.full(6, 0.7),
    ],
)
def test_expressions_of_a_vector(form):
    matrix, offset = _rows(form)
    np.testing.assert_allclose(matrix, A, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(offset, 0.7, rtol=1e-12)


def test_regression_is_exact():
    def model(x, y):
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("y", Normal(dot(x, w) + 0.7, variance=0.5), obs=y)

    precision = np.eye(3) + 2 * A.T @ A
    post = run(model, x=A, y=Y)
    np.testing.assert_allclose(post["w"].mean, np.linalg.solve(precision, 2 * A.T @ (Y - 0.7)), rtol=1e-9)
    np.testing.assert_allclose(post["w"].covariance, np.linalg.inv(precision), rtol=1e-9)


def test_a_variable_may_be_named_twice():
    """`x + x` is `2 x`, also where only some elements of a plate meet themselves, and for matrices."""
    index = np.array([0, 2, 1])

    def twice(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("a", Normal(x[0] + 0.5 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b", Normal(x + x[index], variance=1.0), obs=y[:3])
        ngmp.sample("c", MvNormal(2.0 * w + A[:3] @ w - w, covariance=1.0), obs=y[3:])

    def once(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("a", Normal(1.5 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b0", Normal(2.0 * x[0], variance=1.0), obs=y[0])
        ngmp.sample("b", Normal(x[1] + x[2], variance=1.0), obs=y[1:3])
        ngmp.sample("c", MvNormal((np.eye(3) + A[:3]) @ w, covariance=1.0), obs=y[3:])

    assert_same(twice, once, y=Y)


def test_random_effects_by_numpy_indices():
    group = np.array([0, 1, 1, 2, 0, 2])

    def model(y):
        b = ngmp.sample("b", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("y", Normal(b[group], variance=0.5), obs=y)

    post = ngmp.compile(model)(y=Y)
    counts = np.bincount(group)
    np.testing.assert_allclose(post["b"].mean, np.bincount(group, 2 * Y) / (1 + 2 * counts), rtol=1e-9)


def test_slices_and_broadcasting_of_plates():
    def model(y):
        a = ngmp.sample("a", Normal(np.zeros((2, 1)), variance=1.0))
        b = ngmp.sample("b", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("first", Normal(b[1:] - b[:-1], variance=1.0), obs=np.array([0.5, -0.5]))
        ngmp.sample("y", Normal(2.0 * a - b / 2, variance=0.5), obs=y)

    features = np.zeros((8, 5))
    features[0, 2:4], features[1, 3:] = (-1, 1), (-1, 1)
    for i in range(2):
        for j in range(3):
            features[2 + 3 * i + j, [i, 2 + j]] = 2.0, -0.5
    noise = np.array([1.0, 1.0, *[0.5] * 6])
    precision = np.eye(5) + (features.T / noise) @ features
    mean = np.linalg.solve(precision, features.T @ (np.array([0.5, -0.5, *Y]) / noise))
    post = ngmp.compile(model)(y=Y.reshape(2, 3))
    assert post["a"].mean.shape == (2, 1)
    np.testing.assert_allclose(np.concatenate([post["a"].mean.ravel(), post["b"].mean]), mean, rtol=1e-8)


def test_exp_keeps_products():
    """`c exp(z) = exp(z + log c)`: an exposure."""
    exposure = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])

    def product(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Poisson(exposure * exp(z) * 2.0 / exp(x)), obs=y)

    def inside(y):
        z = ngmp.sample("z", Normal(0.0, variance=1.0))
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        ngmp.sample("y", Poisson(exp(z - x + np.log(2 * exposure))), obs=y)

    assert_same(product, inside, to=start, y=COUNTS)
