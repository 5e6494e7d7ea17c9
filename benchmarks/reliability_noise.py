"""Models of the reliability campaign with unknown noise, vectors, products and nodes."""

from typing import Any

import jax.numpy as jnp
from reliability_draws import Draw, Template

import ngmp_compiler as ngmp
from ngmp_compiler import (
    EP,
    VMP,
    Gamma,
    InverseGamma,
    MvNormal,
    Normal,
    Poisson,
    StructuredVMP,
    Wishart,
    broadcast_to,
    dot,
    exp,
)  # fmt: skip

# -- unknown noise ----------------------------------------------------------------------------------------------------


def mean_precision(y, seen, m, v, a, b):
    tau = ngmp.sample("tau", Gamma(a, rate=b))
    ngmp.sample("y", Normal(ngmp.sample("x", Normal(m, variance=v)), precision=tau), obs=y, mask=seen)


def mean_variance(y, seen, m, v, a, b):
    noise = ngmp.sample("noise", InverseGamma(a, scale=b))
    ngmp.sample("y", Normal(ngmp.sample("x", Normal(m, variance=v)), variance=noise), obs=y, mask=seen)


def mean_log_precision(y, seen, m, v, a, b):
    s = ngmp.sample("s", Normal(a, variance=b))
    ngmp.sample("y", Normal(ngmp.sample("x", Normal(m, variance=v)), precision=exp(s)), obs=y, mask=seen)


def unknown_noise(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {"y": d.reals(8), "seen": d.mask(8), "m": d.centre(), "v": d.variance(), "a": a, "b": b}


def log_noise(d: Draw) -> dict[str, Any]:
    return {**unknown_noise(d), "a": d.log_centre(), "b": d.variance()}


def heteroscedastic(x, y, seen, v, w, c):
    a, b = (ngmp.sample(k, MvNormal(jnp.zeros(3), covariance=s)) for k, s in (("v", v), ("w", w)))
    s = ngmp.sample("s", Normal(dot(x, b), precision=c))
    ngmp.sample("y", Normal(dot(x, a), precision=exp(s)), obs=y, mask=seen)


def regression_inputs(d: Draw) -> dict[str, Any]:
    v, w = d.variance(), d.log_uniform(-2, 1)
    return {"x": d.design(20, 3), "y": d.reals(20), "seen": d.mask(20), "v": v, "w": w, "c": d.log_uniform(-1, 2)}


def linear(x, y, seen, v, a, b):
    w, tau = ngmp.sample("w", MvNormal(jnp.zeros(3), covariance=v)), ngmp.sample("tau", Gamma(a, rate=b))
    ngmp.sample("y", Normal(dot(x, w), precision=tau), obs=y, mask=seen)


def linear_inputs(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {"x": d.design(20, 3), "y": d.reals(20), "seen": d.mask(20), "v": d.variance(), "a": a, "b": b}


def level(y, seen, m, v, a, b, c, e):
    q, r = ngmp.sample("q", Gamma(a, rate=b)), ngmp.sample("r", Gamma(c, rate=e))

    def step(z, x):
        z = ngmp.sample("z", Normal(z, precision=q))
        ngmp.sample("y", Normal(z, precision=r), obs=x[0], mask=x[1])
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(m, variance=v)), (y, seen))


def level_inputs(d: Draw) -> dict[str, Any]:
    (a, b), (c, e) = d.gamma(), d.gamma()
    return {"y": d.walk(20), "seen": d.mask(20), "m": d.centre(), "v": d.variance(), "a": a, "b": b, "c": c, "e": e}


def known_level(y, seen, m, v, q, r):
    def step(z, x):
        z = ngmp.sample("z", Normal(z, variance=q))
        ngmp.sample("y", Normal(z, variance=r), obs=x[0], mask=x[1])
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(m, variance=v)), (y, seen))


def known_inputs(d: Draw) -> dict[str, Any]:
    return {"y": d.walk(20), "seen": d.mask(20), "m": d.centre(), "v": d.variance(), "q": d.noise(), "r": d.noise()}


def intercepts(y, seen, m, v, a, b, c, e):
    """Six groups of four."""
    mu, tau = ngmp.sample("mu", Normal(m, variance=v)), ngmp.sample("tau", Gamma(a, rate=b))
    u = ngmp.sample("u", Normal(mu + jnp.zeros((6, 1)), precision=tau))
    noise = ngmp.sample("noise", Gamma(c, rate=e))
    ngmp.sample("y", Normal(u + jnp.zeros(4), precision=noise), obs=y, mask=seen)


def grouped(d: Draw) -> dict[str, Any]:
    return {**level_inputs(d), "y": d.reals(6, 1) + d.reals(6, 4), "seen": d.mask(6, 4)}


def count_intercepts(y, seen, m, v, a, b):
    """Counts of six groups, whose log-rates have an unknown precision."""
    mu, tau = ngmp.sample("mu", Normal(m, variance=v)), ngmp.sample("tau", Gamma(a, rate=b))
    u = ngmp.sample("u", Normal(mu + jnp.zeros((6, 1)), precision=tau))
    ngmp.sample("y", Poisson(exp(u + jnp.zeros(4))), obs=y, mask=seen)


def grouped_counts(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {"y": d.counts(6, 4), "seen": d.mask(6, 4), "m": d.log_centre(), "v": d.variance(), "a": a, "b": b}


def growth(y, seen, v, a, b, c, e):
    """A line for each of six; precisions of intercepts, slopes and noise are unknown."""
    t = jnp.linspace(-1.0, 1.0, 4)
    lines = []
    for k, (shape, rate) in {"a": (a, b), "b": (c, e)}.items():
        mu = ngmp.sample(f"mu_{k}", Normal(0.0, variance=v))
        tau = ngmp.sample(f"tau_{k}", Gamma(shape, rate=rate))
        lines.append(ngmp.sample(k, Normal(mu + jnp.zeros((6, 1)), precision=tau)))
    noise = ngmp.sample("noise", Gamma(a, rate=b))
    ngmp.sample("y", Normal(lines[0] + lines[1] * t, precision=noise), obs=y, mask=seen)


def growth_inputs(d: Draw) -> dict[str, Any]:
    return {k: x for k, x in grouped(d).items() if k != "m"}


def student_scale(x, y, seen, v, m, s):
    """y ~ t_4(x w, e^s)."""
    w, log_scale = ngmp.sample("w", MvNormal(jnp.zeros(3), covariance=v)), ngmp.sample("s", Normal(m, variance=s))

    def density(f, s, y, seen):
        return jnp.where(seen, -s - 2.5 * jnp.log1p(((y - f) * jnp.exp(-s)) ** 2 / 4), 0.0)

    ngmp.factor("y", density, dot(x, w), log_scale, y, seen)


def student_inputs(d: Draw) -> dict[str, Any]:
    inputs = linear_inputs(d)
    return {**{k: inputs[k] for k in ("x", "y", "seen", "v")}, "m": d.centre(5.0), "s": d.log_uniform(-2, 2)}


# -- vectors, products, nodes -----------------------------------------------------------------------------------------


def wishart(y, seen, v, scale):
    w = ngmp.sample("W", Wishart(4.0, scale=scale * jnp.eye(2)))
    m = ngmp.sample("m", MvNormal(jnp.zeros(2), covariance=v))
    ngmp.sample("y", MvNormal(broadcast_to(m, (8,)), precision=w), obs=y, mask=seen)


def known_means(y, u, seen, scale, a, b):
    """Means are known, precision matrices, precisions and variances are not: conjugate."""
    w = ngmp.sample("W", Wishart(4.0, scale=scale * jnp.eye(2)))
    ngmp.sample("y", MvNormal(jnp.ones(2), precision=w), obs=y, mask=seen)
    tau, noise = ngmp.sample("tau", Gamma(a, rate=b)), ngmp.sample("noise", InverseGamma(a, scale=b))
    ngmp.sample("u", Normal(1.0, precision=tau), obs=u, mask=seen)
    ngmp.sample("t", Normal(1.0, variance=noise), obs=u, mask=seen)


def vectors(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(8, 2), "seen": d.mask(8), "v": d.variance(), "scale": d.variance()}


def known_vectors(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {"y": d.reals(8, 2), "u": d.reals(8), "seen": d.mask(8), "scale": d.variance(), "a": a, "b": b}


def product(y, seen, m, v, u, r):
    a, b = ngmp.sample("a", Normal(m, variance=v)), ngmp.sample("b", Normal(jnp.ones(8), variance=u))
    ngmp.sample("y", Normal(a * b, variance=r), obs=y, mask=seen)


def product_inputs(d: Draw) -> dict[str, Any]:
    v, u = (d.log_uniform(-3, 1) for _ in "vu")
    return {"y": d.reals(8), "seen": d.mask(8), "m": d.centre(10.0), "v": v, "u": u, "r": d.noise()}


def product_log_scale(y, seen, m, v, u, r):
    a, b = ngmp.sample("a", Normal(m, variance=v)), ngmp.sample("b", Normal(jnp.ones(8), variance=u))
    ls = ngmp.sample("ls", Normal(0.5 * jnp.log(r), std=0.5))
    ngmp.sample("y", Normal(a * b, std=ngmp.exp(ls)), obs=y, mask=seen)


def student_log_scale(y, seen, m, v, r):
    x, ls = ngmp.sample("x", Normal(m, variance=v)), ngmp.sample("ls", Normal(0.5 * jnp.log(r), std=1.0))
    ngmp.sample("y", ngmp.StudentT(4.0, x + jnp.zeros(8), scale=ngmp.exp(ls)), obs=y, mask=seen)


def log_dispersion(y, seen, m, v):
    f, r = ngmp.sample("f", Normal(m, variance=v)), ngmp.sample("r", Normal(1.0, std=1.0))
    mean = ngmp.exp(f + jnp.zeros(8))
    ngmp.sample("y", ngmp.NegativeBinomial(mean=mean, dispersion=ngmp.exp(r)), obs=y, mask=seen)


def node(y, seen, m, v, r):
    x = ngmp.sample("x", Normal(m + jnp.zeros(8), variance=v))
    ngmp.sample("y", Normal(ngmp.apply(lambda x: x + 0.5 * jnp.sin(x), x, name="h"), variance=r), obs=y, mask=seen)


def vector_node(y, seen, v, r):
    x = ngmp.sample("x", MvNormal(jnp.ones(2), covariance=v))
    h = ngmp.apply(lambda x: jnp.stack([x[0] + 0.3 * jnp.sin(x[1]), jnp.tanh(x[1])]), x, name="h")
    ngmp.sample("y", MvNormal(broadcast_to(h, (8,)), covariance=r), obs=y, mask=seen)


def node_inputs(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(8), "seen": d.mask(8), "m": d.centre(10.0), "v": d.log_uniform(-3, 1), "r": d.noise()}


def vector_node_inputs(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(8, 2), "seen": d.mask(8), "v": d.log_uniform(-3, 1), "r": d.noise()}


TEMPLATES = {
    "mean, precision": Template(mean_precision, unknown_noise),
    "mean, precision, EP": Template(mean_precision, unknown_noise, {"method": EP()}),
    "mean, precision, VMP": Template(mean_precision, unknown_noise, {"method": VMP()}),
    "mean, precision, carried": Template(mean_precision, unknown_noise, {"carry": ("x", "tau")}),
    "mean, variance": Template(mean_variance, unknown_noise),
    "mean, log-precision": Template(mean_log_precision, log_noise),
    "mean, log-precision, NCVMP": Template(mean_log_precision, log_noise, {"method": ngmp.NCVMP()}),
    "heteroscedastic": Template(heteroscedastic, regression_inputs),
    "linear regression": Template(linear, linear_inputs),
    "level": Template(level, level_inputs),
    "level, structured VMP": Template(level, level_inputs, {"method": StructuredVMP()}),
    "known level": Template(known_level, known_inputs),
    "random intercepts": Template(intercepts, grouped),
    "random intercepts, VMP": Template(intercepts, grouped, {"method": VMP()}),
    "counts in groups": Template(count_intercepts, grouped_counts),
    "growth curves": Template(growth, growth_inputs),
    "t with unknown scale": Template(student_scale, student_inputs),
    "Wishart": Template(wishart, vectors),
    "known means": Template(known_means, known_vectors),
    "product": Template(product, product_inputs),
    "product, log-scale": Template(product_log_scale, product_inputs),
    "t with unknown log-scale": Template(student_log_scale, node_inputs),
    "negative binomial, log-dispersion": Template(
        log_dispersion, lambda d: {"y": d.counts(8), "seen": d.mask(8), "m": d.log_centre(), "v": d.variance()}
    ),
    "node": Template(node, node_inputs),
    "vector node": Template(vector_node, vector_node_inputs),
}
