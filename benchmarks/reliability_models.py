"""Models of the reliability campaign: templates of fixed shapes, whose every number is drawn at random.

All priors are proper and all likelihoods bounded (or, where a variance may vanish, their product with the prior is),
so that every posterior is proper: nothing can be left out as degenerate.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from reliability_classes import TEMPLATES as CLASSES
from reliability_draws import Draw, Template
from reliability_likelihoods import TEMPLATES as OTHERS
from reliability_noise import TEMPLATES as NOISE
from reliability_regressions import TEMPLATES as REGRESSIONS
from reliability_scales import TEMPLATES as SCALES

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Binomial, MvNormal, NegativeBinomial, Normal, Poisson, StudentT, dot, exp

N, D = 20, 3


# -- unary likelihoods: y of shape (n,) and whatever else they need, given a Gaussian f of shape (n,) ------------------


def zero_inflated(f, y, seen):
    count = y * f - jnp.exp(f) - gammaln(y + 1)
    both = jnp.where(y == 0, jnp.logaddexp(jnp.log(0.3), jnp.log(0.7) - jnp.exp(f)), jnp.log(0.7) + count)
    return jnp.where(seen, both, 0.0)


def gamma_density(f, y, seen, shape):
    return jnp.where(seen, (shape - 1) * jnp.log(y) - shape * (y * jnp.exp(-f) + f), 0.0)


def weibull(f, y, seen, died):
    """Shape 1.5, log-scale f; those who have not died are censored."""
    u = 1.5 * (jnp.log(y) - f)
    return jnp.where(seen, died * (u + jnp.log(1.5) - jnp.log(y)) - jnp.exp(u), 0.0)


def probit(f, y, seen):
    return jnp.where(seen, norm.logcdf((2 * y - 1) * f), 0.0)


LIKELIHOODS: dict[str, tuple[Callable, Callable[[Draw, int], dict[str, Any]]]] = {
    "Poisson": (
        lambda f, y, seen: ngmp.sample("y", Poisson(exp(f)), obs=y, mask=seen),
        lambda d, n: {"y": d.counts(n)},
    ),
    "Bernoulli": (
        lambda f, y, seen: ngmp.sample("y", Bernoulli(logits=f), obs=y, mask=seen),
        lambda d, n: {"y": d.classes(n)},
    ),
    "Binomial": (
        lambda f, y, seen, total: ngmp.sample("y", Binomial(total, logits=f), obs=y, mask=seen),
        lambda d, n: dict(zip(("total", "y"), d.trials(n), strict=True)),
    ),
    "NegativeBinomial": (
        lambda f, y, seen, size: ngmp.sample("y", NegativeBinomial(mean=exp(f), dispersion=size), obs=y, mask=seen),
        lambda d, n: {"y": d.counts(n), "size": d.log_uniform(-1, 3)},
    ),
    "StudentT": (
        lambda f, y, seen, df, scale: ngmp.sample("y", StudentT(df, f, scale=scale), obs=y, mask=seen),
        lambda d, n: {"y": d.reals(n), "df": d.log_uniform(0, 1.5), "scale": d.noise() ** 0.5},
    ),
    "volatility": (
        lambda f, y, seen: ngmp.sample("y", Normal(0.0, variance=exp(f)), obs=y, mask=seen),
        lambda d, n: {"y": d.reals(n)},
    ),
    "Gamma": (
        lambda f, y, seen, shape: ngmp.factor("y", gamma_density, f, y, seen, shape),
        lambda d, n: {"y": d.positives(n), "shape": d.log_uniform(-0.3, 1)},
    ),
    "zero-inflated": (
        lambda f, y, seen: ngmp.factor("y", zero_inflated, f, y, seen),
        lambda d, n: {"y": d.counts(n)},
    ),
    "Weibull": (
        lambda f, y, seen, died: ngmp.factor("y", weibull, f, y, seen, died),
        lambda d, n: {"y": d.positives(n), "died": d.classes(n)},
    ),
    "probit": (lambda f, y, seen: ngmp.factor("y", probit, f, y, seen), lambda d, n: {"y": d.classes(n)}),
}


def plate(name: str, **options: Any) -> Template:
    """Independent elements: f_n ~ N(m, v_n)."""
    likelihood, draw = LIKELIHOODS[name]

    def model(data, seen, m, v):
        likelihood(ngmp.sample("f", Normal(m + jnp.zeros(len(v)), variance=v)), seen=seen, **data)

    def inputs(d: Draw) -> dict[str, Any]:
        return {"data": draw(d, 5), "seen": d.mask(5), "m": d.log_centre(), "v": d.variance(5)}

    return Template(model, inputs, options)


def regression(name: str, **options: Any) -> Template:
    """f = X w, w ~ N(m, v I)."""
    likelihood, draw = LIKELIHOODS[name]

    def model(x, data, seen, m, v):
        likelihood(dot(x, ngmp.sample("w", MvNormal(m + jnp.zeros(D), covariance=v))), seen=seen, **data)

    def inputs(d: Draw) -> dict[str, Any]:
        return {"data": draw(d, N), "x": d.design(N, D), "seen": d.mask(N), "m": d.centre(5.0), "v": d.variance()}

    return Template(model, inputs, options)


def chain(name: str, **options: Any) -> Template:
    """A random walk f_k ~ N(f_{k-1}, q)."""
    likelihood, draw = LIKELIHOODS[name]

    def model(data, seen, m, v, q):
        def step(f, x):
            f = ngmp.sample("f", Normal(f, variance=q))
            likelihood(f, seen=x[0], **x[1])
            return f, None

        each = {k: jnp.broadcast_to(x, seen.shape) for k, x in data.items()}
        ngmp.scan(step, ngmp.sample("f0", Normal(m, variance=v)), (seen, each))

    def inputs(d: Draw) -> dict[str, Any]:
        q = d.log_uniform(-4, 2) if d.corner else d.log_uniform(-2, 0)
        return {"data": draw(d, N), "seen": d.mask(N), "m": d.log_centre(), "v": d.variance(), "q": q}

    return Template(model, inputs, options)


def trend(name: str, **options: Any) -> Template:
    """A level that walks, and a slope without noise: a state whose noise has a singular covariance."""
    likelihood, draw = LIKELIHOODS[name]

    def model(data, seen, m, v, q):
        root = jnp.sqrt(q) * jnp.array([[1.0], [0.0]])

        def step(x, row):
            x = ngmp.sample("x", MvNormal(jnp.array([[1.0, 1.0], [0.0, 1.0]]) @ x, covariance_root=root))
            likelihood(dot(jnp.array([1.0, 0.0]), x), seen=row[0], **row[1])
            return x, None

        each = {k: jnp.broadcast_to(x, seen.shape) for k, x in data.items()}
        start = ngmp.sample("x0", MvNormal(jnp.stack([m, 0.0 * m]), covariance=jnp.stack([v, 0.01 * v])))
        ngmp.scan(step, start, (seen, each))

    def inputs(d: Draw) -> dict[str, Any]:
        q = d.log_uniform(-4, 2) if d.corner else d.log_uniform(-2, 0)
        return {"data": draw(d, N), "seen": d.mask(N), "m": d.log_centre(), "v": d.variance(), "q": q}

    return Template(model, inputs, options)


_SHAPES = {"plate": plate, "regression": regression, "chain": chain}
_VARIANTS = {
    "Poisson trend": trend("Poisson"),
    "Poisson chain, EP": chain("Poisson", method=ngmp.EP()),
    "Bernoulli regression, EP": regression("Bernoulli", method=ngmp.EP()),
    "Poisson regression, NCVMP": regression("Poisson", method=ngmp.NCVMP()),
    "StudentT plate, PVMP": plate("StudentT", method=ngmp.PVMP()),
    "Poisson chain, Anderson": chain("Poisson", solver=ngmp.anderson()),
}
TEMPLATES: dict[str, Template] = {
    **{f"{name} {kind}": make(name) for name in LIKELIHOODS for kind, make in _SHAPES.items()},
    **_VARIANTS, **NOISE, **CLASSES, **REGRESSIONS, **OTHERS, **SCALES,
}  # fmt: skip
