"""Mixtures and switching: `take` of random parameters, against enumeration and quadrature."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

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
    Normal,
    Poisson,
    broadcast_to,
    exp,
    take,
)
from tests.inside import equations
from tests.program.mixture_references import SCALAR, refused, two_clusters

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


def test_program_size_does_not_depend_on_the_data():
    def size(n, k):
        program = ngmp.compile(ngmp_models.gaussian_mixture, method=VMP())
        inputs = {"y": two_clusters(n), "centres": np.linspace(-3.0, 3.0, k), **SCALAR}
        state = program.init(**inputs)
        return equations(jax.make_jaxpr(lambda s: program.step(s, **inputs))(state).jaxpr)

    # Short leaves are stacked, and which go together depends a little on how long they are.
    assert size(70, 2) == pytest.approx(size(20, 2), rel=0.01) and size(20, 5) == pytest.approx(size(20, 2), rel=0.01)


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


def test_bad_mixtures():
    def pieces():
        m = ngmp.sample("m", Normal(np.zeros(3), variance=1.0))
        w = ngmp.sample("w", Gamma(np.ones(2), rate=1.0))
        z = ngmp.sample("z", Categorical(probs=np.full((4, 2), 0.5)))
        return m, w, z

    def lengths(y):
        m, _, z = pieces()
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y)

    refused(lengths, "'m' has batch shape (3,)", "2 classes", y=np.zeros(4))

    def plates(y):
        _, w, z = pieces()
        ngmp.sample("y", Normal(0.0, precision=take(w, z)), obs=y)

    refused(plates, "site 'y'", "do not broadcast", y=np.zeros(5))

    def kernel(y):
        m, _, z = pieces()
        ngmp.sample("y", Normal(0.0, precision=take(m[:2], z)), obs=y)

    refused(kernel, "Normal has no kernel where precision is a Gaussian variable", y=np.zeros(4))

    def tables(y):
        z = ngmp.sample("z", Categorical(probs=np.array([0.5, 0.6])))
        k = ngmp.sample("k", Categorical(probs=take(np.array([[0.5, 0.5], [0.9, 0.2]]), z)))
        ngmp.sample("y", Categorical(probs=take(np.eye(2), k)), obs=y)

    def rows(y):
        ngmp.sample("y", Normal(take(np.array([0.0, 1.0]), np.array([0, 2])), variance=1.0), obs=y)

    refused(rows, "index 2", "0 to 1", y=np.zeros(2))
    refused(tables, "site 'z'", "site 'k'", "site 'y'", "sum to one", "integers from 0 to 1", y=7)


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
