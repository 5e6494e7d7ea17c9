"""Eleven more models of `accuracy.py`, of the same kinds: more classes, cutpoints, items, lags, states and factors."""

import jax
import jax.numpy as jnp
import numpy as np
from accuracy_chains import STEPS, normals
from accuracy_models import Case, heteroscedastic, ref_heteroscedastic

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Categorical, MvNormal, NegativeBinomial, Normal, OrderedLogistic, Weibull, dot, exp


def five_classes(x, y):
    """Softmax of five classes, the first with score zero."""
    w = [ngmp.sample(f"w{k}", MvNormal(np.zeros(x.shape[1]), covariance=4.0)) for k in range(4)]
    ngmp.sample("y", Categorical(logits=[0.0, *(dot(x, v) for v in w)]), obs=y)


def ref_five_classes(numpyro, dist, x, y):
    w = [normals(numpyro, dist, f"w{k}", x.shape[1], 2.0) for k in range(4)]
    logits = jnp.stack([jnp.zeros(len(x)), *(x @ v for v in w)], -1)
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y.astype(int))


def six_cutpoints(x, y):
    """Seven ordered classes, all cutpoints unknown."""
    w = ngmp.sample("w", MvNormal(np.zeros(x.shape[1]), covariance=4.0))
    c = ngmp.sample("c", MvNormal(np.array([-2.0, 0, 0, 0, 0, 0]), covariance=np.diag([4.0, 1, 1, 1, 1, 1])))
    ngmp.sample("y", OrderedLogistic(dot(x, w), ordered=c), obs=y)


def ref_six_cutpoints(numpyro, dist, x, y):
    w = normals(numpyro, dist, "w", x.shape[1], 2.0)
    c = normals(numpyro, dist, "c", 6, jnp.array([2.0, 1, 1, 1, 1, 1]), jnp.array([-2.0, 0, 0, 0, 0, 0]))
    cuts = jnp.cumsum(jnp.concatenate([c[:1], jnp.exp(c[1:])]))
    numpyro.sample("y", dist.OrderedLogistic(x @ w, cuts), obs=y.astype(int))


def two_regressors(x, y):
    """Two regressors seen with noise, an intercept, and unknown noise of the outcome."""
    a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(np.zeros(2), std=2.0))
    ls = ngmp.sample("ls", Normal(-1.0, std=0.7))
    t = ngmp.sample("t", Normal(np.zeros(x.shape), std=1.0))
    ngmp.sample("x", Normal(t, std=0.4), obs=x)
    ngmp.sample("y", Normal(a + b[0] * t[:, 0] + b[1] * t[:, 1], std=exp(ls)), obs=y)


def ref_two_regressors(numpyro, dist, x, y):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), normals(numpyro, dist, "b", 2, 2.0)
    ls, t = numpyro.sample("ls", dist.Normal(-1.0, 0.7)), normals(numpyro, dist, "t", x.shape)
    numpyro.sample("x", dist.Normal(t, 0.4), obs=x)
    numpyro.sample("y", dist.Normal(a + t @ b, jnp.exp(ls)), obs=y)


def forty_items(y):
    """2PL with forty items."""
    theta = ngmp.sample("theta", Normal(np.zeros((y.shape[0], 1)), std=1.0))
    a, b = ngmp.sample("a", Normal(np.ones(y.shape[1]), std=0.5)), ngmp.sample("b", Normal(np.zeros(y.shape[1]), std=1))
    ngmp.sample("y", Bernoulli(logits=a * theta - b), obs=y)


def ref_forty_items(numpyro, dist, y):
    theta = normals(numpyro, dist, "theta", (y.shape[0], 1))
    a, b = normals(numpyro, dist, "a", y.shape[1], 0.5, 1.0), normals(numpyro, dist, "b", y.shape[1])
    numpyro.sample("y", dist.Bernoulli(logits=a * theta - b), obs=y)


def third_order(y):
    """A latent AR(3) of unknown coefficients, seen with noise."""
    phi = ngmp.sample("phi", Normal(np.array([0.5, 0.0, 0.0]), std=0.5))
    start = ngmp.sample("x0", Normal(np.zeros(3), std=1.0))

    def step(carry, y_k):
        x = ngmp.sample("x", Normal(phi[0] * carry[2] + phi[1] * carry[1] + phi[2] * carry[0], std=0.5))
        ngmp.sample("y", Normal(x, std=0.3), obs=y_k)
        return (carry[1], carry[2], x), None

    ngmp.scan(step, (start[0], start[1], start[2]), y)


def ref_third_order(numpyro, dist, y):
    phi, x0 = normals(numpyro, dist, "phi", 3, 0.5, jnp.array([0.5, 0, 0])), normals(numpyro, dist, "x0", 3)
    e = normals(numpyro, dist, "e", len(y), 0.5)

    def step(carry, e):
        x = phi[0] * carry[2] + phi[1] * carry[1] + phi[2] * carry[0] + e
        return (carry[1], carry[2], x), x

    x = numpyro.deterministic("x", jax.lax.scan(step, (x0[0], x0[1], x0[2]), e)[1])
    numpyro.sample("y", dist.Normal(x, 0.3), obs=y)


def three_states(y):
    """A latent VAR(1) of three states with an unknown matrix."""
    a = ngmp.sample("A", MvNormal(np.zeros((3, 3)), covariance=0.3))

    def step(x, y_k):
        x = ngmp.sample("x", MvNormal(a @ x, covariance=0.25))
        ngmp.sample("y", MvNormal(x, covariance=0.09), obs=y_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", MvNormal(np.zeros(3), covariance=1.0)), y)


def ref_three_states(numpyro, dist, y):
    a, x0 = normals(numpyro, dist, "A", (3, 3), 0.3**0.5), normals(numpyro, dist, "x0", 3)
    e = normals(numpyro, dist, "e", y.shape, 0.5)
    x = numpyro.deterministic("x", jax.lax.scan(lambda x, e: (a @ x + e,) * 2, x0, e)[1])
    numpyro.sample("y", dist.Normal(x, 0.3), obs=y)


WEIGHTS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [-0.5, 1.0], [0.5, 0.5]])


def components(y):
    """Probabilistic PCA: two components, six outcomes a row, unknown noise; loadings are known up to 0.4."""
    z = ngmp.sample("z", MvNormal(np.zeros((len(y), 2)), covariance=1.0))
    w, ls = ngmp.sample("w", MvNormal(WEIGHTS, covariance=0.16)), ngmp.sample("ls", Normal(-0.5, std=0.7))
    for j in range(6):
        ngmp.sample("y", Normal(dot(z, w[j]), std=exp(ls)), obs=y[:, j])


def ref_components(numpyro, dist, y):
    z, w = normals(numpyro, dist, "z", (len(y), 2)), normals(numpyro, dist, "w", (6, 2), 0.4, WEIGHTS)
    ls = numpyro.sample("ls", dist.Normal(-0.5, 0.7))
    numpyro.sample("y", dist.Normal(z @ w.T, jnp.exp(ls)), obs=y)


def exposures(x, t, y):
    """Negative binomial counts of unknown dispersion, over known exposures."""
    w, ld = ngmp.sample("w", MvNormal(np.zeros(x.shape[1]), covariance=4.0)), ngmp.sample("ld", Normal(0.0, std=1.5))
    ngmp.sample("y", NegativeBinomial(mean=exp(dot(x, w) + jnp.log(t)), dispersion=exp(ld)), obs=y)


def ref_exposures(numpyro, dist, x, t, y):
    w, ld = normals(numpyro, dist, "w", x.shape[1], 2.0), numpyro.sample("ld", dist.Normal(0.0, 1.5))
    numpyro.sample("y", dist.NegativeBinomial2(t * jnp.exp(x @ w), jnp.exp(ld)), obs=y)


def censored_times(x, t, censored):
    """Weibull times of unknown shape, a third of them censored."""
    w, k = ngmp.sample("w", MvNormal(np.zeros(x.shape[1]), covariance=4.0)), ngmp.sample("k", Normal(0.0, std=1.0))
    ngmp.sample("t", Weibull(exp(k), scale=exp(dot(x, w))), obs=t, censored=censored)


def ref_censored_times(numpyro, dist, x, t, censored):
    w, k = normals(numpyro, dist, "w", x.shape[1], 2.0), numpyro.sample("k", dist.Normal(0.0, 1.0))
    shape, z = jnp.exp(k), jnp.exp(k) * (jnp.log(t) - x @ w)
    numpyro.factor("t", jnp.sum(jnp.where(censored, 0.0, jnp.log(shape) - jnp.log(t) + z) - jnp.exp(z)))


def three_products(z, y):
    """Three products of unknowns in one mean: three inputs of every row, seen with noise."""
    a = ngmp.sample("a", Normal(np.array([1.0, 0.5, -0.5]), std=1.0))
    t = ngmp.sample("t", Normal(np.zeros(z.shape), std=1.0))
    ngmp.sample("z", Normal(t, std=0.3), obs=z)
    ngmp.sample("y", Normal(a[0] * t[:, 0] + a[1] * t[:, 1] + a[2] * t[:, 2], std=0.5), obs=y)


def ref_three_products(numpyro, dist, z, y):
    a = normals(numpyro, dist, "a", 3, 1.0, jnp.array([1.0, 0.5, -0.5]))
    t = normals(numpyro, dist, "t", z.shape)
    numpyro.sample("z", dist.Normal(t, 0.3), obs=z)
    numpyro.sample("y", dist.Normal(t @ a, 0.5), obs=y)


def cases() -> list[Case]:
    """All cases with their data."""
    rng = np.random.default_rng(20)
    x = np.concatenate([np.ones((150, 1)), rng.standard_normal((150, 2))], 1)
    scores = x @ np.concatenate([np.zeros((3, 1)), rng.standard_normal((3, 4))], 1)
    classes = (scores + rng.gumbel(size=scores.shape)).argmax(1).astype(float)
    grades = np.digitize(x[:, 1:] @ np.array([1.5, -0.7]) + rng.logistic(size=150), [-3, -1.5, -0.5, 0.4, 1.2, 2.8])
    t = rng.standard_normal((80, 2))
    both = {"x": t + 0.4 * rng.standard_normal((80, 2)),
            "y": 0.7 + t @ np.array([1.0, -0.6]) + 0.5 * rng.standard_normal(80)}  # fmt: skip
    logits = (1 + 0.4 * rng.standard_normal(40)) * rng.standard_normal((60, 1)) - rng.standard_normal(40)
    right = (rng.random((60, 40)) < 1 / (1 + np.exp(-logits))).astype(float)
    ar, var = np.zeros(STEPS + 3), np.zeros((STEPS + 1, 3))
    for k in range(3, STEPS + 3):
        ar[k] = 0.6 * ar[k - 1] + 0.4 * ar[k - 2] - 0.3 * ar[k - 3] + 0.5 * rng.standard_normal()
    matrix = np.array([[0.7, 0.2, 0.0], [-0.2, 0.6, 0.2], [0.0, -0.2, 0.5]])
    for k in range(1, STEPS + 1):
        var[k] = matrix @ var[k - 1] + 0.5 * rng.standard_normal(3)
    turned = rng.standard_normal((50, 2)) @ (WEIGHTS + 0.3 * rng.standard_normal((6, 2))).T
    time = rng.uniform(0.5, 5.0, 150)
    rate = time * np.exp(x @ np.array([0.2, 0.5, -0.3]))
    counts = rng.poisson(rate * rng.gamma(1.5, 1 / 1.5, 150)).astype(float)
    ends, stop = np.exp(x @ np.array([0.5, 0.6, -0.4])) * rng.weibull(1.4, 150), rng.exponential(4.0, 150)
    times = {"x": x, "t": np.minimum(ends, stop), "censored": (stop < ends).astype(float)}
    inner = rng.standard_normal((70, 3))
    outer = inner @ np.array([1.2, 0.6, -0.8]) + 0.5 * rng.standard_normal(70)
    noisy = {"x": x, "y": x @ np.array([0.5, 1.0, -0.5]) + np.exp(0.4 * x[:, 1]) * rng.standard_normal(150)}
    seen = {"z": inner + 0.3 * rng.standard_normal((70, 3)), "y": outer}
    return [
        Case("softmax, five classes", five_classes, {"x": x, "y": classes}, ref_five_classes),
        Case("ordinal, six cutpoints", six_cutpoints, {"x": x[:, 1:], "y": grades.astype(float)}, ref_six_cutpoints),
        Case("two noisy regressors", two_regressors, both, ref_two_regressors),
        Case("2PL, forty items", forty_items, {"y": right}, ref_forty_items),
        Case("latent AR(3)", third_order, {"y": ar[3:] + 0.3 * rng.standard_normal(STEPS)}, ref_third_order),
        Case("latent VAR(1), three states", three_states,
             {"y": var[1:] + 0.3 * rng.standard_normal((STEPS, 3))}, ref_three_states),
        Case("probabilistic PCA", components, {"y": turned + 0.6 * rng.standard_normal((50, 6))}, ref_components),
        Case("negative binomial, exposures", exposures, {"x": x, "t": time, "y": counts}, ref_exposures),
        Case("Weibull, censored", censored_times, times, ref_censored_times),
        Case("three products", three_products, seen, ref_three_products),
        Case("heteroscedastic, joint=False", heteroscedastic, noisy, ref_heteroscedastic, {"joint": False}),
    ]  # fmt: skip
