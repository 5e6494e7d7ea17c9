"""Mixtures and switching: `take` of random parameters, against numpy coordinate ascent, enumeration and quadrature."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.special import betaln, digamma, gammaln, logsumexp, multigammaln

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import (
    EP,
    NGMP,
    VMP,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Dirichlet,
    Gamma,
    InverseGamma,
    MvNormal,
    Normal,
    Poisson,
    Wishart,
    broadcast_to,
    dot,
    exp,
    take,
)

LOG_2PI = np.log(2 * np.pi)


def two_clusters(n=60, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.random(n) < 0.3
    return np.where(first, rng.normal(-3.0, 0.7, n), rng.normal(2.0, 1.0, n))


# -- references: coordinate ascent, written out ------------------------------------------------------------------------


def _softmax(logits):
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def _gamma_bound(a, b, a0, b0):
    mean_log, mean = digamma(a) - np.log(b), a / b
    prior = a0 * np.log(b0) - gammaln(a0) + (a0 - 1) * mean_log - b0 * mean
    return np.sum(prior + a - np.log(b) + gammaln(a) + (1 - a) * digamma(a))


def _dirichlet_bound(alpha, alpha0):
    mean_log = digamma(alpha) - digamma(alpha.sum())

    def log_normaliser(a):
        return gammaln(a).sum() - gammaln(a.sum())

    return log_normaliser(alpha) - log_normaliser(alpha0) + np.sum((alpha0 - alpha) * mean_log)


def _class_entropy(r):
    return -np.sum(r * np.log(np.where(r > 0, r, 1)))


def scalar_cavi(y, centres, v0, a0, b0, alpha0, seen=None, sweeps=3000):
    """Mean field of a scalar mixture: returns means, variances, shapes, rates, weights, bound by sweep."""
    k, seen = len(centres), np.ones(len(y)) if seen is None else seen
    m, v, a, b = centres.copy(), np.full(k, v0), np.full(k, a0), np.full(k, b0)
    alpha0 = np.full(k, alpha0)
    alpha, bounds = alpha0, []
    for _ in range(sweeps):
        square = (y[:, None] - m) ** 2 + v
        energy = 0.5 * (digamma(a) - np.log(b) - LOG_2PI - a / b * square)
        r = _softmax(digamma(alpha) - digamma(alpha.sum()) + seen[:, None] * energy)
        counted = r * seen[:, None]
        alpha = alpha0 + r.sum(0)
        precision = 1 / v0 + a / b * counted.sum(0)
        m, v = (centres / v0 + a / b * (counted.T @ y)) / precision, 1 / precision
        square = (y[:, None] - m) ** 2 + v
        a, b = a0 + 0.5 * counted.sum(0), b0 + 0.5 * np.sum(counted * square, 0)
        bound = np.sum(r * (digamma(alpha) - digamma(alpha.sum()))) + _class_entropy(r)
        bound += np.sum(counted * 0.5 * (digamma(a) - np.log(b) - LOG_2PI - a / b * square))
        bound += np.sum(0.5 * (np.log(v / v0) + 1 - ((m - centres) ** 2 + v) / v0))
        bounds.append(bound + _gamma_bound(a, b, a0, b0) + _dirichlet_bound(alpha, alpha0))
    return m, v, a, b, alpha, np.array(bounds)


def _mean_log_det(df, inverse_scale):
    d = inverse_scale.shape[-1]
    halves = 0.5 * (df[:, None] - np.arange(d))
    return digamma(halves).sum(1) + d * np.log(2) - np.linalg.slogdet(inverse_scale)[1]


def _wishart_log_normaliser(df, inverse_scale):
    d = inverse_scale.shape[-1]
    return 0.5 * df * (d * np.log(2) - np.linalg.slogdet(inverse_scale)[1]) + np.array(
        [multigammaln(x / 2, d) for x in np.atleast_1d(df)]
    )


def vector_cavi(y, centres, v0, df0, scale0, alpha0, sweeps=500):
    """Mean field q(m) q(W) of a vector mixture; Bishop's updates but for the product of the two."""
    k, d = centres.shape
    inverse0 = np.broadcast_to(np.linalg.inv(scale0), (k, d, d))
    m, cov = centres.copy(), np.broadcast_to(v0 * np.eye(d), (k, d, d))
    df, inverse = np.full(k, df0), inverse0
    alpha0 = np.full(k, alpha0)
    alpha = alpha0
    for _ in range(sweeps):
        w = df[:, None, None] * np.linalg.inv(inverse)
        gap = y[:, None] - m
        square = gap[..., :, None] * gap[..., None, :] + cov
        energy = 0.5 * (_mean_log_det(df, inverse) - d * LOG_2PI - np.einsum("nkij,kij->nk", square, w))
        r = _softmax(digamma(alpha) - digamma(alpha.sum()) + energy)
        alpha = alpha0 + r.sum(0)
        cov = np.linalg.inv(np.eye(d) / v0 + r.sum(0)[:, None, None] * w)
        m = np.einsum("kij,kj->ki", cov, centres / v0 + np.einsum("kij,kj->ki", w, r.T @ y))
        gap = y[:, None] - m
        square = gap[..., :, None] * gap[..., None, :] + cov
        df, inverse = df0 + r.sum(0), inverse0 + np.einsum("nk,nkij->kij", r, square)
    w, log_det = df[:, None, None] * np.linalg.inv(inverse), _mean_log_det(df, inverse)
    bound = np.sum(r * (digamma(alpha) - digamma(alpha.sum()))) + _class_entropy(r) + _dirichlet_bound(alpha, alpha0)
    bound += np.sum(r * 0.5 * (log_det - d * LOG_2PI - np.einsum("nkij,kij->nk", square, w)))
    spread = np.einsum("kii->k", cov) + np.sum((m - centres) ** 2, 1)
    bound += np.sum(0.5 * (np.linalg.slogdet(cov / v0)[1] + d - spread / v0))
    bound += np.sum(_wishart_log_normaliser(df, inverse) - _wishart_log_normaliser(np.full(k, df0), inverse0))
    bound += np.sum(0.5 * (df0 - df) * log_det - 0.5 * np.einsum("kij,kij->k", inverse0 - inverse, w))
    return m, cov, df, inverse, alpha, bound


# -- mean field --------------------------------------------------------------------------------------------------------

SCALAR = {"variance": 10.0, "shape": 2.0, "rate": 1.0, "concentration": 1.5}
CAVI = [("y.selector",), ("z.p",), ("y.r",), ("y.tau",)]  # the order of the reference


@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True], ids=["all seen", "masked"])
def test_scalar_mixture_is_coordinate_ascent(masked):
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    seen = np.arange(60) % 7 != 0 if masked else None
    expected = scalar_cavi(y, centres, 10.0, 2.0, 1.0, 1.5, None if seen is None else seen.astype(float))
    program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP(), tol=1e-11, max_sweeps=2000)
    post = program(y=y, centres=centres, mask=seen, **SCALAR)
    assert post.converged
    m, v, a, b, alpha, bounds = expected
    for actual, reference in [
        (post["m"].mean, m), (post["m"].variance, v), (post["w"].concentration, a), (post["w"].rate, b),
        (post["pi"].concentration, alpha), (-post.free_energy, bounds[-1]),
    ]:  # fmt: skip
        np.testing.assert_allclose(actual, reference, rtol=1e-8, atol=1e-8)


def test_free_energy_of_a_mixture_decreases():
    """Blocks updated one at a time, each undamped: coordinate ascent, whose bound never falls."""
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    program = ngmp.compile(
        ngmp_models.gaussian_mixture, method=VMP(), schedule=[*CAVI, ("z.out",)], solver=optax.sgd(1.0)
    )
    inputs = {"y": y, "centres": centres, **SCALAR}
    state = program.init(**inputs)

    @jax.jit
    def step(state):
        state = program.step(state, **inputs)
        return state, program.posterior(state, **inputs).free_energy

    values = []
    for _ in range(25):
        state, energy = step(state)
        values.append(float(energy))
    assert np.all(np.diff(values[1:]) < 1e-9)
    np.testing.assert_allclose(values[-1], -scalar_cavi(y, centres, 10.0, 2.0, 1.0, 1.5)[-1][-1], rtol=1e-4)


def _triangle(n=90):
    rng = np.random.default_rng(0)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(0, 3, n)] + rng.normal(size=(n, 2)), centres


def test_vector_mixture_is_coordinate_ascent():
    y, truth = _triangle()
    centres = 0.2 * truth
    m, cov, df, inverse, alpha, bound = vector_cavi(y, centres, 100.0, 3.0, 2.0 * np.eye(2), 1.0)
    program = ngmp.compile(ngmp_models.vector_mixture, method=VMP(), tol=1e-11)
    post = program(y=y, centres=centres, variance=100.0, scale=2.0)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-8)
    np.testing.assert_allclose(post["m"].covariance, cov, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post["W"].df, df, rtol=1e-8)
    np.testing.assert_allclose(post["W"].inverse_scale, inverse, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(post["pi"].concentration, alpha, rtol=1e-8)
    np.testing.assert_allclose(-post.free_energy, bound, rtol=1e-9)
    assert np.max(np.abs(post["m"].mean - truth)) < 0.6
    prediction = program.predict(post, "y", y=y, centres=centres, variance=100.0, scale=2.0)
    assert prediction.mean.shape == (90, 2) and prediction.log_density.shape == (90,)


def test_ngmp_treats_matrices_by_structured_vmp_and_says_so():
    y, truth = _triangle(30)
    program = ngmp.compile(ngmp_models.vector_mixture)
    text = program.lower(y=y, centres=truth, variance=100.0, scale=2.0).describe()
    assert "StructuredVMP" in text and "Gated(NoiseWishart)" in text


def test_a_mixture_runs_from_a_perturbed_state(key):
    """A state with other leaves is a start of its own; the labels it ends with may differ, the evidence hardly."""
    y, centres = two_clusters(), np.array([-1.0, 1.0])
    inputs = {"y": y, "centres": centres, **SCALAR}
    program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP())
    state = program.init(**inputs)
    leaf = state.leaves["y.selector"]
    noise = type(leaf)(leaf.eta1 + jax.random.normal(key, leaf.eta1.shape))
    state = eqx.tree_at(lambda s: s.leaves["y.selector"], state, noise)
    post = program(init=state, **inputs)
    assert post.converged and jnp.isfinite(post.free_energy)


# -- exact small problems under NGMP and EP ----------------------------------------------------------------------------


def _tiny_posterior(y, centres, v0, weights, precision):
    """Means of m_k and of classes, and the evidence, by summing over all assignments: given one, m is Gaussian."""
    k, n = len(centres), len(y)
    logs, means, labels = [], [], list(itertools.product(range(k), repeat=n))
    for z in map(np.array, labels):
        log_weight, found = np.sum(np.log(weights[z])), []
        for j in range(k):
            own = y[z == j]
            covariance = v0 + np.eye(len(own)) / precision if len(own) else np.zeros((0, 0))
            if len(own):
                log_weight += stats.multivariate_normal(np.full(len(own), centres[j]), covariance).logpdf(own)
            total = 1 / v0 + precision * len(own)
            found.append((centres[j] / v0 + precision * own.sum()) / total)
        logs.append(log_weight)
        means.append(found)
    logs = np.array(logs)
    p = np.exp(logs - logsumexp(logs))
    return p @ np.array(means), np.array([p[[z[i] == 0 for z in labels]].sum() for i in range(n)]), logsumexp(logs)


@pytest.mark.parametrize(("method", "tol"), [(NGMP(), 0.03), (EP(), 0.03), (VMP(), 0.12)], ids=["NGMP", "EP", "VMP"])
def test_tiny_mixture_against_enumeration(method, tol):
    y, centres, weights = np.array([-2.1, -1.2, 0.4, 1.6, 2.2]), np.array([-1.0, 1.0]), np.array([0.4, 0.6])

    def model(y):
        m = ngmp.sample("m", Normal(centres, variance=0.3))
        z = ngmp.sample("z", Categorical(probs=np.broadcast_to(weights, (5, 2))))
        ngmp.sample("y", Normal(take(m, z), precision=1.5), obs=y)

    mean, first, log_evidence = _tiny_posterior(y, centres, 0.3, weights, 1.5)
    post = ngmp.compile(model, method=method)(y=y)
    assert post.converged
    assert np.max(np.abs(post["m"].mean - mean)) < tol * 2
    assert np.max(np.abs(post["z"].probs[:, 0] - first)) < tol
    assert abs(-post.free_energy - log_evidence) < 5 * tol


@pytest.mark.slow
def test_universal_mixture_evidence():
    """Two Beta priors of one coin: EP is exact where every component is seen through one factor."""

    def model(heads, trials):
        theta = ngmp.sample("theta", Beta(np.array([7.0, 2.0]), np.array([2.0, 7.0])))
        s = ngmp.sample("s", Categorical(probs=np.array([0.7, 0.3])))
        ngmp.sample("y", Binomial(trials, probs=take(theta, s)), obs=heads)

    each = np.array([betaln(12, 7) - betaln(7, 2), betaln(7, 12) - betaln(2, 7)])
    np.testing.assert_allclose(-each, 8.288534459, atol=1e-9)
    log_choose = gammaln(11) - 2 * gammaln(6)
    for heads, trials in ((5.0, 10.0), (8.0, 10.0)):
        tails = trials - heads
        logs = np.log([0.7, 0.3]) + np.array(
            [betaln(7 + heads, 2 + tails) - betaln(7, 2), betaln(2 + heads, 7 + tails) - betaln(2, 7)]
        )
        log_choose = gammaln(trials + 1) - gammaln(heads + 1) - gammaln(tails + 1)
        post = ngmp.compile(model, method=EP())(heads=heads, trials=trials)
        np.testing.assert_allclose(-post.free_energy, logsumexp(logs) + log_choose, rtol=1e-9)
        np.testing.assert_allclose(post["s"].probs, np.exp(logs - logsumexp(logs)), rtol=1e-9)


def test_gamma_poisson_and_beta_bernoulli():
    def litter(y):
        theta = ngmp.sample("theta", Gamma(350.0, rate=0.05))
        ngmp.sample("y", Poisson(theta), obs=y)

    counts = np.full(365, 7)
    counts[: 2850 - 365 * 7] += 1
    assert counts.sum() == 2850
    post = ngmp.compile(litter)(y=counts)
    np.testing.assert_allclose([post["theta"].concentration, post["theta"].rate], [3200.0, 365.05], rtol=1e-12)

    def coin(y):
        p = ngmp.sample("p", Beta(4.0, 8.0))
        ngmp.sample("y", Bernoulli(probs=p), obs=y)

    post = ngmp.compile(coin)(y=np.arange(500) < 373)
    np.testing.assert_allclose([post["p"].a, post["p"].b], [377.0, 135.0], rtol=1e-12)


def test_a_latent_mixture_of_constants_is_one_factor():
    """Constant tables on a latent outcome: the class is exact under NGMP and EP, the rest under EP."""

    def model(y):
        z = ngmp.sample("z", Categorical(probs=np.array([0.5, 0.5])))
        x = ngmp.sample("x", Normal(take([-2.0, 2.0], z), variance=take([0.5, 0.2], z)))
        ngmp.sample("y", Normal(x, variance=0.3), obs=y)

    y, centre, spread = -0.2, np.array([-2.0, 2.0]), np.array([0.5, 0.2])
    logs = np.log(0.5) + stats.norm(centre, np.sqrt(spread + 0.3)).logpdf(y)
    probs = np.exp(logs - logsumexp(logs))
    mean = probs @ ((centre / spread + y / 0.3) / (1 / spread + 1 / 0.3))
    for method in (NGMP(), EP()):
        post = ngmp.compile(model, method=method)(y=y)
        assert post.converged
        np.testing.assert_allclose(post["z"].probs, probs, rtol=1e-8)
    np.testing.assert_allclose(post["x"].mean, mean, rtol=1e-8)
    np.testing.assert_allclose(-post.free_energy, logsumexp(logs), rtol=1e-9)


def test_outliers_against_enumeration():
    """A scale picked by a latent class, around a shared mean: robust location."""
    y, scales, weights = np.array([0.9, 1.1, 1.3, 6.0]), np.array([0.1, 10.0]), np.array([0.9, 0.1])

    def model(y):
        x = ngmp.sample("x", Normal(0.0, variance=4.0))
        z = ngmp.sample("z", Categorical(probs=np.broadcast_to(weights, (4, 2))))
        ngmp.sample("y", Normal(x, variance=take(scales, z)), obs=y)

    logs, means, labels = [], [], list(itertools.product(range(2), repeat=4))
    for z in map(list, labels):
        logs.append(
            np.log(weights[z]).sum() + stats.multivariate_normal(np.zeros(4), 4.0 + np.diag(scales[z])).logpdf(y)
        )
        means.append(np.sum(y / scales[z]) / (0.25 + np.sum(1 / scales[z])))
    logs = np.array(logs)
    p = np.exp(logs - logsumexp(logs))
    program = ngmp.compile(model, method=EP())
    post = program(y=y)
    assert post.converged
    assert abs(post["x"].mean - p @ np.array(means)) < 2e-3
    outlier = [p @ np.array([z[i] for z in labels]) for i in range(4)]
    np.testing.assert_allclose(post["z"].probs[:, 1], outlier, atol=5e-3)
    assert abs(-post.free_energy - logsumexp(logs)) < 0.02
    prediction = program.predict(post, "y", y=y)
    m, v, w = float(post["x"].mean), float(post["x"].variance), np.asarray(post["z"].probs)
    reached = np.sum(w * stats.norm(m, np.sqrt(v + scales)).cdf(np.asarray(prediction.quantile(0.8))[:, None]), 1)
    np.testing.assert_allclose(reached, 0.8, atol=1e-9)


# -- switching ---------------------------------------------------------------------------------------------------------

P = np.array([[0.9, 0.1], [0.2, 0.8]])


def _switching(n=30):
    rng = np.random.default_rng(1)
    z = [0]
    for _ in range(n - 1):
        z.append(rng.choice(2, p=P[z[-1]]))
    return np.array([-1.0, 2.0])[z] + rng.normal(size=n)


def _hmm(y, mask=None, variance=None):
    m = (
        np.array([-1.0, 2.0])
        if variance is None
        else ngmp.sample("m", Normal(np.array([-1.0, 2.0]), variance=variance))
    )
    z0 = ngmp.sample("z0", Categorical(probs=np.array([0.5, 0.5])))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Categorical(probs=take(P, z)))
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def _forward(y, seen, means):
    log_alpha = np.log([0.5, 0.5])
    for t in range(len(y)):
        log_alpha = logsumexp(log_alpha[:, None] + np.log(P), axis=0)
        log_alpha = log_alpha + seen[t] * stats.norm(means, 1.0).logpdf(y[t])
    return logsumexp(log_alpha)


@pytest.mark.parametrize("masked", [False, True], ids=["all seen", "masked"])
def test_hmm_with_gaussian_emissions_is_exact(masked):
    y = _switching()
    seen = np.arange(30) % 4 != 1 if masked else None
    post = ngmp.compile(_hmm)(y=y, mask=seen)
    counted = np.ones(30) if seen is None else seen
    np.testing.assert_allclose(-post.free_energy, _forward(y, counted, np.array([-1.0, 2.0])), rtol=1e-10)


@pytest.mark.slow
def test_hmm_with_random_means_against_quadrature():
    """Given the two means the chain is exact, so the evidence is a two-dimensional integral."""
    y = _switching()
    post = ngmp.compile(_hmm)(y=y, variance=0.25)
    x, w = np.polynomial.hermite_e.hermegauss(24)
    grid = np.array([[-1.0 + 0.5 * a, 2.0 + 0.5 * b] for a in x for b in x])
    weights = np.log(np.outer(w, w).ravel() / w.sum() ** 2)
    logs = np.array([_forward(y, np.ones(30), means) for means in grid]) + weights
    mean = np.exp(logs - logsumexp(logs)) @ grid
    assert post.converged
    assert np.max(np.abs(post["m"].mean - mean)) < 0.02
    assert abs(-post.free_energy - logsumexp(logs)) < 0.1


def test_a_loop_and_a_plate_give_one_program():
    """Declared one by one or as a plate: the same group of K x N gated factors."""
    y = two_clusters(40)

    def loop(y):
        m = ngmp.sample("m", Normal(np.array([-1.0, 1.0]), variance=10.0))
        for k in range(40):
            z = ngmp.sample("z", Categorical(probs=np.array([0.5, 0.5])))
            ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y[k])

    def plate(y):
        m = ngmp.sample("m", Normal(np.array([-1.0, 1.0]), variance=10.0))
        z = ngmp.sample("z", Categorical(probs=np.full((40, 2), 0.5)))
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y)

    programs = [ngmp.compile(f) for f in (loop, plate)]
    posts = [p(y=y) for p in programs]
    np.testing.assert_allclose(posts[0]["m"].mean, posts[1]["m"].mean, rtol=1e-7)
    predictions = [p.predict(post, "y", y=y) for p, post in zip(programs, posts, strict=True)]
    assert predictions[0].mean.shape == predictions[1].mean.shape == (40,)
    np.testing.assert_allclose(predictions[0].log_density, predictions[1].log_density, rtol=1e-6)


def _equations(jaxpr):
    """The number of equations, inner ones included."""
    inner = [x for e in jaxpr.eqns for p in e.params.values() for x in (p if isinstance(p, (tuple, list)) else (p,))]
    jaxprs = [getattr(x, "jaxpr", x) for x in inner]
    return len(jaxpr.eqns) + sum(_equations(x) for x in jaxprs if hasattr(x, "eqns"))


def test_program_size_does_not_depend_on_the_data():
    def equations(n, k):
        program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP())
        inputs = {"y": two_clusters(n), "centres": np.linspace(-3.0, 3.0, k), **SCALAR}
        state = program.init(**inputs)
        return _equations(jax.make_jaxpr(lambda s: program.step(s, **inputs))(state).jaxpr)

    assert equations(20, 2) == equations(70, 2) == equations(20, 5)


@pytest.mark.slow
def test_links_of_a_take():
    """`exp(take(...))`, arithmetic on it, and constant tables beside random ones; equal to the written-out table."""
    y = np.array([1.0, 9.0, 8.0, 0.0, 2.0, 11.0])

    def model(y, direct):
        m = ngmp.sample("m", Normal(np.array([0.0, 2.0]), variance=0.5))
        z = ngmp.sample("z", Categorical(probs=np.full((6, 2), 0.5)))
        shift = np.array([0.1, -0.1])
        rate = take(exp(m + shift), z) if direct else exp(take(m, z) + take(shift, z))
        ngmp.sample("y", Poisson(rate), obs=y)

    posts = [ngmp.compile(model)(y=y, direct=direct) for direct in (1, 0)]
    assert posts[0].converged
    np.testing.assert_allclose(posts[0]["m"].mean, posts[1]["m"].mean, rtol=1e-10)
    assert posts[0]["m"].mean[0] < 0.8 < posts[0]["m"].mean[1]


# -- prediction --------------------------------------------------------------------------------------------------------


def test_prediction_is_a_mixture():
    """Moments, density, distribution function and quantiles of a site against the mixture written out."""
    y = two_clusters(20)

    def model(y, mask=None):
        m = ngmp.sample("m", Normal(np.array([-1.0, 1.0]), variance=4.0))
        z = ngmp.sample("z", Categorical(probs=np.full((20, 2), 0.5)))
        ngmp.sample("y", Normal(take(m, z), variance=0.8), obs=y, mask=mask)

    seen = np.arange(20) % 5 != 0
    program = ngmp.compile(model)
    post = program(y=y, mask=seen)
    prediction = program.predict(post, "y", y=y, mask=seen)
    weights, m, v = np.asarray(post["z"].probs), np.asarray(post["m"].mean), np.asarray(post["m"].variance)
    mean = weights @ m
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.aleatoric, 0.8, rtol=1e-9)
    np.testing.assert_allclose(prediction.epistemic, weights @ (v + m**2) - mean**2, rtol=1e-8)
    density = np.sum(weights * stats.norm(m, np.sqrt(v + 0.8)).pdf(y[:, None]), 1)
    np.testing.assert_allclose(prediction.log_density, np.log(density), rtol=1e-8)
    quantile = prediction.quantile(0.3)
    reached = np.sum(weights * stats.norm(m, np.sqrt(v + 0.8)).cdf(np.asarray(quantile)[:, None]), 1)
    np.testing.assert_allclose(reached, 0.3, atol=1e-9)


# -- Wishart and inverse Gamma -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_normal_with_inverse_gamma_variance_is_the_gamma_precision():
    """1/v is a Gamma variable: the same posterior, residuals and evidence, under every rule."""
    y = np.random.default_rng(0).normal(1.0, 2.0, 12)

    def by_variance(y):
        x = ngmp.sample("x", Normal(0.0, variance=25.0))
        v = ngmp.sample("v", InverseGamma(2.0, scale=1.0))
        ngmp.sample("y", Normal(x, variance=v), obs=y)

    for method in (VMP(), NGMP(), EP()):
        post = ngmp.compile(by_variance, method=method)(y=y)
        reference = ngmp.compile(ngmp_models.mean_precision, method=method)(y=y)
        assert post.converged
        np.testing.assert_allclose(post["x"].mean, reference["x"].mean, rtol=1e-6)
        np.testing.assert_allclose(post["v"].concentration, reference["tau"].concentration, rtol=1e-6)
        np.testing.assert_allclose(post.free_energy, reference.free_energy, rtol=1e-8)


def test_known_mean_and_inverse_gamma_variance_is_conjugate():
    y = np.array([0.3, -1.2, 2.0])

    def model(y):
        v = ngmp.sample("v", InverseGamma(3.0, scale=2.0))
        ngmp.sample("y", Normal(0.5, variance=v), obs=y)

    post = ngmp.compile(model)(y=y)
    square = np.sum((y - 0.5) ** 2)
    np.testing.assert_allclose(post["v"].concentration, 4.5, rtol=1e-12)
    np.testing.assert_allclose(post["v"].scale, 2.0 + 0.5 * square, rtol=1e-12)
    log_evidence = 3 * np.log(2.0) - gammaln(3) + gammaln(4.5) - 4.5 * np.log(2.0 + 0.5 * square) - 1.5 * LOG_2PI
    np.testing.assert_allclose(-post.free_energy, log_evidence, rtol=1e-12)


def _incomplete(y, seen, variance=1.0, noise=1e-6):
    """Rows of which entries are missing: latent vectors, seen through their entries."""
    n, d = y.shape
    w = ngmp.sample("W", Wishart(float(d), scale=np.eye(d)))
    m = ngmp.sample("m", MvNormal(np.zeros(d), covariance=variance))
    x = ngmp.sample("x", MvNormal(broadcast_to(m, (n,)), precision=w))
    ngmp.sample("y", Normal(dot(np.eye(d), x[:, None]), variance=noise), obs=y, mask=seen)


def _incomplete_reference(y, seen, variance, sweeps=200):
    """Structured q(x, m) q(W) in numpy, observed entries exact: given E[W], one Gaussian over m and what is missing."""
    n, d = y.shape
    df, inverse = float(d), np.eye(d)
    for _ in range(sweeps):
        w = df * np.linalg.inv(inverse)
        # x_o | m ~ N(m_o, (W^-1)_oo), the missing entries integrated out
        cov = np.linalg.inv(w)
        precision, shift = np.eye(d) / variance, np.zeros(d)
        for i in range(n):
            o = np.flatnonzero(seen[i])
            inner = np.zeros((d, d))
            inner[np.ix_(o, o)] = np.linalg.inv(cov[np.ix_(o, o)])
            precision, shift = precision + inner, shift + inner @ y[i]
        v = np.linalg.inv(precision)
        m = v @ shift
        total = np.zeros((d, d))
        for i in range(n):
            o, u = np.flatnonzero(seen[i]), np.flatnonzero(~seen[i])
            # r = x - m: observed part y_o - m_o; missing part is regressed on it
            gain = cov[np.ix_(u, o)] @ np.linalg.inv(cov[np.ix_(o, o)])
            a = np.zeros((d, len(o)))
            a[o], a[u] = np.eye(len(o)), gain
            r, spread = a @ (y[i, o] - m[o]), a @ v[np.ix_(o, o)] @ a.T
            spread[np.ix_(u, u)] += cov[np.ix_(u, u)] - gain @ cov[np.ix_(o, u)]
            total += np.outer(r, r) + spread
        df, inverse = d + n, np.eye(d) + total
    return m, np.linalg.inv(df * np.linalg.inv(inverse))


def _incomplete_data(n, truth):
    rng = np.random.default_rng(0)
    y = truth + rng.normal(size=(n, len(truth)))
    return y, np.arange(len(truth)) != rng.integers(0, len(truth), n)[:, None]


def test_incomplete_data_is_structured_vmp():
    """q(x, m) q(W) against numpy, in three dimensions under a wide prior."""
    y, seen = _incomplete_data(25, np.array([3.0, -2.0, 1.0]))
    m, covariance = _incomplete_reference(y, seen, 10.0)
    program = ngmp.compile(_incomplete)
    post = program(y=np.where(seen, y, 0.0), seen=seen, variance=10.0)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.inv(post["W"].mean), covariance, rtol=1e-3, atol=1e-4)
    assert "StructuredVMP" in program.lower(y=y, seen=seen, variance=10.0).describe()


def test_mean_field_between_vectors():
    """x and m in clusters of their own: plain coordinate ascent in numpy, W with both."""
    rng = np.random.default_rng(2)
    y = np.array([2.0, -1.0]) + rng.normal(size=(6, 2))

    def model(y):
        w = ngmp.sample("W", Wishart(4.0, scale=np.eye(2)))
        m = ngmp.sample("m", MvNormal(np.zeros(2), covariance=4.0))
        x = ngmp.sample("x", MvNormal(broadcast_to(m, (6,)), precision=w))
        ngmp.sample("y", MvNormal(x, covariance=0.5), obs=y)

    df, inverse, m, v = 4.0, np.eye(2), np.zeros(2), 4.0 * np.eye(2)
    for _ in range(2000):
        w = df * np.linalg.inv(inverse)
        s = np.linalg.inv(w + 2.0 * np.eye(2))
        x = (2.0 * y + m @ w) @ s
        v = np.linalg.inv(np.eye(2) / 4.0 + 6 * w)
        m = v @ w @ x.sum(0)
        gap = x - m
        df, inverse = 10.0, np.eye(2) + gap.T @ gap + 6 * (s + v)
    post = ngmp.compile(model, method=VMP(), tol=1e-11, max_sweeps=2000)(y=y)
    assert post.converged
    np.testing.assert_allclose(post["m"].mean, m, rtol=1e-7)
    np.testing.assert_allclose(post["x"].mean, x, rtol=1e-7)
    np.testing.assert_allclose(post["x"].covariance, np.broadcast_to(s, (6, 2, 2)), rtol=1e-7)
    np.testing.assert_allclose(post["W"].inverse_scale, inverse, rtol=1e-7)


@pytest.mark.slow
def test_incomplete_data_reaches_the_good_fixed_point():
    """The gallery's model: the prior is twenty of its standard deviations off, and a bad fixed point exists."""
    truth = np.array([13.0, 1.0, 5.0, 4.0, -20.0, 10.0])
    y, seen = _incomplete_data(100, truth)
    post = ngmp.compile(_incomplete, tol=1e-5)(y=np.where(seen, y, 0.0), seen=seen)
    assert post.converged
    assert np.max(np.abs(post["m"].mean - truth)) < 0.3
    assert np.all(np.diagonal(np.linalg.inv(post["W"].mean)) < 1.3)


# -- bad input ---------------------------------------------------------------------------------------------------------


def _refused(model, *texts, **inputs):
    with pytest.raises((ngmp.ModelError, ngmp.DataError)) as caught:
        ngmp.compile(model)(**inputs)
    for text in texts:
        assert text in str(caught.value), str(caught.value)


def test_bad_mixtures():
    def pieces():
        m = ngmp.sample("m", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", Gamma(np.ones(2), rate=1.0))
        z = ngmp.sample("z", Categorical(probs=np.full((4, 2), 0.5)))
        return m, w, z

    def lengths(y):
        m, _, z = pieces()
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y)

    _refused(lengths, "'m' has batch shape (3,)", "2 classes", y=np.zeros(4))

    def plates(y):
        _, w, z = pieces()
        ngmp.sample("y", Normal(0.0, precision=take(w, z)), obs=y)

    _refused(plates, "site 'y'", "do not broadcast", y=np.zeros(5))

    def kernel(y):
        m, _, z = pieces()
        ngmp.sample("y", Normal(0.0, precision=take(m[:2], z)), obs=y)

    _refused(kernel, "Normal has no kernel where precision is a Gaussian variable", y=np.zeros(4))

    def tables(y):
        z = ngmp.sample("z", Categorical(probs=np.array([0.5, 0.6])))
        k = ngmp.sample("k", Categorical(probs=take(np.array([[0.5, 0.5], [0.9, 0.2]]), z)))
        ngmp.sample("y", Categorical(probs=take(np.eye(2), k)), obs=y)

    def rows(y):
        ngmp.sample("y", Normal(take(np.array([0.0, 1.0]), np.array([0, 2])), variance=1.0), obs=y)

    _refused(rows, "index 2", "0 to 1", y=np.zeros(2))
    _refused(tables, "site 'z'", "site 'k'", "site 'y'", "sum to one", "integers from 0 to 1", y=7)


def test_bad_wishart_and_inverse_gamma():
    def wishart(df, scale):
        w = ngmp.sample("W", Wishart(df, scale=scale))
        v = ngmp.sample("v", InverseGamma(-1.0, scale=0.0))
        ngmp.sample("y", MvNormal(np.zeros(2), precision=w), obs=np.zeros(2))
        ngmp.sample("u", Normal(0.0, variance=v), obs=1.0)

    every = ("df must be finite and above 1", "positive definite", "the shape must be positive", "the scale must be")
    _refused(wishart, *every, df=0.5, scale=np.array([[1.0, 2.0], [2.0, 1.0]]))

    def sizes():
        w = ngmp.sample("W", Wishart(4.0, scale=np.eye(3)))
        ngmp.sample("y", MvNormal(np.zeros(2), precision=w), obs=np.zeros(2))

    _refused(sizes, "site 'y'", "the mean has 2 entries", "3 x 3")

    def square():
        ngmp.sample("W", Wishart(4.0, scale=np.ones((2, 3))))

    _refused(square, "site 'W'", "square")


def test_dirichlet_weights_need_latent_or_observed_classes():
    """Both kinds in one model: observed classes are counts, latent ones expected counts."""

    def model(k):
        p = ngmp.sample("p", Dirichlet(np.array([1.0, 2.0, 3.0])))
        ngmp.sample("k", Categorical(probs=p), obs=k)
        ngmp.sample("z", Categorical(probs=broadcast_to(p, (5,))))

    post = ngmp.compile(model)(k=np.array([0, 0, 2]))
    # Classes of which nothing was seen change nothing.
    np.testing.assert_allclose(post["p"].concentration, [3.0, 2.0, 4.0], atol=1e-6)
    np.testing.assert_allclose(post["z"].probs, np.tile(np.array([3.0, 2.0, 4.0]) / 9, (5, 1)), atol=1e-6)
