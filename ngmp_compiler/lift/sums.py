"""Rules of primitives that sum elements, or reduce them otherwise."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..declare.inputs import unwrap
from . import linear
from .general import General, general
from .linear import Linear, Term, TooMany
from .rules import rule
from .values import (
    Bilinear,
    Linked,
    Native,
    Unlifted,
    is_random,
    moved,
    whole_shape,
)

SHORT = 8  # entries that a function may sum, or compare, one by one
MOST_TERMS = 256  # variables in one sum that are scalars of their own


@rule("reduce_sum", moves=True)
def _reduce_sum(own: Any, equation: Any, x: Any) -> Any:
    axes = tuple(equation.params["axes"])
    if not isinstance(x, Linear):
        return _short(equation, x, axes)
    keep = [i for i in range(x.ndim) if i not in axes]
    size = int(np.prod([x.shape[i] for i in axes]))
    return _contracted(np.ones((1, 1, size)), x, (), axes, keep, tuple(x.shape[i] for i in keep))


def _contracted(a: Any, x: Linear, batch: tuple, axes: tuple, free: list[int], shape: tuple[int, ...]) -> Linear:
    """`contract` of an array whose axes are of three kinds."""
    order = (*batch, *free, *axes)
    sizes = tuple(int(np.prod([x.shape[i] for i in group], dtype=int)) for group in (batch, free, axes))
    places = {axes[0]: 2} if len(axes) == 1 else {}
    flat = linear.moved(x, sizes, lambda e: jnp.transpose(e, order).reshape(sizes), places)
    out = contract(a, flat)
    return linear.moved(out, shape, lambda e: jnp.reshape(e, shape))


@rule("dot_general", moves=True)
def _dot_general(own: Any, equation: Any, x: Any, y: Any) -> Any:
    (cx, cy), (bx, by) = equation.params["dimension_numbers"]
    cx, cy, bx, by = map(tuple, (cx, cy, bx, by))
    shape = tuple(equation.outvars[0].aval.shape)
    if isinstance(x, Linear) and isinstance(y, Linear):
        return _random_dot(x, y, (cx, cy, bx, by), shape)
    if not (isinstance(x, Linear) or isinstance(y, Linear)) or is_random(x) and is_random(y):
        return _unrolled_dot(equation, x, y, (cx, cy, bx, by), shape)
    swap = isinstance(x, Linear)
    a, e, ca, ce, ba, be = (y, x, cy, cx, by, bx) if swap else (x, y, cx, cy, bx, by)
    a = jnp.asarray(unwrap(a))
    fa = [i for i in range(a.ndim) if i not in (*ca, *ba)]
    fe = [i for i in range(e.ndim) if i not in (*ce, *be)]
    sizes = [int(np.prod([a.shape[i] for i in g], dtype=int)) for g in (ba, fa, ca)]
    flat = jnp.transpose(a, (*ba, *fa, *ca)).reshape(sizes)
    lead, ma, me = [tuple(s.shape[i] for i in g) for s, g in ((a, ba), (a, fa), (e, fe))]
    out = _contracted(flat, e, be, ce, fe, (*lead, *ma, *me))
    if not swap:
        return out
    order = (*range(len(lead)), *range(len(lead) + len(ma), out.ndim), *range(len(lead), len(lead) + len(ma)))
    return linear.moved(out, shape, lambda v: jnp.transpose(v, order))


def _random_dot(x: Linear, y: Linear, axes: tuple, shape: tuple[int, ...]) -> Any:
    """Both sides random: a sum of products, over few entries."""
    cx, cy, bx, by = axes
    if bx or len(cx) != 1 or x.shape[cx[0]] > SHORT:
        raise Unlifted
    pairs = []
    fx, fy = x.ndim - 1, y.ndim - 1
    for k in range(x.shape[cx[0]]):
        a = linear.moved(x, tuple(np.delete(x.shape, cx[0])), lambda e, k=k: jnp.take(e, k, cx[0]))
        b = linear.moved(y, tuple(np.delete(y.shape, cy[0])), lambda e, k=k: jnp.take(e, k, cy[0]))
        a = linear.moved(a, (*a.shape, *(1,) * fy), lambda e, s=a.shape: e.reshape((*s, *(1,) * fy)))
        pairs.append((whole_shape(a, shape), whole_shape(b, shape)))
        assert fx + fy == len(shape)
    return Bilinear(tuple(pairs))


def _unrolled_dot(equation: Any, x: Any, y: Any, axes: tuple, shape: tuple[int, ...]) -> Any:
    """A product with a matrix of what is not affine, as a function of few entries."""
    cx, cy, bx, by = axes
    if bx or len(cx) != 1 or np.shape(x)[cx[0]] > SHORT:
        raise Unlifted
    size, rx, ry = np.shape(x)[cx[0]], len(np.shape(x)) - 1, len(np.shape(y)) - 1
    rows = []
    for k in range(size):
        a = _at(x, cx[0], k)
        longer = (*np.shape(a), *(1,) * ry)
        a = moved(a, longer, lambda e, s=longer: jnp.reshape(e, s))
        rows += [a, _at(y, cy[0], k)]
    assert rx + ry == len(shape)
    return general(lambda *v: sum(v[2 * k] * v[2 * k + 1] for k in range(size)), rows, shape)


def _at(x: Any, axis: int, k: int) -> Any:
    shape = tuple(n for i, n in enumerate(np.shape(x)) if i != axis)
    return moved(x, shape, lambda e: jnp.take(e, k, axis))


@rule("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin", moves=True)
def _reduced(_: Any, equation: Any, x: Any) -> Any:
    return _short(equation, x, tuple(equation.params["axes"]))


def _short(equation: Any, x: Any, axes: tuple[int, ...]) -> Any:
    """A reduction over a few entries, as a function of them."""
    if not isinstance(x, (Linear, Linked, Native, General)) or len(axes) != 1 or x.shape[axes[0]] > SHORT:
        raise Unlifted
    (axis,), shape = axes, tuple(n for i, n in enumerate(x.shape) if i != axes[0])
    entries = [_at(x, axis, k) for k in range(x.shape[axis])]
    parameters = {**equation.params, "axes": (0,)}

    def function(*values: Any) -> Any:
        return equation.primitive.bind(jnp.stack(jnp.broadcast_arrays(*values)), **parameters)

    return general(function, entries, shape)


@rule("cumsum", "cumlogsumexp", "cumprod", "cummax", moves=True)
def _cumulative(own: Any, equation: Any, x: Any) -> Any:
    axis, size = equation.params["axis"], x.shape[equation.params["axis"]]
    if isinstance(x, Linear) and equation.primitive.name == "cumsum":
        lower = np.tril(np.ones((size, size)))
        lower = lower.T if equation.params["reverse"] else lower
        free = [i for i in range(x.ndim) if i != axis]
        out = _contracted(lower[None], x, (), (axis,), free, (size, *(x.shape[i] for i in free)))
        return linear.moved(out, x.shape, lambda e: jnp.moveaxis(e, 0, axis))
    raise Unlifted


def contract(a: Any, x: Linear) -> Linear:
    r"""$\sum_c a_{bmc} x_{bnc}$, of shape (b, m, n); `a` is a constant."""
    (b, m, _), (_, n, size), shape = np.shape(a), x.shape, (np.shape(a)[0], np.shape(a)[1], x.shape[1])
    a, terms = jnp.asarray(a), []
    for t in x.terms:
        if t.axis == 2:
            rows = jnp.broadcast_to(a[:, :, None] * linear.times_of(t, x.shape)[:, None], (b, m, n, size))
            index = np.broadcast_to(t.index, (t.index.shape[0], t.index.shape[1], 1))[:, None, :, 0]
            terms.append(Term(t.variable, index, None, None, rows))
            continue
        t = linear.dotted(t, x.shape)
        index = t.index[:, None]  # (b, 1, n, c)
        if linear.constant_along(t.index, 2):
            index = index[..., 0]
            if t.rows is not None:
                rows = jnp.broadcast_to(t.rows, (b, n, size, t.rows.shape[-1]))
                terms.append(Term(t.variable, index, None, None, jnp.einsum("bmc,bncd->bmnd", a, rows)))
            else:
                c = linear.times_of(t, x.shape)
                terms.append(Term(t.variable, index, jnp.einsum("bmc,bnc->bmn", a, c)))
            continue
        if size > MOST_TERMS:
            raise TooMany(size)
        index = np.broadcast_to(index, (*index.shape[:3], size))
        for k in range(size):
            if t.rows is not None:
                rows = jnp.broadcast_to(t.rows, (b, n, size, t.rows.shape[-1]))[:, None, :, k] * a[:, :, None, k, None]
                terms.append(Term(t.variable, index[..., k], None, None, rows))
            else:
                c = linear.times_of(t, x.shape)[:, None, :, k]
                terms.append(Term(t.variable, index[..., k], a[:, :, None, k] * c))
    offset = None
    if x.offset is not None:
        offset = jnp.einsum("bmc,bnc->bmn", a, jnp.broadcast_to(x.offset, x.shape))
    return Linear(shape, tuple(terms), offset)
