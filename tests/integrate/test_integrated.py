"""Hyperparameters integrated out, against brute-force grids and enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Gamma, HalfCauchy, HalfNormal, Normal, Poisson, Uniform

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
S = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(y, s, scale=5.0):
    tau = ngmp.sample("tau", HalfCauchy(scale=scale))
    mu = ngmp.sample("mu", Normal(0.0, std=5.0))
    theta = ngmp.sample("theta", Normal(ngmp.broadcast_to(mu, (8,)), std=tau))
    ngmp.sample("y", Normal(theta, std=s), obs=y)


SCHOOLS = ngmp.compile(schools, integrate="tau")


def moments(log_mass, *values):
    """Minus the log-evidence, and mean, standard deviation and quantiles of each axis of a grid."""
    total = np.logaddexp.reduce(log_mass.reshape(-1))
    weights = np.exp(log_mass - total)
    out = []
    for axis, x in enumerate(values):
        w = weights.sum(tuple(k for k in range(weights.ndim) if k != axis))
        mean = (w * x).sum()
        quantiles = np.interp([0.05, 0.95], np.cumsum(w) - 0.5 * w, x)
        out.append((mean, np.sqrt((w * (x - mean) ** 2).sum()), *quantiles))
    return -total, out


def schools_grid(y, scale=5.0):
    u = np.linspace(-14.0, 8.0, 3000)
    tau = np.exp(u)
    cov = np.eye(8) * (S**2 + tau[:, None, None] ** 2) + 25.0
    solved = np.linalg.solve(cov, np.broadcast_to(y, (len(u), 8))[..., None])[..., 0]
    log = -0.5 * np.linalg.slogdet(2 * np.pi * cov)[1] - 0.5 * solved @ y
    log += np.log(2 / np.pi / scale) - np.log1p((tau / scale) ** 2) + u + np.log(u[1] - u[0])
    return log, tau


@pytest.fixture(scope="module")
def post():
    return SCHOOLS(y=Y, s=S)


def test_eight_schools(post):
    energy, [(mean, sd, low, high)] = moments(*schools_grid(Y))
    assert bool(post.converged) and post.reason == "converged"
    assert not post.exact and post.approximate == ("tau: integrated by a sum over 41 nodes",)
    assert float(post.free_energy) == pytest.approx(energy, abs=1e-3)
    tau = post["tau"]
    assert abs(float(tau.mean) - mean) < 0.01 * sd and float(tau.std) == pytest.approx(sd, rel=0.01)
    np.testing.assert_allclose(tau.quantile(np.array([0.05, 0.95])), [low, high], atol=0.05 * sd)
    grid = np.linspace(0.05, 60.0, 4000)
    density = np.asarray(tau.density(grid))
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(tau.cdf(tau.quantile(0.3)), 0.3, atol=1e-4)


def test_others_are_mixtures(post):
    """The posterior of theta given tau is Gaussian; mixed over the exact grid."""
    log, tau = schools_grid(Y)
    weights = np.exp(log - np.logaddexp.reduce(log))
    design = np.concatenate([np.ones((8, 1)), np.eye(8)], 1)  # theta = mu + tau * deviation
    means, variances = [], []
    for t, w in zip(tau[::20], weights[::20], strict=True):
        if w < 1e-12:
            continue
        prior = np.diag([25.0, *[t**2] * 8])
        gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.diag(S**2))
        m, c = design @ gain @ Y, design @ (prior - gain @ design @ prior) @ design.T
        means.append((w, m)), variances.append(np.diag(c))
    w = np.array([w for w, _ in means])
    w, m, v = w / w.sum(), np.array([m for _, m in means]), np.array(variances)
    mean = w @ m
    sd = np.sqrt(w @ (v + (m - mean) ** 2))
    np.testing.assert_allclose(post["theta"].mean, mean, atol=0.02)
    np.testing.assert_allclose(post["theta"].std, sd, rtol=5e-3)
    q = post["theta"].quantile(np.array([0.1, 0.9]))
    assert q.shape == (2, 8)
    np.testing.assert_allclose(post["theta"].cdf(q[0]), 0.1, atol=1e-6)


def test_derivatives(post):
    """In an input of the model, of the evidence and of a mean, against differences."""
    del post

    def both(scale):
        found = SCHOOLS(y=Y, s=S, scale=scale)
        return found.free_energy, found["tau"].mean

    energy, mean = (jax.grad(lambda x, k=k: both(x)[k])(5.0) for k in range(2))
    up, down = both(5.05), both(4.95)
    np.testing.assert_allclose(energy, (up[0] - down[0]) / 0.1, rtol=1e-3)
    np.testing.assert_allclose(mean, (up[1] - down[1]) / 0.1, rtol=1e-3)


def test_many_data_sets(post):
    batch = np.stack([Y, 2 * Y, Y - 3.0])
    many = jax.jit(jax.vmap(lambda y: SCHOOLS(y=y, s=S)))(batch)
    assert many["tau"].quantile(0.5).shape == (3,) and many["theta"].mean.shape == (3, 8)
    np.testing.assert_allclose(many.free_energy[0], post.free_energy, rtol=1e-9)
    for y, energy in zip(batch, many.free_energy, strict=True):
        assert float(energy) == pytest.approx(moments(*schools_grid(y))[0], abs=2e-3)


def test_prediction_is_a_mixture(post):
    found = SCHOOLS.predict(post, "y", y=Y, s=S)
    np.testing.assert_allclose(found.mean, post["theta"].mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, post["theta"].variance + S**2, rtol=1e-6)
    assert np.all(np.isfinite(found.log_density))
    q = found.quantile(np.array([0.1, 0.9]))
    np.testing.assert_allclose(found.cdf(q[1]), 0.9, atol=1e-6)


def test_draws(post, key):
    draws = np.asarray(post["theta"].sample(key, (4000,)))
    np.testing.assert_allclose(draws.mean(0), post["theta"].mean, atol=4 * float(post["theta"].std.max()) / 63)
    tau = np.asarray(post["tau"].sample(key, (4000,)))
    assert abs(tau.mean() - float(post["tau"].mean)) < 0.1 * float(post["tau"].std)


def test_what_is_described():
    text = SCHOOLS.lower(y=Y, s=S).describe()
    assert "integrated numerically" in text and "tau" in text and "integrate= names it" in text


def test_two_variances_of_a_chain():
    rng = np.random.default_rng(5)
    y = np.cumsum(0.5 * rng.normal(size=60)) + rng.normal(size=60)

    def level(y):
        sd = ngmp.sample("sd", HalfNormal(std=1.0))
        r = ngmp.sample("r", Uniform(0.1, 5.0))

        def step(x, y_k):
            x = ngmp.sample("x", Normal(x, std=sd))
            ngmp.sample("y", Normal(x, std=r), obs=y_k)
            return x, None

        ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=3.0)), y)

    post = ngmp.compile(level, integrate=("sd", "r"))(y=y)
    sd, r = np.exp(np.linspace(-3.5, 1.0, 120)), np.linspace(0.12, 2.2, 150)
    log = np.zeros((120, 150)) - np.log(4.9)
    mean, variance = np.zeros_like(log), np.full_like(log, 9.0)
    for y_k in y:  # the Kalman filter
        variance = variance + sd[:, None] ** 2
        whole = variance + r**2
        log += -0.5 * np.log(2 * np.pi * whole) - 0.5 * (y_k - mean) ** 2 / whole
        mean, variance = mean + variance / whole * (y_k - mean), variance * r**2 / whole
    log += (0.5 * np.log(2 / np.pi) - 0.5 * sd**2 + np.log(sd) + np.log(4.5 / 119))[:, None] + np.log(r[1] - r[0])
    energy, exact = moments(log, sd, r)
    assert bool(post.converged) and float(post.free_energy) == pytest.approx(energy, abs=0.01)
    for name, (m, s, low, high) in zip(("sd", "r"), exact, strict=True):
        assert abs(float(post[name].mean) - m) < 0.02 * s and float(post[name].std) == pytest.approx(s, rel=0.02)
        np.testing.assert_allclose(post[name].quantile(np.array([0.05, 0.95])), [low, high], atol=0.05 * s)


def test_a_change_point_is_summed():
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.poisson(3.0, 12), rng.poisson(0.8, 18)]).astype(float)
    n = len(y)

    def coal(y):
        k = ngmp.sample("k", Categorical(probs=np.full(n, 1 / n)))
        rates = [ngmp.sample(name, Gamma(2.0, rate=1.0)) for name in ("before", "after")]
        time = jnp.arange(n)
        for rate, site, mask in zip(rates, ("y1", "y2"), (time < k, time >= k), strict=True):
            ngmp.sample(site, Poisson(ngmp.broadcast_to(rate, (n,))), obs=y, mask=mask)

    post = ngmp.compile(coal, integrate="k")(y=y)
    total = np.concatenate([[0.0], np.cumsum(y)])

    def evidence(count, size):
        return gammaln(2 + count) - (2 + count) * np.log(1 + size)

    log = np.array([evidence(total[k], k) + evidence(total[n] - total[k], n - k) for k in range(n)])
    log -= gammaln(y + 1).sum() + np.log(n)
    whole = np.logaddexp.reduce(log)
    np.testing.assert_allclose(post["k"].probs, np.exp(log - whole), atol=1e-9)
    assert post.exact and not post.approximate
    assert float(post.free_energy) == pytest.approx(-whole, abs=1e-8)
    rate = np.exp(log - whole) @ ((2 + total[:n]) / (1 + np.arange(n)))
    assert float(post["before"].mean) == pytest.approx(rate, rel=1e-9)


def test_proportions():
    """Weights of a mixture of two known Gaussians, integrated: against a grid."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(25) < 0.3, -2.0, 2.0) + rng.normal(size=25)

    def mixture(y):
        w = ngmp.sample("w", Dirichlet(np.array([2.0, 2.0])))
        z = ngmp.sample("z", Categorical(probs=jnp.broadcast_to(jnp.asarray(w), (25, 2))))
        ngmp.sample("y", Normal(ngmp.take(np.array([-2.0, 2.0]), z), std=1.0), obs=y)

    post = ngmp.compile(mixture, integrate="w")(y=y)
    p = np.linspace(5e-4, 1 - 5e-4, 2000)
    log = np.log(6.0) + np.log(p) + np.log1p(-p) + np.log(p[1] - p[0])
    for y_k in y:
        log += np.logaddexp(np.log(p) - 0.5 * (y_k + 2.0) ** 2, np.log1p(-p) - 0.5 * (y_k - 2.0) ** 2)
    _, [(mean, sd, *_)] = moments(log, p)
    assert abs(float(post["w"].mean[0]) - mean) < 0.02 * sd
    assert float(post["w"].std[0]) == pytest.approx(sd, rel=0.02)


@pytest.mark.core32
@pytest.mark.filterwarnings("ignore:the whole model is computed in float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_either_precision(dtype, x64):
    """The precision is that of the inputs, whether jax is set to double precision or not."""
    if dtype == np.float64 and not x64:
        pytest.skip("this process has no float64")
    post = SCHOOLS(y=Y.astype(dtype), s=S.astype(dtype))
    energy, [(mean, sd, *_)] = moments(*schools_grid(Y))
    assert post["tau"].mean.dtype == dtype and bool(post.converged)
    assert float(post.free_energy) == pytest.approx(energy, abs=0.01)
    assert abs(float(post["tau"].mean) - mean) < 0.02 * sd


def test_export(post, tmp_path):
    """A program of integrated sites runs from a file, and is lowered for other platforms."""
    path = tmp_path / "schools.ngmp"
    SCHOOLS.export(path, y=Y, s=S, platforms=("cpu", "cuda", "tpu"))
    again = ngmp.load_exported(path)(y=Y, s=S)
    assert float(again.free_energy) == pytest.approx(float(post.free_energy), rel=1e-12)
    np.testing.assert_allclose(again["tau"].quantile(0.9), post["tau"].quantile(0.9), rtol=1e-10)
    np.testing.assert_allclose(again["theta"].std, post["theta"].std, rtol=1e-10)
    assert float(again.nodes.weights.sum()) == pytest.approx(1.0)
