"""Draws of a posterior in the layout of `mcmc.get_samples()`."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import OrderedTransform
from numpyro.infer import Predictive

from ..results.draws import origin_of
from .correlation import cholesky_of, partial_name
from .front import NumPyroModel


def to_numpyro_samples(post: Any, key: PRNGKeyArray, n: int) -> dict[str, Array]:
    """See `Posterior.to_numpyro_samples`."""
    origin = origin_of(post, "to_numpyro_samples")
    model = origin.program.model
    if not isinstance(model, NumPyroModel):
        raise TypeError("post.to_numpyro_samples needs a model that came from ngmp.from_numpyro; use post.sample")
    draws = {k: jnp.asarray(x) for k, x in post.sample(key, (n,)).items()}
    inputs = as_data(origin.inputs)
    out, reports = in_layout(model.numpyro, draws, inputs)
    if reports:
        out |= Predictive(model.numpyro, out, return_sites=reports)(key, **inputs)
    return out


def as_data(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs with arrays of jax, which loops of NumPyro ask for."""
    return {k: jax.tree.map(jnp.asarray, x) if _is_data(x) else x for k, x in inputs.items()}


def in_layout(model: Any, draws: dict[str, Array], inputs: dict[str, Any]) -> tuple[dict[str, Array], list[str]]:
    """Draws of our variables as draws of the latent sites, and the names of the deterministic ones."""
    trace = handlers.trace(handlers.seed(model, 0)).get_trace(**inputs)
    n = next(iter(draws.values())).shape[0]
    out: dict[str, Array] = {}
    late = []
    for name, site in trace.items():
        if site["type"] != "sample" or site["is_observed"] or name.endswith("_unobserved"):
            continue
        found = _of_site(name, site, draws)
        if found is None:
            late.append(name)
        else:
            out[name] = found.reshape(n, *jnp.shape(site["value"]))
    reports = [name for name, site in trace.items() if site["type"] == "deterministic"]
    for name in late:
        _standardised(model, name, trace, draws, out, inputs, reports)
    return out, reports


def _is_data(x: Any) -> bool:
    return all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(x)) and x is not None


def _of_site(name: str, site: Any, draws: dict[str, Array]) -> Array | None:
    """The draws of a latent site, of the variable that stands for it."""
    if name in draws:
        return draws[name]
    if f"{name}_base" in draws:
        return jnp.asarray(OrderedTransform()(draws[f"{name}_base"]))
    if (partial := partial_name(name)) in draws:
        factor = cholesky_of(draws[partial])
        return factor if type(site["fn"]).__name__ == "LKJCholesky" else factor @ jnp.swapaxes(factor, -1, -2)
    head, _, tail = name.rpartition("/")
    for word in ("log", "logit"):
        own = f"{head}/{word}_{tail}" if head else f"{word}_{tail}"
        if own in draws:
            return biject_to(site["fn"].support)(draws[own])
    return None


def _standardised(model: Any, name: str, trace: Any, draws: Any, out: Any, inputs: Any, reports: list[str]) -> None:
    """Draws of a standard normal site that was declared as what it becomes, `m + s z`: z is where the line meets it."""
    n, shape = next(iter(draws.values())).shape[0], jnp.shape(trace[name]["value"])
    for other in (r for r in reports if r in draws and jnp.shape(trace[r]["value"]) == shape):
        ends = []
        for z in (0.0, 1.0):
            given = {**out, name: jnp.full((n, *shape), z)}
            ends.append(Predictive(model, given, return_sites=[other])(jax.random.key(0), **inputs)[other])
        slope = ends[1] - ends[0]
        if bool(jnp.all(slope != 0)):
            out[name] = (draws[other] - ends[0]) / slope
            return
