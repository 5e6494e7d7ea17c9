"""Templates of the reliability campaign: scales, vectors with heavy tails, multiples of Gamma variables."""

from typing import Any

import jax.numpy as jnp
from reliability_draws import Draw, Template

from ngmp_compiler import (
    Gamma,
    HalfCauchy,
    HalfNormal,
    MvNormal,
    MvStudentT,
    Normal,
    Poisson,
    StudentT,
    broadcast_to,
    exp,
    sample,
)

N = 8


def half_normal_scales(y, seen, s):
    scale = sample("scale", HalfNormal(std=s * jnp.ones(N)))
    sample("y", Normal(0.0, std=scale), obs=y, mask=seen)


def half_cauchy_scales(y, seen, s):
    """The horseshoe, seen directly."""
    scale = sample("scale", HalfCauchy(scale=s * jnp.ones(N)))
    x = sample("x", Normal(0.0, std=scale))
    sample("y", Normal(x, variance=1.0), obs=y, mask=seen)


def log_scales(y, sizes, seen, m, v):
    """Outcomes whose log-scale alone is not known."""
    u = sample("u", Normal(m, variance=v))
    sample("sizes", HalfCauchy(scale=exp(u + jnp.zeros(N))), obs=sizes, mask=seen)
    sample("y", StudentT(4.0, 0.0, scale=exp(u + jnp.zeros(N))), obs=y, mask=seen)


def heavy_vectors(y, seen, v, df, r):
    x = sample("x", MvNormal(jnp.zeros(2), covariance=v))
    sample("y", MvStudentT(df, broadcast_to(x, (N,)), scale=r * jnp.array([[1.0, 0.3], [0.3, 1.0]])), obs=y, mask=seen)


def multiples(y, counts, seen, m, v, a, b, k):
    tau, x = sample("tau", Gamma(a, rate=b)), sample("x", Normal(m, variance=v))
    sample("counts", Poisson(k * tau), obs=counts, mask=seen)
    sample("y", Normal(x + jnp.zeros(N), precision=k * tau), obs=y, mask=seen)


def _scales(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(N), "seen": d.mask(N), "s": d.log_uniform(-1, 1)}


def _log_scales(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(N), "sizes": d.positives(N), "seen": d.mask(N), "m": d.centre(5.0), "v": d.variance()}


def _vectors(d: Draw) -> dict[str, Any]:
    return {"y": d.reals(N, 2), "seen": d.mask(N), "v": d.variance(), "df": d.log_uniform(0, 1.5), "r": d.noise()}


def _multiples(d: Draw) -> dict[str, Any]:
    a, b = d.gamma()
    return {
        "y": d.reals(N), "counts": d.counts(N), "seen": d.mask(N), "m": d.centre(), "v": d.variance(), "a": a, "b": b,
        "k": d.log_uniform(-1, 1, N),
    }  # fmt: skip


TEMPLATES = {
    "half-normal scales": Template(half_normal_scales, _scales),
    "half-Cauchy scales": Template(half_cauchy_scales, _scales),
    "log-scale alone": Template(log_scales, _log_scales),
    "vectors of Student's t": Template(heavy_vectors, _vectors),
    "multiples of a Gamma variable": Template(multiples, _multiples),
}
