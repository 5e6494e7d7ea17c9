r"""Moments of Gaussian variables tied pairwise in trees, by eliminating independent sets of nodes.

A round takes out nodes with at most two neighbours, no two of them adjacent: leaves ("rake") and inner nodes of paths
("compress"), whose two neighbours become neighbours of each other. A constant fraction of a tree goes in every round,
so a tree of n nodes takes O(log n) rounds of batched operations, however deep or irregular it is.

An edge carries the block $\begin{pmatrix} p & c \\ c & p' \end{pmatrix}$ of the precision and its determinant D. With
node i of own precision u, edges to j and k, and $s = u + p_{ij} + p_{ik}$, the Schur complement is

$$ P_j = (p_{ji} (u + p_{ik}) + D_{ij}) / s, \quad P_k = (p_{ki} (u + p_{ij}) + D_{ik}) / s, \quad
   C = -c_{ij} c_{ik} / s, \quad D = (u\, p_{ji} p_{ki} + p_{ki} D_{ij} + p_{ji} D_{ik}) / s, $$

without a subtraction, so tight ties lose no digits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.numerics.special import LOG_2PI


class Round(NamedTuple):
    """Nodes eliminated together, each with two neighbours; M stands for a missing one, as edge 0 does.

    Rounds of about equal size are padded to one and stacked, with a leading axis for the loop over them.
    """

    node: Int[np.ndarray, " k"]
    neighbour: Int[np.ndarray, "2 k"]
    edge: Int[np.ndarray, "2 k"]
    first: Bool[np.ndarray, "2 k"]  # whether the node is the first end of the edge
    fill: Int[np.ndarray, " k"]  # the new edge between the neighbours, which are its ends in order; 0 for none


class TreeOrder(NamedTuple):
    """An elimination order of M nodes; edges are numbered from 1, the E given ones first."""

    stages: list[Round]  # stacked
    nodes: int
    edges: int  # with the filled ones


def tree_order(nodes: int, ends: Int[np.ndarray, "E 2"]) -> TreeOrder:
    """The rounds for a forest; a graph with cycles never ends and is refused."""
    rng = np.random.default_rng(0)
    ends = np.concatenate([np.full((1, 2), nodes), np.asarray(ends, int).reshape(-1, 2)])
    alive_edge = np.ones(len(ends), bool)
    alive_edge[0] = False
    alive = np.ones(nodes, bool)
    rounds = []
    while alive.any():
        live = np.flatnonzero(alive_edge)
        degree = np.bincount(ends[live].reshape(-1), minlength=nodes + 1)[:nodes]
        rank = np.where(alive & (degree <= 2), rng.permutation(nodes) + 1, 0)
        rank = np.append(rank, 0)
        best = np.zeros(nodes + 1, int)  # the highest rank among the neighbours
        for here, there in ((0, 1), (1, 0)):
            np.maximum.at(best, ends[live, here], rank[ends[live, there]])
        chosen = np.flatnonzero((rank > best)[:nodes])
        if not len(chosen):
            raise ValueError("the graph has cycles: it is no forest")
        edge = np.zeros((2, nodes + 1), int)
        for side in (0, 1):  # every chosen node has at most two live edges
            own = ends[live, side]
            new = edge[0][own] != 0
            edge[0][own[~new]] = live[~new]
            again = edge[0][own] != live
            edge[1][own[again]] = live[again]
        edge = edge[:, chosen]
        first = ends[edge, 0] == chosen
        neighbour = np.where(edge == 0, nodes, np.where(first, ends[edge, 1], ends[edge, 0]))
        both = (edge != 0).all(0)
        fill = np.zeros(len(chosen), int)
        fill[both] = len(ends) + np.arange(both.sum())
        rounds.append(Round(chosen, neighbour, edge, first, fill))
        alive[chosen] = False
        alive_edge[edge.reshape(-1)] = False
        ends = np.concatenate([ends, neighbour[:, both].T])
        alive_edge = np.concatenate([alive_edge, np.ones(both.sum(), bool)])
    return TreeOrder(_stages(rounds, nodes), nodes, len(ends))


def _stages(rounds: list[Round], nodes: int) -> list[Round]:
    """Stack rounds, the first and all that are no smaller than a sixteenth of it, and so on."""
    stages, rest = [], rounds
    while rest:
        width = len(rest[0].node)
        count = next((i for i, r in enumerate(rest) if 16 * len(r.node) < width), len(rest))
        width = max(len(r.node) for r in rest[:count])
        nothing = Round(np.asarray(nodes), np.asarray(nodes), np.asarray(0), np.asarray(False), np.asarray(0))

        def padded(x: np.ndarray, empty: np.ndarray, width=width) -> np.ndarray:
            return np.concatenate([x, np.broadcast_to(empty, (*x.shape[:-1], width - x.shape[-1]))], axis=-1)

        fields = [[padded(x, e) for x, e in zip(r, nothing, strict=True)] for r in rest[:count]]
        stages.append(Round(*(np.stack(x) for x in zip(*fields, strict=True))))
        rest = rest[count:]
    return stages


class TreeMarginals(NamedTuple):
    """Means and variances of the nodes, covariances along the given edges, and the log-integral."""

    mean: Float[Array, " M"]
    variance: Float[Array, " M"]
    covariance: Float[Array, " E"]
    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    log_volume: Float[Array, ""]  # the log-integral at h = 0


def tree_gaussian(
    order: TreeOrder,
    own: Float[Array, " M"],
    linear: Float[Array, " M"],
    ends: Float[Array, "2 E"],
    coupling: Float[Array, " E"],
) -> TreeMarginals:
    r"""Moments of $\exp\{-\frac12 \sum_i u_i x_i^2 - \frac12 \sum_e (p x_i^2 + 2 c x_i x_j + p' x_j^2) + h^T x\}$.

    Args:
        order: of the graph.
        own: $u$.
        linear: $h$.
        ends: $p$ and $p'$ of every edge, a rank-one block: $p p' = c^2$.
        coupling: $c$.
    """
    dtype, given = own.dtype, coupling.shape[0]
    (log_volume, quadratic, proper), solved = eliminate(order, own, linear, ends, coupling)
    found = (jnp.zeros(order.nodes + 1, dtype), jnp.zeros(order.nodes + 1, dtype), jnp.zeros(order.edges, dtype))
    for stage_and_kept in reversed(solved):
        found, _ = jax.lax.scan(_substitute, found, stage_and_kept, reverse=True)
    mean, variance, covariance = found
    between = covariance[1 : given + 1]
    return TreeMarginals(mean[:-1], variance[:-1], between, log_volume + quadratic, proper, log_volume)


def eliminate(
    order: TreeOrder,
    own: Float[Array, " M"],
    linear: Float[Array, " M"],
    ends: Float[Array, "2 E"],
    coupling: Float[Array, " E"],
) -> tuple[tuple[Array, Array, Array], list[Any]]:
    """All nodes eliminated: log-volume, quadratic part and whether it is proper; and what substitution needs of every
    stage, in order."""
    dtype, room = own.dtype, order.edges - 1 - coupling.shape[0]
    # The places of what is missing: a node of precision one, an edge of zeros.
    u, h = jnp.concatenate([own, jnp.ones(1, dtype)]), jnp.concatenate([linear, jnp.zeros(1, dtype)])
    p = jnp.concatenate([jnp.zeros((2, 1), dtype), ends, jnp.zeros((2, room), dtype)], axis=1)
    c = jnp.concatenate([jnp.zeros(1, dtype), coupling, jnp.zeros(room, dtype)])
    system = (u, h, p, c, jnp.zeros(order.edges, dtype))
    log_volume, quadratic, proper, solved = jnp.zeros((), dtype), jnp.zeros((), dtype), jnp.asarray(True), []
    for stage in order.stages:
        system, (part, volume, ok, kept) = jax.lax.scan(_eliminate, system, stage)
        log_volume, quadratic, proper = log_volume + jnp.sum(volume), quadratic + jnp.sum(part), proper & jnp.all(ok)
        solved.append((stage, kept))
    return (log_volume, quadratic, proper), solved


def _eliminate(system: tuple, r: Round) -> tuple[tuple, Any]:
    """One round: the system without its nodes, their two shares of the log-integral, and what substitution needs."""
    u, h, p, c, d = system
    here = [jnp.where(r.first[i], p[0][r.edge[i]], p[1][r.edge[i]]) for i in (0, 1)]
    there = [jnp.where(r.first[i], p[1][r.edge[i]], p[0][r.edge[i]]) for i in (0, 1)]
    tie, det = [c[r.edge[i]] for i in (0, 1)], [d[r.edge[i]] for i in (0, 1)]
    v, g = u[r.node], h[r.node]
    s = v + here[0] + here[1]
    real = r.node < u.shape[0] - 1
    part = 0.5 * jnp.sum(jnp.where(real, g**2 / s, 0.0))
    volume = 0.5 * jnp.sum(jnp.where(real, LOG_2PI - jnp.log(s), 0.0))
    ok = jnp.all(s > 0) & jnp.all(jnp.isfinite(g))
    sent = [(there[i] * (v + here[1 - i]) + det[i]) / s for i in (0, 1)]
    leaf = r.fill == 0
    for i in (0, 1):
        h = h.at[r.neighbour[i]].add(-tie[i] * g / s)
        u = u.at[r.neighbour[i]].add(jnp.where(leaf, sent[i], 0.0))
    p = p.at[:, r.fill].set(jnp.stack(sent))
    c = c.at[r.fill].set(-tie[0] * tie[1] / s)
    d = d.at[r.fill].set((v * there[0] * there[1] + there[1] * det[0] + there[0] * det[1]) / s)
    # What is missing has been written to as well.
    u, h, p = u.at[-1].set(1.0), h.at[-1].set(0.0), p.at[:, 0].set(0.0)
    c, d = c.at[0].set(0.0), d.at[0].set(0.0)
    return (u, h, p, c, d), (part, volume, ok, (s, g, tie[0], tie[1]))


def _substitute(found: tuple, given: tuple) -> tuple[tuple, None]:
    """Means and variances of the nodes of a round, and covariances along their edges, from those of later rounds."""
    mean, variance, covariance = found
    r, (s, g, *tie) = given
    pull = [-x / s for x in tie]
    about = [variance[r.neighbour[i]] for i in (0, 1)]
    between = covariance[r.fill]
    cross = [pull[i] * about[i] + pull[1 - i] * between for i in (0, 1)]
    mean = mean.at[r.node].set(g / s + pull[0] * mean[r.neighbour[0]] + pull[1] * mean[r.neighbour[1]])
    variance = variance.at[r.node].set(1 / s + pull[0] * cross[0] + pull[1] * cross[1])
    for i in (0, 1):
        covariance = covariance.at[r.edge[i]].set(cross[i])
    return (mean.at[-1].set(0.0), variance.at[-1].set(0.0), covariance.at[0].set(0.0)), None
