"""Loops, plates and scans: all ways to write a model compile to the same thing."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Normal,
    Poisson,
    exp,
)
from tests.declare.small_models import COUNTS, Y, assert_same, plan_rows, start

# -- loops, plates and scans ----------------------------------------------------------------------------------------


def test_a_loop_and_its_plate_are_the_same():
    def plate(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        z = ngmp.sample("z", Normal(a + x, variance=0.5))
        ngmp.sample("y", Poisson(exp(z)), obs=y)

    def loop(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        for k in range(len(y)):
            z = ngmp.sample("z", Normal(a + x[k], variance=0.5))
            ngmp.sample("y", Poisson(exp(z)), obs=y[k])

    def zipped(y, x):
        a = ngmp.sample("a", Normal(0.0, variance=4.0))
        for y_k, x_k in zip(y, x, strict=True):
            ngmp.sample("y", Poisson(exp(ngmp.sample("z", Normal(a + x_k, variance=0.5)))), obs=y_k)

    assert_same(plate, loop, to=start, y=COUNTS, x=Y)
    rows = plan_rows(plate, y=COUNTS, x=Y)
    assert rows == plan_rows(loop, y=COUNTS, x=Y) == plan_rows(zipped, y=COUNTS, x=Y)


def gaussian_loop(y):
    z = ngmp.sample("z0", Normal(0.0, variance=1.0))
    for k in range(6):
        z = ngmp.sample("z", Normal(z, variance=0.5))
        ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])


def test_scan_then_scan():
    def model(y):
        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return z, None

        z, _ = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y[:4])
        ngmp.scan(step, z, y[4:])

    assert_same(model, gaussian_loop, y=Y)


def test_scan_then_loop():
    def model(y):
        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return z, None

        z, _ = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y[:4])
        for k in (4, 5):
            z, _ = step(z, y[k])

    assert_same(model, gaussian_loop, y=Y)


def test_scan_outputs_and_pytrees():
    def model(y):
        def step(z, x):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            return z, {"z": z, "twice": (2 * x["y"], 1.0)}

        _, out = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), {"y": y})
        ngmp.sample("y", Normal(out["z"], variance=out["twice"][1]), obs=out["twice"][0] / 2)

    assert_same(model, gaussian_loop, y=Y)


def test_scan_without_inputs():
    def model(y):
        def step(z, _):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            return z, z

        _, z = ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), None, length=6)
        ngmp.sample("y", Normal(z, variance=1.0), obs=y)

    assert_same(model, gaussian_loop, y=Y)


def test_scan_of_plates_with_shared_variables():
    def scan(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=1.0))

        def step(z, y_k):
            z = ngmp.sample("z", Normal(z + g[1], variance=0.5))
            ngmp.sample("y", Normal(z + g, variance=1.0), obs=y_k)
            return z, None

        ngmp.scan(step, ngmp.sample("z0", Normal(np.zeros(3), variance=1.0)), y)

    def loop(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=1.0))
        z = ngmp.sample("z0", Normal(np.zeros(3), variance=1.0))
        for k in range(2):
            z = ngmp.sample("z", Normal(z + g[1], variance=0.5))
            ngmp.sample("y", Normal(z + g, variance=1.0), obs=y[k])

    post = assert_same(scan, loop, y=Y.reshape(2, 3))
    assert post["z"].mean.shape == (2, 3)


def test_scan_passes_a_variable_through_its_carry():
    def scan(y):
        g = ngmp.sample("g", Normal(0.0, variance=1.0))
        z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

        def step(carry, y_k):
            z, g = carry
            z = ngmp.sample("z", Normal(z + g, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return (z, g), None

        (z, g), _ = ngmp.scan(step, (z0, g), y)
        ngmp.sample("end", Normal(z + g, variance=1.0), obs=1.0)

    def loop(y):
        g = ngmp.sample("g", Normal(0.0, variance=1.0))
        z = ngmp.sample("z0", Normal(0.0, variance=1.0))
        for k in range(6):
            z = ngmp.sample("z", Normal(z + g, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])
        ngmp.sample("end", Normal(z + g, variance=1.0), obs=1.0)

    assert_same(scan, loop, y=Y)


def test_scan_of_second_order():
    """The carry moves on by one slot: z_{k-1} becomes z_{k-2}."""

    def scan(y):
        a, b = (ngmp.sample(n, Normal(1.0, variance=2.0)) for n in "ab")

        def step(carry, y_k):
            z1, z2 = carry
            z = ngmp.sample("z", Normal(0.5 * z1 - 0.3 * z2, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y_k)
            return (z, z1), None

        (z1, z2), _ = ngmp.scan(step, (a, b), y)
        ngmp.sample("end", Normal(z1 - z2, variance=1.0), obs=1.0)

    def loop(y):
        z1, z2 = (ngmp.sample(n, Normal(1.0, variance=2.0)) for n in "ab")
        for k in range(6):
            z = ngmp.sample("z", Normal(0.5 * z1 - 0.3 * z2, variance=0.5))
            ngmp.sample("y", Normal(z, variance=1.0), obs=y[k])
            z1, z2 = z, z1
        ngmp.sample("end", Normal(z1 - z2, variance=1.0), obs=1.0)

    assert_same(scan, loop, y=Y)


def test_scan_rotates_its_carry():
    turn = np.array([1, 2, 0])

    def scan(y):
        def step(carry, y_k):
            g, a, b = carry
            ngmp.sample("y", Normal(g[0] + a, variance=1.0), obs=y_k)
            return (g[turn], b, a), None

        g = ngmp.sample("g", Normal(np.zeros(3), variance=np.array([1.0, 2.0, 3.0])))
        a, b = (ngmp.sample(n, Normal(0.0, variance=v)) for n, v in (("a", 1.0), ("b", 2.0)))
        ngmp.scan(step, (g, a, b), y)

    def loop(y):
        g = ngmp.sample("g", Normal(np.zeros(3), variance=np.array([1.0, 2.0, 3.0])))
        a, b = (ngmp.sample(n, Normal(0.0, variance=v)) for n, v in (("a", 1.0), ("b", 2.0)))
        for k in range(6):
            ngmp.sample("y", Normal(g[0] + a, variance=1.0), obs=y[k])
            g, a, b = g[turn], b, a

    assert_same(scan, loop, y=Y)


def _nested(y: Any, start: str, rows: Callable) -> None:
    """A scan of scans: the inner chain starts at the outer carry, at a shared variable, or at one of the outer body."""
    g = ngmp.sample("g", Normal(0.0, variance=1.0))
    z0 = ngmp.sample("z0", Normal(0.0, variance=1.0))

    def outer(z, row):
        first = {"carry": z, "shared": g}.get(start)
        first = ngmp.sample("w0", Normal(z, variance=0.1)) if first is None else first

        def inner(w, y_k):
            w = ngmp.sample("w", Normal(0.5 * w + 0.4 * z, variance=0.5))
            ngmp.sample("y", Normal(w + g, variance=1.0), obs=y_k)
            return w, None

        w, _ = rows(inner, first, row)
        return ngmp.sample("z", Normal(0.9 * w, variance=0.1)), None

    rows(outer, z0, y)


def _python_scan(body: Callable, carry: Any, xs: Any) -> tuple[Any, None]:
    for x in xs:
        carry, _ = body(carry, x)
    return carry, None


@pytest.mark.parametrize("start", ["carry", "shared", "own"])
def test_scans_nest(start):
    post = assert_same(
        lambda y: _nested(y, start, ngmp.scan), lambda y: _nested(y, start, _python_scan), y=Y.reshape(3, 2)
    )
    assert post["w"].mean.shape == (3, 2)


def test_sub_models_under_scope():
    def effects(n, scale):
        mean = ngmp.sample("mean", Normal(0.0, variance=4.0))
        return ngmp.sample("effect", Normal(mean + np.zeros(n), variance=scale))

    def model(y, left, right):
        with ngmp.scope("left"):
            a = effects(2, 1.0)
        with ngmp.scope("right"), ngmp.scope("inner"):
            b = effects(3, 0.5)
        ngmp.sample("y", Normal(a[np.asarray(left)] + b[np.asarray(right)], variance=0.1), obs=y)

    post = ngmp.compile(model)(y=Y, left=(0, 1, 0, 1, 0, 1), right=(0, 1, 2, 0, 1, 2))
    assert set(post.marginals) == {"left/mean", "left/effect", "right/inner/mean", "right/inner/effect"}
    assert post["left/effect"].mean.shape == (2,) and post["right/inner/effect"].mean.shape == (3,)


def test_the_body_runs_once():
    steps = []

    def model(y, scale):
        def step(z, y_k):
            steps.append(None)
            z = ngmp.sample("z", Normal(z, variance=scale * (1.0 + y_k**2)))
            ngmp.sample("y", Normal(2.0 * z, variance=jnp.asarray(scale) + 1.0), obs=y_k)
            return z, None

        ngmp.scan(step, ngmp.sample("z0", Normal(0.0, variance=1.0)), y)

    post = ngmp.compile(model)(y=np.arange(4.0), scale=0.5)
    assert post.converged and len(steps) == 1
