"""Covariances between any two Gaussian variables of a model: columns of the inverse of their joint precision.

All variables that functionals tie to those asked for are put along one band (`executors.gaussian.dense.jointly`), and
one system is solved for every entry of the second.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..emit.map import Map
from ..errors import Problem, listed
from ..executors.gaussian.dense import jointly
from ..executors.gaussian.pieces import Piece, restrict
from ..graph.components import Nodes, components
from .mixture import heavy

_LARGEST = 2**26  # entries of a covariance


def covariance(map: Map, leaves: Any, one: str, other: str) -> Float[Array, "a b"]:
    """The covariance of all entries of two names, flattened, under the surrogate."""
    plan = map.plan
    (plane, at), (plane2, at2) = (_where(plan, name) for name in (one, other))
    sizes = [x.size * int(np.prod(p.event_shape)) for p, x in ((plane, at), (plane2, at2))]
    if sizes[0] * sizes[1] > _LARGEST:
        raise ValueError(f"cov('{one}', '{other}') has {sizes[0]} x {sizes[1]} entries: use post.sample")
    if plane.family.core != "gaussian" or plane2.family.core != "gaussian":
        if one != other:  # independent under the surrogate
            return jnp.zeros(sizes, plan.dtype)
        q: Any = map.core.run(leaves).planes[plane]
        return jnp.diag(q.variance[at.reshape(-1)].reshape(-1))
    pieces = _around(map, plane2, at2)
    joint = jointly(pieces)
    stacked = map.core._stage(leaves, None).stacked
    columns = joint.columns(joint.prepare(list(stacked), plan.dtype), stacked, plane2, at2.reshape(-1))
    found = jnp.zeros((plan.planes[plane], *plane.event_shape, sizes[1]), plan.dtype)
    if plane in columns:
        where, values = columns[plane]
        found = found.at[where].set(values)
    return found[at.reshape(-1)].reshape(-1, sizes[1])


def _where(plan: Any, name: str) -> tuple[Any, np.ndarray]:
    if name in plan.collections:
        return plan.collections[name][:2]
    if name not in plan.names:
        raise KeyError(str(Problem(name, None, "no variable of the model", f"those are {listed(plan.collections)}")))
    return plan.names[name]


def _around(map: Map, plane: Any, at: np.ndarray) -> list[Piece]:
    """What functionals say of all variables that are tied, however far, to some of a plane."""
    plan = map.plan
    nodes = Nodes(plan.planes, [p for p in plan.planes if p.family.core == "gaussian"])
    touched = [
        np.stack([k.index.positions + nodes.offset[k.plane] for k in edge.links]) for *_, edge in plan.functionals
    ]
    pairs = [np.stack([t[0], t[j]], 1) for t in touched for j in range(1, len(t))]
    label = components(nodes.size, np.concatenate(pairs) if pairs else np.empty((0, 2), int)).label
    wanted = np.zeros(int(label.max()) + 1, bool)
    wanted[label[at.reshape(-1) + nodes.offset[plane]]] = True
    out = []
    for f, (t, (*_, edge)) in enumerate(zip(touched, plan.functionals, strict=True)):
        own = wanted[label[t[0]]]
        if own.any():
            out.append(restrict(f, edge, None if own.all() else np.flatnonzero(own)))
    return out


def mixed_covariance(weights: Array, means: tuple[Array, Array], within: Array) -> Array:
    """Over the nodes of an integral: the mean of the covariances and the covariance of the means, flattened."""
    a, b = (m - jnp.tensordot(weights, m, 1) for m in means)
    return jnp.einsum("m,mi,mj->ij", weights, a, b) + jnp.tensordot(weights, within, 1)


def node_means(nodes: Any, name: str) -> Float[Array, "m a"]:
    """Means at every node, flattened: of an integrated site its values."""
    found = nodes.values[name] if name in nodes.values else nodes.runs.marginals[name].mean
    return heavy(nodes.weights, jnp.asarray(found, nodes.weights.dtype).reshape(len(nodes.weights), -1))


def at_nodes(maps: Any, nodes: Any, one: str, other: str) -> Array:
    """The covariance where hyperparameters were integrated."""
    means = node_means(nodes, one), node_means(nodes, other)
    within = jnp.zeros((len(nodes.weights), means[0].shape[1], means[1].shape[1]), nodes.weights.dtype)
    if not {one, other} & set(nodes.values):
        within = jax.lax.map(lambda x: covariance(maps(x[0]), x[1], one, other),
                             (nodes.coordinates, nodes.runs.state.leaves), batch_size=16)  # fmt: skip
    return mixed_covariance(nodes.weights, means, heavy(nodes.weights, within))
