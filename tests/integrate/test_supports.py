"""Integrated numbers of every support, against sums on a fine grid; and refusals that name `integrate=`."""

import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Exponential,
    Gamma,
    Laplace,
    Logistic,
    ModelError,
    Normal,
    Pareto,
    StudentT,
    Truncated,
    Weibull,
)

Y = np.array([1.4, -0.9, 2.6, 0.2, -2.1, 1.1])
HALF_T = stats.t(3.0)
CASES = {
    "Weibull": (Weibull(1.5, scale=2.0), stats.weibull_min(1.5, scale=2.0).logpdf),
    "Pareto": (Pareto(1.5, scale=1.8), stats.pareto(1.5, scale=1.8).logpdf),
    "between": (Truncated(Normal(1.0, std=1.0), 0.2, 3.0), stats.truncnorm(-0.8, 2.0, 1.0, 1.0).logpdf),
    "half-t": (Truncated(StudentT(3.0, 0.0, scale=1.0), 0.0), lambda s: HALF_T.logpdf(s) + np.log(2.0)),
    "far from the mean": (Truncated(Normal(-3.0, std=1.0), 0.5), stats.truncnorm(3.5, np.inf, -3.0).logpdf),
    "above, of a positive one": (Truncated(Gamma(2.0, rate=1.0), 1.0),
                                 lambda s: stats.gamma.logpdf(s, 2.0) - stats.gamma.logsf(1.0, 2.0)),
    "below, of a positive one": (Truncated(Gamma(2.0, rate=1.0), None, 2.0),
                                 lambda s: stats.gamma.logpdf(s, 2.0) - stats.gamma.logcdf(2.0, 2.0)),
}  # fmt: skip


def assert_like_grid(post, name, x, log):
    weights = np.exp(log - np.max(log))
    mean = np.sum(weights * x) / weights.sum()
    sd = np.sqrt(np.sum(weights * (x - mean) ** 2) / weights.sum())
    assert bool(post.converged), post.reason
    assert abs(post[name].mean - mean) < 0.01 * sd
    np.testing.assert_allclose(post[name].std, sd, rtol=0.01)
    evidence = np.log(weights.sum() * (x[1] - x[0])) + np.max(log)
    np.testing.assert_allclose(-post.free_energy, evidence, atol=0.01)


@pytest.mark.parametrize("name", CASES)
def test_scales(name):
    prior, log_prior = CASES[name]

    def model(y):
        ngmp.sample("y", Normal(0.3, std=ngmp.sample("s", prior)), obs=y)

    s = np.linspace(1e-4, 60.0, 200_001)
    log = stats.norm.logpdf(Y[:, None], 0.3, s).sum(0)
    with np.errstate(divide="ignore"):
        inside = {"above, of a positive one": s > 1.0, "below, of a positive one": s < 2.0}.get(name, s > 0.0)
        log = np.where(inside, log + log_prior(s), -np.inf)
    assert_like_grid(ngmp.compile(model, integrate="auto")(y=Y), "s", s, log)


def test_locations():
    def model(y):
        m = ngmp.sample("m", Truncated(Normal(0.0, std=1.0), None, 0.3))
        k = ngmp.sample("k", Logistic(0.0, scale=0.3))
        ngmp.sample("y", Normal(m + k, std=1.5), obs=y)

    m, k = np.linspace(-6.0, 0.3, 1501)[:, None], np.linspace(-7.0, 7.0, 1501)
    log = stats.norm.logpdf(m) - stats.norm.logcdf(0.3) + stats.logistic.logpdf(k, 0.0, 0.3)
    log = log + sum(stats.norm.logpdf(y, m + k, 1.5) for y in Y)
    post = ngmp.compile(model, integrate=("m", "k"))(y=Y)
    total = np.logaddexp.reduce(log, axis=1) + np.log(k[1] - k[0])
    assert_like_grid(post, "m", m[:, 0], total)


@pytest.mark.parametrize("site", [
    lambda s, y: ngmp.sample("y", Normal(0.0, std=s), obs=y),
    lambda s, y: ngmp.sample("y", Normal(s, std=1.0), obs=y),
    lambda s, y: ngmp.sample("y", Laplace(0.0, scale=s), obs=y),
])  # fmt: skip
def test_what_has_no_kernel_names_integration(site):
    def model(y):
        site(ngmp.sample("s", Exponential(1.0)), y)

    with pytest.raises(ModelError, match=r"integrate them: ngmp.compile\(..., integrate=\('name',\)\)"):
        ngmp.compile(model)(y=Y)


def test_censored_outcomes_of_integrated_shapes():
    """Parametric survival: times that are Gamma, some of them only known to be longer."""
    t, censored = np.array([0.4, 1.3, 2.2, 3.0]), np.array([0, 0, 1, 1])

    def model(t, censored):
        k, rate = ngmp.sample("k", Gamma(3.0, rate=2.0)), ngmp.sample("rate", Gamma(2.0, rate=2.0))
        ngmp.sample("t", Gamma(k, rate=rate), obs=t, censored=censored)

    k, r = np.linspace(0.02, 12.0, 600)[:, None], np.linspace(0.01, 9.0, 600)
    log = stats.gamma.logpdf(k, 3.0, scale=0.5) + stats.gamma.logpdf(r, 2.0, scale=0.5)
    for y, code in zip(t, censored, strict=True):
        log = log + (stats.gamma.logsf if code else stats.gamma.logpdf)(y, k, scale=1 / r)
    post = ngmp.compile(model, integrate=("k", "rate"))(t=t, censored=censored)
    assert_like_grid(post, "k", k[:, 0], np.logaddexp.reduce(log, axis=1) + np.log(r[1] - r[0]))
