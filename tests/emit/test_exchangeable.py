"""Mixtures and hidden Markov models whose classes have equal priors: told apart by the data, at the start.

The reference is the same program started at the truth; a symmetric answer is tens of nats above it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Gamma, MvNormal, Normal, Poisson, Wishart, broadcast_to, take
from ngmp_compiler.emit.apart import cluster
from ngmp_kernels.families import Dirichlet as DirichletFamily
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian, MvGaussian

K = 3
FLAT = np.full(K, 1 / K)


def path(rng, n):
    z = [0]
    for _ in range(n - 1):
        z.append(z[-1] if rng.random() < 0.85 else int(rng.integers(K)))
    return np.array(z)


def chain(y, mask, emit):
    A = ngmp.sample("A", Dirichlet(np.ones((K, K))))

    def step(z, x):
        z = ngmp.sample("z", Categorical(probs=take(A, z)))
        ngmp.sample("y", emit(z), obs=x[0], mask=x[1])
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=FLAT)), (y, mask))


def gaussian_hmm(y, mask=None):
    m = ngmp.sample("m", Normal(np.zeros(K), variance=100.0))
    w = ngmp.sample("w", Gamma(np.full(K, 2.0), rate=1.0))
    chain(y, mask, lambda z: Normal(take(m, z), precision=take(w, z)))


def poisson_hmm(y, mask=None):
    rate = ngmp.sample("rate", Gamma(np.ones(K), rate=0.1))
    chain(y, mask, lambda z: Poisson(take(rate, z)))


def discrete_hmm(y, mask=None):
    B = ngmp.sample("B", Dirichlet(np.ones((K, 6))))
    chain(y, mask, lambda z: Categorical(probs=take(B, z)))


def mixture(y, mask=None):
    p = ngmp.sample("p", Dirichlet(np.ones(K)))
    m = ngmp.sample("m", Normal(np.zeros(K), variance=100.0))
    w = ngmp.sample("w", Gamma(np.full(K, 2.0), rate=1.0))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(p, (len(y),))))
    ngmp.sample("y", Normal(take(m, z), precision=take(w, z)), obs=y, mask=mask)


def plane(y, mask=None):
    m = ngmp.sample("m", MvNormal(np.zeros((K, 2)), covariance=100.0))
    W = ngmp.sample("W", Wishart(4.0, scale=np.broadcast_to(0.25 * np.eye(2), (K, 2, 2))))
    z = ngmp.sample("z", Categorical(probs=np.full((len(y), K), 1 / K)))
    ngmp.sample("y", MvNormal(take(m, z), precision=take(W, z)), obs=y, mask=mask)


MEANS, RATES = np.array([-5.0, 0.0, 6.0]), np.array([2.0, 12.0, 40.0])
CORNERS = np.array([[-5.0, 0.0], [0.0, 5.0], [4.0, -4.0]])
ROWS = np.array([[9, 9, 1, 0.5, 0.5, 0.5], [0.5, 0.5, 9, 9, 1, 0.5], [0.5, 0.5, 0.5, 1, 9, 9]])
ROWS /= ROWS.sum(1, keepdims=True)


def near(means):
    return Gaussian.from_mean_variance(jnp.asarray(means), jnp.full(K, 0.01))


UNIT = GammaFamily.from_concentration_rate(jnp.full(K, 20.0), jnp.full(K, 20.0))
SPOTS = MvGaussian.from_mean_covariance(jnp.asarray(CORNERS), jnp.broadcast_to(0.01 * jnp.eye(2), (K, 2, 2)))
CASES = {
    "gaussian_hmm": (gaussian_hmm, lambda r, z: MEANS[z] + r.normal(size=len(z)),
                     {"m": near(MEANS), "w": UNIT}),
    "poisson_hmm": (poisson_hmm, lambda r, z: r.poisson(RATES[z]),
                    {"rate": GammaFamily.from_concentration_rate(jnp.asarray(10 * RATES), jnp.full(K, 10.0))}),
    "discrete_hmm": (discrete_hmm, lambda r, z: np.array([r.choice(6, p=ROWS[k]) for k in z]),
                     {"B": DirichletFamily.from_concentration(jnp.asarray(20 * ROWS + 1))}),
    "mixture": (mixture, lambda r, z: MEANS[r.permutation(z)] + r.normal(size=len(z)),
                {"m": near(MEANS), "w": UNIT}),
    "plane": (plane, lambda r, z: CORNERS[z] + r.normal(size=(len(z), 2)),
              {"m": SPOTS}),
}  # fmt: skip


@pytest.mark.parametrize("name", ["discrete_hmm", *(
    pytest.param(n, marks=pytest.mark.slow) for n in ("mixture", "gaussian_hmm", "poisson_hmm", "plane"))])  # fmt: skip
def test_equal_priors_reach_what_the_truth_reaches(name, rng):
    model, draw, truth = CASES[name]
    y = draw(rng, path(rng, 90))
    program = ngmp.compile(model)
    post, best = program(y=y), program(y=y, init=truth)
    assert bool(post.converged)
    assert float(post.free_energy) <= float(best.free_energy) + 0.1
    used = np.asarray(post["z"].probs).argmax(1)
    assert len(np.unique(used)) > 1
    assert "start at clusters of the outcomes" in program.lower(y=y).describe()


def test_masked_outcomes_and_vmap(rng):
    def model(y, mask):
        m = ngmp.sample("m", Normal(np.zeros(K), variance=100.0))
        z = ngmp.sample("z", Categorical(probs=np.full((len(y), K), 1 / K)))
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y, mask=mask)

    z = path(rng, 60)
    y, seen = MEANS[z] + rng.normal(size=60), rng.random((2, 60)) < 0.8
    program = ngmp.compile(model)
    found = jax.vmap(lambda s: program(y=jnp.where(s, y, 1e6), mask=s)["m"].mean)(jnp.asarray(seen))
    np.testing.assert_allclose(np.asarray(found), np.stack([MEANS, MEANS]), atol=1.0)  # in ascending order


def test_priors_that_differ_decide(rng):
    """The order of the classes is that of the priors, not of the clusters."""

    def model(y):
        m = ngmp.sample("m", Normal(np.array([4.0, -4.0]), variance=9.0))
        z = ngmp.sample("z", Categorical(probs=np.full((len(y), 2), 0.5)))
        ngmp.sample("y", Normal(take(m, z), variance=1.0), obs=y)

    y = np.concatenate([rng.normal(-4.0, 1.0, 20), rng.normal(4.0, 1.0, 20)])
    post = ngmp.compile(model)(y=y)
    assert post["m"].mean[0] > 3 and post["m"].mean[1] < -3


def test_clusters(rng):
    """Outliers attract no centre of their own where there are clusters to find; empty rows count for nothing."""
    z = rng.integers(0, 4, 400)
    x = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 2.0], [3.0, -2.0]])[z] * 4 + rng.normal(size=(400, 2)) * 0.5
    seen = np.ones(400, bool)
    seen[:5], x[:5] = False, 1e3
    label = np.asarray(cluster(jnp.asarray(x), jnp.asarray(seen), 4))
    np.testing.assert_array_equal(label[5:], z[5:])
