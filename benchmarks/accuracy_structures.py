"""Hierarchies and products with unknown coefficients and scales, each as a program of ours and of NumPyro."""

import jax
import jax.numpy as jnp
import numpy as np
from accuracy_chains import STEPS, ar1, ar2, normals, ref_ar1, ref_ar2, ref_var1, ref_volatility, var1, volatility
from accuracy_models import Case
from jax.scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, Normal, Poisson, exp

# -- hierarchies -------------------------------------------------------------------------------------------------------


def eight_schools(y, sd):
    """Effects N(mu, e^{2 lt}), centred."""
    mu, lt = ngmp.sample("mu", Normal(0.0, std=10.0)), ngmp.sample("lt", Normal(1.5, std=1.0))
    theta = ngmp.sample("theta", Normal(mu + np.zeros(8), std=exp(lt)))
    ngmp.sample("y", Normal(theta, std=sd), obs=y)


def ref_eight_schools(numpyro, dist, y, sd):
    mu, lt = numpyro.sample("mu", dist.Normal(0.0, 10.0)), numpyro.sample("lt", dist.Normal(1.5, 1.0))
    u = normals(numpyro, dist, "u", 8)
    theta = numpyro.deterministic("theta", mu + jnp.exp(lt) * u)
    numpyro.sample("y", dist.Normal(theta, sd), obs=y)


def count_groups(y):
    """Poisson counts in groups, whose log-rates are N(mu, e^{2 lt})."""
    mu, lt = ngmp.sample("mu", Normal(0.0, std=2.0)), ngmp.sample("lt", Normal(-0.5, std=0.7))
    u = ngmp.sample("u", Normal(mu + np.zeros((len(y), 1)), std=exp(lt)))
    ngmp.sample("y", Poisson(exp(u + np.zeros(y.shape))), obs=y)


def ref_count_groups(numpyro, dist, y):
    mu, lt = numpyro.sample("mu", dist.Normal(0.0, 2.0)), numpyro.sample("lt", dist.Normal(-0.5, 0.7))
    z = normals(numpyro, dist, "z", (len(y), 1))
    u = numpyro.deterministic("u", mu + jnp.exp(lt) * z)
    numpyro.sample("y", dist.Poisson(jnp.exp(u) + jnp.zeros(y.shape)), obs=y)


def intercepts(y):
    """Groups of rows, with unknown spread of the groups and of the rows."""
    mu, lt = ngmp.sample("mu", Normal(0.0, std=5.0)), ngmp.sample("lt", Normal(0.0, std=1.0))
    ls = ngmp.sample("ls", Normal(0.0, std=1.0))
    theta = ngmp.sample("theta", Normal(mu + np.zeros((len(y), 1)), std=exp(lt)))
    ngmp.sample("y", Normal(theta + np.zeros(y.shape), std=exp(ls)), obs=y)


def ref_intercepts(numpyro, dist, y):
    mu, lt = numpyro.sample("mu", dist.Normal(0.0, 5.0)), numpyro.sample("lt", dist.Normal(0.0, 1.0))
    ls, u = numpyro.sample("ls", dist.Normal(0.0, 1.0)), normals(numpyro, dist, "u", (len(y), 1))
    theta = numpyro.deterministic("theta", mu + jnp.exp(lt) * u)
    numpyro.sample("y", dist.Normal(theta + jnp.zeros(y.shape), jnp.exp(ls)), obs=y)


def crossed(y):
    """Logistic outcomes of persons and items, with unknown spreads."""
    lp, li = ngmp.sample("lp", Normal(0.0, std=0.5)), ngmp.sample("li", Normal(0.0, std=0.5))
    persons = ngmp.sample("persons", Normal(np.zeros((y.shape[0], 1)), std=exp(lp)))
    items = ngmp.sample("items", Normal(np.zeros(y.shape[1]), std=exp(li)))
    ngmp.sample("y", Bernoulli(logits=persons + items), obs=y)


def ref_crossed(numpyro, dist, y):
    lp, li = numpyro.sample("lp", dist.Normal(0.0, 0.5)), numpyro.sample("li", dist.Normal(0.0, 0.5))
    persons = normals(numpyro, dist, "persons", (y.shape[0], 1), jnp.exp(lp))
    items = normals(numpyro, dist, "items", y.shape[1], jnp.exp(li))
    numpyro.sample("y", dist.Bernoulli(logits=persons + items), obs=y)


# -- products ----------------------------------------------------------------------------------------------------------


def measurement_error(x, y):
    """y = a + b t + noise, where t is seen with noise; variances are known."""
    a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
    t = ngmp.sample("t", Normal(np.zeros(len(x)), std=1.0))
    ngmp.sample("x", Normal(t, std=0.5), obs=x)
    ngmp.sample("y", Normal(b * t + a, std=0.4), obs=y)


def ref_measurement_error(numpyro, dist, x, y):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("b", dist.Normal(0.0, 2.0))
    t = normals(numpyro, dist, "t", len(x))
    numpyro.sample("x", dist.Normal(t, 0.5), obs=x)
    numpyro.sample("y", dist.Normal(b * t + a, 0.4), obs=y)


def learned_error(x, y):
    """The same, and the noise of y is unknown."""
    a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
    ls = ngmp.sample("ls", Normal(-1.0, std=0.7))
    t = ngmp.sample("t", Normal(np.zeros(len(x)), std=1.0))
    ngmp.sample("x", Normal(t, std=0.5), obs=x)
    ngmp.sample("y", Normal(b * t + a, std=exp(ls)), obs=y)


def ref_learned_error(numpyro, dist, x, y):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("b", dist.Normal(0.0, 2.0))
    ls = numpyro.sample("ls", dist.Normal(-1.0, 0.7))
    t = normals(numpyro, dist, "t", len(x))
    numpyro.sample("x", dist.Normal(t, 0.5), obs=x)
    numpyro.sample("y", dist.Normal(b * t + a, jnp.exp(ls)), obs=y)


def exact_learned_error(a, b, ls, x, y):
    """x and y of a row are jointly normal."""
    noise = b**2 + jnp.exp(2 * ls)
    mean, variance = a + b * x / 1.25, noise - b**2 / 1.25
    prior = norm.logpdf(a, 0.0, 2.0) + norm.logpdf(b, 0.0, 2.0) + norm.logpdf(ls, -1.0, 0.7)
    return jnp.sum(norm.logpdf(y, mean, jnp.sqrt(variance))) + prior


def two_errors(x, y):
    """Two regressors, each seen with noise: two products in a mean."""
    b = ngmp.sample("b", Normal(np.zeros(2), std=2.0))
    t = ngmp.sample("t", Normal(np.zeros(x.shape), std=1.0))
    ngmp.sample("x", Normal(t, std=0.4), obs=x)
    ngmp.sample("y", Normal(b[0] * t[:, 0] + b[1] * t[:, 1], std=0.4), obs=y)


def ref_two_errors(numpyro, dist, x, y):
    b, t = normals(numpyro, dist, "b", 2, 2.0), normals(numpyro, dist, "t", x.shape)
    numpyro.sample("x", dist.Normal(t, 0.4), obs=x)
    numpyro.sample("y", dist.Normal(t @ b, 0.4), obs=y)


def one_factor(y):
    """One factor; loadings are known to be about one."""
    z = ngmp.sample("z", Normal(np.zeros((y.shape[0], 1)), std=1.0))
    a = ngmp.sample("a", Normal(np.ones(y.shape[1]), std=0.5))
    ngmp.sample("y", Normal(z * a, std=0.5), obs=y)


def ref_one_factor(numpyro, dist, y):
    z, a = normals(numpyro, dist, "z", (y.shape[0], 1)), normals(numpyro, dist, "a", y.shape[1], 0.5, 1.0)
    numpyro.sample("y", dist.Normal(z * a, 0.5), obs=y)


def two_parameter(y):
    """2PL: logit P(y_ij) = e^{k_j} theta_i - d_j."""
    students, items = y.shape
    theta = ngmp.sample("theta", Normal(np.zeros((students, 1)), std=1.0))
    k = ngmp.sample("k", Normal(np.zeros(items), std=0.5))
    d = ngmp.sample("d", Normal(np.zeros(items), std=1.5))
    sign = 2.0 * y - 1.0
    zero = np.zeros((students, items))

    def log_density(t, k, d, s):
        return jax.nn.log_sigmoid(s * (jnp.exp(k) * t - d))

    ngmp.factor("y", log_density, theta + zero, k + zero, d + zero, sign)


def ref_two_parameter(numpyro, dist, y):
    students, items = y.shape
    theta = normals(numpyro, dist, "theta", (students, 1))
    k, d = normals(numpyro, dist, "k", items, 0.5), normals(numpyro, dist, "d", items, 1.5)
    numpyro.sample("y", dist.Bernoulli(logits=jnp.exp(k) * theta - d), obs=y)


def discrimination(y):
    """2PL as it is written: a_j (theta_i - b_j)."""
    students, items = y.shape
    theta = ngmp.sample("theta", Normal(np.zeros((students, 1)), std=1.0))
    a, b = ngmp.sample("a", Normal(np.ones(items), std=0.3)), ngmp.sample("b", Normal(np.zeros(items), std=1.5))
    ngmp.sample("y", Bernoulli(logits=a * (theta - b)), obs=y)


def ref_discrimination(numpyro, dist, y):
    theta = normals(numpyro, dist, "theta", (y.shape[0], 1))
    a, b = normals(numpyro, dist, "a", y.shape[1], 0.3, 1.0), normals(numpyro, dist, "b", y.shape[1], 1.5)
    numpyro.sample("y", dist.Bernoulli(logits=a * (theta - b)), obs=y)


LOADINGS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])


def two_factors(y):
    """Two factors, four outcomes a row; loadings are known up to 0.3, so that nothing can be turned."""
    z = ngmp.sample("z", MvNormal(np.zeros((len(y), 2)), covariance=1.0))
    a = ngmp.sample("a", MvNormal(LOADINGS, covariance=0.09))
    for j in range(4):
        ngmp.sample("y", Normal(ngmp.dot(z, a[j]), std=0.5), obs=y[:, j])


def ref_two_factors(numpyro, dist, y):
    z, a = normals(numpyro, dist, "z", (len(y), 2)), normals(numpyro, dist, "a", (4, 2), 0.3, LOADINGS)
    numpyro.sample("y", dist.Normal(z @ a.T, 0.5), obs=y)


def cases() -> list[Case]:
    """All cases with their data."""
    rng = np.random.default_rng(10)
    effects = {"y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
               "sd": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])}  # fmt: skip
    rates = np.exp(0.5 + 0.6 * rng.standard_normal((20, 1)))
    answers = rng.random((30, 12)) < 1 / (1 + np.exp(-rng.standard_normal((30, 1)) - 0.8 * rng.standard_normal(12)))
    t = rng.standard_normal(STEPS)
    seen = {"x": t + 0.5 * rng.standard_normal(STEPS), "y": 0.5 + 1.2 * t + 0.4 * rng.standard_normal(STEPS)}
    t = rng.standard_normal((60, 2))
    both = {"x": t + 0.4 * rng.standard_normal((60, 2)), "y": t @ np.array([1.0, -0.6]) + 0.4 * rng.standard_normal(60)}
    scores = rng.standard_normal((30, 1)) * (1 + 0.4 * rng.standard_normal(5)) + 0.5 * rng.standard_normal((30, 5))
    ability, hard = rng.standard_normal(50), rng.standard_normal(10)
    slopes = np.exp(0.4 * rng.standard_normal(10))
    right = rng.random((50, 10)) < 1 / (1 + np.exp(-(slopes * ability[:, None] - hard)))
    x, h, v = np.zeros((4, STEPS + 2)), np.zeros(201), np.zeros((STEPS + 1, 2))
    for k in range(2, STEPS + 2):
        e = 0.5 * rng.standard_normal(2)
        x[:2, k] = 0.8 * x[0, k - 1] + e[0], 1.0 * x[1, k - 1] - 0.4 * x[1, k - 2] + e[1]
    for k in range(1, STEPS + 1):
        v[k] = np.array([[0.7, 0.3], [-0.3, 0.6]]) @ v[k - 1] + 0.5 * rng.standard_normal(2)
    for k in range(1, 201):
        h[k] = -0.5 + 0.95 * (h[k - 1] + 0.5) + 0.3 * rng.standard_normal()
    shocks = np.exp(0.5 * h[1:]) * rng.standard_normal(200)
    other = np.random.default_rng(11)
    turned = other.standard_normal((40, 2)) @ (LOADINGS + 0.3 * other.standard_normal((4, 2))).T
    pairs = turned + 0.5 * other.standard_normal((40, 4))
    groups = 1.0 + 0.8 * other.standard_normal((12, 1)) + 0.5 * other.standard_normal((12, 5))
    noisy = x[:2, 2:] + 0.4 * rng.standard_normal((2, STEPS))
    return [
        Case("eight schools", eight_schools, effects, ref_eight_schools),
        Case("counts in groups", count_groups, {"y": rng.poisson(rates, (20, 4)).astype(float)}, ref_count_groups),
        Case("crossed effects", crossed, {"y": answers.astype(float)}, ref_crossed),
        Case("measurement error", measurement_error, seen, ref_measurement_error),
        Case("measurement error, noise", learned_error, seen, ref_learned_error, {}, exact_learned_error),
        Case("two errors", two_errors, both, ref_two_errors),
        Case("one factor", one_factor, {"y": scores}, ref_one_factor),
        Case("2PL", two_parameter, {"y": right.astype(float)}, ref_two_parameter),
        Case("latent AR(1)", ar1, {"y": noisy[0]}, ref_ar1),
        Case("latent AR(2)", ar2, {"y": noisy[1]}, ref_ar2),
        Case("latent VAR(1)", var1, {"y": v[1:] + 0.4 * rng.standard_normal((STEPS, 2))}, ref_var1),
        Case("stochastic volatility", volatility, {"y": shocks}, ref_volatility),
        Case("2PL, a (theta - b)", discrimination, {"y": right.astype(float)}, ref_discrimination),
        Case("two factors", two_factors, {"y": pairs}, ref_two_factors),
        Case("random intercepts", intercepts, {"y": groups}, ref_intercepts),
    ]
