"""Rules of primitives that move elements."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.inputs import Input
from . import linear
from .interpret import bound, computed
from .linear import Linear, Term
from .rules import _log, is_exp, rule
from .values import (
    Chosen,
    Linked,
    Native,
    Unlifted,
    Vectors,
    is_random,
    moved,
    picked,
)


def _move(equation: Any, *others: Any) -> Any:
    return lambda a: bound(equation, [a, *others])[0]


@rule("broadcast_in_dim", moves=True)
def _broadcast(_: Any, equation: Any, x: Any, *others: Any) -> Any:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    return moved(x, tuple(shape), _move(equation), dict(enumerate(places)))


@rule("transpose", moves=True)
def _transpose(_: Any, equation: Any, x: Any) -> Any:
    order = equation.params["permutation"]
    shape = tuple(x.shape[i] for i in order)
    return moved(x, shape, _move(equation), {i: k for k, i in enumerate(order)})


@rule("reshape", "squeeze", "expand_dims", moves=True)
def _reshape(_: Any, equation: Any, x: Any, *others: Any) -> Any:
    shape = tuple(equation.outvars[0].aval.shape)
    return moved(x, shape, lambda a: jnp.reshape(a, shape), _kept(x.shape, shape))


def _kept(old: tuple[int, ...], new: tuple[int, ...]) -> dict[int, int]:
    """Axes that a reshape only moves past axes of size one."""
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return {}
    places = [i for i, n in enumerate(new) if n != 1]
    return dict(zip([i for i, n in enumerate(old) if n != 1], places, strict=True))


@rule("slice", "rev", "tile", moves=True)
def _plain(_: Any, equation: Any, x: Any) -> Any:
    return moved(x, tuple(equation.outvars[0].aval.shape), _move(equation), None)


@rule("split", moves=True)
def _split(_: Any, equation: Any, x: Any) -> list[Any]:
    shapes = [tuple(v.aval.shape) for v in equation.outvars]
    return [moved(x, shape, lambda a, k=k: bound(equation, [a])[k]) for k, shape in enumerate(shapes)]


@rule("dynamic_slice", moves=True)
def _dynamic_slice(own: Any, equation: Any, x: Any, *starts: Any) -> Any:
    chosen = [s for s in starts if isinstance(s, Chosen)]
    if len(chosen) == 1:
        at = [tuple(s.entries[k] if s is chosen[0] else s for s in starts) for k in range(len(chosen[0].entries))]
        one = _taken if is_random(x) else lambda _, e, x, where: computed(e, [x, *where])[0]
        entries = [one(own, equation, x, where) for where in at]
        shape, v = tuple(equation.outvars[0].aval.shape), chosen[0].variable
        return Chosen(shape, v.at(v.index.reshape((1,) * len(shape))), entries)
    return _taken(own, equation, x, starts)


def _taken(own: Any, equation: Any, x: Any, where: tuple[Any, ...], key: Any = None) -> Any:
    shape = jax.eval_shape(_move(equation, *where), jax.ShapeDtypeStruct(np.shape(x), float)).shape
    if any(map(is_random, where)):
        raise Unlifted
    traced = any(isinstance(i, Tracer) for i in where)
    if not is_random(x):
        return bound(equation, [x, *where])[0]
    return picked(x, shape, _move(equation, *where), key) if traced else moved(x, shape, _move(equation, *where))


@rule("gather", moves=True)
def _gather(own: Any, equation: Any, x: Any, index: Any) -> Any:
    if isinstance(index, Chosen):
        return _chosen_gather(own, equation, x, index)
    numbers = equation.params["dimension_numbers"]
    simple = len(np.shape(x)) == 1 and numbers.offset_dims == () and numbers.collapsed_slice_dims == (0,)
    key = _plain_index(own, equation.invars[1]) if simple and isinstance(index, Tracer) else None
    return _taken(own, equation, x, (index,), key)


def _chosen_gather(own: Any, equation: Any, x: Any, index: Chosen) -> Chosen:
    """A table at a position that a categorical variable chooses: the rows at all its values."""
    entries = []
    for entry in index.entries:
        # The same for all elements is one entry for all of them.
        at = np.reshape(entry, (1,) * len(index.shape)) if np.size(entry) == 1 else np.broadcast_to(entry, index.shape)
        entries.append(_taken(own, equation, x, (at,)) if is_random(x) else computed(equation, [x, at])[0])
    shape = tuple(equation.outvars[0].aval.shape)
    offsets = equation.params["dimension_numbers"].offset_dims
    flat = np.broadcast_to(index.variable.index, index.shape)[..., 0]
    sizes = iter(flat.shape)
    flat = flat.reshape([1 if i in offsets else next(sizes) for i in range(len(shape))])
    return Chosen(shape, index.variable.at(flat), entries)


def _plain_index(own: Any, atom: Any) -> Any:
    """The index behind what jax makes of `x[i]`, which lets negative ones count from the end and adds an axis."""
    shape = tuple(atom.aval.shape)[:-1]
    while not hasattr(atom, "val") and atom in own.made:
        equation = own.made[atom]
        name = equation.primitive.name
        if name in ("broadcast_in_dim", "reshape", "convert_element_type"):
            atom = equation.invars[0]
        elif name == "select_n":
            below = own.made.get(equation.invars[0])
            if below is None or below.primitive.name != "lt" or below.invars[0] is not equation.invars[1]:
                return None
            atom = equation.invars[1]
        else:
            break
    if hasattr(atom, "val") or tuple(atom.aval.shape) != shape or atom not in own.values:
        return None
    found = own.values[atom]
    return found if isinstance(found, (Input, Tracer)) and np.dtype(found.dtype).kind in "iu" else None


@rule("scatter", "scatter-add", "scatter_add", moves=True)
def _scatter(own: Any, equation: Any, x: Any, index: Any, update: Any) -> Any:
    """`x.at[i].set(u)` with a known index: elements of one or the other."""
    if is_random(index) or isinstance(index, Tracer) or equation.primitive.name != "scatter":
        raise Unlifted
    size, more = int(np.prod(np.shape(x))), int(np.prod(np.shape(update)))
    whole = np.arange(size).reshape(np.shape(x))
    with jax.ensure_compile_time_eval():
        added = jnp.asarray(size + np.arange(more).reshape(np.shape(update)))
        origin = np.asarray(bound(equation, [jnp.asarray(whole), index, added])[0])
    flat = concatenated([_flat(x), _flat(update)], 0)
    return moved(flat, np.shape(x), lambda a: a[origin])


def _flat(x: Any) -> Any:
    size = int(np.prod(np.shape(x)))
    return moved(x, (size,), lambda a: jnp.reshape(a, (size,))) if is_random(x) else jnp.reshape(x, (size,))


@rule("concatenate", moves=True)
def _concatenate(_: Any, equation: Any, *parts: Any) -> Any:
    return concatenated(list(parts), equation.params["dimension"])


@rule("stack", moves=True)
def _stack(_: Any, equation: Any, *parts: Any) -> Any:
    axis = equation.params["axis"]
    shape = tuple(np.insert(np.shape(parts[0]), axis, 1).astype(int).tolist())
    return concatenated([moved(x, shape, lambda a: jnp.reshape(a, shape)) for x in parts], axis)


@rule("pad", moves=True)
def _pad(_: Any, equation: Any, x: Any, value: Any) -> Any:
    if is_random(value):
        raise Unlifted
    parts = equation.params["padding_config"]
    for axis, (low, high, inner) in enumerate(parts):
        if inner or low < 0 or high < 0:
            raise Unlifted
        for size, first in ((low, True), (high, False)):
            if size:
                fill = np.full([size if i == axis else n for i, n in enumerate(np.shape(x))], np.asarray(value))
                x = concatenated([fill, x] if first else [x, fill], axis)
    return x


def concatenated(parts: list[Any], axis: int) -> Any:
    """Arrays one after the other along an axis."""
    random = [x for x in parts if is_random(x)]
    sizes = [np.shape(x)[axis] for x in parts]
    shape = tuple(sum(sizes) if i == axis else n for i, n in enumerate(np.shape(parts[0])))
    if not random:
        return jnp.concatenate(parts, axis)
    if all(isinstance(x, Linear) or not is_random(x) for x in parts):
        return _joined(parts, axis, shape)
    if all(is_exp(x) or not is_random(x) for x in parts):
        return Linked("exp", _joined([x.inner if is_random(x) else _log(x) for x in parts], axis, shape))
    if all(isinstance(x, Linked) and x.link == random[0].link for x in parts):
        return Linked(random[0].link, _joined([x.inner for x in parts], axis, shape))
    same = all(isinstance(x, Native) and x.coefficient is None for x in parts)
    if same and len({(id(x.variable.frame), x.variable.plane, x.exponent) for x in parts}) == 1:
        index = np.concatenate([np.broadcast_to(x.variable.index, x.shape) for x in parts], axis)
        return Native(parts[0].variable.at(index), parts[0].exponent)
    if all(isinstance(x, Vectors) for x in parts) and axis < len(shape) - 1:
        if len({(id(x.variable.frame), x.variable.plane) for x in parts}) == 1:
            return Vectors(parts[0].variable.at(np.concatenate([x.variable.index for x in parts], axis)))
    raise Unlifted


def _joined(parts: list[Any], axis: int, shape: tuple[int, ...]) -> Linear:
    """Affine parts: their terms side by side where they are alike, with coefficients of zero elsewhere."""
    rows = [[linear.dotted(t, x.shape) for t in x.terms] if isinstance(x, Linear) else [] for x in parts]
    columns: list[list[tuple[int, Term]]] = []
    for k, terms in enumerate(rows):
        for t in terms:
            fits = [c for c in columns if c[-1][0] < k and _alike(c[-1][1], t)]
            if fits:
                fits[0].append((k, t))
            else:
                columns.append([(k, t)])
    terms = tuple(_column(dict(c), parts, axis) for c in columns)
    offsets = [(x.offset if isinstance(x, Linear) else x) for x in parts]
    offset = None
    if any(o is not None for o in offsets):
        full = [jnp.broadcast_to(0.0 if o is None else o, np.shape(x)) for o, x in zip(offsets, parts, strict=True)]
        offset = jnp.concatenate(full, axis)
    return Linear(shape, terms, offset)


def _alike(a: Term, b: Term) -> bool:
    same = a.variable.frame is b.variable.frame and a.variable.plane == b.variable.plane
    return same and (a.rows is None) == (b.rows is None)


def _column(own: dict[int, Term], parts: list[Any], axis: int) -> Term:
    """One term of all parts, those that have none with a coefficient of zero."""
    first = next(iter(own.values()))
    index, values, plain = [], [], True
    for k, x in enumerate(parts):
        shape, t = np.shape(x), own.get(k)
        plain &= t is not None and t.coefficient is None and t.rows is None
        index.append(np.broadcast_to(first.index.reshape(-1)[0] if t is None else t.index, shape))
        if first.rows is None:
            c = 0.0 if t is None else 1.0 if t.coefficient is None else t.coefficient
            values.append((c, shape))
        else:
            c = 0.0 if t is None else t.rows
            values.append((c, (*shape, first.rows.shape[-1])))
    whole = np.concatenate(index, axis)
    if plain:
        return Term(first.variable, whole)
    c = jnp.concatenate([jnp.broadcast_to(v, shape) for v, shape in values], axis)
    return Term(first.variable, whole, c) if first.rows is None else Term(first.variable, whole, None, None, c)
