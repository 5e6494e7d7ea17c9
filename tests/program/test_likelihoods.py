"""Likelihoods of one Gaussian variable: posterior by EP, evidence and predictions, against integrals on a grid."""

import jax
import numpy as np
import pytest
from scipy import special, stats

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Cauchy,
    Exponential,
    Gamma,
    HalfNormal,
    Hurdle,
    Laplace,
    Logistic,
    LogNormal,
    Normal,
    Pareto,
    Poisson,
    Truncated,
    Weibull,
    ZeroInflated,
    exp,
    sample,
)

POSITIVE = np.array([0.4, 1.3, 2.2])
REAL = np.array([-0.6, 0.3, 1.9])
COUNTS = np.array([0, 2, 5])
N01 = stats.norm

CASES = {
    "exponential": (lambda z: Exponential(rate=exp(z)), POSITIVE, lambda z: stats.expon(scale=np.exp(-z))),
    "exponential mean": (lambda z: Exponential(mean=2 * exp(z)), POSITIVE, lambda z: stats.expon(scale=2 * np.exp(z))),
    "gamma mean": (lambda z: Gamma(2.5, mean=exp(z)), POSITIVE, lambda z: stats.gamma(2.5, scale=np.exp(z) / 2.5)),
    "weibull": (lambda z: Weibull(1.7, scale=exp(z)), POSITIVE, lambda z: stats.weibull_min(1.7, scale=np.exp(z))),
    "half-normal": (lambda z: HalfNormal(std=exp(z)), POSITIVE, lambda z: stats.halfnorm(scale=np.exp(z))),
    "pareto": (lambda z: Pareto(exp(z), scale=0.3), POSITIVE, lambda z: stats.pareto(np.exp(z), scale=0.3)),
    "log-normal": (lambda z: LogNormal(z, std=0.7), POSITIVE, lambda z: stats.lognorm(0.7, scale=np.exp(z))),
    "laplace": (lambda z: Laplace(z, scale=0.8), REAL, lambda z: stats.laplace(z, 0.8)),
    "logistic": (lambda z: Logistic(z, scale=0.5), REAL, lambda z: stats.logistic(z, 0.5)),
    "cauchy": (lambda z: Cauchy(z, scale=0.8), REAL, lambda z: stats.cauchy(z, 0.8)),
}


def grid(log_likelihood):
    """Mean, std and log-evidence of z ~ N(0.2, 0.8^2)."""
    z = np.linspace(-8.0, 8.0, 20001)
    log = N01.logpdf(z, 0.2, 0.8) + sum(log_likelihood(z[:, None]).T)
    weights = np.exp(log - log.max())
    mean = np.sum(weights * z) / weights.sum()
    std = np.sqrt(np.sum(weights * (z - mean) ** 2) / weights.sum())
    return mean, std, np.log(weights.sum() * (z[1] - z[0])) + log.max(), z, weights / weights.sum()


def fit(distribution, obs, **options):
    def model(y):
        sample("y", distribution(sample("z", Normal(0.2, std=0.8))), obs=y, **options)

    program = ngmp.compile(model, method=ngmp.EP())
    return program, program(y=obs)


def assert_right(post, expected, loose=0.03):
    mean, std, log_evidence = expected[:3]
    assert bool(post.converged)
    assert abs(post["z"].mean - mean) < loose * std
    np.testing.assert_allclose(post["z"].std, std, rtol=loose)
    np.testing.assert_allclose(-post.free_energy, log_evidence, atol=0.03)


@pytest.mark.parametrize("name", CASES)
def test_posterior_and_prediction(name):
    distribution, obs, reference = CASES[name]
    program, post = fit(distribution, obs)
    expected = grid(lambda z: reference(z).logpdf(obs))
    assert_right(post, expected)
    found = program.predict(post, "y", y=obs)
    *_, z, weights = expected
    np.testing.assert_allclose(found.cdf(obs), weights @ reference(z[:, None]).cdf(obs), atol=0.01)
    np.testing.assert_allclose(np.exp(found.log_density), weights @ reference(z[:, None]).pdf(obs), rtol=0.04)
    if name not in ("pareto", "cauchy"):
        np.testing.assert_allclose(found.mean[0], weights @ reference(z).mean(), rtol=0.05)
        np.testing.assert_allclose(found.aleatoric[0], weights @ reference(z).var(), rtol=0.15)


BASE = Normal, N01
WRAPPED = {
    "truncated": (lambda z: Truncated(Normal(z, std=0.9), -1.0, 2.0), REAL,
                  lambda z: N01.logpdf(REAL, z, 0.9) - np.log(N01.cdf(2.0, z, 0.9) - N01.cdf(-1.0, z, 0.9))),
    "zero-truncated": (lambda z: Truncated(Poisson(exp(z)), low=1), COUNTS + 1,
                       lambda z: stats.poisson.logpmf(COUNTS + 1, np.exp(z)) - np.log(-np.expm1(-np.exp(z)))),
    "zero-inflated": (lambda z: ZeroInflated(Poisson(exp(z)), 0.3), COUNTS,
                      lambda z: np.log(0.3 * (COUNTS == 0) + 0.7 * stats.poisson.pmf(COUNTS, np.exp(z)))),
    "hurdle": (lambda z: Hurdle(Poisson(exp(z)), 0.3), COUNTS,
               lambda z: np.where(COUNTS == 0, np.log(0.3), np.log(0.7) - np.log(-np.expm1(-np.exp(z)))
                                  + stats.poisson.logpmf(COUNTS, np.exp(z)))),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped(name):
    distribution, obs, log_likelihood = WRAPPED[name]
    program, post = fit(distribution, obs)
    expected = grid(log_likelihood)
    assert_right(post, expected)
    found, (*_, z, weights) = program.predict(post, "y", y=obs), expected
    rate = np.exp(z)
    means = {
        "truncated": stats.truncnorm((-1 - z) / 0.9, (2 - z) / 0.9, z, 0.9).mean(),
        "zero-truncated": rate / -np.expm1(-rate),
        "zero-inflated": 0.7 * rate,
        "hurdle": 0.7 * rate / -np.expm1(-rate),
    }
    np.testing.assert_allclose(found.mean[0], weights @ means[name], rtol=0.03)


def test_censored():
    times, codes = np.array([0.4, 1.3, 2.2]), np.array([0, 1, -1])
    _, post = fit(lambda z: Weibull(1.7, scale=exp(z)), times, censored=codes)
    law = CASES["weibull"][2]

    def log_likelihood(z):
        tails = np.where(codes == 1, law(z).logsf(times), law(z).logcdf(times))
        return np.where(codes == 0, law(z).logpdf(times), tails)

    assert_right(post, grid(log_likelihood))
    _, post = fit(lambda z: Normal(z, std=0.9), np.array([[0.0, 1.0], [1.0, 30.0]]), censored="interval")
    assert_right(post, grid(lambda z: np.log(N01.cdf([1.0, 30.0], z, 0.9) - N01.cdf([0.0, 1.0], z, 0.9))))


def test_gamma_rates_are_conjugate():
    def model(y):
        tau = sample("tau", Exponential(rate=2.0))
        sample("y", Exponential(rate=tau), obs=y)
        sample("x", Gamma(2.0, rate=tau), obs=y)

    post = ngmp.compile(model)(y=POSITIVE)
    np.testing.assert_allclose(post["tau"].concentration, 1.0 + 3 + 6)
    np.testing.assert_allclose(post["tau"].rate, 2.0 + 2 * POSITIVE.sum())
    assert bool(post.exact)


def test_a_log_normal_variable_is_the_exponential_of_a_normal_one():
    def model(y):
        rate = sample("rate", LogNormal(0.2, std=0.8))
        sample("y", Poisson(rate), obs=y)

    post = ngmp.compile(model, method=ngmp.EP())(y=COUNTS)
    mean, std, *_, z, weights = grid(lambda z: stats.poisson.logpmf(COUNTS, np.exp(z)))
    np.testing.assert_allclose(post["log_rate"].mean, mean, atol=0.01)
    np.testing.assert_allclose(post["rate"].mean, weights @ np.exp(z), rtol=0.02)
    assert post["rate"].quantile(0.5) < post["rate"].mean


def test_zero_inflation_of_unknown_probability():
    def model(y):
        p = sample("p", ngmp.Beta(2.0, 3.0))
        sample("y", ZeroInflated(Poisson(exp(sample("z", Normal(1.0, std=0.5)))), p), obs=y)

    obs = np.array([0, 0, 0, 3, 4, 2, 0, 5])
    post = ngmp.compile(model, method=ngmp.EP())(y=obs)
    z, p = np.meshgrid(np.linspace(-2, 3, 401), np.linspace(0.001, 0.999, 400), indexing="ij")
    log = N01.logpdf(z, 1.0, 0.5) + stats.beta.logpdf(p, 2, 3)
    log += sum(np.log(p * (y == 0) + (1 - p) * stats.poisson.pmf(y, np.exp(z))) for y in obs)
    weights = np.exp(log - special.logsumexp(log))
    np.testing.assert_allclose(post["p"].mean, np.sum(weights * p), rtol=0.02)
    np.testing.assert_allclose(post["z"].mean, np.sum(weights * z), rtol=0.02)


def test_bad_bounds_and_codes():
    with pytest.raises(ValueError, match=r"low=2.0 and high=1.0; low must be below high"):
        Truncated(Normal(0.0, std=1.0), 2.0, 1.0)
    for censored, words in (("up", "'up'"), (np.array([0, 3, 1]), "code 3")):
        with pytest.raises(ngmp.ModelError, match=words):
            fit(lambda z: Normal(z, std=1.0), REAL, censored=censored)
    with pytest.raises(ngmp.DataError, match="within the bounds"):
        fit(lambda z: Truncated(Normal(z, std=1.0), 0.0, 1.0), REAL)


def test_laplace_priors_are_projected():
    def model(y):
        w = sample("w", Laplace(0.0, scale=0.5))
        sample("y", Normal(w, std=1.0), obs=y)

    post = ngmp.compile(model, method=ngmp.EP())(y=1.2)
    z = np.linspace(-10, 10, 40001)
    weights = stats.laplace.pdf(z, 0, 0.5) * N01.pdf(1.2, z, 1.0)
    weights /= weights.sum()
    np.testing.assert_allclose(post["w"].mean, weights @ z, rtol=0.02)
    assert jax.tree.leaves(post["w"])


LINKED = {
    "probit": (lambda z: ngmp.Bernoulli(logits=z, link="probit"), np.array([1, 0, 1]),
               lambda z: stats.bernoulli.logpmf([1, 0, 1], N01.cdf(z))),
    "Phi": (lambda z: ngmp.Binomial(7, probs=ngmp.Phi(z)), COUNTS, lambda z: stats.binom.logpmf(COUNTS, 7, N01.cdf(z))),
    "cloglog": (lambda z: ngmp.Binomial(7, cloglog=z), COUNTS,
                lambda z: stats.binom.logpmf(COUNTS, 7, -np.expm1(-np.exp(z)))),
    "sigmoid": (lambda z: ngmp.Bernoulli(probs=ngmp.sigmoid(z)), np.array([1, 0, 1]),
                lambda z: stats.bernoulli.logpmf([1, 0, 1], special.expit(z))),
    "beta": (lambda z: ngmp.Beta(mean=ngmp.sigmoid(z), concentration=6.0), np.array([0.2, 0.5, 0.9]),
             lambda z: stats.beta.logpdf([0.2, 0.5, 0.9], 6 * special.expit(z), 6 * special.expit(-z))),
    "beta-binomial": (lambda z: ngmp.BetaBinomial(7, logits=z, concentration=6.0), COUNTS,
                      lambda z: stats.betabinom.logpmf(COUNTS, 7, 6 * special.expit(z), 6 * special.expit(-z))),
    "von Mises": (lambda z: ngmp.VonMises(z, concentration=2.0), REAL, lambda z: stats.vonmises.logpdf(REAL, 2.0, z)),
}  # fmt: skip


@pytest.mark.parametrize("name", LINKED)
def test_links(name):
    distribution, obs, log_likelihood = LINKED[name]
    program, post = fit(distribution, obs)
    assert_right(post, grid(log_likelihood))
    assert np.isfinite(program.predict(post, "y").mean).all()


def test_multinomial_counts():
    counts = np.array([[3, 1, 0], [2, 2, 5]])

    def model(y):
        p = sample("p", ngmp.Dirichlet(np.array([1.0, 2.0, 0.5])))
        sample("y", ngmp.Multinomial(probs=p), obs=y)

    post = ngmp.compile(model)(y=counts)
    np.testing.assert_allclose(post["p"].concentration, np.array([1.0, 2.0, 0.5]) + counts.sum(0))
    whole = ngmp.compile(lambda y: sample("y", ngmp.DirichletMultinomial(np.array([1.0, 2.0, 0.5])), obs=y))
    expected = stats.dirichlet_multinomial.logpmf(counts, [1.0, 2.0, 0.5], counts.sum(1)).sum()
    np.testing.assert_allclose(-whole(y=counts).free_energy, expected, rtol=1e-9)


def test_counts_of_varying_probability_have_more_zeros():
    """Zero-inflated and hurdle of any count; the beta-binomial as one that was not."""
    z = np.linspace(-8.0, 8.0, 4001)
    law = stats.betabinom(7, 4.0 * special.expit(z[:, None]), 4.0 * special.expit(-z[:, None]))
    none, own = law.logpmf(0), law.logpmf(COUNTS)
    expected = {
        ZeroInflated: np.log(0.3 * (COUNTS == 0) + 0.7 * np.exp(own)),
        Hurdle: np.where(COUNTS == 0, np.log(0.3), np.log(0.7) + own - np.log(-np.expm1(none))),
    }
    for wrapper, each in expected.items():
        program, post = fit(lambda z, w=wrapper: w(ngmp.BetaBinomial(7, logits=z, concentration=4.0), 0.3), COUNTS)
        weights = np.exp(each.sum(1) + N01.logpdf(z, 0.2, 0.8))
        mean = np.sum(weights * z) / weights.sum()
        sd = np.sqrt(np.sum(weights * (z - mean) ** 2) / weights.sum())
        assert_right(post, (mean, sd, np.log(weights.sum() * (z[1] - z[0]))))
        cdf = program.predict(post, "y", y=COUNTS).cdf(np.full(3, 2.0))
        above = 1.0 - law.cdf(2)[:, 0]
        share = 0.7 if wrapper is ZeroInflated else 0.7 / -np.expm1(none[:, 0])
        np.testing.assert_allclose(cdf, 1.0 - weights @ (share * above) / weights.sum(), atol=0.01)


@pytest.mark.parametrize("kind", ["Weibull", "Gamma"])
def test_censored_outcomes_of_unknown_shape_and_scale(kind):
    """The interface of the base is log y - f, of which the wrapper left out log y."""
    times = np.tile([0.3, 0.9, 1.4, 1.9, 2.2, 2.8, 3.0, 3.0, 0.6, 1.1], 3)
    codes = (times == 3.0).astype(int)

    def model(t, c):
        f, k = sample("f", Normal(0.0, std=1.0)), sample("k", Normal(0.0, std=0.5))
        made = Weibull(exp(k), scale=exp(f)) if kind == "Weibull" else Gamma(exp(k), mean=exp(f))
        sample("t", made, obs=t, censored=c)

    post = ngmp.compile(model)(t=times, c=codes)
    f, k = np.meshgrid(np.linspace(-2, 3, 201), np.linspace(-1.5, 2.5, 201), indexing="ij")
    gamma = stats.gamma(np.exp(k), scale=np.exp(f - k))
    base = stats.weibull_min(np.exp(k), scale=np.exp(f)) if kind == "Weibull" else gamma
    log = stats.norm.logpdf(f) + stats.norm.logpdf(k, 0, 0.5)
    log += sum(base.logsf(t) if c else base.logpdf(t) for t, c in zip(times, codes, strict=True))
    w = np.exp(log - log.max())
    evidence = np.log(w.sum() * 0.025 * 0.02) + log.max()
    w /= w.sum()
    assert post.converged and abs(float(post.free_energy) + evidence) < 0.1
    for name, z in (("f", f), ("k", k)):
        mean = np.sum(w * z)
        std = np.sqrt(np.sum(w * (z - mean) ** 2))
        assert abs(post[name].mean - mean) < 0.05 * std and abs(post[name].std / std - 1) < 0.1
