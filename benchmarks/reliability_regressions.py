"""Templates of the reliability campaign: likelihoods with several Gaussian unknowns, and those of ordered classes."""

from typing import Any

import jax.numpy as jnp
from reliability_draws import Draw, Template

import ngmp_compiler as ngmp
from ngmp_compiler import Beta, Categorical, Gamma, MvNormal, Normal, OrderedLogistic, StudentT, Weibull, dot, exp

N = 8


def _unknowns(m, v):
    return ngmp.sample("f", Normal(m, variance=v)) + jnp.zeros(N), ngmp.sample("k", Normal(1.0, std=0.7))


def gamma_shape(y, seen, m, v):
    f, k = _unknowns(m, v)
    ngmp.sample("y", Gamma(exp(k), mean=exp(f)), obs=y, mask=seen)


def weibull_shape(y, seen, m, v):
    f, k = _unknowns(m, v)
    ngmp.sample("y", Weibull(exp(k), scale=exp(f)), obs=y, mask=seen)


def gamma_rate(y, seen, m, v):
    f, _ = _unknowns(m, v)
    ngmp.sample("y", Gamma(2.0, rate=exp(f)), obs=y, mask=seen)


def log_gamma(y, seen, m, v):
    """A mean and a Gamma precision, by its logarithm, as one edge."""
    x, tau = ngmp.sample("x", Normal(m, variance=v)), ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x + jnp.zeros(N), precision=tau), obs=y, mask=seen)


def beta_precision(y, seen, m, v):
    f, k = _unknowns(m, v)
    ngmp.sample("y", Beta(logits=f, concentration=exp(k)), obs=y, mask=seen)


def beta_mean(y, seen, m, v):
    f, _ = _unknowns(m, v)
    ngmp.sample("y", Beta(logits=f, concentration=5.0), obs=y, mask=seen)


def student_df(y, seen, m, v, r):
    f, k = _unknowns(m, v)
    ls = ngmp.sample("ls", Normal(0.5 * jnp.log(r), std=0.7))
    ngmp.sample("y", StudentT(exp(k), f, scale=exp(ls)), obs=y, mask=seen)


def ordered(x, y, seen, v):
    w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=v))
    ngmp.sample("y", OrderedLogistic(dot(x, w), jnp.array([-1.0, 1.0])), obs=y, mask=seen)


def ordered_cuts(x, y, seen, v):
    w, c = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=v)), ngmp.sample("c", Normal(jnp.zeros(2), std=1.0))
    ngmp.sample("y", OrderedLogistic(dot(x, w), ordered=c), obs=y, mask=seen)


def softmax(x, y, seen, v):
    a, b = (ngmp.sample(name, MvNormal(jnp.zeros(2), covariance=v)) for name in "ab")
    ngmp.sample("y", Categorical(logits=[0.0, dot(x, a), dot(x, b)]), obs=y, mask=seen)


def two_products(y, seen, m, v):
    a = ngmp.sample("a", Normal(m + jnp.zeros(2), variance=v))
    b = ngmp.sample("b", Normal(jnp.ones((N, 2)), variance=0.3))
    ngmp.sample("y", Normal(a[0] * b[:, 0] + a[1] * b[:, 1], variance=0.5), obs=y, mask=seen)


def _inputs(y: Any) -> Any:
    def draw(d: Draw) -> dict[str, Any]:
        return {"y": y(d), "seen": d.mask(N), "m": d.centre(5.0), "v": d.log_uniform(-2, 1)}

    return draw


def _classes(d: Draw) -> dict[str, Any]:
    return {"x": d.design(N, 2), "y": d.labels(3, N), "seen": d.mask(N), "v": d.log_uniform(-1, 1)}


def _shares(d: Draw) -> Any:
    return d.rng.uniform(0.02, 0.98, N)


TEMPLATES = {
    "Gamma, unknown shape": Template(gamma_shape, _inputs(lambda d: d.positives(N))),
    "Weibull, unknown shape": Template(weibull_shape, _inputs(lambda d: d.positives(N))),
    "Gamma, log-rate": Template(gamma_rate, _inputs(lambda d: d.positives(N))),
    "mean, log of a Gamma precision": Template(
        log_gamma,
        _inputs(lambda d: d.reals(N)),
        {"families": {"tau": "log-gaussian"}, "joint": [("x", "log_tau")]},
    ),
    "Beta, unknown precision": Template(beta_precision, _inputs(_shares)),
    "Beta, logit mean": Template(beta_mean, _inputs(_shares)),
    "t, unknown df": Template(student_df, lambda d: {**_inputs(lambda d: d.reals(N))(d), "r": d.noise()}),
    "ordered classes": Template(ordered, _classes),
    "ordered classes, cutpoints": Template(ordered_cuts, _classes),
    "softmax": Template(softmax, _classes),
    "two products": Template(two_products, _inputs(lambda d: d.reals(N))),
}
