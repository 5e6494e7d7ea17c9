r"""Marginals of a discrete forest by rake and compress: O(log n) rounds of batched operations, however deep it is.

The probability is $p(x) \propto \exp\{\sum_i u_i(x_i) + \sum_{(i,j)} l_{ij}(x_i, x_j)\}$ on a forest. A round sums out
an independent set of nodes with at most two neighbours in the forest that is left:

- a leaf i of a is raked into it, $u_a(y) \mathrel{+}= \log\sum_x e^{u_i(x) + l_{ia}(x, y)}$;
- a node i between a and b becomes an edge, $l_{ab}(y, z) = \log\sum_x e^{u_i(x) + l_{ia}(x, y) + l_{ib}(x, z)}$;
- a node without neighbours adds $\log\sum_x e^{u_i(x)}$ to the log-partition.

Back in reverse order, the joint of i and its neighbours is the marginal of the neighbours, known by then, times the
conditional of i. At least half of the nodes of a tree have at most two neighbours, so the rounds are O(log n).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_LARGEST = 2**22  # entries of the joint tables that a round of compressions holds at once


class Round(NamedTuple):
    """Nodes summed out together. Edges are *directed*: 2e has the table of edge e as declared, 2e + 1 transposed."""

    roots: np.ndarray  # (r,)
    leaves: np.ndarray  # (m,)
    parents: np.ndarray  # (m,)
    up: np.ndarray  # (m,), directed from leaf to parent
    middles: np.ndarray  # (c,)
    left: np.ndarray  # (c,), directed from middle to a
    right: np.ndarray  # (c,), directed from middle to b
    start: int  # the edges (a, b) that replace the middles are numbered from here
    between: np.ndarray  # (2, c), a and b


class TreeMarginals(NamedTuple):
    """Log-marginals of nodes and of the declared edges, and the log-normaliser."""

    log_probs: Float[Array, "n K"]
    pairs: Float[Array, "edges K K"]
    log_partition: Float[Array, ""]


def plan_rounds(n: int, edges: np.ndarray) -> list[Round]:
    """The rounds for a forest of n nodes with distinct edges (m, 2); numpy only."""
    around: list[dict[int, int]] = [{} for _ in range(n)]  # neighbour -> directed edge from here to it
    for e, (a, b) in enumerate(edges.tolist()):
        around[a][b], around[b][a] = 2 * e, 2 * e + 1
    alive, count, rounds = list(range(n)), len(edges), []
    while alive:
        # Ends first: raking shrinks the forest, compressing only shortens its paths.
        few = sorted((i for i in alive if len(around[i]) <= 2), key=lambda i: len(around[i]))
        gone, blocked = set(), set()
        for i in few:
            if i not in blocked:
                gone.add(i)
                blocked.update(around[i])
        rounds.append(_remove(sorted(gone), around, count))
        count += len(rounds[-1].middles)
        alive = [i for i in alive if i not in gone]
    return rounds


def _remove(gone: list[int], around: list[dict[int, int]], start: int) -> Round:
    roots = [i for i in gone if not around[i]]
    leaves = [i for i in gone if len(around[i]) == 1]
    middles = [i for i in gone if len(around[i]) == 2]
    parents, up = zip(*(next(iter(around[i].items())) for i in leaves), strict=True) if leaves else ((), ())
    for i, parent in zip(leaves, parents, strict=True):
        del around[parent][i]
    left, right, between = [], [], []
    for number, i in enumerate(middles):
        (a, to_a), (b, to_b) = around[i].items()
        left.append(to_a)
        right.append(to_b)
        between.append((a, b))
        del around[a][i], around[b][i]
        around[a][b], around[b][a] = 2 * (start + number), 2 * (start + number) + 1
    arrays = (np.asarray(x, int) for x in (roots, leaves, parents, up, middles, left, right))
    return Round(*arrays, start=start, between=np.asarray(between, int).reshape(-1, 2).T)


def discrete_tree(unary: Float[Array, "n K"], tie: Float[Array, "edges K K"], rounds: list[Round]) -> TreeMarginals:
    """Marginals, edge marginals and log-normaliser of a forest (see the module docstring).

    Args:
        unary: log-potentials $u_i$.
        tie: log-potentials $l_{ij}$ of the edges, first node by rows.
        rounds: from `plan_rounds`.
    """
    own, tables, kept, log_partition = ascend(unary, tie, rounds)
    log_probs, pairs = _descend(own, tables, rounds, kept)
    return TreeMarginals(log_probs, pairs[: tie.shape[0]], log_partition)


def ascend(
    unary: Float[Array, "n K"], tie: Float[Array, "edges K K"], rounds: list[Round]
) -> tuple[Array, Array, list[dict[str, Array]], Array]:
    """Sum out all nodes: unary potentials as every node was left, tables of directed edges, what the way back needs,
    and the log-normaliser."""
    declared, k = tie.shape[:2]
    total = declared + sum(len(r.middles) for r in rounds)
    tables = jnp.zeros((2 * total, k, k), tie.dtype).at[: 2 * declared].set(_both(tie))
    log_partition = jnp.zeros((), unary.dtype)
    kept: list[dict[str, Array]] = []
    for r in rounds:
        kept.append({})
        if len(r.roots):
            log_partition += jnp.sum(_log_sum_exp(_take(unary, r.roots), axis=-1))
        if len(r.leaves):
            joint = _take(unary, r.leaves)[:, :, None] + _take(tables, r.up)
            message, scale = _shift(_log_sum_exp(joint, axis=1))
            unary = unary.at[r.parents].add(message)
            kept[-1]["conditional"] = joint - message[:, None, :]
            log_partition += jnp.sum(scale)
        if len(r.middles):
            between, scale = _shift(_compose(_take(unary, r.middles), _take(tables, r.left), _take(tables, r.right)))
            tables = tables.at[2 * r.start : 2 * (r.start + len(r.middles))].set(_both(between))
            kept[-1]["between"] = between
            log_partition += jnp.sum(scale)
    return unary, tables, kept, log_partition


def _descend(unary: Array, tables: Array, rounds: list[Round], kept: list[dict[str, Array]]) -> tuple[Array, Array]:
    """Log-marginals of all nodes and edges, from the last round to the first; `unary` is as every node was left."""
    log_probs, pairs = jnp.zeros_like(unary), jnp.zeros_like(tables[::2])
    for r, known in zip(reversed(rounds), reversed(kept), strict=True):
        if len(r.roots):
            own = _take(unary, r.roots)
            log_probs = log_probs.at[r.roots].set(own - _log_sum_exp(own, axis=-1)[:, None])
        if len(r.leaves):
            joint = known["conditional"] + _take(log_probs, r.parents)[:, None, :]
            joint -= _log_sum_exp(joint, axis=(1, 2))[:, None, None]
            log_probs = log_probs.at[r.leaves].set(_log_sum_exp(joint, axis=2))
            pairs = _put(pairs, r.up, joint)
        if len(r.middles):
            outer = pairs[r.start : r.start + len(r.middles)] - known["between"]
            first, second, own = _apart(_take(unary, r.middles), _take(tables, r.left), _take(tables, r.right), outer)
            log_probs = log_probs.at[r.middles].set(own)
            pairs = _put(_put(pairs, r.left, first), r.right, second)
    return log_probs, pairs


def _both(tables: Float[Array, "m K K"]) -> Float[Array, "2m K K"]:
    """Every table and its transpose, the two directions of an edge, so that no gather needs a transposition."""
    return jnp.stack([tables, tables.swapaxes(1, 2)], 1).reshape(-1, *tables.shape[1:])


def _take(values: Array, rows: np.ndarray) -> Array:
    """`values[rows]`, without the operations that guard against indices out of bounds."""
    return values.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _log_sum_exp(values: Array, axis: int | tuple[int, ...]) -> Array:
    """For finite values: half the operations of the one in `jax.nn`, and there are some five of them a round."""
    top = jax.lax.stop_gradient(jnp.max(values, axis, keepdims=True))
    return jnp.log(jnp.sum(jnp.exp(values - top), axis)) + jnp.squeeze(top, axis)


def _shift(tables: Array) -> tuple[Array, Array]:
    """Subtract the largest entry of every table and return it: messages of deep trees keep their digits."""
    axes = tuple(range(1, tables.ndim))
    top = jax.lax.stop_gradient(jnp.max(tables, axes, keepdims=True))
    return tables - top, top


def _put(pairs: Array, directed: np.ndarray, values: Float[Array, "m K K"]) -> Array:
    flipped = jnp.asarray(directed % 2 == 1)[:, None, None]
    return pairs.at[directed // 2].set(jnp.where(flipped, values.swapaxes(1, 2), values))


def _batched(function, *arrays):
    """Apply to rows (c, ...), all at once or, where the joint tables (c, K, K, K) would be large, some at a time."""
    c, k = arrays[0].shape
    size = max(1, _LARGEST // k**3)
    if c <= size:
        return jax.vmap(function)(*arrays)
    return jax.lax.map(lambda rows: function(*rows), arrays, batch_size=size)


def _joint(unary: Float[Array, " K"], left: Float[Array, "K K"], right: Float[Array, "K K"]) -> Array:
    return unary[:, None, None] + left[:, :, None] + right[:, None, :]


def _compose(unary: Array, left: Array, right: Array) -> Float[Array, "c K K"]:
    return _batched(lambda *given: _log_sum_exp(_joint(*given), axis=0), unary, left, right)


def _apart(unary: Array, left: Array, right: Array, outer: Array) -> tuple[Array, Array, Array]:
    """Joints (middle, a) and (middle, b) and marginals of the middles, given what the rest says of (a, b)."""

    def one(unary: Array, left: Array, right: Array, outer: Array) -> tuple[Array, Array, Array]:
        joint = _joint(unary, left, right) + outer[None]
        joint = joint - _log_sum_exp(joint, axis=(0, 1, 2))
        first = _log_sum_exp(joint, axis=2)
        return first, _log_sum_exp(joint, axis=1), _log_sum_exp(first, axis=1)

    return _batched(one, unary, left, right, outer)
