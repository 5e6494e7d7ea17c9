"""Posteriors in other libraries, where those are installed; and draws with keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp, families

EYE = np.eye(2)
MEMBERS = {
    "Gaussian": families.Gaussian.from_mean_variance(np.array([0.3, -1.0]), np.array([0.5, 2.0])),
    "MvGaussian": families.MvGaussian.from_mean_covariance(np.zeros((3, 2)), np.tile(EYE + 0.3, (3, 1, 1))),
    "Gamma": families.Gamma(np.array([1.5]), np.array([-2.0])),
    "InverseGamma": families.InverseGamma(np.array([-4.0]), np.array([-2.0])),
    "Beta": families.Beta(np.array([1.0]), np.array([2.0])),
    "Bernoulli": families.Bernoulli(np.array([0.4])),
    "Categorical": families.Categorical(np.array([[0.1, 0.2, -1.0]])),
    "Dirichlet": families.Dirichlet(np.array([[0.5, 1.0, 2.0]])),
    "Wishart": families.Wishart(-0.5 * (EYE + 0.2)[None], np.array([1.5])),
}


QUICK = ("Gaussian", "Categorical")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MEMBERS])
def test_numpyro_has_the_same_densities_and_shapes(name, key):
    pytest.importorskip("numpyro")
    q = jax.tree.map(jnp.asarray, MEMBERS[name])
    other = q.to_numpyro()
    z = q.sample(key, (4,))
    assert other.batch_shape == q.batch_shape and other.sample(key, (4,)).shape == z.shape
    if name == "Categorical":
        expected = jnp.take_along_axis(jax.nn.log_softmax(q.eta1), z.T, axis=-1).T
    else:
        expected = q.log_density(z)
    np.testing.assert_allclose(other.log_prob(z), expected, rtol=1e-4, atol=1e-5)


def model(y):
    z = ngmp.sample("z", Normal(np.zeros(3), variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_arviz_has_draws_of_the_marginals(key):
    pytest.importorskip("arviz")
    post = ngmp.compile(model)(y=np.array([0, 3, 6]))
    data = post.to_arviz(key, draws=4000, chains=2)
    z = data.posterior["z"]
    assert z.dims[:2] == ("chain", "draw") and z.shape == (2, 4000, 3)
    np.testing.assert_allclose(z.mean(("chain", "draw")), post["z"].mean, atol=0.05)
    assert data.posterior.attrs["reason"] == "converged"
    same = post.to_arviz(key, draws=10).posterior["z"]
    np.testing.assert_array_equal(same, post.to_arviz(key, draws=10).posterior["z"])  # keys, not clocks


def line(x, y, slope=True):
    a = ngmp.sample("a", Normal(0.0, variance=4.0))
    b = ngmp.sample("b", Normal(0.0, variance=4.0)) if slope else 0.0
    ngmp.sample("y", Normal(a + b * x, variance=0.3), obs=y)


@pytest.fixture(scope="module")
def fitted():
    pandas = pytest.importorskip("pandas")
    days = pandas.Index([f"day {k}" for k in range(12)], name="day")
    x = pandas.Series(np.linspace(-1, 1, 12), index=days)
    y = pandas.Series(0.4 + 1.5 * x.to_numpy() + 0.5 * np.random.default_rng(0).normal(size=12), index=days)
    program = ngmp.compile(line)
    return program, program(x=x, y=y), x, y


def test_results_keep_the_index_of_the_inputs(fitted):
    program, post, x, y = fitted
    prediction = program.predict(post, "y", x=x, y=y)
    frame = prediction.to_frame()
    assert list(frame.index) == list(x.index) and frame.index.name == "day"
    np.testing.assert_allclose(frame["mean"], prediction.mean)
    np.testing.assert_allclose(frame["95%"], prediction.quantile(0.95))
    new = x.iloc[:3] + 2.0
    assert list(program.predict(post, "y", x=new).to_frame().index) == list(new.index)
    pytest.importorskip("xarray")
    table = prediction.to_xarray()
    assert table["mean"].dims == ("day",) and float(table["sd"].sel(day="day 3")) > 0
    assert post.to_xarray("a")["mean"].shape == () and post.to_frame("a").shape == (1, 5)


def test_arviz_compares_and_draws_what_we_give_it(fitted):
    az = pytest.importorskip("arviz", reason="ArviZ is not installed: its summaries and comparisons are not tried")
    pytest.importorskip("matplotlib").use("Agg")
    program, post, x, y = fitted
    data = post.to_arviz(draws=500)
    groups = {"posterior", "posterior_predictive", "log_likelihood", "observed_data", "constant_data"}
    assert groups <= set(data.groups())
    assert data.posterior["a"].shape == (4, 500) and list(data.observed_data["y"].coords["day"].values) == list(x.index)
    table = az.summary(data)
    assert np.isfinite(table["r_hat"]).all() and (table["r_hat"] < 1.02).all()
    np.testing.assert_allclose(table.loc["b", "mean"], post["b"].mean, atol=0.05)
    found = az.loo(data)
    np.testing.assert_allclose(found.elpd_loo, program.loo(post, "y", x=x, y=y).elpd, atol=0.15)
    assert np.isfinite(az.waic(data).elpd_waic)
    flat = program(x=x, y=y, slope=False).to_arviz(draws=500)
    ranked = az.compare({"slope": data, "none": flat}, ic="loo")
    assert ranked.index[0] == "slope"
    az.plot_ppc(data, num_pp_samples=20)
    az.plot_forest(data)
