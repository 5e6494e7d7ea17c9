"""Joint draws from a posterior, by name, and where a posterior came from, which is needed to make them.

A posterior is its marginals; the joint that they belong to is the surrogate of the program at the leaves of the run
(`emit.surrogate`). An `Origin` remembers program and inputs beside a posterior, but not as a part of its pytree: what
`jit` and `vmap` return, and what is saved, stays as small as it is. `program.sample(post, key, shape, **inputs)` needs
none.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from ..emit.map import Map
from ..emit.surrogate import Values, draw
from ..schedule.choose import Plan
from .evaluate import reported
from .labels import Labels

_TOGETHER = 64  # draws from the nodes of an integral that are made side by side


class Origin(NamedTuple):
    """The program that made a posterior, and what it was given; pickled and copied posteriors go without."""

    program: Any
    inputs: dict[str, Any]  # by name
    static: Any  # the same, split
    dynamic: list[Any]
    carry: Any = None
    labels: Labels = {}  # of axes


class Source(NamedTuple):
    """The posterior that a prediction was made from, and of which site, for which inputs it is."""

    program: Any
    post: Any
    site: str
    static: Any
    dynamic: list[Any]
    last: int = 0  # only so many elements at the end of the site; 0: all
    labels: Labels = {}  # of axes

    def draw(self, key: PRNGKeyArray, shape: Any) -> Array:
        """See `Prediction.sample`."""
        found = self.program.outcomes(self.static, self.dynamic, self.post, self.site, key, shape)
        axis = len((shape,) if isinstance(shape, int) else tuple(shape))
        return found if not self.last else found[(slice(None),) * axis + (slice(-self.last, None),)]


def sourced(prediction: Any, source: Source) -> Any:
    """The prediction, with its source, unless that is traced."""
    if not isinstance(source.post.status, Tracer) and not np.ndim(source.post.status):
        object.__setattr__(prediction, "origin", source)
    return prediction


def remember(post: Any, origin: Origin) -> Any:
    """The posterior, with its origin. Arrays of numpy are copied: their owner may write to them."""

    def kept(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, tree)

    object.__setattr__(post, "origin", origin._replace(inputs=kept(origin.inputs), dynamic=kept(origin.dynamic)))
    return post


def origin_of(post: Any, what: str) -> Origin:
    """Where a posterior came from; an error where that is not known any more."""
    found = getattr(post, "origin", None)
    if found is None:
        given = f"post.{what}: this posterior has gone through jit, vmap, a file or a tree_map, and no longer knows"
        works = "its program and inputs: use program.sample(post, key, shape, **inputs), or call the program eagerly"
        raise ValueError(f"{given} {works}")
    return found


def by_name(plan: Plan, values: Values) -> dict[str, Array]:
    """Values of all planes, with one leading axis, as values by name, shaped as declared."""
    out = {}
    for key, (plane, positions, _) in plan.collections.items():
        x, start = values[plane], int(positions.reshape(-1)[0])
        part = x if positions.size == x.shape[1] else x[:, start : start + positions.size]
        out[key] = part.reshape(x.shape[0], *positions.shape, *x.shape[2:])
    return out


def drawn(map: Map, leaves: Any, key: PRNGKeyArray, count: int) -> dict[str, Array]:
    """Joint draws by name, reported expressions among them, with a leading axis of length `count`."""
    values = draw(map.core, leaves, key, count)
    return by_name(map.plan, values) | jax.vmap(lambda x: reported(map.plan.groups, x))(values)


def mixed_draws(maps: Any, nodes: Any, key: PRNGKeyArray, count: int) -> dict[str, Array]:
    """Draws where hyperparameters were integrated: a node for each, then a draw at that node.

    Args:
        maps: from coordinates to the map at them.
        nodes: an `integrate.run.NodeTable`.
    """
    which, rest = jax.random.split(key)
    at = jax.random.categorical(which, jnp.log(nodes.weights), shape=(count,))

    def one(x: tuple[Array, Array]) -> dict[str, Array]:
        key, m = x
        leaves = jax.tree.map(lambda a: a[m], nodes.runs.state.leaves)
        found = drawn(maps(nodes.coordinates[m]), leaves, key, 1)
        return jax.tree.map(lambda a: a[0], found)

    found = jax.lax.map(one, (jax.random.split(rest, count), at), batch_size=min(_TOGETHER, count))
    return {name: values[at] for name, values in nodes.values.items()} | found


def shaped(draws: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
    """Draws with their leading axis as the axes that were asked for."""
    return {name: x.reshape(*shape, *x.shape[1:]) for name, x in draws.items()}


def size_of(shape: Any) -> tuple[tuple[int, ...], int]:
    """A shape of draws as a tuple, and how many that are."""
    given = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(n, (int, np.integer)) and n > 0 for n in given):
        raise ValueError(f"draws of shape {shape!r}: give positive integers, such as (1000,)")
    return given, functools.reduce(lambda a, b: a * int(b), given, 1)
