"""Predictive distributions of observed sites: parts of the variance, distribution functions, quantiles.

References are scipy's distributions and dense sums over the posterior's marginals.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Gamma,
    MvNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    dot,
    exp,
)

RNG = np.random.default_rng(5)
N = 5
REAL = RNG.normal(size=N)
COUNTS = np.array([0, 3, 1, 6, 2])
P = np.array([1e-3, 0.05, 0.5, 0.975, 0.9999])


def _grid(q, n=20001):
    u = np.linspace(-10, 10, n)
    w = np.exp(-0.5 * u * u)
    return np.asarray(q.mean)[..., None] + np.sqrt(np.asarray(q.variance))[..., None] * u, w / w.sum()


def _gamma_grid(q, n=20001):
    a, b = float(q.concentration), float(q.rate)
    t = np.exp(np.linspace(np.log(st.gamma.ppf(1e-16, a)), np.log(st.gamma.isf(1e-16, a)), n)) / b
    w = st.gamma.pdf(t, a, scale=1 / b) * t
    return t, w / w.sum()


def _beta_grid(q, n=20001):
    p = sp.expit(np.linspace(-40, 40, n))
    w = st.beta.pdf(p, float(q.a), float(q.b)) * p * (1 - p)
    return p, w / w.sum()


# -- models: a declaration, its inputs, and F(y, element) from the posterior -----------------------------------------


def _x():
    return ngmp.sample("x", Normal(0.3, variance=2.0))


def _site(distribution, y, mask=None):
    ngmp.sample("y", distribution, obs=y, mask=mask)


def _over_x(conditional):
    def cdf(post, y):
        z, w = _grid(post["x"])
        return (w * conditional(y, z)).sum()

    return cdf


def _normal_tau(post, y):
    t, w = _gamma_grid(post["tau"])
    x = post["x"]
    return (w * st.norm.cdf(y, float(x.mean), np.sqrt(float(x.variance) + 1 / t))).sum()


def _normal_s(post, y):
    s, w = _grid(post["s"])
    x = post["x"]
    return (w * st.norm.cdf(y, float(x.mean), np.sqrt(float(x.variance) + np.exp(-s)))).sum()


def _over(name, grid, conditional):
    def cdf(post, y):
        z, w = grid(post[name])
        return (w * conditional(y, z)).sum()

    return cdf


def _tau():
    return ngmp.sample("tau", Gamma(3.0, rate=2.0))


def _p():
    return ngmp.sample("p", Beta(2.0, 3.0))


CASES = {
    "normal": (lambda: Normal(_x(), variance=0.5), REAL, lambda q, y: st.norm.cdf(
        y, float(q["x"].mean), np.sqrt(float(q["x"].variance) + 0.5))),
    "normal, gamma precision": (lambda: Normal(_x(), precision=_tau()), REAL, _normal_tau),
    "normal, log-precision": (
        lambda: Normal(_x(), precision=exp(ngmp.sample("s", Normal(0.5, variance=2.0)))), REAL, _normal_s),
    "normal, constant mean": (lambda: Normal(0.4, precision=_tau()), REAL, _over(
        "tau", _gamma_grid, lambda y, t: st.norm.cdf(y, 0.4, t**-0.5))),
    "normal, constant mean, std": (lambda: Normal(0.4, std=exp(_x())), REAL, _over_x(
        lambda y, z: st.norm.cdf(y, 0.4, np.exp(z)))),
    "student t": (lambda: StudentT(3.0, _x(), scale=0.7), REAL, _over_x(lambda y, z: st.t.cdf(y, 3.0, z, 0.7))),
    "poisson": (lambda: Poisson(exp(_x())), COUNTS, _over_x(lambda y, z: st.poisson.cdf(y, np.exp(z)))),
    "poisson, gamma": (lambda: Poisson(_tau()), COUNTS, _over("tau", _gamma_grid, lambda y, t: st.poisson.cdf(y, t))),
    "negative binomial": (lambda: NegativeBinomial(mean=exp(_x()), dispersion=2.0), COUNTS, _over_x(
        lambda y, z: st.nbinom.cdf(y, 2.0, 2 / (2 + np.exp(z))))),
    "binomial": (lambda: Binomial(9, logits=_x()), COUNTS, _over_x(lambda y, z: st.binom.cdf(y, 9, sp.expit(z)))),
    "binomial, beta": (lambda: Binomial(9, probs=_p()), COUNTS, _over(
        "p", _beta_grid, lambda y, p: st.binom.cdf(y, 9, p))),
    "bernoulli": (lambda: Bernoulli(logits=_x()), COUNTS % 2, _over_x(lambda y, z: st.bernoulli.cdf(y, sp.expit(z)))),
    "bernoulli, beta": (lambda: Bernoulli(probs=_p()), COUNTS % 2, _over(
        "p", _beta_grid, lambda y, p: st.bernoulli.cdf(y, p))),
    "constant normal": (lambda: Normal(1.0, variance=4.0), REAL, lambda q, y: st.norm.cdf(y, 1.0, 2.0)),
    "constant t": (lambda: StudentT(0.7, 1.0, scale=2.0), REAL, lambda q, y: st.t.cdf(y, 0.7, 1.0, 2.0)),
    "constant gamma": (lambda: Gamma(0.3, rate=2.0), REAL**2, lambda q, y: st.gamma.cdf(y, 0.3, scale=0.5)),
    "constant beta": (lambda: Beta(0.5, 2.0), sp.expit(REAL), lambda q, y: st.beta.cdf(y, 0.5, 2.0)),
    "constant poisson": (lambda: Poisson(3.5), COUNTS, lambda q, y: st.poisson.cdf(y, 3.5)),
    "constant negative binomial": (lambda: NegativeBinomial(mean=3.0, dispersion=2.0), COUNTS,
                                   lambda q, y: st.nbinom.cdf(y, 2.0, 0.4)),
    "constant binomial": (lambda: Binomial(9, probs=0.3), COUNTS, lambda q, y: st.binom.cdf(y, 9, 0.3)),
    "constant bernoulli": (lambda: Bernoulli(probs=0.3), COUNTS % 2, lambda q, y: st.bernoulli.cdf(y, 0.3)),
}  # fmt: skip


def _predict(distribution, y):
    def model(y, mask):
        ngmp.sample("unused", Normal(0.0, variance=1.0))
        _site(distribution(), y, mask)

    inputs = {"y": y, "mask": np.arange(len(y)) < 4}
    program = ngmp.compile(model)
    post = program(**inputs)
    assert post.converged
    return post, program.predict(post, "y", **inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_quantiles_and_distribution_functions(name):
    distribution, y, reference = CASES[name]
    post, prediction = _predict(distribution, y)
    np.testing.assert_allclose(prediction.variance, prediction.epistemic + prediction.aleatoric)
    np.testing.assert_allclose(prediction.cdf(y), [reference(post, v) for v in y], rtol=1e-7, atol=1e-9)
    found = np.asarray(prediction.quantile(P))
    assert found.shape == (len(P), N)
    np.testing.assert_allclose(found, found[:, :1] + 0 * found, rtol=1e-12)  # the same marginals, the same quantiles
    if y.dtype.kind == "i":  # the smallest integer with F >= p, exactly
        for p, k in zip(P, found[:, 0], strict=True):
            assert k == np.round(k) and reference(post, k) >= p
            assert k == 0 or reference(post, k - 1) < p
    else:
        for p, value in zip(P, found[:, 0], strict=True):
            np.testing.assert_allclose(reference(post, value), p, rtol=1e-7)
        back = [prediction.cdf(row) for row in found]
        np.testing.assert_allclose(back, np.broadcast_to(P[:, None], found.shape), rtol=1e-11)


@pytest.mark.slow
def test_quantiles_to_ten_digits():
    """Where scipy knows the inverse."""
    exact = {
        "constant t": st.t(0.7, 1.0, 2.0),
        "constant gamma": st.gamma(0.3, scale=0.5),
        "constant beta": st.beta(0.5, 2.0),
        "constant normal": st.norm(1.0, 2.0),
    }
    p = np.array([1e-12, 1e-4, 0.3, 0.5, 0.8, 1 - 1e-4])  # above, F itself has no more digits
    for name, frozen in exact.items():
        _, prediction = _predict(*CASES[name][:2])
        np.testing.assert_allclose(prediction.quantile(p)[:, 0], frozen.ppf(p), rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_large_counts_under_a_wide_log_rate():
    """Quantiles of thousands, where the counts are far narrower than what is known of their rate."""

    def model(y):
        ngmp.sample("y", Poisson(exp(ngmp.sample("z", Normal(8.0, variance=2.0)))), obs=y, mask=np.zeros(1, bool))

    program = ngmp.compile(model)
    inputs = {"y": np.array([0])}
    prediction = program.predict(program(**inputs), "y", **inputs)
    z = 8 + np.sqrt(2) * np.linspace(-9, 9, 40001)
    w = np.exp(-0.25 * (z - 8) ** 2)
    w /= w.sum()
    for p, k in zip(P, np.asarray(prediction.quantile(P))[:, 0], strict=True):
        assert (w * sp.gammaincc(k + 1, np.exp(z))).sum() >= p > (w * sp.gammaincc(k, np.exp(z))).sum()


# -- parts of the variance --------------------------------------------------------------------------------------------


def test_parts_of_the_variance_of_a_heteroscedastic_regression(rng):
    """Law of total variance, by draws from the marginals and by the formula of the paper's predictive."""
    phi, psi = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    y = phi @ np.array([1.0, -0.5]) + np.exp(-0.5 * psi @ np.array([0.5, 0.3])) * rng.normal(size=20)
    inputs = {"phi": phi, "psi": psi, "y": y}
    program = ngmp.compile(ngmp_models.heteroscedastic)
    post = program(**inputs)
    prediction = program.predict(post, "y", **inputs)
    v, s = post["v"], post["s"]
    np.testing.assert_allclose(prediction.mean, phi @ v.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic, np.einsum("nd,de,ne->n", phi, v.covariance, phi), rtol=1e-8)
    np.testing.assert_allclose(prediction.aleatoric, np.exp(-s.mean + s.variance / 2), rtol=1e-8)
    weights = rng.multivariate_normal(v.mean, v.covariance, 200000)
    noise = np.exp(-(np.asarray(s.mean) + np.sqrt(np.asarray(s.variance)) * rng.normal(size=(200000, 20))))
    draws = weights @ phi.T + np.sqrt(noise) * rng.normal(size=(200000, 20))
    np.testing.assert_allclose(prediction.variance, draws.var(0), rtol=0.05)
    np.testing.assert_allclose(prediction.quantile(0.9), np.quantile(draws, 0.9, axis=0), atol=0.05)


def test_parts_of_the_variance_of_counts_and_classes():
    post, prediction = _predict(lambda: Poisson(exp(_x())), COUNTS)
    z, w = _grid(post["x"])
    rate = np.exp(z)
    np.testing.assert_allclose(prediction.aleatoric, (w * rate).sum(), rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic, (w * (rate - (w * rate).sum()) ** 2).sum(), rtol=1e-8)
    post, prediction = _predict(
        lambda: Categorical(probs=ngmp.sample("q", Dirichlet(np.array([1.0, 2.0, 3.0])))), COUNTS % 3
    )
    np.testing.assert_allclose(prediction.epistemic, np.tile(post["q"].variance, (N, 1)), rtol=1e-9)
    probs = np.tile(post["q"].mean, (N, 1))
    np.testing.assert_allclose(prediction.variance, probs * (1 - probs), rtol=1e-9)


# -- shapes and transformations ---------------------------------------------------------------------------------------


def _noisy(y, mask, precision=1.0):
    x = ngmp.sample("x", Normal(0.0, variance=1.0))
    s = ngmp.sample("s", Normal(0.0, precision=precision))
    ngmp.sample("y", Normal(x, precision=exp(s)), obs=y, mask=mask)


@pytest.mark.slow
def test_jit_vmap_and_shapes(rng):
    program = ngmp.compile(_noisy)
    masks = rng.random((3, N)) < 0.7

    def run(mask):
        return program.predict(program(y=REAL, mask=mask), "y", y=REAL, mask=mask)

    p = np.array([[0.1, 0.5, 0.9], [0.2, 0.6, 0.95]])
    alone = [run(mask) for mask in masks]
    expected = np.stack([a.quantile(p) for a in alone], 2)
    assert alone[0].quantile(p).shape == (2, 3, N) and alone[0].quantile(0.5).shape == (N,)
    together = jax.jit(jax.vmap(run))(masks)  # a batch of predictions leaves jit, and still has quantiles
    assert together.quantile(p).shape == (2, 3, 3, N)
    np.testing.assert_allclose(together.quantile(p), expected, rtol=1e-6)
    np.testing.assert_allclose(together.cdf(0.3), np.stack([a.cdf(0.3) for a in alone]), rtol=1e-6)
    inside = jax.jit(jax.vmap(lambda m: run(m).quantile(jnp.asarray(p)), out_axes=2))(masks)
    np.testing.assert_allclose(inside, expected, rtol=1e-6)
    levels = jax.jit(jax.vmap(alone[0].quantile))(jnp.asarray(p[0]))  # p may be traced
    np.testing.assert_allclose(levels, alone[0].quantile(p[0]), rtol=1e-12)


@pytest.mark.slow
def test_vectors_and_merged_groups(rng):
    def sensors(matrix, y):
        x = ngmp.sample("x", MvNormal(np.zeros(2), covariance=np.array([[2.0, 0.3], [0.3, 1.0]])))
        ngmp.sample("y", MvNormal(matrix @ x + 0.2, covariance=np.array([0.5, 0.4, 0.3])), obs=y)

    inputs = {"matrix": rng.normal(size=(3, 2)), "y": rng.normal(size=(4, 3))}
    program = ngmp.compile(sensors)
    prediction = program.predict(program(**inputs), "y", **inputs)
    normal = st.norm(prediction.mean, np.sqrt(prediction.variance))
    np.testing.assert_allclose(prediction.quantile(P), normal.ppf(P[:, None, None]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(prediction.cdf(inputs["y"]), normal.cdf(inputs["y"]), rtol=1e-9)

    def alternating(y):  # two kinds of factors under one name
        x = ngmp.sample("x", Normal(0.0, variance=1.0))
        w = ngmp.sample("w", Normal(1.0, variance=1.0))
        for k in range(len(y)):
            ngmp.sample("y", Normal(x, variance=0.5) if k % 2 else StudentT(4.0, w, scale=1.0), obs=y[k])

    program = ngmp.compile(alternating)
    post = program(y=REAL)
    prediction = program.predict(post, "y", y=REAL)
    assert prediction.mean.shape == prediction.epistemic.shape == prediction.log_density.shape == (N,)
    found = prediction.quantile(0.8)
    expected = st.norm(float(post["x"].mean), np.sqrt(float(post["x"].variance) + 0.5)).ppf(0.8)
    np.testing.assert_allclose(found[1::2], expected, rtol=1e-10)
    z, w = _grid(post["w"])
    np.testing.assert_allclose((w * st.t.cdf(float(found[0]), 4.0, z, 1.0)).sum(), 0.8, rtol=1e-8)
    np.testing.assert_allclose(prediction.cdf(found), 0.8, rtol=1e-10)


def test_plates_of_many_axes(rng):
    y = rng.normal(size=(2, 3))

    def model(y):
        x = ngmp.sample("x", Normal(np.zeros(3), variance=1.0))
        ngmp.sample("y", Normal(x, variance=0.5), obs=y)

    program = ngmp.compile(model)
    post = program(y=y)
    prediction = program.predict(post, "y", y=y)
    assert prediction.quantile(np.array([0.1, 0.9])).shape == (2, 2, 3)
    expected = st.norm(post["x"].mean, np.sqrt(post["x"].variance + 0.5)).cdf(y)
    np.testing.assert_allclose(prediction.cdf(y), expected, rtol=1e-10)


@pytest.mark.slow
def test_derivatives_of_quantiles():
    """Of the prior precision of s and of p, against differences: the implicit function, not the iteration."""
    program = ngmp.compile(_noisy, tol=1e-12)
    mask = np.ones(N, bool)

    def run(precision, p):
        inputs = {"y": REAL, "mask": mask, "precision": precision}
        return program.predict(program(**inputs), "y", **inputs).quantile(p)[0]

    slope = jax.grad(run, argnums=(0, 1))(2.0, 0.9)
    by_hand = [(run(2.0 + h, 0.9 + k) - run(2.0 - h, 0.9 - k)) / 2e-5 for h, k in ((1e-5, 0.0), (0.0, 1e-5))]
    np.testing.assert_allclose(slope, by_hand, rtol=1e-4)


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 1.0, -0.2, 1.5, np.nan, [0.5, np.nan], "half", None])
def test_bad_probabilities(p):
    _, prediction = _predict(lambda: Normal(_x(), variance=0.5), REAL)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        prediction.quantile(p)


def test_outcomes_without_an_order():
    _, prediction = _predict(lambda: Categorical(probs=np.array([0.2, 0.3, 0.5])), COUNTS % 3)
    for call in (lambda: prediction.quantile(0.5), lambda: prediction.cdf(1.0)):
        with pytest.raises(ValueError, match="site 'y': .*Categorical.*Bernoulli, Beta, .*Binomial, .*Gamma"):
            call()


@pytest.mark.slow
def test_inference_by_three_points_does_not_blur_predictions(rng):
    """The projection is how messages are computed; the predictive integral is taken accurately all the same."""
    program = ngmp.compile(
        lambda features, y: ngmp.sample(
            "y", Bernoulli(logits=dot(features, ngmp.sample("w", MvNormal(np.zeros(2), covariance=9.0)))), obs=y
        ),
        method=ngmp.NGMP(projection=ngmp.Unscented()),
    )
    inputs = {"features": rng.normal(size=(N, 2)), "y": COUNTS % 2}
    post = program(**inputs)
    prediction = program.predict(post, "y", **inputs)
    m = inputs["features"] @ np.asarray(post["w"].mean)
    v = np.einsum("nd,de,ne->n", inputs["features"], post["w"].covariance, inputs["features"])
    u = np.linspace(-10, 10, 20001)
    w = np.exp(-0.5 * u * u) / np.exp(-0.5 * u * u).sum()
    p = [(w * sp.expit(a + np.sqrt(b) * u)).sum() for a, b in zip(m, v, strict=True)]
    np.testing.assert_allclose(prediction.mean, p, rtol=1e-8)
