"""Parts of the ETTh study (`benchmarks/etth.py`) that are its own: when targets are known, and IVON."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("only64")


@pytest.fixture(scope="module", autouse=True)
def benchmarks(request):
    """The studies import each other by bare names, as scripts do."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    request.addfinalizer(lambda: sys.path.remove(folder))


@pytest.mark.parametrize("horizon", [96, 100, 720])
def test_no_target_is_used_before_it_is_observable(horizon):
    from etth_online import DAY, schedule

    first, given, n = 5, 5 + 40 * DAY, 5 + 90 * DAY + 7
    rows = np.arange(given, n)
    known, ahead = schedule(rows, first, horizon, n)  # strict: nothing is given
    last = first + DAY * known - 1  # the last row that a forecast knows
    day = first + (rows - first) // DAY * DAY  # all of a day are forecast at its first hour
    assert np.all(last <= day - horizon) and np.all(last + DAY > day - horizon)  # and no day is wasted
    np.testing.assert_array_equal(known + ahead - 1, (rows - first) // DAY)
    known, _ = schedule(rows, first, horizon, given)
    early = day - horizon < given
    assert np.all(known[early] >= 40) and np.all(first + DAY * known[~early] - 1 <= day[~early] - horizon)


def test_ivon_finds_the_gaussian_posterior_of_a_quadratic():
    """Mean and precision of `N(theta; b, 1 / n a)` under a prior of precision n δ, by theory."""
    from etth_optimisers import variational_newton

    a, b, n, decay = jnp.array([0.5, 2.0]), jnp.array([1.0, -3.0]), 50, 0.1
    batches = jnp.zeros((40_000, 1))
    m, h = variational_newton(lambda x, _: a * (x - b), jnp.zeros(2), batches, jax.random.key(0), n, 0.02, decay)
    np.testing.assert_allclose(m, a * b / (a + decay), atol=0.05)
    np.testing.assert_allclose(h, a, rtol=0.15)
