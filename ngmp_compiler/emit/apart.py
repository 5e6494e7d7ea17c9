r"""A start that tells exchangeable classes apart by the data.

A mixture or hidden Markov model whose classes have equal priors has a symmetric fixed point, and an iteration that
starts at the priors stays there. Where two classes of a selector are equal at the start, in their probabilities and in
what the data say of them, its variables are therefore held for a few sweeps at a clustering of the outcomes, while all
other leaves move; then everything is free. The clustering is k-means from centres that are chosen one after the other,
each the outcome that lessens the sum of squared distances most; it depends on nothing but the data, and classes are
numbered by the first coordinate of their centres. Classes that the priors tell apart are left alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import Categorical

from ..graph.groups import FactorGroup
from ..graph.index import index_map
from .core import Leaves, masked
from .rules import select

_SWEEPS = 8  # with the selectors held
_LEAST = 1e-3  # part of a sweep; each is cut until all marginals stay proper
_LOGIT = 300.0  # of the class that an outcome is put in, in every leaf that is held: as good as known
_ROUNDS = 20  # of k-means
_SAMPLE, _CANDIDATES = 4096, 256  # outcomes that centres are fitted to, and that they are chosen from
_COLUMNS = 64  # outcomes of one variable that are told apart; more are averaged


class Emission(NamedTuple):
    """Observed factors whose interface j is a selector, and one row of them for every outcome of every variable."""

    group: FactorGroup
    j: int
    rows: np.ndarray  # (variables, columns)


class Selector(NamedTuple):
    """Categorical variables of one name that observed factors touch, each by as many."""

    name: str
    plane: Any
    positions: np.ndarray
    emissions: list[Emission]


def selectors(map: Any) -> list[Selector]:
    """The selectors of a map whose classes the data could tell apart."""
    out = []
    for name, (plane, positions, _) in map.plan.collections.items():
        if plane.family.core != "categorical":
            continue
        own = np.zeros(map.plan.planes[plane], bool)
        own[positions.reshape(-1)] = True
        found = []
        for group in map.projected:
            for j in group.factor.leading() if group.observed else ():
                edge = group.edges[j]
                if edge.plane == plane and own[edge.index.positions].all():
                    found.append(Emission(group, j, _rows(group, edge.index.positions)))
        if not found:
            continue
        touched = [np.unique(e.group.edges[e.j].index.positions) for e in found]
        same = all(np.array_equal(t, touched[0]) for t in touched)
        if same and len(touched[0]) >= 2 * plane.event_shape[0] and all(e.rows.size for e in found):
            out.append(Selector(name, plane, touched[0], found))
    return out


def _rows(group: FactorGroup, positions: np.ndarray) -> np.ndarray:
    """One row of a group for every outcome of every variable, (variables, columns); empty if they differ in number."""
    parts = group.given.distribution.classes
    first = np.arange(group.n).reshape(len(group.given.order) // parts, parts, -1)[:, 0].reshape(-1)
    at = positions[first]
    count = np.bincount(at)
    count = count[count > 0]
    if (count != count[0]).any():
        return np.empty((0, 0), int)
    return first[np.argsort(at, kind="stable")].reshape(len(count), -1)


def apart(map: Any, leaves: Leaves) -> Leaves:
    """Leaves at which exchangeable classes differ, or the ones given where there are none; see the module docstring."""
    found = selectors(map)
    if not found:
        return leaves
    keys = [e.group.keys[e.j] for s in found for e in s.emissions]
    first = map.evaluate(leaves, frozenset(keys))
    symmetric = jnp.stack([_symmetric(s, first) for s in found])
    return jax.lax.cond(jnp.any(symmetric), lambda x: _separated(map, found, x, symmetric), lambda x: x, leaves)


def _symmetric(selector: Selector, first: Any) -> Bool[Array, ""]:
    """Whether two classes are equal for all variables: in their marginals, and in what their factors would say."""
    at = index_map(selector.positions, first.core.planes[selector.plane].eta1.shape[0])
    logits = at.take(first.core.planes[selector.plane].eta1)
    for group, j, _ in selector.emissions:
        logits = logits + at.take(group.edges[j].index.add(first.target[group.keys[j]].eta1))
    n = logits.shape[0]
    weights = jnp.cos(jnp.arange(n, dtype=logits.dtype)) ** 2 + 0.1  # alike for no two variables
    scores = jnp.sort(weights @ jax.nn.log_softmax(logits, axis=-1)) / n
    tol = jnp.sqrt(jnp.finfo(logits.dtype).eps)
    return jnp.min(jnp.diff(scores)) < tol * (1.0 + jnp.max(jnp.abs(scores)))


def _separated(map: Any, found: list[Selector], leaves: Leaves, symmetric: Bool[Array, " s"]) -> Leaves:
    """The leaves after a few sweeps with the selectors of symmetric classes held at a clustering of their outcomes."""
    plain = leaves
    held: set[str] = set()
    for selector, broken in zip(found, symmetric, strict=True):
        classes = selector.plane.event_shape[0]
        x, seen = _features(map, selector)
        label = cluster(x, seen, classes)
        logits = _LOGIT * (label[:, None] == jnp.arange(classes)) * seen[:, None]
        whole = jnp.zeros((map.plan.planes[selector.plane], classes), map.plan.dtype)
        whole = whole.at[selector.positions].set(logits.astype(map.plan.dtype))
        for group, j, _ in selector.emissions:
            key = group.keys[j]
            eta = masked(group, group.edges[j].index.take(whole))
            leaves = {**leaves, key: Categorical(jnp.where(broken, eta, leaves[key].eta1))}  # type: ignore[attr-defined]
            held.add(key)
    free = frozenset(leaves) - held

    def sweep(_: int, leaves: Leaves) -> Leaves:
        found = map.evaluate(leaves, free)
        ok = found.core.proper
        new = {k: select(ok & found.fine[k], found.target[k], x) if k in free else x for k, x in leaves.items()}

        def part(step: Array) -> Leaves:
            return jax.tree.map(lambda a, b: a + step * (b - a), leaves, new)

        def refused(step: Array) -> Array:
            return ~map.core.run(part(step)).proper & (step > _LEAST)

        step = jax.lax.while_loop(refused, lambda step: 0.5 * step, jnp.ones((), map.plan.dtype))
        return part(jnp.where(step > _LEAST, step, 0.0))

    moved = jax.lax.fori_loop(0, _SWEEPS, sweep, leaves)
    last = map.evaluate(moved, frozenset(held))  # now the selectors follow
    follow = {**moved, **{k: select(last.fine[k], last.target[k], moved[k]) for k in held}}
    proper = map.core.run(follow).proper
    found = jax.tree.map(lambda a, b: jnp.where(proper, a, b), follow, moved)
    return jax.tree.map(lambda a, b: jnp.where(last.core.proper, a, b), found, plain)


# -- features and clusters --------------------------------------------------------------------------------------------


def _features(map: Any, selector: Selector) -> tuple[Float[Array, "n d"], Bool[Array, " n"]]:
    """What the outcomes of every variable look like, each column with unit variance, and which variables have any."""
    columns, counts = [], []
    for group, _, rows in selector.emissions:
        out = jnp.asarray(group.given.arguments["out"])
        factor: Any = group.factor
        x = factor.features(jnp.broadcast_to(out, (group.n, *out.shape[1:])).astype(map.plan.dtype))
        n = len(rows)
        index = index_map(rows.reshape(-1), group.n)
        x = index.take(jnp.broadcast_to(x, (group.n, x.shape[-1]))).reshape(n, -1, x.shape[-1])
        seen = jnp.ones(group.n) if group.mask is None else group.mask
        seen = index.take(jnp.broadcast_to(seen, (group.n,))).reshape(n, -1, 1) * jnp.isfinite(x)
        x = jnp.where(seen > 0, x, 0.0)
        if x.shape[1] > _COLUMNS:
            count = jnp.sum(seen, 1, keepdims=True)
            x, seen = jnp.sum(x, 1, keepdims=True) / jnp.maximum(count, 1), count > 0
        columns.append(x.reshape(n, -1))
        counts.append(jnp.broadcast_to(seen, x.shape).reshape(n, -1))
    x, seen = jnp.concatenate(columns, -1), jnp.concatenate(counts, -1)
    total = jnp.maximum(jnp.sum(seen, 0), 1)
    mean = jnp.sum(x * seen, 0) / total
    centred = jnp.where(seen > 0, x - mean, 0.0)
    scale = jnp.sqrt(jnp.sum(centred**2, 0) / total)
    return centred / jnp.where(scale > 0, scale, 1.0), jnp.any(seen > 0, -1)


def cluster(x: Float[Array, "n d"], seen: Bool[Array, " n"], classes: int) -> Int[Array, " n"]:
    """The class of every row: k-means from greedily chosen centres, numbered by their first coordinate."""
    n = x.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(int))
    sample, weight = x[some], seen[some].astype(x.dtype)
    few = np.unique(np.linspace(0, len(some) - 1, min(len(some), _CANDIDATES)).astype(int))
    candidates = sample[few]
    between = _squares(sample, candidates)  # (sample, candidates)
    allowed = weight[few] > 0

    def choose(k: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        nearest, centres = carry
        left = jnp.sum(weight[:, None] * jnp.minimum(nearest[:, None], between), 0)
        best = jnp.argmin(jnp.where(allowed, left, jnp.inf))
        return jnp.minimum(nearest, between[:, best]), centres.at[k].set(candidates[best])

    far = jnp.full(len(some), 1.0 + jnp.max(between))  # from no centre
    _, centres = jax.lax.fori_loop(0, classes, choose, (far, jnp.zeros((classes, x.shape[1]), x.dtype)))

    def refine(_: int, centres: Array) -> Array:
        own = (jnp.argmin(_squares(sample, centres), 1)[:, None] == jnp.arange(classes)) * weight[:, None]
        total = jnp.sum(own, 0)[:, None]
        return jnp.where(total > 0, (own.T @ sample) / jnp.maximum(total, 1), centres)

    centres = jax.lax.fori_loop(0, _ROUNDS, refine, centres)
    return jnp.argmin(_squares(x, centres[jnp.argsort(centres[:, 0])]), 1)


def _squares(x: Float[Array, "n d"], c: Float[Array, "k d"]) -> Float[Array, "n k"]:
    return jnp.sum(x**2, 1)[:, None] - 2 * jnp.matmul(x, c.T, precision="highest") + jnp.sum(c**2, 1)
