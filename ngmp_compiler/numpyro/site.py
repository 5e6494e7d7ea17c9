"""One site of a NumPyro model as it is declared here: a distribution whose parameters are values of `lift`."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.core import Tracer

from ..declare.expressions import kinds_of
from ..declare.frame import outermost
from ..declare.inputs import unwrap
from ..declare.naming import label
from ..declare.sample import factor
from ..lift.general import General, Whole, general
from ..lift.interpret import Scalars
from ..lift.linear import Linear
from ..lift.values import (
    Bilinear,
    Chosen,
    Linked,
    Native,
    Unlifted,
    Vectors,
    expression,
    is_random,
    whole_shape,
)


class Site:
    """A distribution without its wrappers (plates, events, masks), and what is known of it.

    Attributes:
        base: the distribution; its parameters are constants or random values.
        shape: of all elements, those of its event last.
        value: what was observed, or None.
    """

    def __init__(self, name: str, fn: Any, value: Any, scale: Any, line: str):
        self.name, self.value, self.scale, self.line, self.mask = name, value, scale, line, None
        self.shape = tuple(fn.shape()) if value is None else np.broadcast_shapes(fn.shape(), np.shape(value))
        self.base = self._unwrapped(fn)
        self.notes: list[str] = []

    def _unwrapped(self, fn: Any) -> Any:
        while True:
            if isinstance(fn, dist.MaskedDistribution):
                mask = fn._mask
                self.mask = mask if self.mask is None else jnp.logical_and(self.mask, mask)
                fn = fn.base_dist
            elif isinstance(fn, (dist.ExpandedDistribution, dist.Independent)):
                fn = fn.base_dist
            else:
                return fn

    @property
    def event_ndim(self) -> int:
        return len(self.base.event_shape)

    @property
    def batch(self) -> tuple[int, ...]:
        return self.shape[: len(self.shape) - self.event_ndim]

    def note(self, argument: str, x: Any) -> None:
        self.notes.append(f"{argument} {words(x)}")

    def number(self, argument: str) -> Any:
        """A parameter as an expression, noted."""
        x = getattr(self.base, argument)
        self.note(argument, x)
        return expression(x)

    def vector(self, argument: str) -> Any:
        """A parameter whose last axis is that of a vector."""
        x = getattr(self.base, argument)
        self.note(argument, x)
        if isinstance(x, Linear):
            return x.vector()
        if isinstance(x, Chosen):
            from ..declare.compound import Take

            rows = [unwrap(e) for e in x.entries]
            if any(map(is_random, rows)):
                if not all(isinstance(e, Vectors) for e in rows):
                    raise Unlifted
                return Take(tuple(_one(e) for e in rows), x.selector(1))
            if any(np.size(e) != np.shape(e)[-1] for e in rows):
                raise Unlifted  # they differ from element to element
            stack = jnp.stack if any(map(_traced, rows)) else np.stack
            return Take(stack([e.reshape(-1) for e in rows]), x.selector(1))
        return expression(x)

    def leaves(self) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The parameters, and a function from their values to the distribution of one element."""
        kind, names = type(self.base), list(type(self.base).arg_constraints)
        plain = names and all(name in vars(self.base) for name in names) and _is_made_of(kind, names)
        if plain and not self.event_ndim:
            return [getattr(self.base, k) for k in names], lambda x: kind(**dict(zip(names, x)), validate_args=False)  # noqa: B905
        found, tree = jax.tree.flatten(self.base, is_leaf=is_random)

        def rebuild(values: list[Any]) -> Any:
            out = jax.tree.unflatten(tree, values)
            out._validate_args = False
            out._batch_shape = ()
            return out

        return found, rebuild


def _is_made_of(kind: type, names: list[str]) -> bool:
    """Whether a distribution is made of these parameters alone: a truncated one is of another distribution, too."""
    given = list(inspect.signature(kind).parameters.values())
    return all(p.name in names for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD)


def _traced(x: Any) -> bool:
    return isinstance(x, Tracer)


def _one(x: Any) -> Any:
    """The one vector that an entry of a table is, which may have been repeated."""
    index = x.variable.index.reshape(-1)
    if (index != index[0]).any():
        raise Unlifted
    return x.variable.at(index[0])


def words(x: Any) -> str:
    """What a value was found to be."""
    if not is_random(x):
        return "constant" if not np.ndim(x) else f"constant {np.shape(x)}"
    if isinstance(x, Linear):
        return f"affine in {names(x)}"
    if isinstance(x, Linked):
        return f"{x.link} of affine in {names(x.inner)}"
    if isinstance(x, Bilinear):
        return "products " + " + ".join(f"{names(a)} * {names(b)}" for a, b in x.pairs)
    if isinstance(x, Native):
        return f"{label(x.variable)}" + ("" if x.exponent == 1 else f" ** {x.exponent:g}")
    if isinstance(x, Vectors):
        return label(x.variable)
    if isinstance(x, Chosen):
        return f"chosen by {label(x.variable)} of {len(x.entries)}"
    if isinstance(x, (General, Whole)):
        every = x.unknowns if isinstance(x, General) else x.scalars
        return "a function of " + ", ".join(words(a).removeprefix("affine in ") for a in every)
    return "random"


def names(x: Linear) -> str:
    found = list(dict.fromkeys(label(t.variable) for t in x.terms))
    return " + ".join(found[:4]) + (f" + {len(found) - 4} more" if len(found) > 4 else "")


def integrated(name: str, distribution: Any, batch: tuple[int, ...]) -> bool:
    """Whether a latent site stands as a number."""
    coordinates = outermost().coordinates
    if coordinates is None or any(k != "constant" for k in kinds_of(distribution.arguments).values()):
        return False
    return coordinates.wants(name, distribution, batch, False)


def observe_generically(site: Site) -> None:
    """The log-density of NumPyro, as a factor of the unknowns that it depends on."""
    leaves, rebuild = site.leaves()
    value, shape = site.value, site.batch
    if site.event_ndim or any(isinstance(x, Whole) for x in leaves):
        return _observe_whole(site)
    extra = [x for x in (site.mask, site.scale) if x is not None]
    has_mask, has_scale = site.mask is not None, site.scale is not None

    def log_density(y: Any, *given: Any) -> Any:
        own = list(given[len(extra) :])
        other = iter(given)
        seen = next(other) if has_mask else None
        d = rebuild(own)
        y = y if seen is None else jnp.where(seen, y, d.support.feasible_like(y))
        out = d.log_prob(y)
        out = out * next(other) if has_scale else out
        return out if seen is None else jnp.where(seen, out, 0.0)

    declare_general(site.name, general(log_density, [value, *extra, *leaves], shape))
    site.notes.append("by its log-density")


def _observe_whole(site: Site) -> None:
    """The log-density of a whole site, as one factor of the few numbers that it depends on."""
    leaves, rebuild = site.leaves()
    scalars = Scalars(type(site.base).__name__)
    parts = [scalars.part(x) for x in leaves]
    value, mask, scale = site.value, site.mask, site.scale

    def log_density(*z: Any) -> Any:
        d = rebuild([p(z) for p in parts])
        d._batch_shape = site.base.batch_shape
        out = d.log_prob(value)
        out = out if scale is None else out * scale
        return jnp.sum(out if mask is None else jnp.where(mask, out, 0.0))

    factor(site.name, log_density, *(expression(s) for s in scalars.found))
    site.notes.append(f"one log-density of {len(scalars.found)} numbers")


def declare_general(name: str, x: General) -> None:
    """A factor for every element of a function."""
    arguments = [expression(whole_shape(a, x.shape)) if is_random(a) else a for a in x.arguments]
    factor(name, x.function, *arguments)


def spread(ours: Any, batch: tuple[int, ...]) -> Any:
    """A distribution with one argument of the whole batch shape."""
    for name, x in ours.arguments.items():
        event = ours.event_ndims.get(name) or 0
        if not getattr(x, "is_expression", False):
            x = unwrap(x)
            shape = (*batch, *np.shape(x)[np.ndim(x) - event :]) if event else batch
            ours.arguments[name] = whole_shape(x, shape)
            return ours
    return ours
