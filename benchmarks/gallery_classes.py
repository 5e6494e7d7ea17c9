"""The gallery's discrete models, by enumeration, and its mixtures, for NumPyro with the classes summed out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from gallery_case import Case, normals

import ngmp_models as models
from ngmp_models.discrete import RAIN, SPRINKLER, WET


def shares(names, sizes, joint):
    """Probabilities of every variable, and the deviations of their indicators, from the joint over all of them."""
    cells = {k: np.zeros(n) for k, n in zip(names, sizes, strict=True)}
    total = 0.0
    for at in itertools.product(*(range(n) for n in sizes)):
        p = joint(*at)
        total += p
        for k, i in zip(names, at, strict=True):
            cells[k][i] += p
    return {k: (c / total, np.sqrt(c / total * (1 - c / total))) for k, c in cells.items()}


def _path(n, k, initial, transition, likelihood):
    """Marginals of a hidden path of n steps over k states, by summing over all paths."""

    def joint(*z):
        p = initial[z[0]]
        for t in range(n):
            p *= transition[z[t], z[t + 1]] * likelihood[t, z[t + 1]]
        return p

    found = shares([f"z{t}" for t in range(n + 1)], [k] * (n + 1), joint)
    every = [found[f"z{t}"] for t in range(n + 1)]
    return {"z0": every[0], "z": tuple(np.stack(x) for x in zip(*every[1:], strict=True))}


def hmm(y, initial, transition, emission):
    return _path(len(y), len(initial), initial, transition, emission[:, y].T)


def gaussian_hmm(y, transition, means):
    k = len(means)
    return _path(len(y), k, np.full(k, 1 / k), transition, scipy.stats.norm.pdf(y[:, None], means, 0.5))


def occupancy(y, visits):
    there = 0.4 * scipy.stats.binom.pmf(y, visits, 0.3)
    p = np.stack([0.6 * (y == 0), there], 1)
    p /= p.sum(1, keepdims=True)
    return {"z": (p, np.sqrt(p * (1 - p)))}


def sprinkler(wet):
    def joint(cloudy, rain, sprinkler):
        return 0.5 * RAIN[cloudy, rain] * SPRINKLER[cloudy, sprinkler] * WET[sprinkler, rain, wet]

    return shares(["cloudy", "rain", "sprinkler"], [2, 2, 2], joint)


def skills(score):
    def joint(s0, s1, s2):
        t0 = 1 - s0
        t1 = t0 | s1
        passed = t0, t1, t1 & s2
        return np.prod([r if t else 1 - r for t, r in zip(passed, score, strict=True)])

    return shares(["s0", "s1", "s2"], [2, 2, 2], joint)


def learned_hmm(numpyro, dist, y, transition, emission):
    a = numpyro.sample("A", dist.Dirichlet(jnp.asarray(transition)).to_event(1))
    b = numpyro.sample("B", dist.Dirichlet(jnp.asarray(emission)).to_event(1))
    k = len(transition)

    def step(p, y_k):
        p = jax.scipy.special.logsumexp(p[:, None] + jnp.log(a), 0) + jnp.log(b[:, y_k])
        return p, None

    p, _ = jax.lax.scan(step, jnp.full(k, -jnp.log(k)), jnp.asarray(y))
    numpyro.factor("y", jax.scipy.special.logsumexp(p))


def _summed(numpyro, pi, log_likelihoods):
    numpyro.factor("y", jnp.sum(jax.scipy.special.logsumexp(jnp.log(pi) + log_likelihoods, -1)))


def gaussian_mixture(numpyro, dist, y, centres, variance, shape, rate):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(len(centres))))
    m = normals(numpyro, dist, "m", len(centres), variance**0.5, centres)
    w = numpyro.sample("w", dist.Gamma(shape * jnp.ones(len(centres)), rate).to_event(1))
    _summed(numpyro, pi, dist.Normal(m, w**-0.5).log_prob(y[:, None]))


def vector_mixture(numpyro, dist, y, centres, variance, scale):
    k, d = centres.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(k)))
    m = normals(numpyro, dist, "m", (k, d), variance**0.5, centres)
    prior = dist.Wishart(d + 1.0, scale_matrix=scale * jnp.eye(d))
    w = jnp.stack([numpyro.sample(f"W{i}", prior) for i in range(k)])
    _summed(numpyro, pi, dist.MultivariateNormal(m, precision_matrix=w).log_prob(y[:, None]))


def poisson_mixture(numpyro, dist, y, shape):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(len(shape))))
    rates = numpyro.sample("rates", dist.Gamma(shape, 1.0).to_event(1))
    _summed(numpyro, pi, dist.Poisson(rates).log_prob(y[:, None]))


def outliers(numpyro, dist, features, y):
    w = normals(numpyro, dist, "w", features.shape[1], 2.0)
    f = (features @ w)[:, None]
    _summed(numpyro, jnp.array([0.9, 0.1]), dist.Normal(f, jnp.array([0.3, 5.0])).log_prob(y[:, None]))


def latent_classes(numpyro, dist, y, a, b):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(len(a))))
    p = jnp.stack([numpyro.sample(f"p{j}", dist.Beta(a[:, j], b[:, j]).to_event(1)) for j in range(a.shape[1])], 1)
    _summed(numpyro, pi, dist.Bernoulli(p).log_prob(y[:, None]).sum(-1))


def discrete() -> list[Case]:
    rng = np.random.default_rng(10)
    sticky = 0.8 * np.eye(3) + 0.2 / 3
    emission = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    visits = rng.integers(2, 7, 30)
    y = rng.binomial(visits, 0.3) * (rng.random(30) < 0.4)
    state, seen = 0, []
    for _ in range(150):
        state = state if rng.random() < 0.9 else 1 - state
        seen.append(int(rng.choice(3, p=[[0.8, 0.15, 0.05], [0.05, 0.15, 0.8]][state])))
    prior = {"transition": np.array([[8.0, 2.0], [2.0, 8.0]]), "emission": np.array([[6.0, 2.0, 1.0], [1.0, 2.0, 6.0]])}
    start = {"initial": np.full(3, 1 / 3), "transition": sticky}
    noisy = np.array([-0.2, 0.4, 1.1, 0.9, 2.2, 1.7, 0.3])
    means = np.array([0.0, 1.0, 2.0])
    return [
        Case("hmm", models.hmm, {"y": rng.integers(0, 3, 7), **start, "emission": emission}, hmm, how="exact"),
        Case("gaussian_hmm", models.gaussian_hmm, {"y": noisy, "transition": sticky, "means": means}, gaussian_hmm,
             how="exact"),
        Case("occupancy", models.occupancy, {"y": y, "visits": visits}, occupancy, how="exact"),
        Case("sprinkler", models.sprinkler, {"wet": 1}, sprinkler, how="exact"),
        Case("skills", models.skills, {"score": np.array([0.8, 0.9, 0.3])}, skills, how="exact"),
        Case("learned_hmm", models.learned_hmm, {"y": np.array(seen), **prior}, learned_hmm),
    ]  # fmt: skip


def mixtures() -> list[Case]:
    rng = np.random.default_rng(11)
    z = rng.integers(0, 2, 120)
    y = np.where(z == 0, rng.normal(-2.0, 0.8, 120), rng.normal(2.0, 0.6, 120))
    scalar = {"y": y, "centres": np.array([-2.0, 2.0]), "variance": 4.0, "shape": 2.0, "rate": 1.0}
    points = np.where(z[:, None] == 0, rng.normal(-2.0, 0.8, (120, 2)), rng.normal(2.0, 0.6, (120, 2)))
    vector = {"y": points, "centres": np.array([[-2.0, -2.0], [2.0, 2.0]]), "variance": 4.0, "scale": 1.0}
    counts = np.where(z == 0, rng.poisson(2.0, 120), rng.poisson(12.0, 120))
    x = np.stack([np.ones(60), rng.standard_normal(60)], 1)
    wild = x @ np.array([1.0, -0.5]) + np.where(rng.random(60) < 0.1, 5.0, 0.3) * rng.standard_normal(60)
    p = np.array([[0.2, 0.15, 0.3, 0.1, 0.2], [0.8, 0.9, 0.7, 0.85, 0.8]])
    answers = (rng.random((120, 5)) < p[z]).astype(int)
    a, b = np.array([[1.0] * 5, [4.0] * 5]), np.array([[4.0] * 5, [1.0] * 5])
    return [
        Case("gaussian_mixture", models.gaussian_mixture, scalar, gaussian_mixture),
        Case("vector_mixture", models.vector_mixture, vector, vector_mixture),
        Case("poisson_mixture", models.poisson_mixture, {"y": counts, "shape": np.array([2.0, 12.0])}, poisson_mixture),
        Case("outliers", models.outliers, {"features": x, "y": wild}, outliers),
        Case("latent_classes", models.latent_classes, {"y": answers, "a": a, "b": b}, latent_classes),
    ]
