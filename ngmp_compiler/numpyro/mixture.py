"""Mixtures: an observed mixture of one family is a class for every element, and the component that it picks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.sample import sample
from ..declare.through import fits
from ..lift.values import Chosen, Unlifted, is_random, moved
from .classes import as_categorical, spread_rows
from .site import Site


def observe_mixture(site: Site) -> bool:
    """Declare a mixture with its classes; False if that is not to be had."""
    from .observed import converted

    base = site.base
    component = getattr(base, "component_distribution", None)
    if component is None or site.mask is not None or site.scale is not None:
        return False
    mixing = Site(f"{site.name}_component", base.mixing_distribution, None, None, site.line)
    values, ours = as_categorical(mixing)
    spread_rows(ours, site.batch)
    inner = Site(site.name, component, None, None, site.line)
    leaves, tree = jax.tree.flatten(inner.base, is_leaf=is_random)
    size, event = len(values), inner.event_ndim
    variable = sample(mixing.name, ours)
    chosen = [_choice(x, size, event, variable, site.batch) for x in leaves]
    inner.base = jax.tree.unflatten(tree, chosen)
    distribution = converted(inner)
    if not fits(distribution, "constant"):
        raise Unlifted
    sample(site.name, distribution, obs=site.value)
    site.notes += [f"{size} components chosen by '{mixing.name}'", *inner.notes]
    return True


def _choice(x: Any, size: int, event: int, variable: Any, batch: tuple[int, ...]) -> Any:
    """A parameter of all components as the choice of one of them; what they share stays."""
    shape = np.shape(x)
    axis = _axis(shape, event)
    if axis is None or shape[axis] != size:
        return x
    rest = shape[:axis] + shape[axis + 1 :]

    def at(k: int) -> Any:
        if not is_random(x) and not isinstance(x, Tracer):
            return np.take(np.asarray(x), k, axis)
        return moved(x, rest, lambda a: jnp.take(a, k, axis))

    tail = rest[axis:]
    index = variable.index.reshape(variable.index.shape + (1,) * len(tail))
    return Chosen((*batch, *tail), variable.at(index), [at(k) for k in range(size)])


def _axis(shape: tuple[int, ...], event: int) -> int | None:
    """The axis of the components: the last one before those of an event; matrices have two of these."""
    place = len(shape) - 1 - event
    return place if place >= 0 else None
