r"""Marginals of a small discrete network by variable elimination, on the clusters of a min-fill order.

Summing out x multiplies all tables that hold x, a table over the *cluster* of x and its neighbours at that time, and
leaves a message over the neighbours, which goes to the cluster of the first of them to be summed out. Clusters and
messages form a junction forest: back from the last to the first, a cluster's joint is its table times the marginal of
the separator over the message that it sent.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Cluster(NamedTuple):
    """Variables of one table, the separator last; `parent` is the cluster that its message goes to."""

    variables: tuple[int, ...]
    separator: tuple[int, ...]
    parent: int | None


class ClusterMarginals(NamedTuple):
    """Log-joints of the clusters, each (B, *classes) with axes as in `Cluster.variables`, and the log-normaliser."""

    joints: list[Array]
    log_partition: Float[Array, ""]


def min_fill(n: int, scopes: list[tuple[int, ...]], last: tuple[int, ...] = ()) -> list[int]:
    """An order of elimination: next comes the variable whose neighbours lack the fewest ties among themselves.

    The variables in `last` come after all others.
    """
    around: dict[int, set[int]] = {i: set() for i in range(n)}
    for scope in scopes:
        for i in scope:
            around[i] |= set(scope) - {i}

    def fill(i: int) -> tuple[bool, int, int, int]:
        near = around[i]
        return i in last, sum(len(near - around[j]) - 1 for j in near), len(near), i

    order = []
    while around:
        i = min(around, key=fill)
        near = around.pop(i)
        for j in near:
            around[j] = (around[j] | near) - {i, j}
        order.append(i)
    return order


def clusters(order: list[int], scopes: list[tuple[int, ...]]) -> list[Cluster]:
    """The clusters of an order of elimination; each comes before its parent."""
    place = {x: k for k, x in enumerate(order)}
    held: list[set[int]] = [set() for _ in order]  # what else is in the cluster of the k-th variable
    for scope in scopes:
        first = min(scope, key=place.__getitem__)
        held[place[first]] |= set(scope) - {first}
    out = []
    for k, x in enumerate(order):
        separator = tuple(sorted(held[k], key=place.__getitem__))
        parent = place[separator[0]] if separator else None
        if parent is not None:
            held[parent] |= set(separator[1:])
        out.append(Cluster((x, *separator), separator, parent))
    return out


def home(found: list[Cluster], scope: tuple[int, ...]) -> int:
    """The first cluster that holds all variables of a table."""
    return next(k for k, c in enumerate(found) if set(scope) <= set(c.variables))


def place(table: Float[Array, "#B *classes"], scope: tuple[int, ...], variables: tuple[int, ...]) -> Array:
    """A table (B|1, *classes of scope) with its axes as in `variables`, those it lacks of length one."""
    order = np.argsort([variables.index(x) for x in scope])
    sizes = {x: table.shape[1 + i] for i, x in enumerate(scope)}
    table = jnp.transpose(table, (0, *(1 + int(i) for i in order)))
    return table.reshape(table.shape[0], *(sizes.get(x, 1) for x in variables))


def marginal(joint: Float[Array, "B *classes"], variables: tuple[int, ...], scope: tuple[int, ...]) -> Array:
    """The log-marginal of a log-joint over the variables of `scope`, in that order."""
    left = [x for x in variables if x in scope]
    table = _log_sum_exp(joint, tuple(1 + i for i, x in enumerate(variables) if x not in scope))
    return jnp.transpose(table, (0, *(1 + left.index(x) for x in scope)))


def _log_sum_exp(joint: Array, axes: tuple[int, ...]) -> Array:
    """Tables are finite (zeros are -10^4), which saves half of the operations of the general function."""
    if not axes:
        return joint
    top = jax.lax.stop_gradient(jnp.max(joint, axes, keepdims=True))
    return jnp.log(jnp.sum(jnp.exp(joint - top), axes)) + jnp.squeeze(top, axes)


def collect(tables: list[Float[Array, "B *classes"]], found: list[Cluster]) -> tuple[list[Array], list[Array]]:
    """The tables with all messages from clusters before them, and the messages that they send."""
    tables, messages = list(tables), []
    for k, cluster in enumerate(found):
        messages.append(marginal(tables[k], cluster.variables, cluster.separator))
        if cluster.parent is not None:
            target = found[cluster.parent].variables
            tables[cluster.parent] += place(messages[k], cluster.separator, target)
    return tables, messages


def eliminate(tables: list[Float[Array, "B *classes"]], found: list[Cluster]) -> ClusterMarginals:
    """Log-joints of all clusters and the log-normaliser, of B networks at once.

    Args:
        tables: the sum of the log-tables at home in each cluster, with all its axes.
        found: the clusters.
    """
    tables, messages = collect(tables, found)
    roots = [message for message, cluster in zip(messages, found, strict=True) if cluster.parent is None]
    log_partition = jnp.sum(jnp.stack(roots))
    joints: list[Array] = [tables[0]] * len(found)
    for k in reversed(range(len(found))):
        cluster, outside = found[k], -messages[k]
        if cluster.parent is not None:
            outside += marginal(joints[cluster.parent], found[cluster.parent].variables, cluster.separator)
        joints[k] = tables[k] + place(outside, cluster.separator, cluster.variables)
    return ClusterMarginals(joints, log_partition)
