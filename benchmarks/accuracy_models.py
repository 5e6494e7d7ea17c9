"""Models with several unknowns at one factor, each as a program of ours and of NumPyro, with simulated data.

Each `Case` has a model function, its inputs, the same model for NumPyro (`reference`, imported when it runs) and the
names of the unknowns that are compared; `options` are those of `ngmp.compile`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, gammaln
from jax.scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, dot, exp

ROWS = 100


class Case(NamedTuple):
    """A model, its inputs, and the same as `reference(numpyro, dist, **inputs)`."""

    name: str
    model: Callable
    inputs: dict[str, Any]
    reference: Callable
    options: dict[str, Any] = {}


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _features(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.concatenate([np.ones((n, 1)), rng.standard_normal((n, d - 1))], 1)


def _weights(d: int, name: str = "w", variance: float = 4.0) -> Any:
    return ngmp.sample(name, MvNormal(jnp.zeros(d), covariance=variance))


def _ref_weights(numpyro: Any, dist: Any, d: int, name: str = "w", variance: float = 4.0) -> Any:
    return numpyro.sample(name, dist.Normal(jnp.zeros(d), variance**0.5).to_event(1))


# -- a location and a scale --------------------------------------------------------------------------------------------


def truncated(y):
    """y ~ N(m, e^{2 ls}) given y > 0."""
    m, ls = ngmp.sample("m", Normal(0.0, std=5.0)), ngmp.sample("ls", Normal(0.0, std=1.0))
    ngmp.factor("y", lambda m, ls, y: norm.logpdf(y, m, jnp.exp(ls)) - norm.logcdf(m * jnp.exp(-ls)), m, ls, y)


def ref_truncated(numpyro, dist, y):
    m, ls = numpyro.sample("m", dist.Normal(0.0, 5.0)), numpyro.sample("ls", dist.Normal(0.0, 1.0))
    s = jnp.exp(ls)
    numpyro.factor("y", jnp.sum(norm.logpdf(y, m, s) - norm.logcdf(m / s)))


def mean_scale(y):
    """y ~ N(m, e^{2 ls})."""
    m, ls = ngmp.sample("m", Normal(0.0, std=10.0)), ngmp.sample("ls", Normal(0.0, std=2.0))
    ngmp.sample("y", Normal(m, std=exp(ls)), obs=y)


def ref_mean_scale(numpyro, dist, y):
    m, ls = numpyro.sample("m", dist.Normal(0.0, 10.0)), numpyro.sample("ls", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(m, jnp.exp(ls)), obs=y)


def t_regression(x, y):
    """Student's t with 4 degrees of freedom and unknown scale."""
    w, ls = _weights(x.shape[1]), ngmp.sample("ls", Normal(0.0, std=1.0))

    def log_density(f, ls, y):
        constant = gammaln(2.5) - gammaln(2.0) - 0.5 * jnp.log(4.0 * jnp.pi)
        return constant - ls - 2.5 * jnp.log1p((y - f) ** 2 * jnp.exp(-2.0 * ls) / 4.0)

    ngmp.factor("y", log_density, dot(x, w), ls, y)


def ref_t_regression(numpyro, dist, x, y):
    w, ls = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("ls", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.StudentT(4.0, x @ w, jnp.exp(ls)), obs=y)


def t_unknown_df(y):
    """Student's t with everything unknown."""
    m, ls = ngmp.sample("m", Normal(0.0, std=5.0)), ngmp.sample("ls", Normal(0.0, std=1.0))
    ld = ngmp.sample("ld", Normal(1.5, std=0.7))

    def log_density(m, ls, ld, y):
        df, u = jnp.exp(ld), (y - m) * jnp.exp(-ls)
        constant = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df) - 0.5 * (ld + jnp.log(jnp.pi)) - ls
        return constant - 0.5 * (df + 1) * jnp.log1p(u * u / df)

    ngmp.factor("y", log_density, m, ls, ld, y)


def ref_t_unknown_df(numpyro, dist, y):
    m, ls = numpyro.sample("m", dist.Normal(0.0, 5.0)), numpyro.sample("ls", dist.Normal(0.0, 1.0))
    ld = numpyro.sample("ld", dist.Normal(1.5, 0.7))
    numpyro.sample("y", dist.StudentT(jnp.exp(ld), m, jnp.exp(ls)), obs=y)


def heteroscedastic(x, y):
    """Mean and log-precision are two regressions."""
    v, w = _weights(x.shape[1], "v"), _weights(x.shape[1], "w", 1.0)
    ngmp.sample("y", Normal(dot(x, v), precision=exp(dot(x, w))), obs=y)


def ref_heteroscedastic(numpyro, dist, x, y):
    v, w = _ref_weights(numpyro, dist, x.shape[1], "v"), _ref_weights(numpyro, dist, x.shape[1], "w", 1.0)
    numpyro.sample("y", dist.Normal(x @ v, jnp.exp(-0.5 * (x @ w))), obs=y)


# -- counts, times, shares ---------------------------------------------------------------------------------------------


def negative_binomial(x, y):
    w, ld = _weights(x.shape[1]), ngmp.sample("ld", Normal(0.0, std=2.0))

    def log_density(z, ld, y):
        r, total = jnp.exp(ld), jnp.logaddexp(z, ld)
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * (z - total) + r * (ld - total)

    ngmp.factor("y", log_density, dot(x, w), ld, y)


def ref_negative_binomial(numpyro, dist, x, y):
    w, ld = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("ld", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ w), jnp.exp(ld)), obs=y)


def weibull(x, y):
    """Shape e^k, scale e^f."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(0.0, std=1.0))

    def log_density(f, k, y):
        u = jnp.log(y) - f
        return k + jnp.expm1(k) * u - f - jnp.exp(jnp.exp(k) * u)

    ngmp.factor("y", log_density, dot(x, w), k, y)


def ref_weibull(numpyro, dist, x, y):
    w, k = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("k", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Weibull(jnp.exp(x @ w), jnp.exp(k)), obs=y)


def gamma_regression(x, y):
    """Shape e^k, mean e^f."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(0.0, std=1.0))

    def log_density(f, k, y):
        shape = jnp.exp(k)
        return shape * (k - f) - gammaln(shape) + (shape - 1) * jnp.log(y) - y * jnp.exp(k - f)

    ngmp.factor("y", log_density, dot(x, w), k, y)


def ref_gamma_regression(numpyro, dist, x, y):
    w, k = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("k", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Gamma(jnp.exp(k), jnp.exp(k - x @ w)), obs=y)


def beta_regression(x, y):
    """Mean sigmoid(f), precision e^k."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(2.0, std=1.0))

    def log_density(f, k, y):
        a, b = jax.nn.sigmoid(f) * jnp.exp(k), jax.nn.sigmoid(-f) * jnp.exp(k)
        return (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y) - betaln(a, b)

    ngmp.factor("y", log_density, dot(x, w), k, y)


def ref_beta_regression(numpyro, dist, x, y):
    w, k = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("k", dist.Normal(2.0, 1.0))
    f = x @ w
    numpyro.sample("y", dist.Beta(jax.nn.sigmoid(f) * jnp.exp(k), jax.nn.sigmoid(-f) * jnp.exp(k)), obs=y)


def zero_inflated(x, y):
    """Zero with probability sigmoid(g), else Poisson(e^f)."""
    w, g = _weights(x.shape[1]), ngmp.sample("g", Normal(0.0, std=1.5))

    def log_density(f, g, y):
        poisson = y * f - jnp.exp(f) - gammaln(y + 1) + jax.nn.log_sigmoid(-g)
        return jnp.where(y == 0, jnp.logaddexp(jax.nn.log_sigmoid(g), poisson), poisson)

    ngmp.factor("y", log_density, dot(x, w), g, y)


def ref_zero_inflated(numpyro, dist, x, y):
    w, g = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("g", dist.Normal(0.0, 1.5))
    numpyro.sample("y", dist.ZeroInflatedPoisson(jax.nn.sigmoid(g), jnp.exp(x @ w)), obs=y)


# -- classes -----------------------------------------------------------------------------------------------------------


def softmax(x, y):
    """Three classes, the first with score zero."""
    v, w = _weights(x.shape[1], "v"), _weights(x.shape[1], "w")

    def log_density(f, g, y):
        scores = jnp.stack([jnp.zeros_like(f), f, g])
        return jnp.sum(jnp.where(jnp.arange(3) == y, scores, 0.0)) - jax.nn.logsumexp(scores)

    ngmp.factor("y", log_density, dot(x, v), dot(x, w), y)


def ref_softmax(numpyro, dist, x, y):
    v, w = _ref_weights(numpyro, dist, x.shape[1], "v"), _ref_weights(numpyro, dist, x.shape[1], "w")
    scores = jnp.stack([jnp.zeros(len(x)), x @ v, x @ w], -1)
    numpyro.sample("y", dist.Categorical(logits=scores), obs=y.astype(int))


def ordinal(x, y):
    """Cumulative logit of four classes: c1, c1 + e^{d2}, c1 + e^{d2} + e^{d3}."""
    w = _weights(x.shape[1])
    c = ngmp.sample("c", Normal(-1.0, std=1.5))
    d2, d3 = ngmp.sample("d2", Normal(0.0, std=0.7)), ngmp.sample("d3", Normal(0.0, std=0.7))

    def log_density(f, c, d2, d3, y):
        cuts = jnp.stack([-1e4 + 0 * c, c, c + jnp.exp(d2), c + jnp.exp(d2) + jnp.exp(d3), 1e4 + 0 * c]) - f
        at = jnp.arange(4) == y
        low, high = jnp.sum(jnp.where(at, cuts[:-1], 0.0)), jnp.sum(jnp.where(at, cuts[1:], 0.0))
        return jax.nn.log_sigmoid(high) + jax.nn.log_sigmoid(-low) + jnp.log1p(-jnp.exp(low - high))

    ngmp.factor("y", log_density, dot(x, w), c, d2, d3, y)


def ref_ordinal(numpyro, dist, x, y):
    w = _ref_weights(numpyro, dist, x.shape[1])
    c = numpyro.sample("c", dist.Normal(-1.0, 1.5))
    d2, d3 = numpyro.sample("d2", dist.Normal(0.0, 0.7)), numpyro.sample("d3", dist.Normal(0.0, 0.7))
    cuts = jnp.stack([c, c + jnp.exp(d2), c + jnp.exp(d2) + jnp.exp(d3)])
    numpyro.sample("y", dist.OrderedLogistic(x @ w, cuts), obs=y.astype(int))


# -- hierarchies and products ------------------------------------------------------------------------------------------


def eight_schools(y, sd):
    """Effects N(mu, e^{2 lt}), centred."""
    mu, lt = ngmp.sample("mu", Normal(0.0, std=10.0)), ngmp.sample("lt", Normal(1.5, std=1.0))
    theta = ngmp.sample("theta", Normal(mu + np.zeros(8), std=exp(lt)))
    ngmp.sample("y", Normal(theta, std=sd), obs=y)


def ref_eight_schools(numpyro, dist, y, sd):
    mu, lt = numpyro.sample("mu", dist.Normal(0.0, 10.0)), numpyro.sample("lt", dist.Normal(1.5, 1.0))
    u = numpyro.sample("u", dist.Normal(jnp.zeros(8), 1.0).to_event(1))
    theta = numpyro.deterministic("theta", mu + jnp.exp(lt) * u)
    numpyro.sample("y", dist.Normal(theta, sd), obs=y)


def measurement_error(x, y):
    """y = a + b t + noise, where t is seen with noise; variances are known."""
    a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
    t = ngmp.sample("t", Normal(np.zeros(len(x)), std=1.0))
    ngmp.sample("x", Normal(t, std=0.5), obs=x)
    ngmp.sample("y", Normal(b * t + a, std=0.4), obs=y)


def ref_measurement_error(numpyro, dist, x, y):
    a, b = numpyro.sample("a", dist.Normal(0.0, 2.0)), numpyro.sample("b", dist.Normal(0.0, 2.0))
    t = numpyro.sample("t", dist.Normal(jnp.zeros(len(x)), 1.0).to_event(1))
    numpyro.sample("x", dist.Normal(t, 0.5), obs=x)
    numpyro.sample("y", dist.Normal(b * t + a, 0.4), obs=y)


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
    theta = numpyro.sample("theta", dist.Normal(jnp.zeros((students, 1)), 1.0).to_event(2))
    k = numpyro.sample("k", dist.Normal(jnp.zeros(items), 0.5).to_event(1))
    d = numpyro.sample("d", dist.Normal(jnp.zeros(items), 1.5).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=jnp.exp(k) * theta - d), obs=y)


def cases() -> list[Case]:
    """All cases with their data."""
    out = []
    rng = _rng(0)
    y = rng.normal(1.0, 1.0, 4 * ROWS)
    out.append(Case("truncated normal", truncated, {"y": y[y > 0][:ROWS]}, ref_truncated))
    joint = {"joint": [("m", "ls")]}
    out.append(Case("mean, log-sd", mean_scale, {"y": rng.normal(3.0, 0.5, 20)}, ref_mean_scale, joint))
    x = _features(_rng(1), ROWS, 3)
    f = x @ np.array([0.5, 1.0, -0.5])
    rng = _rng(2)
    out.append(Case("t regression", t_regression, {"x": x, "y": f + 0.3 * rng.standard_t(4, ROWS)}, ref_t_regression))
    out.append(Case("t, df unknown", t_unknown_df, {"y": 1.0 + 0.5 * rng.standard_t(4, 2 * ROWS)}, ref_t_unknown_df))
    s = x @ np.array([1.0, 0.5, 0.0])
    noisy = {"x": x, "y": f + np.exp(-0.5 * s) * rng.standard_normal(ROWS)}
    out.append(Case("heteroscedastic", heteroscedastic, noisy, ref_heteroscedastic, {"joint": [("v", "w")]}))
    counts = rng.poisson(np.exp(1.0 + f) * rng.gamma(2.0, 0.5, ROWS)).astype(float)
    out.append(Case("negative binomial", negative_binomial, {"x": x, "y": counts}, ref_negative_binomial))
    out.append(Case("Weibull", weibull, {"x": x, "y": np.exp(f) * rng.weibull(1.5, ROWS)}, ref_weibull))
    times = np.exp(f) * rng.gamma(3.0, 1 / 3.0, ROWS)
    out.append(Case("Gamma", gamma_regression, {"x": x, "y": times}, ref_gamma_regression))
    p = 1 / (1 + np.exp(-f))
    parts = np.clip(rng.beta(8 * p, 8 * (1 - p)), 1e-3, 1 - 1e-3)
    out.append(Case("Beta", beta_regression, {"x": x, "y": parts}, ref_beta_regression))
    zip_counts = rng.poisson(np.exp(0.5 + f)) * (rng.random(ROWS) > 0.3)
    out.append(Case("zero-inflated Poisson", zero_inflated, {"x": x, "y": zip_counts.astype(float)}, ref_zero_inflated))
    scores = np.stack([np.zeros(ROWS), f, x @ np.array([-0.3, 0.2, 1.0])], -1) + rng.gumbel(size=(ROWS, 3))
    out.append(Case("softmax", softmax, {"x": x, "y": scores.argmax(1).astype(float)}, ref_softmax))
    latent = x[:, 1:] @ np.array([1.0, -0.5]) + rng.logistic(size=ROWS)
    grades = np.digitize(latent, [-1.0, 0.3, 1.5]).astype(float)
    out.append(Case("ordinal", ordinal, {"x": x[:, 1:], "y": grades}, ref_ordinal))
    effects = {"y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
               "sd": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])}  # fmt: skip
    joint = {"joint": [("theta", "mu", "lt")]}
    out.append(Case("eight schools", eight_schools, effects, ref_eight_schools, joint))
    t = rng.standard_normal(ROWS)
    seen = {"x": t + 0.5 * rng.standard_normal(ROWS), "y": 0.5 + 1.2 * t + 0.4 * rng.standard_normal(ROWS)}
    out.append(Case("measurement error", measurement_error, seen, ref_measurement_error))
    ability, hard = rng.standard_normal(50), rng.standard_normal(10)
    slopes = np.exp(0.4 * rng.standard_normal(10))
    right = rng.random((50, 10)) < 1 / (1 + np.exp(-(slopes * ability[:, None] - hard)))
    out.append(Case("2PL", two_parameter, {"y": right.astype(float)}, ref_two_parameter))
    return out
