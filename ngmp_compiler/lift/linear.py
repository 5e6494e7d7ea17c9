r"""Arrays of affine expressions: what a jaxpr makes of Gaussian variables by sums and by products with constants.

Every element of a `Linear` of shape S is $\sum_j c_j x_j + b$. Its terms keep, for all elements at once, which variable
stands there (an integer array, known while compiling) and with which coefficient (an array of jax); so that any
operation that only moves elements acts on both alike. A vector variable is either spread along an axis, one entry for
every position (`axis`), or met by a row of coefficients (`rows`, with a last axis of its length).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..declare.affine import Affine
from ..declare.affine import Term as Part


class Term(NamedTuple):
    """One variable for every element, with its coefficient; see the module docstring."""

    variable: Any
    index: np.ndarray  # positions in the variable's plane, of as many axes as the array, each of its size or 1
    coefficient: Any = None  # None means one; else of as many axes, or a number
    axis: int | None = None
    rows: Any = None

    @property
    def at(self) -> Any:
        return self.variable.at(self.index)


class Multiple(NamedTuple):
    """`times * base + plus`, by constants of its shape, or numbers; None where nothing is added."""

    base: "Linear"
    times: Any
    plus: Any


class Linear:
    """`sum of terms + offset`, elementwise over `shape`; the offset, if there is one, has that shape or is a number."""

    is_random = True

    def __init__(self, shape: tuple[int, ...], terms: tuple[Term, ...], offset: Any = None):
        self.shape, self.terms, self.offset = shape, terms, offset
        self.moves: dict[Any, Linear] = {}  # what became of it by moves, so that the same one twice is one array
        self.of: Multiple | None = None  # where it is one of another array

    def root(self) -> "Multiple":
        """What it is a multiple of, but for a constant."""
        if self.of is None:
            return Multiple(self, 1.0, None)
        (base, c, more), (_, own, plus) = self.of.base.root(), self.of
        more = None if more is None else own * more
        return Multiple(base, own * c, plus if more is None else more if plus is None else more + plus)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def plain(self) -> bool:
        """Whether every element is a variable, and nothing else."""
        one = len(self.terms) == 1 and self.offset is None
        return one and self.terms[0].coefficient is None and self.terms[0].rows is None

    def key(self) -> Any:
        """What two arrays that are the same share."""
        terms = tuple((id(t.variable.frame), t.variable.plane, t.index.shape, t.index.tobytes(), same(t.coefficient),
                       t.axis, same(t.rows)) for t in self.terms)  # fmt: skip
        return "linear", self.shape, terms, same(self.offset)

    def affine(self) -> Any:
        """As the arguments of distributions are given: a scalar-valued expression, or the variable itself."""
        terms = [dotted(t, self.shape) for t in self.terms]
        (first, *others) = terms
        if self.plain and first.rows is None and first.index.shape == self.shape and not others:
            return first.at
        parts = tuple(Part(_trim(t), "scale" if t.rows is None else "dot", t.coefficient if t.rows is None else t.rows)
                      for t in terms)  # fmt: skip
        return Affine(parts, self.offset, self.shape, ())

    def vector(self) -> Any:
        """The last axis as that of vectors."""
        *batch, size = self.shape
        (first, *others) = self.terms
        if self.plain and not others and first.axis == self.ndim - 1:
            return first.variable.at(np.broadcast_to(first.index, (*batch, 1))[..., 0])
        parts = [p for t in self.terms for p in _columns(dotted(t, self.shape), self.shape)]
        offset = None if self.offset is None else jnp.broadcast_to(self.offset, self.shape)
        return Affine(tuple(parts), offset, tuple(batch), (size,))


def same(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic, int, float)):
        return np.shape(x), np.asarray(x).tobytes()
    return id(x)


def _trim(t: Term) -> Any:
    """The variable of a term without axes of size one in front of all others."""
    index = t.index
    while index.ndim and index.shape[0] == 1:
        index = index[0]
    return t.variable.at(index)


def _columns(t: Term, shape: tuple[int, ...]) -> list[Part]:
    """The parts of a vector-valued expression that a term is; where its variables differ along the axis, one each."""
    *batch, size = shape
    if t.rows is None:
        values = times_of(t, shape)[..., None]
    else:
        values = jnp.broadcast_to(t.rows, (*shape, t.rows.shape[-1]))
    if constant_along(t.index, len(batch)):
        index = np.broadcast_to(t.index[..., 0], batch)
        return [Part(t.variable.at(index), "matmul", values)]
    index, unit = np.broadcast_to(t.index, shape), np.eye(size)
    return [Part(t.variable.at(index[..., k]), "matmul", values * unit[k][:, None]) for k in range(size)]


def times_of(t: Term, shape: tuple[int, ...]) -> Any:
    """The coefficient of every element."""
    return jnp.broadcast_to(1.0 if t.coefficient is None else t.coefficient, shape)


def constant_along(index: np.ndarray, axis: int) -> bool:
    """Whether all positions of an axis are the same."""
    return index.shape[axis] == 1 or bool((index == np.take(index, [0], axis)).all())


def dotted(t: Term, shape: tuple[int, ...]) -> Term:
    """The same term without `axis`: a vector spread along one is met by rows of the identity."""
    if t.axis is None:
        return t
    size = shape[t.axis]
    unit = np.eye(size).reshape((1,) * t.axis + (size,) + (1,) * (len(shape) - t.axis - 1) + (size,))
    rows = unit if t.coefficient is None else unit * jnp.asarray(t.coefficient)[..., None]
    index = np.broadcast_to(t.index, tuple(size if i == t.axis else n for i, n in enumerate(t.index.shape)))
    return Term(t.variable, index, None, None, rows)


def of_variable(variable: Any, shape: tuple[int, ...], axis: int | None = None) -> Linear:
    """A variable as it was declared, of scalars; or of vectors, whose entries go to an axis."""
    index = variable.index if axis is None else np.expand_dims(variable.index, axis)
    return Linear(shape, (Term(variable, np.asarray(index), None, axis),))


def add(x: Any, y: Any) -> Linear:
    """The sum of two, or of one and a constant."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    terms = tuple(_padded(t, len(shape) - e.ndim) for e in (x, y) if isinstance(e, Linear) for t in e.terms)
    offsets = [e.offset if isinstance(e, Linear) else e for e in (x, y)]
    offsets = [o for o in offsets if o is not None]
    out = Linear(shape, terms, None if not offsets else offsets[0] if len(offsets) == 1 else offsets[0] + offsets[1])
    base, plus = (x, y) if isinstance(x, Linear) else (y, x)
    out.of = Multiple(base, 1.0, plus) if base.shape == shape and not isinstance(plus, Linear) else None
    return out


def _padded(t: Term, more: int) -> Term:
    """A term of an array with more axes in front."""
    if not more:
        return t
    index = t.index.reshape((1,) * more + t.index.shape)
    lead = (None,) * more
    c = t.coefficient if t.coefficient is None or not np.ndim(t.coefficient) else t.coefficient[lead]
    rows = None if t.rows is None else t.rows[lead]
    return Term(t.variable, index, c, None if t.axis is None else t.axis + more, rows)


def scale(x: Linear, c: Any) -> Linear:
    """The product with a constant."""
    shape = np.broadcast_shapes(x.shape, np.shape(c))
    terms = [_padded(t, len(shape) - x.ndim) for t in x.terms]
    if any(t.axis is not None and shape[t.axis] != x.shape[t.axis - len(shape)] for t in terms):
        terms = [dotted(t, shape) for t in terms]
    c = c if np.ndim(c) in (0, len(shape)) else c.reshape((1,) * (len(shape) - np.ndim(c)) + np.shape(c))
    out = []
    for t in terms:
        if t.rows is not None:
            out.append(t._replace(rows=t.rows * (c[..., None] if np.ndim(c) else c)))
        else:
            out.append(t._replace(coefficient=c if t.coefficient is None else t.coefficient * c))
    scaled = Linear(shape, tuple(out), None if x.offset is None else x.offset * c)
    scaled.of = Multiple(x, c, None) if x.shape == shape else None
    return scaled


def moved(x: Linear, shape: tuple[int, ...], move: Callable[[Any], Any], axes: dict[int, int] | None = None) -> Linear:
    """The elements elsewhere: `move` takes an array of the shape of `x` to one of the new shape.

    `axes` says where whole axes go, if that is known; a vector that is spread along such a one stays spread.
    """
    places = static(move, np.arange(int(np.prod(x.shape))).reshape(x.shape))
    key = shape, places.tobytes(), None if axes is None else tuple(sorted(axes.items()))
    if key not in x.moves:
        out = x.moves[key] = _moved(x, shape, move, axes)
        if x.of is not None:
            base, *constants = x.of
            times, plus = (move(jnp.broadcast_to(c, x.shape)) if np.ndim(c) else c for c in constants)
            out.of = Multiple(moved(base, shape, move, axes), times, plus)
    return x.moves[key]


def _moved(x: Linear, shape: tuple[int, ...], move: Callable[[Any], Any], axes: dict[int, int] | None) -> Linear:
    terms = []
    for t in x.terms:
        if t.axis is not None and axes is not None and shape[axes.get(t.axis, 0)] == x.shape[t.axis] and t.axis in axes:
            own = [1 if i == t.axis else n for i, n in enumerate(x.shape)]
            index = np.take(static(move, np.broadcast_to(np.broadcast_to(t.index, own), x.shape)), [0], axes[t.axis])
            c = move(times_of(t, x.shape)) if np.ndim(t.coefficient) else t.coefficient  # type: ignore[arg-type]
            terms.append(Term(t.variable, index, c, axes[t.axis]))
            continue
        t = dotted(t, x.shape)
        if t.index.size == 1:
            index = t.index.reshape((1,) * len(shape))
        else:
            index = static(move, np.broadcast_to(t.index, x.shape))
        terms.append(_with(t, index, x.shape, move))
    offset = x.offset if not np.ndim(x.offset) else move(jnp.broadcast_to(x.offset, x.shape))
    return Linear(shape, tuple(terms), offset)


def _with(t: Term, index: np.ndarray, shape: tuple[int, ...], move: Callable[[Any], Any]) -> Term:
    c = t.coefficient if not np.ndim(t.coefficient) else move(_full(t.coefficient, shape))
    rows = t.rows
    if rows is not None:
        rows = jax.vmap(move, in_axes=-1, out_axes=-1)(jnp.broadcast_to(rows, (*shape, rows.shape[-1])))
    return Term(t.variable, index, c, None, rows)


def _full(x: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else jnp.broadcast_to(x, shape)


def static(move: Callable[[Any], Any], index: np.ndarray) -> np.ndarray:
    """`move` of an array that is known, while compiling."""
    with jax.ensure_compile_time_eval():
        return np.asarray(move(jnp.asarray(index)))


def picked(x: Linear, shape: tuple[int, ...], move: Callable[[Any], Any], key: Any = None) -> Linear:
    """Elements that an index picks which is known only when the program runs.

    `key` is that index, where it counts along the only axis there is.
    """
    terms = []
    for t in (dotted(t, x.shape) for t in x.terms):
        if t.index.size == 1:
            terms.append(_with(t, t.index.reshape((1,) * len(shape)), x.shape, move))
            continue
        source = t.variable.at(np.broadcast_to(t.index, x.shape).reshape(-1))
        at = key if key is not None else move(jnp.arange(source.index.size).reshape(x.shape))
        variable = source[at]
        terms.append(_with(t._replace(variable=variable), variable.index.reshape(shape), x.shape, move))
    offset = x.offset if not np.ndim(x.offset) else move(jnp.broadcast_to(x.offset, x.shape))
    return Linear(shape, tuple(terms), offset)


class TooMany(Exception):
    """A sum of more scalars than are kept as terms."""
