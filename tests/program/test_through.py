"""Parameters of observed outcomes that are functions of unknowns, against grids: no variable stands between."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Gamma, Normal, Poisson, sample

RNG = np.random.default_rng(0)
Y, COUNTS, WON = 1.6 + 0.5 * RNG.normal(size=20), RNG.poisson(1.5, 20), (RNG.uniform(size=20) < 0.6).astype(int)
GRID = np.linspace(-6, 6, 4001)
F = GRID[:, None]


def unknown(mean=0.0):
    return sample("f", Normal(mean, std=1.0))


def moments(log_likelihood, mean=0.0):
    """Mean, deviation, evidence and weights on the grid."""
    log = log_likelihood.sum(-1) + st.norm.logpdf(GRID, mean)
    w = np.exp(log - log.max())
    total = w.sum() * (GRID[1] - GRID[0])
    w = w / w.sum()
    centre = w @ GRID
    return centre, np.sqrt(w @ (GRID - centre) ** 2), log.max() + np.log(total), w


def softplus(x):
    return np.log1p(np.exp(x))


CASES = {
    "rate": (lambda f: Poisson(ngmp.softplus(f)), COUNTS, st.poisson.logpmf(COUNTS, softplus(F))),
    "of jax": (lambda f: Poisson(jax.nn.softplus(f)), COUNTS, st.poisson.logpmf(COUNTS, softplus(F))),
    "mean": (lambda f: Normal(np.exp(f), std=0.5), Y, st.norm.logpdf(Y, np.exp(F), 0.5)),
    "guesses": (lambda f: Bernoulli(probs=0.2 + 0.8 * ngmp.sigmoid(f)), WON,
                st.bernoulli.logpmf(WON, 0.2 + 0.8 / (1 + np.exp(-F)))),
    "two of one": (lambda f: Normal(np.exp(f), std=0.2 + ngmp.sigmoid(f)), Y,
                   st.norm.logpdf(Y, np.exp(F), 0.2 + 1 / (1 + np.exp(-F)))),
    "in concentration and mean": (lambda f: Gamma(np.exp(f), rate=2.0), np.abs(Y),
                                  st.gamma.logpdf(np.abs(Y), np.exp(F), scale=0.5)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_function_as_a_parameter(case):
    make, y, log_likelihood = CASES[case]

    def model(y):
        sample("y", make(unknown()), obs=y)

    post, (mean, std, evidence, _) = ngmp.compile(model)(y=y), moments(log_likelihood)
    assert post.converged and "DeterministicNode" not in str(post.approximate)
    np.testing.assert_allclose(post["f"].mean, mean, atol=0.02 * std)
    np.testing.assert_allclose(post["f"].std, std, rtol=0.04)
    np.testing.assert_allclose(-post.free_energy, evidence, atol=0.02)


@pytest.mark.parametrize("mean", [1.0, -1.0])
def test_of_an_even_function_the_prior_says_which_side(mean):
    def model(y):
        sample("y", Normal(unknown(mean) ** 2, std=0.5), obs=y)

    post = ngmp.compile(model)(y=Y)
    side = np.where(F * mean > 0, st.norm.logpdf(Y, F**2, 0.5), -1e6)
    assert post.converged
    np.testing.assert_allclose(post["f"].mean, moments(side, mean)[0], atol=1e-3)


def test_outcomes_are_predicted_and_checked():
    def model(y):
        sample("y", Poisson(ngmp.softplus(unknown())), obs=y)

    program = ngmp.compile(model)
    post = program(y=COUNTS)
    *_, w = moments(CASES["rate"][2])
    found, rate = program.predict(post, "y", y=COUNTS), softplus(GRID)
    np.testing.assert_allclose(found.mean, np.full(20, w @ rate), rtol=1e-3)
    np.testing.assert_allclose(found.variance, np.full(20, w @ (rate + rate**2) - (w @ rate) ** 2), rtol=1e-3)
    np.testing.assert_allclose(found.cdf(np.full(20, 2.0)), np.full(20, w @ st.poisson.cdf(2, rate)), rtol=1e-3)
    with pytest.raises(ngmp.DataError, match="non-negative integers"):
        program(y=COUNTS + 0.5)
    assert program.simulate(jax.random.key(0), (50,), y=COUNTS)["y"].shape == (50, 20)


def test_several_unknowns_in_one_curve():
    """`a exp(-k t)`: a nonlinear regression, as it is written."""

    def model(t, y):
        a, k = sample("a", Normal(1.0, std=0.5)), sample("k", Normal(0.5, std=0.3))
        sample("y", Normal(a * np.exp(-k * t), std=0.1), obs=y)

    t = np.linspace(0.0, 4.0, 12)
    y = 1.3 * np.exp(-0.6 * t) + 0.1 * RNG.normal(size=12)
    post = ngmp.compile(model)(t=t, y=y)
    a, k = np.meshgrid(np.linspace(0.5, 2.0, 301), np.linspace(-0.1, 1.4, 301), indexing="ij")
    log = st.norm.logpdf(a, 1.0, 0.5) + st.norm.logpdf(k, 0.5, 0.3)
    log = log + st.norm.logpdf(y, a[..., None] * np.exp(-k[..., None] * t), 0.1).sum(-1)
    w = np.exp(log - log.max()) / np.exp(log - log.max()).sum()
    for name, at in {"a": a, "k": k}.items():
        mean = (w * at).sum()
        std = np.sqrt((w * (at - mean) ** 2).sum())
        np.testing.assert_allclose(post[name].mean, mean, atol=0.05 * std)
        np.testing.assert_allclose(post[name].std, std, rtol=0.06)


def test_loops_are_rolled():
    def loop(y):
        f = sample("f", Normal(np.zeros(5), std=1.0))
        for k in range(5):
            sample("y", Normal(np.exp(f[k]) + 0.5, std=0.5), obs=y[k])

    def plate(y):
        f = sample("f", Normal(np.zeros(5), std=1.0))
        sample("y", Normal(np.exp(f) + 0.5, std=0.5), obs=y)

    texts = [ngmp.compile(m).lower(y=Y[:5]).describe() for m in (loop, plate)]
    assert texts[0].split("\n", 1)[1] == texts[1].split("\n", 1)[1]


def test_a_latent_mean_is_a_node_still():
    def model(y):
        sample("y", Normal(sample("x", Normal(jnp.tanh(unknown()), std=0.1)), std=0.5), obs=y)

    assert "DeterministicNode" in ngmp.compile(model).lower(y=Y).describe()
