"""What people see of a posterior: tables, covariances, derived quantities, pictures, ArviZ."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import Normal
from ngmp_compiler.results.mixture import Mixture


def effects(y):
    m = ngmp.sample("m", Normal(0.0, variance=25.0))
    t = ngmp.sample("t", Normal(m + np.zeros(8), variance=9.0))
    ngmp.sample("y", Normal(t, std=10.0), obs=y)


Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])


@pytest.fixture(scope="module")
def post():
    return ngmp.compile(effects)(y=Y)


def test_tables_and_names(post):
    assert "converged" in repr(post) and "t: Gaussian [8]" in repr(post)
    assert "Gaussian[8](" in repr(post["t"]) and post["m"].density(0.0) > 0
    assert set(post) == set(post.keys()) == {"m", "t"} and "t" in post and len(post) == 2
    text = str(post.summary())
    assert "... 2 more" in text and "t[7]" in text and "<table>" in post._repr_html_()
    pytest.importorskip("pandas")
    np.testing.assert_allclose(post.to_frame("t")["mean"], post["t"].mean)
    assert post.summary("m").to_frame().shape == (1, 5)


def test_covariances_are_those_of_the_joint(post, key):
    precision = np.diag([1 / 25 + 8 / 9] + [1 / 9 + 1 / 100] * 8)
    precision[0, 1:] = precision[1:, 0] = -1 / 9
    exact = np.linalg.inv(precision)
    np.testing.assert_allclose(post.cov("m", "t"), exact[0, 1:], rtol=1e-9)
    np.testing.assert_allclose(post.joint(("m", "t")).covariance, exact, rtol=1e-8)
    found = post.transform(lambda d: jnp.max(d["t"]), key)
    low, high = found.interval(0.9)
    assert low < found.mean < high


def test_people_see_numbers():
    q = Mixture(np.full(2, 0.5), ngmp.families.Gaussian.from_mean_variance(np.array([[0.0, 1.0], [2.0, 1.0]]), 1.0))
    assert repr(q) == "mixture of Gaussian[2](1 ± 1.41, 1 ± 1)"
    program = ngmp.compile(effects)
    assert repr(program) == "Program effects(y): nothing compiled yet"
    assert "<svg" in (page := program.lower(y=Y)._repr_html_()) and "conjugate core" in page


def test_pictures_are_made(post, key):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    ngmp.plot.forest(post, "t")
    ngmp.plot.pairs({"m": np.asarray(post["m"].sample(key, (50,))), "other": np.arange(50.0)})
    post.plot()
    plt.close("all")


def test_elements_are_called_as_the_inputs_call_them():
    pandas, plt = pytest.importorskip("pandas"), pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    post = ngmp.compile(effects)(y=pandas.Series(Y, index=pandas.Index(list("ABCDEFGH"), name="school")))
    assert "t[A]" in str(post.summary()) and "t[H]" in str(post.summary())
    assert [t.get_text() for t in ngmp.plot.forest(post, "t", "m").get_yticklabels()][7:] == ["t[H]", "m"]
    plt.close("all")


def test_calibrated_counts_look_calibrated():
    """Counts as often as they are probable: flat, though most of them are zero or one."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    y = np.repeat(np.arange(12), np.round(4000 * stats.poisson.pmf(np.arange(12), 0.8)).astype(int))
    prediction = SimpleNamespace(cdf=stats.poisson(0.8).cdf, outcome=SimpleNamespace(counts=True))
    bars = [bar.get_height() for bar in ngmp.plot.calibration(prediction, y).containers[0]]
    np.testing.assert_allclose(bars, y.size / 10, rtol=0.01)
    plt.close("all")
