"""Roll: group isomorphic sites and stack their arguments, so that a loop and its array form become one thing.

`roll(graph, dtype) -> Rolled`. Sites with the same name, distribution and shape of arguments form a `Group` of n
elements; constants of a group have a leading axis of length n, or 1 where they are shared. Positions in a plane are
renumbered by name, so that the order in which a loop interleaves its declarations does not matter.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ._declare import Graph, Site
from ._expressions import _TAIL, Affine, Exp, Plane, Take, Term, Variable
from ._inputs import Input, unwrap


class Group(NamedTuple):
    """n isomorphic factors: expressions have batch shape (n,), constants a leading axis n or 1."""

    name: str
    distribution: Any
    arguments: dict[str, Any]
    mask: Any  # (n,) booleans, or None
    size: int
    shape: tuple[int, ...]  # as the user sees the site: (repeats, *batch) or (*batch)
    observed: bool
    order: tuple[int, ...] = (0,)  # which of the sites of this name the repeats are, in order of declaration
    inner: tuple[int, ...] = ()  # the shape of one declaration, without the axes that scans added


class Rolled(NamedTuple):
    """Groups, the size of every plane, and the positions of every named variable in its plane."""

    groups: list[Group]
    planes: dict[Plane, int]
    names: dict[str, tuple[Plane, np.ndarray]]


def _term_key(term: Term) -> Any:
    tail = _TAIL[term.op]
    return (term.variable.plane, term.op, np.shape(term.coefficient)[-tail:] if tail else term.coefficient is None)


def _key(value: Any, event_ndim: int | None) -> Any:
    """Structure of an argument: equal keys can be stacked."""
    kind = type(value)
    if kind is float or kind is int:
        return ()
    if kind is Variable:
        return value.plane
    if kind is Affine:
        return (tuple(map(_term_key, value.terms)), value.offset is None, value.event_shape)
    if kind is Exp:
        return ("exp", _key(value.inner, 0))
    if kind is Take:
        return ("take", np.shape(value.table), value.index.plane)
    shape = value.shape if kind is Input else np.shape(value)
    return shape if event_ndim is None else shape[max(len(shape) - event_ndim, 0) :]


def _site_key(site: Site) -> Any:
    ndims = site.event_ndims
    arguments = tuple((k, _key(v, ndims.get(k, 0))) for k, v in site.arguments.items())
    return (site.name, site.distribution.key, arguments, site.mask is None, site.batch_shape, site.observed)


def _spread(value: Any, event_ndim: int, batch: tuple[int, ...], repeats: int) -> Any:
    """One array shared by all repeats of a site -> leading axis 1 if it is one value, else n."""
    shape = np.shape(value)
    lead, event = shape[: len(shape) - event_ndim], shape[len(shape) - event_ndim :]
    xp: Any = np if isinstance(value, (int, float, np.ndarray, np.generic)) else jnp
    if int(np.prod(lead)) == 1:
        return xp.reshape(value, (1, *event))
    full = xp.broadcast_to(value, (repeats, *batch, *event))
    return full.reshape(-1, *event)


def _stack(values: list[Any], event_ndim: int, batch: tuple[int, ...]) -> Any:
    """Stack one constant argument of all sites of a group: (n | 1, *event)."""
    first, repeats = values[0], len(values)
    if repeats == 1 or all(v is first for v in values):
        return _spread(unwrap(first), event_ndim, batch, repeats)
    if all(type(v) in (int, float) for v in values):
        same = all(v == first for v in values)
        return np.asarray([first]) if same else np.repeat(np.asarray(values), int(np.prod(batch)))
    if all(type(v) is Input and v.root is first.root and len(v.index) == len(first.index) for v in values):
        stacked = _read(first.root, np.asarray([v.index for v in values]))
    else:
        stacked = jnp.stack([jnp.asarray(unwrap(v)) for v in values])
    event = np.shape(stacked)[np.ndim(stacked) - event_ndim :] if event_ndim else ()
    whole = first.shape if isinstance(first, Input) else np.shape(first)
    lead = whole[: len(whole) - event_ndim]
    stacked = jnp.reshape(stacked, (repeats, *(1,) * (len(batch) - len(lead)), *lead, *event))
    return jnp.broadcast_to(stacked, (repeats, *batch, *event)).reshape(-1, *event)


def _read(root: Any, index: np.ndarray) -> Any:
    """`root[index[0]], root[index[1]], ...` as one slice where the positions are consecutive, else one gather."""
    if index.shape[1] == 1:
        start, count = int(index[0, 0]), len(index)
        if (index[:, 0] == np.arange(start, start + count)).all():
            return root if count == root.shape[0] else root[start : start + count]
    return root[tuple(index.T)]


def _stack_variables(values: list[Variable], batch: tuple[int, ...], number: dict[Plane, np.ndarray]) -> Variable:
    rank = len(batch)
    index = [np.broadcast_to(v.index.reshape((1,) * (rank - v.index.ndim) + v.index.shape), batch) for v in values]
    flat = np.concatenate([i.reshape(-1) for i in index]) if rank else np.asarray(index)
    plane = values[0].plane
    return Variable(None, plane, number[plane][flat])


def _stack_argument(values: list[Any], event_ndim: int | None, batch: tuple, n: int, number: dict) -> Any:
    first = values[0]
    if isinstance(first, Variable):
        return _stack_variables(values, batch, number)
    if isinstance(first, Exp):
        return Exp(_stack_argument([v.inner for v in values], 0, batch, n, number))
    if isinstance(first, Take):
        table = _stack([v.table for v in values], 2, batch)
        return Take(table, _stack_variables([v.index for v in values], batch, number))
    if isinstance(first, Affine):
        terms = []
        for j, (_, op, coefficient) in enumerate(first.terms):
            variable = _stack_variables([v.terms[j].variable for v in values], batch, number)
            if coefficient is not None:
                coefficient = _stack([v.terms[j].coefficient for v in values], _TAIL[op], batch)
            terms.append(Term(variable, op, coefficient))
        offset = first.offset
        if offset is not None:
            offset = _stack([v.offset for v in values], len(first.event_shape), batch)
        return Affine(tuple(terms), offset, (n,), first.event_shape)
    return _stack(values, np.ndim(first) if event_ndim is None else min(event_ndim, np.ndim(first)), batch)


def _group(sites: list[Site], number: dict[Plane, np.ndarray]) -> Group:
    site = sites[0]
    ndims, batch = site.event_ndims, site.batch_shape
    n = len(sites) * int(np.prod(batch))
    arguments = {
        k: _stack_argument([s.arguments[k] for s in sites], ndims.get(k, 0), batch, n, number) for k in site.arguments
    }
    mask = None
    if site.mask is not None:
        mask = jnp.broadcast_to(jnp.asarray(_stack([s.mask for s in sites], 0, batch)), (n,))
    shape = batch if len(sites) == 1 else (len(sites), *batch)
    return Group(site.name, site.distribution, arguments, mask, n, shape, site.observed)


def roll(graph: Graph) -> Rolled:
    """Group the sites of a graph; see the module docstring."""
    number, names = {}, {}
    planes: dict[Plane, int] = {}
    for node in graph.nodes.values():
        positions = node.positions()
        start = planes.get(node.plane, 0)
        planes[node.plane] = start + positions.size
        table = number.setdefault(node.plane, np.empty(graph.sizes[node.plane], int))
        table[positions.reshape(-1)] = start + np.arange(positions.size)
        names[node.name] = (node.plane, (start + np.arange(positions.size)).reshape(positions.shape))
    buckets: dict[Any, list[tuple[int, Site]]] = {}
    declared: dict[str, int] = {}
    for site in graph.sites:
        if 0 in site.batch_shape:  # no data: no factors
            continue
        order = declared[site.name] = declared.get(site.name, -1) + 1
        buckets.setdefault(_site_key(site), []).append((order, site))
    groups = []
    for bucket in buckets.values():
        group = _group([s for _, s in bucket], number)
        inner = graph.observed.get(group.name, bucket[0][1].batch_shape)
        groups.append(group._replace(order=tuple(k for k, _ in bucket), inner=inner))
    return Rolled(groups, planes, names)
