"""Shared frontiers: cavities of a thousand neighbours whose leaves differ by twenty orders, against exact fractions."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal
from ngmp_compiler.executors import Rows, leave_one_out
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian

pytestmark = pytest.mark.skipif(not jnp.zeros(()).dtype == np.float64, reason="needs float64")


def exact_rest(where, values, start=0):
    """The sum of all values at the same place but one's own."""
    total = {}
    for w, v in zip(where, values, strict=True):
        total[w] = total.get(w, Fraction(start)) + Fraction(float(v))
    return np.asarray([float(total[w] - Fraction(float(v))) for w, v in zip(where, values, strict=True)])


def wide(rng, n):
    """Positive numbers over twenty orders, one far above the rest."""
    out = 10.0 ** rng.uniform(-6, 3, n)
    out[rng.integers(n)] = 3e14
    return out


@pytest.mark.parametrize("places", [1, 7])
def test_leave_one_out_keeps_its_digits(places):
    rng = np.random.default_rng(places)
    where, values = rng.integers(places, size=1000), wide(rng, 1000)
    found = jnp.concatenate(leave_one_out(Rows(where, places), [jnp.asarray(values[:3]), jnp.asarray(values[3:])]))
    np.testing.assert_allclose(found, exact_rest(where, values), rtol=1e-12)
    lost = np.bincount(where, values)[where] - values  # subtraction alone: nothing is left of the rest
    assert np.max(np.abs(lost / exact_rest(where, values) - 1)) > 1e-7


def test_cavities_of_a_hub_with_a_thousand_neighbours():
    """A Gaussian hub seen as 2x + 1 through factors with a precision each, and a Gamma hub shared by all of them."""
    n = 1000
    rng = np.random.default_rng(2)

    def model(y):
        x = ngmp.sample("x", Normal(0.5, variance=4.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(2.0 * x + 1.0, precision=tau), obs=y)

    program = ngmp.compile(model)
    core = program._build(*program._split((), {"y": jnp.zeros(n)})).map.core
    precision, rate = wide(rng, n), wide(rng, n)
    leaves = {
        "y.r": Gaussian.from_information(jnp.zeros(n), jnp.asarray(precision)),
        "y.tau": GammaFamily(jnp.full(n, 0.5), -jnp.asarray(rate)),
    }
    found = core.run(leaves).cavities
    # r = y - 2x - 1 has four times the variance of x.
    rest = exact_rest(np.zeros(n, int), 4 * precision, Fraction(1, 4)) / 4
    np.testing.assert_allclose(-2 * found["y.r"].eta2, rest, rtol=1e-12)
    np.testing.assert_allclose(-found["y.tau"].eta2, exact_rest(np.zeros(n, int), rate, 1), rtol=1e-12)
    np.testing.assert_allclose(found["y.tau"].eta1, 1.0 + 0.5 * (n - 1), rtol=1e-12)


def test_an_outlier_leaves_the_precision_of_the_others_alone():
    """The cavity at an outlier of 1e9 is that of the other data; by subtraction its rate would be lost."""

    def model(y):
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)

    program = ngmp.compile(model)
    core = program._build(*program._split((), {"y": jnp.asarray([0.3, -0.2, 1e9])})).map.core
    rates = np.asarray([0.045, 0.02, 5e17])
    flat = Gaussian.from_information(jnp.zeros(3), jnp.full(3, 1e-12))
    found = core.run({"y.r": flat, "y.tau": GammaFamily(jnp.full(3, 0.5), -jnp.asarray(rates))}).cavities["y.tau"]
    np.testing.assert_allclose(-found.eta2[2], 1.065, rtol=1e-14)
