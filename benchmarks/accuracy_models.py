"""Likelihoods with one or more unknowns at a factor, each as a program of ours and of NumPyro, with simulated data.

A `Case` has a model function, its inputs, and the same for NumPyro; `options` are those of `ngmp.compile`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Categorical,
    Gamma,
    MvNormal,
    NegativeBinomial,
    Normal,
    OrderedLogistic,
    OrderedProbit,
    Poisson,
    StudentT,
    Weibull,
    dot,
    exp,
)

ROWS = 100


class Case(NamedTuple):
    """A model, its inputs, the same as `reference(numpyro, dist, **inputs)`; `marginal`: its density if skewed."""

    name: str
    model: Callable
    inputs: dict[str, Any]
    reference: Callable
    options: dict[str, Any] = {}
    marginal: Callable | None = None


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _features(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.concatenate([np.ones((n, 1)), rng.standard_normal((n, d - 1))], 1)


def _weights(d: int, name: str = "w", variance: float = 4.0) -> Any:
    return ngmp.sample(name, MvNormal(jnp.zeros(d), covariance=variance))


def _ref_weights(numpyro: Any, dist: Any, d: int, name: str = "w", variance: float = 4.0) -> Any:
    return numpyro.sample(name, dist.Normal(jnp.zeros(d), variance**0.5).to_event(1))


# -- location and scale --------------------------------------------------------------------------------------------


def truncated(y):
    """y ~ N(m, e^{2 ls}) given y > 0."""
    m, ls = ngmp.sample("m", Normal(0.0, std=5.0)), ngmp.sample("ls", Normal(0.0, std=1.0))
    ngmp.factor("y", lambda m, ls, y: norm.logpdf(y, m, jnp.exp(ls)) - norm.logcdf(m * jnp.exp(-ls)), m, ls, y)


def ref_truncated(numpyro, dist, y):
    m, ls = numpyro.sample("m", dist.Normal(0.0, 5.0)), numpyro.sample("ls", dist.Normal(0.0, 1.0))
    s = jnp.exp(ls)
    numpyro.factor("y", jnp.sum(norm.logpdf(y, m, s) - norm.logcdf(m / s)))


def exact_truncated(m, ls, y):
    likelihood = jnp.sum(norm.logpdf(y, m, jnp.exp(ls)) - norm.logcdf(m * jnp.exp(-ls)))
    return likelihood + norm.logpdf(m, 0.0, 5.0) + norm.logpdf(ls)


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
    ngmp.sample("y", StudentT(4.0, dot(x, w), scale=exp(ls)), obs=y)


def ref_t_regression(numpyro, dist, x, y):
    w, ls = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("ls", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.StudentT(4.0, x @ w, jnp.exp(ls)), obs=y)


def t_unknown_df(y):
    """Student's t with everything unknown."""
    m, ls = ngmp.sample("m", Normal(0.0, std=5.0)), ngmp.sample("ls", Normal(0.0, std=1.0))
    ld = ngmp.sample("ld", Normal(1.5, std=0.7))
    ngmp.sample("y", StudentT(exp(ld), m, scale=exp(ls)), obs=y)


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
    ngmp.sample("y", NegativeBinomial(mean=exp(dot(x, w)), dispersion=exp(ld)), obs=y)


def ref_negative_binomial(numpyro, dist, x, y):
    w, ld = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("ld", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(x @ w), jnp.exp(ld)), obs=y)


def weibull(x, y):
    """Shape e^k, scale e^f."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(0.0, std=1.0))
    ngmp.sample("y", Weibull(exp(k), scale=exp(dot(x, w))), obs=y)


def ref_weibull(numpyro, dist, x, y):
    w, k = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("k", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Weibull(jnp.exp(x @ w), jnp.exp(k)), obs=y)


def gamma_regression(x, y):
    """Shape e^k, mean e^f."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(0.0, std=1.0))
    ngmp.sample("y", Gamma(exp(k), mean=exp(dot(x, w))), obs=y)


def ref_gamma_regression(numpyro, dist, x, y):
    w, k = _ref_weights(numpyro, dist, x.shape[1]), numpyro.sample("k", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Gamma(jnp.exp(k), jnp.exp(k - x @ w)), obs=y)


def beta_regression(x, y):
    """Mean sigmoid(f), precision e^k."""
    w, k = _weights(x.shape[1]), ngmp.sample("k", Normal(2.0, std=1.0))
    ngmp.sample("y", Beta(logits=dot(x, w), concentration=exp(k)), obs=y)


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
    ngmp.sample("y", Categorical(logits=[0.0, dot(x, v), dot(x, w)]), obs=y)


def ref_softmax(numpyro, dist, x, y):
    v, w = _ref_weights(numpyro, dist, x.shape[1], "v"), _ref_weights(numpyro, dist, x.shape[1], "w")
    scores = jnp.stack([jnp.zeros(len(x)), x @ v, x @ w], -1)
    numpyro.sample("y", dist.Categorical(logits=scores), obs=y.astype(int))


def ordinal(x, y):
    """Cumulative logit of four classes: c1, c1 + e^{d2}, c1 + e^{d2} + e^{d3}."""
    w = _weights(x.shape[1])
    c = ngmp.sample("c", Normal(-1.0, std=1.5))
    d2, d3 = ngmp.sample("d2", Normal(0.0, std=0.7)), ngmp.sample("d3", Normal(0.0, std=0.7))
    ngmp.sample("y", OrderedLogistic(dot(x, w), ordered=[c, d2, d3]), obs=y)


def ref_ordinal(numpyro, dist, x, y):
    w = _ref_weights(numpyro, dist, x.shape[1])
    c = numpyro.sample("c", dist.Normal(-1.0, 1.5))
    d2, d3 = numpyro.sample("d2", dist.Normal(0.0, 0.7)), numpyro.sample("d3", dist.Normal(0.0, 0.7))
    cuts = jnp.stack([c, c + jnp.exp(d2), c + jnp.exp(d2) + jnp.exp(d3)])
    numpyro.sample("y", dist.OrderedLogistic(x @ w, cuts), obs=y.astype(int))


def ordinal_probit(x, y):
    """Known cutpoints."""
    ngmp.sample("y", OrderedProbit(dot(x, _weights(x.shape[1])), np.array([-1.0, 0.3, 1.5])), obs=y)


def ref_ordinal_probit(numpyro, dist, x, y):
    f = x @ _ref_weights(numpyro, dist, x.shape[1])
    edges = jnp.array([-1e3, -1.0, 0.3, 1.5, 1e3])
    low, high = edges[y.astype(int)] - f, edges[y.astype(int) + 1] - f
    numpyro.factor("y", jnp.sum(jnp.log(norm.cdf(high) - norm.cdf(low))))


def choice(a, y):
    """Choices among five by two attributes."""
    w = _weights(a.shape[-1])
    ngmp.sample("y", Categorical(logits=a @ w), obs=y)


def ref_choice(numpyro, dist, a, y):
    w = _ref_weights(numpyro, dist, a.shape[-1])
    numpyro.sample("y", dist.Categorical(logits=a @ w), obs=y.astype(int))


def logistic(x, y):
    ngmp.sample("y", Bernoulli(logits=dot(x, _weights(x.shape[1]))), obs=y)


def ref_logistic(numpyro, dist, x, y):
    numpyro.sample("y", dist.Bernoulli(logits=x @ _ref_weights(numpyro, dist, x.shape[1])), obs=y)


def poisson(x, y):
    ngmp.sample("y", Poisson(exp(dot(x, _weights(x.shape[1])))), obs=y)


def ref_poisson(numpyro, dist, x, y):
    numpyro.sample("y", dist.Poisson(jnp.exp(x @ _ref_weights(numpyro, dist, x.shape[1]))), obs=y)


def cases() -> list[Case]:
    """All cases with their data."""
    out = []
    rng = _rng(0)
    y = rng.normal(1.0, 1.0, 4 * ROWS)
    out.append(Case("truncated normal", truncated, {"y": y[y > 0][:ROWS]}, ref_truncated, {}, exact_truncated))
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
    out.append(Case("ordinal, probit", ordinal_probit, {"x": x[:, 1:], "y": grades}, ref_ordinal_probit))
    options = rng.standard_normal((ROWS, 5, 2))
    picked = (options @ np.array([1.0, -0.7]) + rng.gumbel(size=(ROWS, 5))).argmax(1).astype(float)
    out.append(Case("choice", choice, {"a": options, "y": picked}, ref_choice))
    hits = (rng.random(ROWS) < p).astype(float)
    out.append(Case("logistic", logistic, {"x": x, "y": hits}, ref_logistic))
    out.append(Case("Poisson", poisson, {"x": x, "y": rng.poisson(np.exp(f)).astype(float)}, ref_poisson))
    return out
