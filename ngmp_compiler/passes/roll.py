"""Roll: group isomorphic sites and stack their arguments, so that a loop and its array form become one thing.

`roll(graph, apart) -> Rolled`. Sites with the same name, distribution and shape of arguments form a `Group` of n
elements, and so do sites of many names (`f"z{k}"` in a loop) that differ in nothing else; constants of a group have a
leading axis of length n, or 1 where they are shared. Positions in a plane are renumbered by name, so that the order
in which a loop interleaves its declarations does not matter.
"""

import re
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..declare.inputs import Input, unwrap
from ..declare.sample import Graph, Site
from ..declare.variables import Picked, Variable
from ..graph.groups import Group
from ..graph.index import index_map
from ..graph.planes import Plane

MANY = 4  # up to this many names, isomorphic sites and variables are kept apart by name: programs stay readable


class Collection(NamedTuple):
    """Consecutive variables of a plane that are stored together: those of one name, or of many alike."""

    plane: Plane
    positions: np.ndarray  # (*shape) of one name, (k, *shape) of k names
    names: tuple[str, ...]


class Rolled(NamedTuple):
    """Groups, the size of every plane, and the positions of every named variable in its plane."""

    groups: list[Group]
    planes: dict[Plane, int]
    names: dict[str, tuple[Plane, np.ndarray]]
    collections: dict[str, Collection]


def _key(value: Any, event_ndim: int | None) -> Any:
    """Structure of an argument: equal keys can be stacked."""
    kind = type(value)
    if kind is float or kind is int:
        return ()
    if getattr(value, "is_expression", False):
        return value.structure
    shape = value.shape if kind is Input else np.shape(value)
    return shape if event_ndim is None else shape[max(len(shape) - event_ndim, 0) :]


def _site_key(site: Site) -> Any:
    ndims = site.event_ndims
    arguments = tuple((k, _key(v, ndims.get(k, 0))) for k, v in site.arguments.items())
    return (site.distribution.key, arguments, site.mask is None, site.batch_shape, site.observed)


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
    elif all(type(v) is np.ndarray for v in values):
        stacked = np.stack(values)
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
        return index_map(index[:, 0], root.shape[0]).take(jnp.asarray(root))
    return root[tuple(index.T)]


def _stack_variables(values: list[Variable], batch: tuple[int, ...], number: dict[Plane, np.ndarray]) -> Variable:
    rank = len(batch)
    plane = values[0].plane
    if values[0].picked:
        return _stack_picked(values, batch, number[plane])
    if not rank:
        return Variable(None, plane, number[plane][np.fromiter((v.index for v in values), int, len(values))])
    index = [np.broadcast_to(v.index.reshape((1,) * (rank - v.index.ndim) + v.index.shape), batch) for v in values]
    flat = np.concatenate([i.reshape(-1) for i in index])
    return Variable(None, plane, number[plane][flat])


def _stack_picked(values: list[Variable], batch: tuple[int, ...], number: np.ndarray) -> Variable:
    """Picked variables of all sites of a group: one table of candidates, and where each row looks in it."""
    tables = [v.frame.source.index for v in values]
    same = all(t is tables[0] or np.array_equal(t, tables[0]) for t in tables)
    if same and all(not v.index.shape and v.frame.at.shape == () for v in values):  # a loop: read all at once
        at = jnp.asarray(_stack([v.frame.at for v in values], 0, batch))
        at = jnp.broadcast_to(at, (len(values) * int(np.prod(batch)),))
    else:
        parts, start = [], 0
        for v, table in zip(values, tables, strict=True):
            rows = np.broadcast_to(v.index, batch).reshape(-1)
            own = jnp.asarray(unwrap(v.frame.at)).reshape(-1)
            own = own if np.array_equal(rows, np.arange(own.shape[0])) else own[rows]
            far = (own < -len(table)) | (own >= len(table))
            total = sum(map(len, tables))
            own = own if same else jnp.where(far, total, jnp.where(own < 0, own + len(table), own) + start)
            start += len(table)
            parts.append(own)
        at = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    table = number[tables[0] if same else np.concatenate(tables)]
    picked = Picked(Variable(None, values[0].plane, table), at, values[0].frame.place)
    return Variable(picked, values[0].plane, np.arange(at.shape[0]))


def _stack_argument(values: list[Any], event_ndim: int | None, batch: tuple, n: int, number: dict) -> Any:
    """One argument of all sites of a group, leaf by leaf; expressions have batch shape (n,)."""
    first = values[0]
    if not getattr(first, "is_expression", False):
        return _stack(values, np.ndim(first) if event_ndim is None else min(event_ndim, np.ndim(first)), batch)
    if first.whole is not None:  # rows of one factor
        batch, n = first.whole, int(np.prod(first.whole))
    leaves = map(list, zip(*(v.leaves for v in values), strict=True))
    return first.map(
        lambda _, ndim: _stack(next(leaves), ndim, batch),
        lambda _: _stack_variables(next(leaves), batch, number),
        lambda _: (n,),
        event_ndim or 0,
    )


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
    return Group(site.name, site.distribution.blank(), arguments, mask, n, shape, site.observed)


def _pattern(names: tuple[str, ...]) -> str:
    """One name for many: with a star for the numbers in them, or the first and the last."""
    patterns = {re.sub(r"\d+", "*", name) for name in names}
    return patterns.pop() if len(patterns) == 1 else f"{names[0]}..{names[-1]}"


def _collections(graph: Graph, apart: Mapping[str, Hashable]) -> dict[str, Collection]:
    """Every name, or many alike, with the positions its variables are renumbered to."""
    alike: dict[Any, list[tuple[int, str]]] = {}
    shapes = {name: node.positions().shape for name, node in graph.nodes.items()}
    for order, (name, node) in enumerate(graph.nodes.items()):
        alike.setdefault((node.plane, shapes[name], apart.get(name), _pattern((name,))), []).append((order, name))
    parts = [part for found in alike.values() for part in ([found] if len(found) > MANY else [[n] for n in found])]
    starts: dict[Plane, int] = {}
    out: dict[str, Collection] = {}
    for part in sorted(parts):  # in order of declaration: neighbours in the model are neighbours in memory
        names: tuple[str, ...] = tuple(name for _, name in part)
        plane, shape = graph.nodes[names[0]].plane, shapes[names[0]]
        whole = (len(names), *shape) if len(names) > 1 else shape
        count, start = int(np.prod(whole)), starts.get(plane, 0)
        starts[plane] = start + count
        key = names[0] if len(names) == 1 else _pattern(names)
        while key in out:
            key += "'"
        out[key] = Collection(plane, (start + np.arange(count)).reshape(whole), names)
    return out


def _number(graph: Graph, collections: dict[str, Collection]) -> tuple[dict[Plane, np.ndarray], dict[str, Any]]:
    """The new number of every position in a plane, and the positions of every name."""
    number = {plane: np.empty(size, int) for plane, size in graph.sizes.items()}
    names: dict[str, tuple[Plane, np.ndarray]] = {}
    for plane, positions, members in collections.values():
        rows = positions if len(members) > 1 else positions[None]
        for name, row in zip(members, rows, strict=True):
            number[plane][graph.nodes[name].positions()] = row
            names[name] = (plane, row)
    # In order of declaration, as everything a user sees.
    return number, {name: names[name] for name in graph.nodes}


def roll(graph: Graph, apart: Mapping[str, Hashable] = MappingProxyType({})) -> Rolled:
    """Group the sites of a graph; see the module docstring.

    Args:
        graph: the declared graph.
        apart: what sets each name apart from others; names are rolled together only where this is equal.
    """
    collections = _collections(graph, apart)
    number, names = _number(graph, collections)
    planes: dict[Plane, int] = {}
    for plane, positions, _ in collections.values():
        planes[plane] = planes.get(plane, 0) + positions.size
    buckets: dict[Any, dict[str, list[tuple[int, int, Site]]]] = {}
    declared: dict[str, int] = {}
    for place, site in enumerate(graph.sites):
        if 0 in site.batch_shape:  # no data: no factors
            continue
        order = declared[site.name] = declared.get(site.name, -1) + 1
        bucket = buckets.setdefault((apart.get(site.name), _site_key(site)), {})
        bucket.setdefault(site.name, []).append((place, order, site))
    found: list[list[tuple[int, int, Site]]] = []
    for bucket in buckets.values():
        if len(bucket) > MANY:  # name after name, as their variables are stored, however the loop interleaves them
            found.append([entry for sites in bucket.values() for entry in sites])
        else:
            found += bucket.values()
    groups = []
    for entries in sorted(found, key=lambda entries: entries[0][0]):
        members = tuple(site.name for _, _, site in entries)
        group = _group([site for _, _, site in entries], number)
        inner = graph.observed.get(members[0], entries[0][2].batch_shape)
        name = members[0] if members.count(members[0]) == len(members) else _pattern(members)
        order = tuple(order for _, order, _ in entries)
        groups.append(group._replace(name=name, order=order, inner=inner, names=members))
    return Rolled(groups, planes, names, collections)
