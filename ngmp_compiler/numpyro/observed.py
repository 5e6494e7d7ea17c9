"""Observed sites: the distributions of NumPyro that have a kernel here, by name; others by their log-density."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

import ngmp_kernels as kernels

from ..declare.frame import attempt
from ..declare.inputs import unwrap
from ..declare.sample import sample
from ..declare.through import fits
from ..lift.values import Linked, Native, Unlifted, is_random, moved, whole_shape
from .ordered import Ordered
from .site import Site, observe_generically

_AT = {"loc": "mean", "scale": "scale"}
RENAMED: dict[str, tuple[Callable[..., Any], Callable[[Site, str], Any], dict[str, str]]] = {
    "Beta": (kernels.Beta, Site.number, {"concentration1": "a", "concentration0": "b"}),
    "CategoricalLogits": (kernels.Categorical, Site.vector, {"logits": "logits"}),
    "CategoricalProbs": (kernels.Categorical, Site.vector, {"probs": "probs"}),
    "Cauchy": (kernels.Cauchy, Site.number, _AT),
    "Dirichlet": (kernels.Dirichlet, Site.vector, {"concentration": "concentration"}),
    "Exponential": (kernels.Exponential, Site.number, {"rate": "rate"}),
    "Gamma": (kernels.Gamma, Site.number, {"concentration": "concentration", "rate": "rate"}),
    "HalfCauchy": (kernels.HalfCauchy, Site.number, {"scale": "scale"}),
    "HalfNormal": (kernels.HalfNormal, Site.number, {"scale": "std"}),
    "InverseGamma": (kernels.InverseGamma, Site.number, {"concentration": "concentration", "rate": "scale"}),
    "Laplace": (kernels.Laplace, Site.number, _AT),
    "LogNormal": (kernels.LogNormal, Site.number, {"loc": "mean", "scale": "std"}),
    "Logistic": (kernels.Logistic, Site.number, _AT),
    "MultinomialProbs": (kernels.Multinomial, Site.vector, {"probs": "probs"}),
    "Pareto": (kernels.Pareto, Site.number, {"alpha": "concentration", "scale": "scale"}),
    "Poisson": (kernels.Poisson, Site.number, {"rate": "rate"}),
    "Uniform": (kernels.Uniform, Site.number, {"low": "low", "high": "high"}),
    "VonMises": (kernels.VonMises, Site.number, {"loc": "mean", "concentration": "concentration"}),
    "Weibull": (kernels.Weibull, Site.number, {"concentration": "concentration", "scale": "scale"}),
}
"""Distributions that differ in words only: ours, how an argument is read, our word for each of theirs."""
CONVERTED: dict[str, Callable[[Site], Any]] = {}
"""All others, each by a function of its own."""


def convert(*names: str) -> Callable:
    def add(f: Callable) -> Callable:
        CONVERTED.update(dict.fromkeys(names, f))
        return f

    return add


def converted(site: Site) -> Any:
    """The distribution of this language; Unlifted if there is none."""
    name = type(site.base).__name__
    if name in RENAMED:
        ours, argument, words = RENAMED[name]
        return ours(**{word: argument(site, theirs) for theirs, word in words.items()})
    if name not in CONVERTED:
        raise Unlifted
    return CONVERTED[name](site)


def observe(site: Site) -> None:
    """Declare an observed site."""
    if is_random(site.value):
        raise Unlifted
    from .mixture import observe_mixture

    if hasattr(site.base, "mixing_distribution") and observe_mixture(site):
        return
    try:
        if site.scale is not None:
            raise Unlifted
        with attempt():
            ours = converted(site)
            if not fits(ours, "constant"):
                raise Unlifted
    except Unlifted:
        site.notes.clear()
        if not any(map(is_random, site.leaves()[0])):
            return _constant(site)
        return observe_generically(site)
    value, mask = site.value, site.mask
    if mask is not None:
        mask = jnp.broadcast_to(jnp.asarray(mask, bool), site.batch)
    sample(site.name, ours, obs=_shaped(value, site.shape), mask=mask)


def _shaped(value: Any, shape: tuple[int, ...]) -> Any:
    if np.shape(value) == shape:
        return value
    value = unwrap(value)
    return jnp.broadcast_to(value, shape) if isinstance(value, Tracer) else np.broadcast_to(value, shape)


def _constant(site: Site) -> None:
    """A density of constants, as in a model all whose sites are integrated: its value is part of the evidence."""
    from ..declare.frame import outermost
    from ..declare.sample import factor

    if outermost().coordinates is None:
        site.notes.append("a constant, which the evidence leaves out")
        return
    leaves, rebuild = site.leaves()
    value, mask, scale = site.value, site.mask, site.scale
    d = rebuild(leaves)
    d._batch_shape = site.base.batch_shape
    out = d.log_prob(value)
    out = out if scale is None else out * scale
    out = jnp.sum(out if mask is None else jnp.where(mask, out, 0.0))
    factor(site.name, lambda x: x, out)
    site.notes.append("a number, where all is integrated")


def noise(site: Site, argument: str = "scale") -> dict[str, Any]:
    """The scale of a Normal, in the words that have a kernel."""
    x = getattr(site.base, argument)
    if isinstance(x, Native):
        site.note(argument, x)
        one = x.coefficient is None or not isinstance(x.coefficient, Tracer) and np.all(np.asarray(x.coefficient) == 1)
        if one and x.family == "gamma" and x.exponent == -0.5:
            return {"precision": x.variable}
        if one and x.family == "inversegamma" and x.exponent == 0.5:
            return {"variance": x.variable}
        raise Unlifted
    return {"std": site.number(argument)}


@convert("Normal")
def _normal(site: Site) -> Any:
    scale = noise(site)
    return kernels.Normal(site.number("loc"), **scale)


def logits(site: Site, argument: str = "logits") -> dict[str, Any]:
    """Log-odds, or probabilities that are a link of something."""
    x = getattr(site.base, argument)
    if isinstance(x, Linked) and argument == "probs" and x.link == "sigmoid":
        site.note("probs", x)
        return {"logits": x.inner.affine()}
    return {argument: site.number(argument)}


@convert("BernoulliLogits")
def _bernoulli_logits(site: Site) -> Any:
    return kernels.Bernoulli(**logits(site))


@convert("BernoulliProbs")
def _bernoulli_probs(site: Site) -> Any:
    return kernels.Bernoulli(**logits(site, "probs"))


@convert("BinomialLogits")
def _binomial_logits(site: Site) -> Any:
    return kernels.Binomial(site.number("total_count"), **logits(site))


@convert("BinomialProbs")
def _binomial_probs(site: Site) -> Any:
    return kernels.Binomial(site.number("total_count"), **logits(site, "probs"))


@convert("StudentT")
def _student_t(site: Site) -> Any:
    if is_random(site.base.scale) and not is_random(site.base.loc):
        raise Unlifted  # there the kernel is one of location and scale
    return kernels.StudentT(site.number("df"), site.number("loc"), scale=site.number("scale"))


@convert("NegativeBinomial2", "GammaPoisson")
def _negative_binomial(site: Site) -> Any:
    rate = site.base.rate  # concentration / mean
    k = site.number("concentration")
    if not isinstance(rate, Linked) or is_random(site.base.concentration):
        raise Unlifted
    site.note("rate", rate)
    return kernels.NegativeBinomial(mean=unwrap(k) / rate.expression(), dispersion=k)


@convert("ZeroInflatedPoisson")
def _zero_inflated_poisson(site: Site) -> Any:
    inner = Site(site.name, site.base.base_dist, None, None, site.line)
    return kernels.ZeroInflated(converted(inner), site.number("gate"))


@convert("ZeroInflatedProbs")
def _zero_inflated(site: Site) -> Any:
    return _zero_inflated_poisson(site)


@convert("MultivariateNormal")
def _mv_normal(site: Site) -> Any:
    base = site.base
    base.loc = whole_shape(base.loc, np.broadcast_shapes(np.shape(base.loc), site.shape[-1:]))
    for name, word in (("covariance_matrix", "covariance"), ("precision_matrix", "precision")):
        x = base.__dict__.get(name)
        if x is not None and not is_random(x):
            return kernels.MvNormal(site.vector("loc"), **{word: x})
    if is_random(base.scale_tril):
        raise Unlifted
    tril = jnp.asarray(base.scale_tril)
    return kernels.MvNormal(site.vector("loc"), covariance=tril @ jnp.swapaxes(tril, -1, -2))


@convert("OrderedLogistic")
def _ordered_logistic(site: Site) -> Any:
    cutpoints = site.base.cutpoints
    if isinstance(cutpoints, Ordered):
        site.note("cutpoints", cutpoints.inner)
        size = cutpoints.shape[-1:]
        inner = moved(cutpoints.inner, size, lambda x: jnp.reshape(x, size))
        return kernels.OrderedLogistic(site.number("predictor"), ordered=inner.vector())
    if is_random(cutpoints):
        raise Unlifted
    return kernels.OrderedLogistic(site.number("predictor"), cutpoints)
