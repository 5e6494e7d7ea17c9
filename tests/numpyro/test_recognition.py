"""What is recognised in NumPyro models, and what is refused, with the site and the line."""

import inspect
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ngmp_compiler as ngmp

numpyro = pytest.importorskip("numpyro", reason="the optional extra 'numpyro' is not installed")
dist = pytest.importorskip("numpyro.distributions")

Y = np.random.default_rng(0).normal(size=12)


def described(model, integrate=(), **inputs):
    return ngmp.compile(ngmp.from_numpyro(model), integrate=integrate).lower(**inputs).describe()


def line(text, site):
    """What is said of a site under `recognised`."""
    part = text.split("recognised")[1].split("variables")[0]
    return next(row for row in part.splitlines() if row.split()[:1] == [site])


def test_the_package_does_not_import_numpyro():
    """Only the room of that name does, and what imports it is inside of functions."""
    root = Path(ngmp.__file__).parent
    found = [p for p in root.rglob("*.py") if re.search(r"^(import|from) numpyro", p.read_text(), re.MULTILINE)]
    assert {p.parent.name for p in found} == {"numpyro"} and not [p for p in found if p.name == "__init__.py"]
    inner = r"^from (\.+|ngmp_compiler\.)numpyro\.\w+ import"
    others = [p for p in root.rglob("*.py") if p.parent.name != "numpyro"]
    assert not [p for p in others if re.search(inner, p.read_text(), re.MULTILINE)]


def test_plates_nest_and_masks_and_factors_are_kept():
    def model(y, seen):
        with numpyro.plate("columns", 3, dim=-1):
            b = numpyro.sample("b", dist.Normal(0.0, 1.0))
            with numpyro.plate("rows", 4, dim=-2):
                a = numpyro.sample("a", dist.Normal(b, 1.0))
                with numpyro.handlers.mask(mask=seen):
                    numpyro.sample("y", dist.Normal(a, 1.0), obs=y)
        numpyro.factor("sum", -0.5 * jnp.sum(b) ** 2)

    text = described(model, y=Y.reshape(4, 3), seen=np.ones((4, 3), bool))
    assert "(4, 3)" in text and "12 masked" in text and "loc affine in 'b'" in line(text, "a")


def test_a_random_scale_makes_a_noncentred_model_centred():
    def model(y):
        s = numpyro.sample("s", dist.LogNormal(0.0, 1.0))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([y.shape[0]]))
        a = numpyro.deterministic("a", 1.0 + s * z)
        numpyro.sample("y", dist.Poisson(jnp.exp(a)), obs=y)

    text = described(model, y=np.arange(12))
    assert "'a'" in line(text, "z") and "\n  a " in text.split("variables")[1].split("factors")[0]


def test_a_gamma_precision_is_conjugate_and_a_log_density_is_a_factor():
    def model(y):
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(m, 1.0 / jnp.sqrt(tau)), obs=y)
        numpyro.sample("x", dist.SoftLaplace(m, 1.0), obs=y)

    text = described(model, y=Y)
    assert "'tau' ** -0.5" in line(text, "y") and "log-density" in line(text, "x") and "NoisePrecision" in text


def test_a_scan_starts_at_a_constant_and_carries_the_time():
    from numpyro.contrib.control_flow import scan

    def model(y):
        def step(carry, y_k):
            x, t = carry
            x = numpyro.sample("x", dist.Normal(0.9 * x, 1.0))
            numpyro.sample("y", dist.Normal(x + 0.1 * t, 1.0), obs=y_k)
            return (x, t + 1), x

        _, x = scan(step, (0.0, 0), y)
        numpyro.deterministic("last", x[-1])

    text = described(model, y=Y)
    assert "chain" in text and "(12,)" in text


def test_all_problems_are_listed_with_their_lines():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([20]))
        with numpyro.plate("rows", 12, subsample_size=4):
            pass
        R = numpyro.sample("R", dist.LKJ(3, 1.0))
        key = numpyro.prng_key()
        numpyro.sample("y", dist.Normal(jnp.sort(a)[:12], 1.0 + 0 * jax.random.uniform(key)), obs=y)
        numpyro.sample("x", dist.Normal(R[0, 1], 1.0), obs=1.0)

    with pytest.raises(ngmp.ModelError) as error:
        described(model, y=Y)
    text = str(error.value)
    start = inspect.getsourcelines(model)[1]
    expected = [("rows", 2, "subsample"), ("R", 4, "LKJ"), ("prng_key", 5, "unseeded"), ("y", 6, "sort")]
    for site, offset, word in expected:
        assert f"'{site}'" in text and word in text and f"test_recognition.py:{start + offset}" in text


def test_a_scaled_prior_is_refused_and_a_scaled_likelihood_is_not():
    def model(y, prior):
        with numpyro.handlers.scale(scale=2.0):
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=None if prior else y[0])
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        with numpyro.handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    assert "log-density" in line(described(model, y=Y, prior=False), "y")
    with pytest.raises(ngmp.ModelError, match="'x'"):
        described(model, y=Y, prior=True)


def test_structure_that_depends_on_a_latent_value_is_refused():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        if a > 0:
            numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)

    with pytest.raises(ngmp.ModelError, match=r"value of a latent variable.*test_recognition.py:\d+, after site 'a'"):
        described(model, y=Y)


def test_what_was_tried_in_vain_leaves_nothing_behind():
    """A distribution without a kernel for its parameters is a log-density, of data or of constants; no node is left."""

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0))
        f = x @ w
        numpyro.sample("y", dist.Bernoulli(probs=0.1 + 0.8 * jax.nn.sigmoid(f)), obs=y)
        m = jax.nn.sigmoid(f)
        numpyro.sample("z", dist.Beta(3.0 * m, 3.0 - 3.0 * m), obs=0.5 * jnp.ones(len(y)))

    text = described(model, x=Y.reshape(6, 2), y=np.arange(6) % 2)
    assert "log-density" in line(text, "y") and "log-density" in line(text, "z") and "node" not in text


def test_multiples_of_one_unknown_are_one_unknown():
    """The concentrations of a Beta regression are functions of f and of -f: two unknowns would be one too many."""

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0))
        m = jax.nn.sigmoid(x @ w)
        numpyro.sample("y", dist.Beta(5.0 * m, 5.0 * (1.0 - m)), obs=y)

    x, y = np.random.default_rng(3).normal(size=(12, 2)), np.linspace(0.1, 0.9, 12)
    post = ngmp.compile(ngmp.from_numpyro(model))(x=x, y=y)
    w = np.linspace(-2.5, 2.5, 201)
    m = 1 / (1 + np.exp(-(x[:, 0, None, None] * w[:, None] + x[:, 1, None, None] * w)))
    log = stats.beta.logpdf(y[:, None, None], 5.0 * m, 5.0 * (1.0 - m)).sum(0)
    log += stats.norm.logpdf(w[:, None]) + stats.norm.logpdf(w)
    p = np.exp(log - log.max())
    mean = np.stack([(p.sum(1) * w).sum(), (p.sum(0) * w).sum()]) / p.sum()
    assert bool(post.converged)
    np.testing.assert_allclose(post["w"].mean, mean, atol=0.01)
    np.testing.assert_allclose(-post.free_energy, np.log(p.sum() * 0.025**2) + log.max(), atol=0.05)


@pytest.mark.parametrize("prior", ["HalfNormal", "LogNormal"])
def test_expanded_numbers_are_integrated_whole(prior):
    """`.expand([2])` of a prior with scalar parameters is two numbers, one for each entry."""

    def model(y):
        d = dist.HalfNormal(1.0) if prior == "HalfNormal" else dist.LogNormal(0.0, 1.0)
        sd = numpyro.sample("sd", d.expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(0.0, sd), obs=y)

    y = np.array([[0.3, 2.0], [-0.5, 1.5], [0.4, -3.0]])
    post = ngmp.compile(ngmp.from_numpyro(model), integrate=("sd",))(y=y)
    s = np.linspace(1e-3, 30.0, 60001)
    law = stats.halfnorm() if prior == "HalfNormal" else stats.lognorm(1.0)
    log = law.logpdf(s) + stats.norm.logpdf(y[..., None], 0.0, s).sum(0)
    p = np.exp(log)
    assert bool(post.converged)
    np.testing.assert_allclose(post["sd"].mean, (p * s).sum(-1) / p.sum(-1), rtol=0.01)
    np.testing.assert_allclose(-post.free_energy, np.log(p.sum(-1) * (s[1] - s[0])).sum(), atol=0.01)


def test_ordered_numbers_without_a_kernel_are_integrated(only64):
    """Two levels that rise, in a mixture: the evidence is that of a sum over a grid of them."""
    y = np.array([-1.1, -0.7, 1.9, 2.2, 2.4])

    def model(y):
        base = dist.Normal(0.0, 2.0).expand([2]).to_event(1)
        mu = numpyro.sample("mu", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
        classes = dist.Categorical(probs=jnp.array([0.4, 0.6]))
        numpyro.sample("y", dist.MixtureSameFamily(classes, dist.Normal(mu, 0.5)), obs=y)

    post = ngmp.compile(ngmp.from_numpyro(model), integrate="auto")(y=y)
    grid = np.linspace(-12.0, 12.0, 1201)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    each = 0.4 * stats.norm.pdf(y[:, None, None], a, 0.5) + 0.6 * stats.norm.pdf(y[:, None, None], a + np.exp(b), 0.5)
    mass = np.prod(each, 0) * stats.norm.pdf(a, 0.0, 2.0) * stats.norm.pdf(b, 0.0, 2.0) * (grid[1] - grid[0]) ** 2
    assert post.converged
    np.testing.assert_allclose(post.free_energy, -np.log(mass.sum()), atol=2e-3)
    np.testing.assert_allclose(post["mu_base"].mean, [(mass * x).sum() / mass.sum() for x in (a, b)], atol=5e-3)


def test_a_log_density_that_is_summed_is_one_for_every_row():
    """`numpyro.factor` of a sum over more rows than a function may have: as of the same factor without a sum."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    y = np.arange(12.0) % 4

    def model(X, y, how):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 1.0))
        l = 0.5 + X @ w  # noqa: E741
        rows = y * l - jnp.exp(l)
        numpyro.factor("y", {"rows": rows, "sum": rows.sum(), "apart": (y * l).sum() - jnp.exp(l).sum() + 1.0}[how])

    posts = [ngmp.compile(ngmp.from_numpyro(model))(X=X, y=y, how=how) for how in ("rows", "sum", "apart")]
    for post in posts[1:]:
        assert post.converged
        np.testing.assert_allclose(post["w"].mean, posts[0]["w"].mean, atol=1e-6)
        np.testing.assert_allclose(post["w"].covariance, posts[0]["w"].covariance, atol=1e-6)
    np.testing.assert_allclose(posts[1].free_energy, posts[0].free_energy, atol=1e-6)


def test_a_truncated_prior_is_integrated(only64):
    """Of one number: against a grid."""
    y = np.array([0.1, -0.3, 0.6])

    def model(y):
        m = numpyro.sample("m", dist.TruncatedNormal(-0.5, 1.0, low=0.0))
        numpyro.sample("y", dist.Normal(m, 0.7), obs=y)

    post = ngmp.compile(ngmp.from_numpyro(model), integrate="auto")(y=y)
    grid = np.linspace(0.0, 8.0, 20001)
    mass = stats.norm.pdf(grid, -0.5, 1.0) / stats.norm.sf(0.5) * np.prod(stats.norm.pdf(y[:, None], grid, 0.7), 0)
    mass *= grid[1]
    assert post.converged
    np.testing.assert_allclose(post.free_energy, -np.log(mass.sum()), atol=1e-3)
    np.testing.assert_allclose(post["m"].mean, (mass * grid).sum() / mass.sum(), rtol=2e-3)


def test_distributions_that_check_what_they_are_made_of():
    """A GammaPoisson makes a Gamma of its parameters, which asks whether numbers are positive."""

    def model(y):
        d = numpyro.sample("d", dist.HalfNormal(2.0))
        numpyro.sample("y", dist.GammaPoisson(d, d / numpyro.sample("m", dist.LogNormal(1.0, 1.0))), obs=y)

    described = ngmp.compile(ngmp.from_numpyro(model), integrate=("d",)).lower(y=np.array([3, 1, 4])).describe()
    assert "d     positive" in described


def test_a_branch_that_is_known_is_taken_and_any_other_is_refused():
    from numpyro.contrib.control_flow import cond

    def model(y, wide, random):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        narrow, broad = (lambda _, s=s: numpyro.sample("b", dist.Normal(a, s)) for s in (1.0, 5.0))
        b = cond(a > 0.0 if random else wide, broad, narrow, None)
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)

    for wide, variance in ((True, 27.0), (False, 3.0)):
        post = ngmp.compile(ngmp.from_numpyro(model))(y=0.5, wide=wide, random=False)
        np.testing.assert_allclose(post.free_energy, -stats.norm.logpdf(0.5, 0.0, np.sqrt(variance)), rtol=1e-5)
    with pytest.raises(ngmp.ModelError, match=r"stochastic control flow.*test_recognition.py:\d+"):
        described(model, y=0.5, wide=True, random=True)
