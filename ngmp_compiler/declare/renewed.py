"""A model declared twice: once for the data it was fitted to, once for new inputs, with what they share.

`both(model)` is the model of old and new inputs together. In the second run a variable that does not belong to the
rows of an input that changed is the one of the first; others are new, with their priors, and so are the members of a
plate beyond those of the first run (new groups). Outcomes are masked, so that nothing is learned from them.
`continued(model)` takes values that are not finite for missing ones. The frame that functions here are given is that of
the model itself, whose `fresh` says that this is a second run.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels import Deterministic, VectorDeterministic

from .arguments import batch_shape_of, common_batch_shape, event_shape_of
from .expressions import leaves_of
from .frame import Frame, outermost
from .inputs import Input, unwrap
from .variables import Variable

NEW = "new/"


def both(model: Callable[..., Any]) -> Callable[..., Any]:
    """`model(**old)` and `model(**new)`, with shared variables.

    `fresh` are the names of the variables that belong to the rows of the inputs that changed.
    """

    @functools.wraps(model)
    def declared(old: dict[str, Any], new: dict[str, Any], fresh: tuple[str, ...]) -> None:
        model(**old)
        frame = outermost()
        frame.fresh, frame.prefix = frozenset(fresh), NEW
        model(**new)

    del declared.__wrapped__  # its signature is its own
    return declared


def continued(model: Callable[..., Any]) -> Callable[..., Any]:
    """`model(**inputs)` in which observations that are not finite are missing."""

    @functools.wraps(model)
    def declared(inputs: dict[str, Any]) -> None:
        outermost().gaps = True
        model(**inputs)

    del declared.__wrapped__
    return declared


def declared_before(frame: Frame, name: str, distribution: Any, arguments: dict[str, Any], obs: Any) -> Any:
    """In a second run: what the first has declared under this name, if that is not of rows that are new; else None.

    Of a plate that has grown, the first members are those of the first run.
    """
    if obs is not None or isinstance(distribution, (Deterministic, VectorDeterministic)):
        return None
    own = name.removeprefix(NEW)
    if frame.coordinates is not None and own in frame.coordinates.found:
        return Input(frame.coordinates.found[own].value)
    node = frame.nodes.get(own)
    if node is None or node.collected or len(node.rows) > 1 or own in (frame.fresh or ()):
        return None
    batch = frame.in_plates(common_batch_shape(name, distribution, arguments) or ())
    before = Variable(frame, node.plane, node.rows[0])
    if node.shape == batch:
        return before
    if node.shape[1:] != batch[1:] or not batch or batch[0] < node.shape[0]:
        return None
    return before, _later(distribution, arguments, batch, node.shape[0])


def _later(distribution: Any, arguments: dict[str, Any], batch: tuple[int, ...], count: int) -> Any:
    """The distribution of the members of a plate after the first ones."""
    out = distribution.blank()
    for name, x in arguments.items():
        ndim = distribution.event_ndims.get(name, 0)
        own = batch_shape_of(x, ndim)
        whole = len(own) == len(batch) and own[0] == batch[0]
        out.arguments[name] = x[count:] if whole else x
    if not any(batch_shape_of(x, distribution.event_ndims.get(k, 0))[:1] for k, x in out.arguments.items()):
        first, ndim = next((k, n or 0) for k, n in distribution.event_ndims.items() if k in out.arguments)
        shape = (batch[0] - count, *batch[1:])
        value = out.arguments[first]
        out.arguments[first] = value + np.zeros(shape) if ndim == 0 else value  # plates of equal priors
    return out


def grown(own: str, known: tuple[Variable, Any], sample: Callable[..., Any]) -> Variable:
    """A plate with its later members sampled from their prior."""
    before, later = known
    after = sample(own, later)
    return before.at(np.concatenate([before.index, after.index]))


def unseen(frame: Frame, name: str, distribution: Any, obs: Any, mask: Any) -> tuple[Any, Any]:
    """Observation and mask of a site, in a second run as what is predicted; where they may have gaps, without these."""
    if frame.fresh is not None and (obs is not None or only_predicted(frame, name, distribution)):
        if obs is None:
            shape = event_shape_of(name, distribution) if distribution.event_ndims.get("out") else ()
            obs = np.full(shape, np.nan)
        return obs, False
    if frame.gaps and obs is not None:
        known = jnp.isfinite(jnp.asarray(unwrap(obs)))
        known = jnp.all(known, -1) if distribution.event_ndims.get("out") else known
        mask = known if mask is None else jnp.logical_and(unwrap(mask), known)
    return obs, mask


def only_predicted(frame: Frame, name: str, distribution: Any) -> bool:
    """Whether a site without data is, in a second run, an outcome to be predicted: it was observed in the first."""
    return name.removeprefix(NEW) in frame.observed or distribution.family is None


def touches_new(frame: Frame, arguments: dict[str, Any]) -> bool:
    """In a second run: whether a factor has a variable of it; one of shared variables only is there already."""
    leaves = [x for values in leaves_of(arguments).values() for x in values if isinstance(x, Variable)]
    nodes = [node for name, node in frame.nodes.items() if not name.startswith(NEW)]
    return not all(any(v.plane == n.plane and np.isin(v.index, n.positions()).all() for n in nodes) for v in leaves)
