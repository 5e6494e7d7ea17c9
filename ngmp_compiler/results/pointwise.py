"""Observed sites at values of the variables: the log-density of every element, and outcomes drawn in its place."""


import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..emit.surrogate import Values
from ..errors import ModelError
from ..graph.groups import FactorGroup
from ..pipeline import Front
from .density import computed, log_density
from .outcome import Outcome
from .outcomes import outcomes
from .predict import element_places, element_shape


def sites(front: Front) -> dict[str, list[FactorGroup]]:
    """The groups of every observed site; integrated ones, which are declared as if they had been observed, are none."""
    found: dict[str, list[FactorGroup]] = {}
    for group in front.groups:
        for name in dict.fromkeys(group.given.names) if group.observed else ():
            if name not in front.integrated:
                found.setdefault(name, []).append(group)
    return found


def predicted(front: Front, values: Values, key: PRNGKeyArray) -> tuple[dict[str, Array], dict[str, Array]]:
    """Log-densities of the elements of every observed site, and outcomes drawn in their place where that is known."""
    values = computed(front.groups, values)
    likelihood, drawn = {}, {}
    for number, (name, groups) in enumerate(sites(front).items()):
        logs = [_summed(g, jnp.broadcast_to(log_density(g, values), (g.n,))) for g in groups]
        likelihood[name] = gather(groups, name, logs)
        keys = jax.random.split(jax.random.fold_in(key, number), len(groups))
        try:
            each = [outcomes(g, values, k, front.dtype) for g, k in zip(groups, keys, strict=True)]
        except ModelError:  # there is no way to draw these
            continue
        drawn[name] = gather(groups, name, each)
    return likelihood, drawn


def drawn_site(front: Front, values: Values, site: str, key: PRNGKeyArray) -> Array:
    """Outcomes of one observed site."""
    groups = sites(front)[site]
    keys = jax.random.split(key, len(groups))
    values = computed(front.groups, values)
    each = [outcomes(g, values, k, front.dtype) for g, k in zip(groups, keys, strict=True)]
    return gather(groups, site, each)


def observed_data(front: Front) -> dict[str, Array]:
    """The data of every observed site, shaped as declared; NaN where they are masked."""
    out = {}
    for name, groups in sites(front).items():
        data = []
        for g in groups:
            x = jnp.asarray(g.given.arguments["out"], front.dtype)
            x = jnp.broadcast_to(x, (g.n, *x.shape[1:]))
            if g.mask is not None:
                x = jnp.where(g.mask.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan)
            data.append(_first(g, x))
        out[name] = gather(groups, name, data)
    return out


def _classes(group: FactorGroup) -> int:
    return group.given.distribution.classes


def _summed(group: FactorGroup, x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Over the gates of an outcome, whose rows are (repeats, classes, size)."""
    k = _classes(group)
    return x if k == 1 else jnp.sum(x.reshape(len(group.given.order) // k, k, -1), 1).reshape(-1)


def _first(group: FactorGroup, x: Array) -> Array:
    k = _classes(group)
    rows = x.reshape(len(group.given.order) // k, k, -1, *x.shape[1:])
    return x if k == 1 else rows[:, 0].reshape(-1, *x.shape[1:])


def gather(groups: list[FactorGroup], name: str, parts: list[Array]) -> Array:
    place = element_places(groups, name)
    batch = element_shape(groups[0]) if place is None else place.shape
    return Outcome((), None if place is None else jnp.asarray(place), batch, (), name, "").gather(parts)
