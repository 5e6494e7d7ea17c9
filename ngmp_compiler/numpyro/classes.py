"""Discrete latent sites, which NumPyro enumerates: categorical variables, and the values that they choose."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ngmp_kernels as kernels

from ..declare.inputs import Input, unwrap
from ..declare.sample import sample
from ..declare.variables import Variable
from ..lift.values import Chosen, Unlifted, is_random
from .site import Site, integrated


def classes(site: Site) -> Any:
    """A discrete variable: the values it may have, and which is chosen."""
    base, batch = site.base, site.batch
    values, ours = as_categorical(site)
    if integrated(site.name, ours, batch):
        out = sample(site.name, ours)
        return unwrap(out) + values[0]
    if not batch or "probs" in ours.arguments or "logits" in ours.arguments:
        spread_rows(ours, batch)
    variable = sample(site.name, ours)
    site.notes.append(f"{len(values)} classes of {type(base).__name__}")
    return Chosen(batch, variable, [np.asarray(v) for v in values])


def spread_rows(ours: Any, batch: tuple[int, ...]) -> None:
    for name, x in ours.arguments.items():
        if not getattr(x, "is_expression", False):
            x = jnp.asarray(unwrap(x)) if isinstance(x, (jax.Array, Input)) else np.asarray(x)
            spread = jnp.broadcast_to if isinstance(x, jax.Array) else np.broadcast_to
            ours.arguments[name] = spread(x, (*batch, x.shape[-1]))
        elif isinstance(x, Variable) and x.batch_shape != batch:
            ours.arguments[name] = x.at(np.broadcast_to(x.index, batch))


def _transition(site: Site, p: Chosen) -> Any:
    """A class whose probability another one chooses."""
    rows = [jnp.stack([1.0 - jnp.asarray(unwrap(e)), jnp.asarray(unwrap(e))], -1) for e in p.entries]
    v = p.variable
    site.base.rows = Chosen((*p.shape, 2), v.at(np.broadcast_to(v.index, p.shape)[..., None]), rows)
    return kernels.Categorical(probs=site.vector("rows"))


def as_categorical(site: Site) -> tuple[list[int], Any]:
    base = site.base
    name = type(base).__name__
    if name in ("CategoricalProbs", "CategoricalLogits"):
        from .observed import converted

        ours = converted(site)
        size = np.shape(base.probs if name.endswith("Probs") else base.logits)[-1]
        return list(range(size)), ours
    if name in ("BernoulliProbs", "BernoulliLogits"):
        x = base.probs if name.endswith("Probs") else base.logits
        if isinstance(x, Chosen) and name.endswith("Probs") and not any(map(is_random, x.entries)):
            return [0, 1], _transition(site, x)
        if is_random(x):
            raise Unlifted
        p = unwrap(base.probs if name.endswith("Probs") else base.logits)
        p = p if name.endswith("Probs") else jax.nn.sigmoid(p)
        stack = jnp.stack if isinstance(p, jax.Array) else np.stack
        return [0, 1], kernels.Categorical(probs=stack([1 - p, p], -1))
    if name == "DiscreteUniform":
        low, high = int(np.asarray(base.low)), int(np.asarray(base.high))
        size = high - low + 1
        return list(range(low, high + 1)), kernels.Categorical(probs=np.full(size, 1 / size))
    raise Unlifted
