"""Likelihoods and means with several Gaussian unknowns, as programs: against dense numerics, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, MvNormal, Normal, OrderedLogistic, dot


@pytest.fixture
def x(rng):
    return np.column_stack([np.ones(30), rng.standard_normal(30)])


def laplace_vi(log_joint, dim, nodes):
    """The Gaussian that maximises the evidence bound, by gradient ascent on many fixed nodes."""

    def bound(p):
        root = jnp.tril(p[dim:].reshape(dim, dim))
        z = p[:dim] + nodes @ root.T
        return jnp.mean(jax.vmap(log_joint)(z)) + jnp.sum(jnp.log(jnp.abs(jnp.diag(root))))

    p = jnp.concatenate([jnp.zeros(dim), 0.3 * jnp.eye(dim).reshape(-1)])
    lower = np.flatnonzero(np.concatenate([np.ones(dim), np.tril(np.ones((dim, dim))).reshape(-1)]))
    embed = jnp.eye(len(p))[:, lower]

    @jax.jit
    def newton(t, p):
        own = lambda t: bound(p + embed @ t)  # noqa: E731
        return jnp.linalg.solve(jax.hessian(own)(t) - 1e-9 * jnp.eye(len(t)), jax.grad(own)(t))

    for _ in range(30):
        p = p - embed @ newton(jnp.zeros(len(lower)), p) * 0.8
    root = jnp.tril(p[dim:].reshape(dim, dim))
    return np.asarray(p[:dim]), np.sqrt(np.diag(root @ root.T))


def test_softmax_is_full_covariance_inference(x, rng, x64):
    """Unary vector factors equal natural-gradient variational inference with a full covariance."""
    if not x64:
        pytest.skip("the reference needs double precision")
    y = (x @ rng.standard_normal((2, 3)) + rng.gumbel(size=(30, 3))).argmax(1)

    def model(x, y):
        v, w = (ngmp.sample(name, MvNormal(jnp.zeros(2), covariance=1.0)) for name in "vw")
        ngmp.sample("y", Categorical(logits=[0.0, dot(x, v), dot(x, w)]), obs=y)

    def log_joint(z):
        scores = jnp.stack([jnp.zeros(30), x @ z[:2], x @ z[2:]], -1)
        return jnp.sum(jax.nn.log_softmax(scores)[np.arange(30), y]) - 0.5 * jnp.sum(z**2)

    from scipy.stats import norm, qmc

    u = norm.ppf(qmc.Sobol(4, seed=1).random(2048))
    u = np.concatenate([u, -u])
    u = u @ np.linalg.inv(np.linalg.cholesky(u.T @ u / len(u))).T
    mean, std = laplace_vi(log_joint, 4, u)
    program = ngmp.compile(model)
    post = program(x=x, y=y)
    np.testing.assert_allclose(np.concatenate([post["v"].mean, post["w"].mean]), mean, atol=0.01)
    np.testing.assert_allclose(np.concatenate([post["v"].std, post["w"].std]), std, rtol=0.01)
    prediction = program.predict(post, "y", x=x, y=y)
    np.testing.assert_allclose(prediction.mean.sum(-1), 1.0, rtol=1e-6)
    picked = np.log(np.asarray(prediction.mean))[np.arange(30), y]
    np.testing.assert_allclose(prediction.log_density, picked, rtol=1e-6)


def test_more_scores_than_coefficients(rng):
    """A model of choice: five scores of two coefficients; the same as a factor of the two."""
    a = rng.standard_normal((20, 5, 2))
    y = (a @ np.array([1.0, -1.0]) + rng.gumbel(size=(20, 5))).argmax(1).astype(float)

    def model(a, y):
        ngmp.sample("y", Categorical(logits=a @ ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))), obs=y)

    def by_factor(a, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
        rows = [a[:, k] - jnp.take_along_axis(a, y.astype(int)[:, None, None], 1)[:, 0] for k in range(5)]

        def log_density(p, q, *rows):
            return -jax.nn.logsumexp(jnp.stack([r * p + s * q for r, s in zip(rows[::2], rows[1::2], strict=True)]))

        one = np.zeros(20)
        entries = [r[:, i] for r in rows for i in range(2)]
        ngmp.factor("y", log_density, w[0] + one, w[1] + one, *entries)

    post, other = ngmp.compile(model)(a=a, y=y), ngmp.compile(by_factor)(a=a, y=y)
    np.testing.assert_allclose(post["w"].mean, other["w"].mean, atol=2e-3)
    np.testing.assert_allclose(post["w"].std, other["w"].std, rtol=5e-3)
    np.testing.assert_allclose(post.free_energy, other.free_energy, atol=5e-3)


def test_cutpoints(x, rng):
    """Unknown cutpoints that the prior pins down are known ones."""
    y = np.digitize(x[:, 1] + rng.logistic(size=30), [-0.5, 1.0])

    def known(x, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
        ngmp.sample("y", OrderedLogistic(dot(x, w), np.array([-0.5, 1.0])), obs=y)

    def pinned(x, y):
        w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
        c = ngmp.sample("c", Normal(np.array([-0.5, np.log(1.5)]), std=1e-3))
        ngmp.sample("y", OrderedLogistic(dot(x, w), ordered=c), obs=y)

    a, b = ngmp.compile(known)(x=x, y=y), ngmp.compile(pinned)(x=x, y=y)
    np.testing.assert_allclose(a["w"].mean, b["w"].mean, atol=2e-3)
    np.testing.assert_allclose(a["w"].std, b["w"].std, rtol=2e-3)
    np.testing.assert_allclose(a.free_energy, b.free_energy, atol=2e-3)


def test_products(rng, x64):
    """Two products by `dot` of two vectors and by numbers: one model; and its gradient."""
    t = rng.standard_normal((12, 2))
    y = t @ np.array([1.0, -0.5]) + 0.3 * rng.standard_normal(12)

    def vectors(y, std=0.3):
        b, t = _sides()
        ngmp.sample("y", Normal(dot(t, b), std=std), obs=y)

    def numbers(y):
        b, t = _sides()
        ngmp.sample("y", Normal(t[:, 0] * b[0] + b[1] * t[:, 1], std=0.3), obs=y)

    def _sides():
        return ngmp.sample("b", MvNormal(jnp.ones(2), covariance=1.0)), ngmp.sample("t", MvNormal(seen, covariance=0.1))

    seen = t + 0.3 * rng.standard_normal((12, 2))
    program = ngmp.compile(vectors, method=ngmp.NGMP())  # under EP, gradients are those of five nodes an axis
    posts = program(y=y), ngmp.compile(numbers, method=ngmp.NGMP())(y=y)
    assert all(post.converged for post in posts)
    np.testing.assert_allclose(posts[1]["b"].mean, posts[0]["b"].mean, rtol=1e-5)
    np.testing.assert_allclose(posts[1].free_energy, posts[0].free_energy, rtol=1e-6)
    if x64:
        slope = jax.grad(lambda std: program(y=y, std=std).free_energy)(0.3)
        ends = [program(y=y, std=s).free_energy for s in (0.301, 0.299)]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 0.002, rtol=1e-4)


def test_log_gaussian(rng):
    """A Gamma precision by its logarithm, joined with the mean: close to the exact posterior, and said so."""
    y = rng.normal(1.0, 0.5, 12)

    def model(y):
        x, tau = ngmp.sample("x", Normal(0.0, std=3.0)), ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(x + np.zeros(12), precision=tau), obs=y)

    options = {"families": {"tau": "log-gaussian"}, "joint": [("x", "log_tau")]}
    post = ngmp.compile(model, **options)(y=y)
    grid = np.linspace(-3, 5, 2001)[:, None]
    n, m = 12, y.mean()
    spread = 9 + np.exp(-grid) / n
    logs = 2.0 * grid - np.exp(grid) + 0.5 * (n - 1) * grid - 0.5 * np.exp(grid) * np.sum((y - m) ** 2)
    logs = logs - 0.5 * np.log(spread) - 0.5 * m**2 / spread
    w = np.exp(logs - logs.max())
    w /= w.sum()
    mean = (w * grid).sum()
    std = np.sqrt((w * (grid - mean) ** 2).sum())
    np.testing.assert_allclose(post["log_tau"].mean, mean, atol=0.05 * std)
    np.testing.assert_allclose(post["log_tau"].std, std, rtol=0.08)
    assert set(post.skewness) == {"x", "log_tau"} and not post.skewed
    with pytest.raises(ngmp.ModelError, match="names no latent variable"):
        ngmp.compile(model, families={"rate": "log-gaussian"})(y=y)
    with pytest.raises(ngmp.ModelError, match="Gaussian logarithm of Normal"):
        ngmp.compile(model, families={"x": "log-gaussian"})(y=y)


def test_refusals():
    def three(y):
        a, b = ngmp.sample("a", Normal(np.zeros(2), std=1.0)), ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(a[0] * a[1] + a[0] * a[0], precision=b), obs=y)

    def lengths(y):
        a = ngmp.sample("a", MvNormal(np.zeros(2), covariance=1.0))
        b = ngmp.sample("b", MvNormal(np.zeros(3), covariance=1.0))
        ngmp.sample("y", Normal(dot(a, b), std=1.0), obs=y)

    def many(y):
        c = ngmp.sample("c", Normal(np.zeros(9), std=1.0))
        ngmp.sample("y", OrderedLogistic(0.0, ordered=c), obs=y)

    for model, match in ((three, "precision"), (lengths, "equal length"), (many, "cutpoints")):
        with pytest.raises(ngmp.ModelError, match=match):
            ngmp.compile(model)(y=np.ones(4))


def test_counts_of_classes_with_scores_are_as_many_classes(x, rng):
    """A multinomial of n is n categorical outcomes of the same scores, but for its coefficient."""
    counts = rng.multinomial(4, [0.2, 0.5, 0.3], len(x))
    classes = np.array([np.repeat(np.arange(3), row) for row in counts])

    def model(x, y, kind):
        v, w = (ngmp.sample(k, MvNormal(np.zeros(2), covariance=1.0)) for k in "vw")
        for column in [y] if kind is ngmp.Multinomial else y.T:
            ngmp.sample("y", kind(logits=[0.0, x @ v, x @ w]), obs=column)

    one, other = (ngmp.compile(model)(x=x, y=y, kind=kind)
                  for y, kind in ((counts, ngmp.Multinomial), (classes, Categorical)))  # fmt: skip
    assert one.converged and other.converged
    np.testing.assert_allclose(one["v"].mean, other["v"].mean, atol=1e-6)
    np.testing.assert_allclose(one["w"].covariance, other["w"].covariance, rtol=1e-5)
    coefficient = np.log([24 / np.prod([[1, 1, 2, 6, 24][k] for k in row]) for row in counts]).sum()
    np.testing.assert_allclose(one.free_energy, other.free_energy - coefficient, rtol=1e-7)
