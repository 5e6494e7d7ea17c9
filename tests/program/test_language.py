"""Spellings and distributions as people bring them, against grids and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Density,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    MvNormal,
    MvStudentT,
    Normal,
    Poisson,
    exp,
    sample,
)

COUNTS = np.array([3.0, 1.0, 2.0])


def test_a_multiple_of_a_gamma_rate_is_conjugate():
    def model(t, y):
        rate = sample("rate", Gamma(2.0 * np.ones(3), rate=1.0))
        sample("y", Poisson(t * rate), obs=y)

    t = np.array([1.0, 2.0, 5.0])
    program = ngmp.compile(model)
    post = program(t=t, y=COUNTS)
    np.testing.assert_allclose(post["rate"].mean, (2 + COUNTS) / (1 + t))
    np.testing.assert_allclose(-post.free_energy, st.nbinom(2, 1 / (1 + t)).logpmf(COUNTS).sum())
    np.testing.assert_allclose(program.predict(post, "y", t=t, y=COUNTS).mean, t * (2 + COUNTS) / (1 + t))
    with pytest.raises(ngmp.DataError, match="multiple of a Gamma variable must be positive"):
        program(t=-t, y=COUNTS)


def test_a_multiple_of_a_gamma_precision():
    """Weights of rows: equal to outcomes, and their mean, in units of the weights."""

    def model(c, y):
        x, tau = sample("x", Normal(0.0, variance=4.0)), sample("tau", Gamma(2.0, rate=1.0))
        sample("y", Normal(c * x, precision=tau / c**2), obs=y)

    y = np.array([0.3, 1.4, 0.8, 1.1])
    program, c = ngmp.compile(model, method=ngmp.VMP()), np.array([0.5, 2.0, 1.0, 3.0])
    plain, scaled = program(c=np.ones(4), y=y), program(c=c, y=c * y)
    for name in ("x", "tau"):
        np.testing.assert_allclose(scaled[name].mean, plain[name].mean, rtol=1e-6)
        np.testing.assert_allclose(scaled[name].variance, plain[name].variance, rtol=1e-6)
    np.testing.assert_allclose(scaled.free_energy, plain.free_energy + np.log(c).sum(), rtol=1e-6)
    predicted = program.predict(scaled, "y", c=c, y=c * y)
    np.testing.assert_allclose(predicted.mean, c * np.asarray(plain["x"].mean), rtol=1e-6)


def test_products_of_gamma_variables_are_refused_with_what_works():
    def model(y):
        a, b = (sample(name, Gamma(2.0, rate=1.0)) for name in "ab")
        sample("y", Normal(0.0, precision=a * b), obs=y)

    with pytest.raises(ngmp.ModelError, match='"log-gaussian"'):
        ngmp.compile(model).lower(y=COUNTS)


def test_a_half_normal_scale_that_is_not_integrated():
    def model(y):
        sample("y", Normal(0.0, std=sample("sd", HalfNormal(std=1.0))), obs=y)

    y = 0.7 * np.random.default_rng(0).normal(size=30)
    post, sd = ngmp.compile(model)(y=y), np.linspace(0.05, 3.0, 4000)
    w = np.exp(st.norm(0, sd[:, None]).logpdf(y).sum(1) + st.halfnorm.logpdf(sd))
    mean = (w * sd).sum() / w.sum()
    spread = np.sqrt((w * (sd - mean) ** 2).sum() / w.sum())
    assert post.converged and abs(post["sd"].mean - mean) < 0.05 * spread
    np.testing.assert_allclose(post["sd"].std, spread, rtol=0.1)


def test_the_horseshoe_is_written_as_it_is():
    """Half-Cauchy scales of every coefficient: those that are zero are shrunk, the others are not."""

    def model(x, y):
        scales = sample("scales", HalfCauchy(scale=np.ones(4)))
        w = sample("w", Normal(np.zeros(4), std=0.3 * scales))
        sample("y", Normal(x @ ngmp.stack(list(w)), std=0.5), obs=y)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    y = x @ np.array([2.0, 0.0, 0.0, -1.0]) + 0.5 * rng.normal(size=30)
    post, least = ngmp.compile(model)(x=x, y=y), np.linalg.lstsq(x, y)[0]
    kept = np.abs(post["w"].mean / least)
    assert post.converged and kept[[0, 3]].min() > 0.95 and kept[[1, 2]].max() < 0.95


def test_vectors_with_heavy_tails():
    scale = np.array([[1.0, 0.3], [0.3, 0.5]])

    def model(y):
        sample("y", MvStudentT(4.0, sample("x", MvNormal(np.zeros(2), covariance=4.0)), scale=scale), obs=y)

    y = st.multivariate_t([1, -1], scale, df=4).rvs(12, random_state=1)
    post = ngmp.compile(model)(y=y)
    at = np.stack(np.meshgrid(np.linspace(-2, 4, 121), np.linspace(-4, 2, 121), indexing="ij"), -1)
    log = st.norm(0, 2).logpdf(at).sum(-1) + sum(st.multivariate_t(row, scale, df=4).logpdf(at) for row in y)
    w = np.exp(log - log.max())[..., None] / np.exp(log - log.max()).sum()
    mean = (w * at).sum((0, 1))
    np.testing.assert_allclose(post["x"].mean, mean, atol=2e-3)
    np.testing.assert_allclose(post["x"].std, np.sqrt((w * (at - mean) ** 2).sum((0, 1))), rtol=0.01)


def test_any_density_is_a_likelihood():
    def model(y, own):
        f = sample("f", Normal(0.0, variance=4.0))
        sample("y", Density(lambda y, f: y * f - jnp.exp(f), f) if own else Poisson(exp(f)), obs=y)

    program = ngmp.compile(model)
    ours, known = program(y=COUNTS, own=True), program(y=COUNTS, own=False)
    np.testing.assert_allclose(ours["f"].mean, known["f"].mean, rtol=1e-6)
    np.testing.assert_allclose(ours["f"].variance, known["f"].variance, rtol=1e-6)


def test_a_list_of_expressions_is_picked_from():
    def model(y):
        w = sample("w", Normal(1.0, std=1.0))
        z = sample("z", ngmp.Categorical(probs=np.full((4, 2), 0.5)))
        sample("y", Normal(ngmp.take([w, -1.0 * w], z), std=0.2), obs=y)

    post = ngmp.compile(model)(y=np.array([0.9, -1.1, 1.0, -0.95]))
    picked = np.asarray(post["z"].probs)[:, 0] > 0.5
    assert picked.tolist() in ([True, False, True, False], [False, True, False, True])


def test_structures_of_inputs_compile_for_their_contents():
    def model(y, adjacency):
        u = sample("u", MvNormal(np.zeros(3), precision=2.0 * ngmp.icar(adjacency), constraint="sum"))
        sample("y", Normal(u, std=0.5), obs=y)

    ring = np.ones((3, 3)) - np.eye(3)
    post = ngmp.compile(model)(y=np.array([1.0, 0.0, -1.0]), adjacency=ring)
    np.testing.assert_allclose(post["u"].mean, np.array([1.0, 0.0, -1.0]) * 4 / (4 + 6), atol=1e-8)
    with pytest.raises(ValueError, match="not symmetric"):
        ngmp.compile(model)(y=np.zeros(3), adjacency=np.triu(ring))


def test_an_exponential_takes_its_rate_by_position():
    assert Exponential(2.0).arguments == Exponential(rate=2.0).arguments
