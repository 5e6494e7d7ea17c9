"""Expressions of declared variables: what may stand where a distribution takes a parameter.

A `Variable` is a handle on random variables of one *plane* (a family and an event shape). Gaussian ones form
`Affine` expressions  `sum_j a_j x_j + c`, kept as a list of terms; `Exp` and `Take` are links around them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ngmp_kernels.families import AbstractFamily

from ..value import register
from .compound import Exp as Exp
from .compound import Product as Product
from .compound import Take as Take
from .inputs import as_constant, is_array, unwrap
from .naming import label, not_affine, refuse, split_key, static_index


class Plane(NamedTuple):
    """All variables of one family and event shape; a program stores a plane as one array per natural parameter."""

    family: type[AbstractFamily]
    event_shape: tuple[int, ...]

    def __str__(self) -> str:
        size = "x".join(map(str, self.event_shape))
        return self.family.__name__ + (f"[{size}]" if size else "")

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)  # any order does, for dictionaries by plane


class _Arithmetic:
    """Operators shared by variables and affine expressions; only Gaussian ones may be combined."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy arrays on the left defer to us
    is_expression = True
    shape: tuple[int, ...]

    def __add__(self, other: Any) -> "Affine":
        return _add(as_affine(self), other)

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return _scale(as_affine(self), -1.0)

    def __sub__(self, other: Any) -> "Affine":
        return _add(as_affine(self), -unwrap(other))

    def __rsub__(self, other: Any) -> "Affine":
        return _add(-self, other)

    def __mul__(self, other: Any) -> "Affine":
        return _scale(as_affine(self), other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Affine":
        if isinstance(other, _Arithmetic):
            not_affine(f"{label(self)} / {label(other)}")
        return _scale(as_affine(self), 1.0 / unwrap(other))

    def __rtruediv__(self, other: Any) -> NoReturn:
        not_affine(f"division by {label(self)}")

    def __pow__(self, other: Any) -> NoReturn:
        not_affine(f"a power of {label(self)}")

    def __rmatmul__(self, matrix: Any) -> "Affine":
        return _matmul(matrix, as_affine(self))

    def __matmul__(self, matrix: Any) -> "Affine":
        if isinstance(matrix, _Arithmetic):
            not_affine(f"{label(self)} @ {label(matrix)}")
        return _matmul(matrix if np.ndim(matrix) < 2 else jnp.swapaxes(unwrap(matrix), -1, -2), as_affine(self))

    def sum(self, axis: int = -1) -> "Affine":
        """The sum over a plate axis, a single expression."""
        x = as_affine(self)
        rank = len(x.batch_shape)
        if not -rank <= axis < rank:
            refuse(f"sum over axis {axis} of {label(self)}, of batch shape {x.batch_shape}", "sum over a plate axis")
        before = (slice(None),) * (axis % rank)
        return functools.reduce(_add, (x[(*before, k)] for k in range(x.batch_shape[axis])))

    def __bool__(self) -> bool:
        refuse(
            f"the truth value of {label(self)}, a random variable, was asked for",
            "structure (which factors exist) may depend on shapes and static arguments only",
        )

    def _compare(self, other: Any) -> NoReturn:
        del other
        self.__bool__()
        raise AssertionError

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {label(self)}, a scalar")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))  # type: ignore[index]


@register
class Variable(_Arithmetic):
    """Random variables: positions `index` (an integer array of the batch shape) in a plane of a trace frame."""

    __slots__ = ("_structure", "frame", "index", "plane")

    def __init__(self, frame: Any, plane: Plane, index: np.ndarray):
        self.frame = frame
        self.plane = plane
        self.index = index

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        # A categorical value is one integer although its natural parameter is a vector.
        return () if self.plane.family.core == "categorical" else self.plane.event_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape + self.event_shape

    def __getitem__(self, key: Any) -> Any:
        key, component = split_key(self, static_index(self, key))
        if component is not None:
            return _component(as_affine(self[key] if key else self), component)
        try:
            return Variable(self.frame, self.plane, np.asarray(self.index[key]))
        except IndexError as error:
            raise IndexError(f"variable {label(self)} of shape {self.shape}: {error}") from None

    def __repr__(self) -> str:
        return f"Variable({self.plane}, shape={self.shape})"


class Term(NamedTuple):
    """`op` is "scale" (coefficient times variable), "dot" (row vector) or "matmul" (matrix); None means one."""

    variable: Variable
    op: str
    coefficient: Any


@register
class Affine(_Arithmetic):
    """`sum_j coefficient_j variable_j + offset`, elementwise over `batch_shape`, each value of `event_shape`."""

    __slots__ = ("_structure", "batch_shape", "event_shape", "offset", "terms")

    def __init__(self, terms: tuple[Term, ...], offset: Any, batch_shape: tuple, event_shape: tuple):
        self.terms = terms
        self.offset = offset  # None means zero
        self.batch_shape = batch_shape
        self.event_shape = event_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch_shape + self.event_shape

    def __getitem__(self, key: Any) -> "Affine":
        key, component = split_key(self, static_index(self, key))
        if component is not None:
            return _component(self[key] if key else self, component)
        terms = []
        for variable, op, coefficient in self.terms:
            try:
                index = np.broadcast_to(variable.index, self.batch_shape)[key]
            except IndexError as error:
                raise IndexError(f"expression of {label(self)} of shape {self.shape}: {error}") from None
            if coefficient is not None:
                tail = np.shape(coefficient)[np.ndim(coefficient) - _TAIL[op] :]
                coefficient = jnp.broadcast_to(unwrap(coefficient), self.batch_shape + tail)[key]
            terms.append(Term(Variable(variable.frame, variable.plane, np.asarray(index)), op, coefficient))
        batch = np.zeros(self.batch_shape)[key].shape
        offset = None if self.offset is None else jnp.broadcast_to(unwrap(self.offset), self.shape)[key]
        return Affine(tuple(terms), offset, batch, self.event_shape)

    def __repr__(self) -> str:
        return f"Affine({len(self.terms)} terms, shape={self.shape})"


_TAIL = {"scale": 0, "dot": 1, "matmul": 2}  # trailing event axes of a coefficient


def _component(x: "Affine", key: Any) -> "Affine":
    """Entries of a vector: linear functionals with unit features."""
    rows = np.eye(x.event_shape[0])[key]
    return _matmul(rows, x)


def as_affine(x: Any) -> Affine:
    """A Gaussian variable as the affine expression of one term."""
    if isinstance(x, Affine):
        return x
    if isinstance(x, Variable) and x.plane.family.core == "gaussian":
        return Affine((Term(x, "scale", None),), None, x.batch_shape, x.event_shape)
    what = f"{label(x)}, a {x.plane.family.__name__} variable" if isinstance(x, Variable) else repr(x)
    refuse(f"arithmetic on {what}", "only Gaussian variables form expressions; use it directly as a parameter")


def _broadcast(what: str, x: Any, y: Any, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of operands `x` and `y`; their labels are looked up for the message only."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        sides = " and ".join(label(e) if isinstance(e, _Arithmetic) else "a constant" for e in (x, y))
        listed = " and ".join(map(str, shapes))
        refuse(f"{what} of {sides}: shapes {listed} do not broadcast", "plates follow NumPy's broadcasting")


def _product(a: Any, b: Any) -> Any:
    # `b` alone may be a lazily indexed input, and stays one.
    return b if a is None else unwrap(a) * unwrap(b)


def _add(x: Affine, other: Any) -> Affine:
    if isinstance(other, Product):
        return other + x  # type: ignore[return-value]
    if isinstance(other, (Variable, Affine)):
        y = as_affine(other)
        if x.event_shape != y.event_shape:
            sides = f"sum of {label(x)} and {label(y)}: events of shape {x.event_shape} and {y.event_shape}"
            refuse(sides, "add scalars, or vectors of equal length")
        offset = y.offset if x.offset is None else x.offset if y.offset is None else unwrap(x.offset) + unwrap(y.offset)
        batch = _broadcast("sum", x, y, x.batch_shape, y.batch_shape)
        return Affine(x.terms + y.terms, offset, batch, x.event_shape)
    if not is_array(other):
        return NotImplemented
    if type(other) in (int, float) and other == 0:
        return x
    shape = _elementwise(x, "sum", other)
    if np.ndim(other) < len(x.event_shape):
        fill = np.full if isinstance(other, (int, float)) else jnp.full
        other = fill(x.event_shape, unwrap(other))
    offset = other if x.offset is None else unwrap(x.offset) + unwrap(other)
    return Affine(x.terms, offset, shape[: len(shape) - len(x.event_shape)], x.event_shape)


def _elementwise(x: Affine, what: str, other: Any) -> tuple[int, ...]:
    """The shape of an elementwise operation with a constant, which must not stretch vectors."""
    shape = _broadcast(what, x, other, x.shape, np.shape(other))
    if shape[len(shape) - len(x.event_shape) :] != x.event_shape:
        given = f"{what} of {label(x)}, vectors of length {x.event_shape[0]}, and a constant of shape {np.shape(other)}"
        refuse(given, "the last axes must agree")
    return shape


def _scale(x: Affine, c: Any) -> Affine:
    if isinstance(c, _Arithmetic):
        y = as_affine(c)
        if x.event_shape or y.event_shape:
            not_affine(f"{label(x)} * {label(c)}, a product of random vectors,")
        _broadcast("product", x, y, x.batch_shape, y.batch_shape)
        return Product(x, y)  # type: ignore[return-value]
    if not is_array(c):
        return NotImplemented
    shape = _elementwise(x, "product", c)
    if x.event_shape and np.ndim(c):  # elementwise on a vector: a diagonal matrix
        return _matmul(np.eye(x.event_shape[0]) * unwrap(c)[..., None, :], x)
    terms = []
    for variable, op, coefficient in x.terms:
        factor = c
        if np.ndim(factor) and _TAIL[op]:
            factor = unwrap(factor)[(..., *(None,) * _TAIL[op])]
        terms.append(Term(variable, op, _product(coefficient, factor)))
    offset = None if x.offset is None else unwrap(x.offset) * unwrap(c)
    return Affine(tuple(terms), offset, shape[: len(shape) - len(x.event_shape)], x.event_shape)


def _contract(x: Affine, rows: Any, op: str, event_shape: tuple[int, ...]) -> Affine:
    """Apply `rows` ((..., D) for "dot", (..., m, D) for "matmul") to a vector-valued expression."""
    width = np.shape(rows)[-1]
    if not x.event_shape:
        given = f"a linear map of width {width} meets {label(x)}, which is scalar (of batch shape {x.batch_shape})"
        refuse(given, "the variable of dot(features, w) and A @ x must be a vector: declare it with MvNormal")
    if x.event_shape != (width,):
        given = f"features of shape {np.shape(rows)} meet {label(x)}, a vector of length {x.event_shape[0]}"
        refuse(given, f"the last axis of the features must be {x.event_shape[0]}")
    lead = np.shape(rows)[: np.ndim(rows) - _TAIL[op]]
    terms = []
    for variable, inner, coefficient in x.terms:
        if inner == "scale" and coefficient is None:
            scaled = rows  # a lazily indexed input stays one
        elif inner == "scale":
            scaled = jnp.asarray(unwrap(coefficient))[(..., *(None,) * _TAIL[op])] * unwrap(rows)
        else:
            spec = "...d,...de->...e" if op == "dot" else "...md,...de->...me"
            scaled = jnp.einsum(spec, unwrap(rows), unwrap(coefficient))
        if op == "dot" and not variable.event_shape:  # a stacked scalar
            terms.append(Term(variable, "scale", scaled[..., 0]))
            continue
        terms.append(Term(variable, op, scaled))
    offset = None
    if x.offset is not None:
        spec = "...d,...d->..." if op == "dot" else "...md,...d->...m"
        offset = jnp.einsum(spec, unwrap(rows), unwrap(x.offset))
    return Affine(tuple(terms), offset, _broadcast("product", rows, x, lead, x.batch_shape), event_shape)


def _matmul(matrix: Any, x: Affine) -> Affine:
    if isinstance(matrix, _Arithmetic):
        not_affine(f"{label(matrix)} @ {label(x)}, a product of two random variables,")
    if not is_array(matrix):
        return NotImplemented
    if np.ndim(matrix) < 1:
        refuse(f"a scalar @ {label(x)}", "the other side of @ must be a vector or a matrix")
    if np.ndim(matrix) == 1:
        return _contract(x, matrix, "dot", ())
    return _contract(x, matrix, "matmul", (np.shape(matrix)[-2],))


def dot(features: Any, w: Any) -> Any:
    """Linear functionals `features @ w` of a vector variable.

    Args:
        features: constants of shape (..., D).
        w: a vector (MvNormal) variable or affine expression of event shape (D,).

    Returns:
        A scalar-valued expression of batch shape (...).
    """
    if not isinstance(w, _Arithmetic):
        if isinstance(features, _Arithmetic):
            features, w = w, features
        else:
            return jnp.sum(unwrap(features) * unwrap(w), axis=-1)
    if isinstance(features, _Arithmetic):
        not_affine(f"dot({label(features)}, {label(w)}), a product of two random variables,")
    if np.ndim(features) < 1:
        refuse(f"dot of a scalar and {label(w)}", "features have shape (..., D)")
    return _contract(as_affine(w), features, "dot", ())


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, (int, float)) else unwrap(x)


def stack(entries: Any) -> Any:
    """Scalars as the entries of a vector, a linear functional of them: `MvNormal(stack([a, b]), covariance=...)`.

    Args:
        entries: scalar Gaussian variables, affine expressions of them, and constants, whose batch shapes broadcast; or
            a variable whose first axis is iterated over.

    Returns:
        A vector-valued expression; an array if all entries are constant.
    """
    entries = list(entries)
    if not any(isinstance(e, _Arithmetic) for e in entries):
        return jnp.stack(jnp.broadcast_arrays(*map(unwrap, entries)), axis=-1)
    size, terms, offset = len(entries), [], None
    for i, entry in enumerate(entries):
        unit = np.eye(size)[i]
        if not isinstance(entry, _Arithmetic):
            shift = _array(entry)
        else:
            x = as_affine(entry)
            if x.event_shape:
                refuse(
                    f"stack of {label(entry)}, a vector of {x.event_shape[0]}", "stack scalars; index a vector first"
                )
            shift = None if x.offset is None else _array(x.offset)
            for variable, op, c in x.terms:  # a column of the entry's coefficient
                c = _array(1.0 if c is None else c)
                rows = c[..., None] if op == "scale" else c
                terms.append(Term(variable, "matmul", unit[:, None] * rows[..., None, :]))
        if shift is not None:
            shift = shift[..., None] * unit
            offset = shift if offset is None else offset + shift
    shapes = [as_affine(e).batch_shape if isinstance(e, _Arithmetic) else np.shape(e) for e in entries]
    return Affine(tuple(terms), offset, _broadcast("stack", entries[0], entries[-1], *shapes), (size,))


def exp(x: Any) -> Any:
    """`exp` of an array, or the exponential link of an affine expression of Gaussian variables."""
    if isinstance(x, Take):
        return x.map(exp)
    return Exp(as_affine(x)) if isinstance(x, _Arithmetic) else jnp.exp(unwrap(x))


def log(x: Any) -> Any:
    """`log` of an array, or of `exp(z)`, which is z."""
    if isinstance(x, Exp):
        return x.inner
    if isinstance(x, _Arithmetic):
        refuse(f"log({label(x)})", "a Gaussian variable may be negative; log undoes ngmp.exp, and nothing else")
    return jnp.log(unwrap(x))


def take(table: Any, *indices: Any) -> Any:
    """`table[i, j, ...]`: the entry (a row of probabilities, say) that categorical variables pick from a table.

    `Normal(take(m, z), precision=take(w, z))` is a mixture or a switching model; arithmetic and `exp` act entrywise.

    Args:
        table: a constant of shape (K1, K2, ..., *event), or random variables of batch shape (K1, K2, ...).
        *indices: Categorical variables of K1, K2, ... classes; constant integers index as in NumPy.
    """
    if not indices:
        refuse("take(table) without an index", "give one Categorical variable for each leading axis of the table")
    random = isinstance(table, (_Arithmetic, Exp))
    table = table if random else as_constant(table)
    if not any(isinstance(i, _Arithmetic) for i in indices):
        return _random_entry(table, indices) if random else _constant_entry(table, indices)
    if not all(isinstance(i, Variable) and i.plane.family.core == "categorical" for i in indices):
        works = "indices must be Categorical variables, or all of them constant integers"
        refuse(f"take(table, {_labels(indices)})", works)
    inner = table.inner if isinstance(table, Exp) else table
    lead = inner.batch_shape if random else np.shape(table)[: len(indices)]
    classes = tuple(i.plane.event_shape[0] for i in indices)
    if lead != classes:
        what = f"{label(inner)} has batch shape {lead}" if random else f"the table has {_sizes(lead, 'row')}"
        refuse(f"take(table, {_labels(indices)}): {what}", f"the index has {_sizes(classes, 'class')}")
    if random:
        return Take(tuple(table[at] for at in np.ndindex(*lead)), *indices)
    return Take(table, *indices)


def _labels(indices: tuple[Any, ...]) -> str:
    return ", ".join(label(i) if isinstance(i, _Arithmetic) else "a constant" for i in indices)


def _random_entry(table: Any, indices: tuple[Any, ...]) -> Any:
    try:
        return table[indices]
    except IndexError as error:
        works = "give a constant table, or random variables with a leading axis for every index"
        refuse(f"take({label(table)}, ...): {error}", works)


def _constant_entry(table: Any, indices: tuple[Any, ...]) -> Any:
    """`table[indices]` of constants. JAX would take the nearest entry for an index out of range."""
    array, where = unwrap(table), tuple(map(unwrap, indices))
    if len(where) > np.ndim(array):
        refuse(f"take of {len(where)} indices from a table of shape {np.shape(array)}", "give an index for each axis")
    for size, index in zip(np.shape(array), where, strict=False):
        if not isinstance(index, Tracer):
            known = np.asarray(index)
            if known.dtype.kind not in "iu":
                refuse(f"take(table, ...): an index of dtype {known.dtype}", "indices are integers")
            bad = known[(known < -size) | (known >= size)]
            if bad.size:
                works = f"indices are integers from 0 to {size - 1}"
                refuse(f"take(table, ...): index {bad.flat[0]} into {size} rows", works)
    if not any(isinstance(index, Tracer) for index in where):
        where = tuple(map(np.asarray, where))
        return array[where] if isinstance(array, np.ndarray) else jnp.asarray(array)[where]
    # A traced index cannot be looked at here: out of range it gives NaN, which the checks of the site report. Integers
    # have no NaN, so their entries become floats; as indices of another table they become integers again.
    array = jnp.asarray(array)
    array = array if jnp.issubdtype(array.dtype, jnp.inexact) or array.dtype == bool else array.astype(float)
    return array.at[tuple(_whole(i, n) for i, n in zip(where, array.shape, strict=False))].get(mode="fill")


def _whole(index: Any, size: int) -> Any:
    """Integers among floats as such, `size` (which is out of range) where there are none."""
    if not jnp.issubdtype(jnp.asarray(index).dtype, jnp.inexact):
        return index
    return jnp.where(index == jnp.floor(index), index, size).astype(int)


def _sizes(lead: tuple[int, ...], what: str) -> str:
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{' x '.join(map(str, lead)) or 0} {plural}"


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """A variable as a plate of the given batch shape, all elements the same: one Dirichlet vector for many classes."""
    if not isinstance(x, Variable):
        return jnp.broadcast_to(unwrap(x), shape)
    try:
        return Variable(x.frame, x.plane, np.broadcast_to(x.index, shape))
    except ValueError:
        refuse(f"broadcast_to({label(x)}, {shape}) of batch shape {x.batch_shape}", "shapes broadcast as in NumPy")


def rebuild(value: Any, event_ndim: int, on_array: Callable, on_variable: Callable) -> Any:
    """Copy an argument with every array replaced by `on_array(array, event_ndim)` and every variable mapped."""
    if isinstance(value, Variable):
        return on_variable(value)
    if isinstance(value, Exp):
        return Exp(rebuild(value.inner, event_ndim, on_array, on_variable))
    if isinstance(value, Take):
        table = value.table
        table = tuple(map(on_variable, table)) if value.random else on_array(table, np.ndim(table))
        return Take(table, *map(on_variable, value.indices))
    if isinstance(value, Affine):
        terms = tuple(
            Term(on_variable(v), op, None if c is None else on_array(c, _TAIL[op])) for v, op, c in value.terms
        )
        offset = None if value.offset is None else on_array(value.offset, len(value.event_shape))
        return Affine(terms, offset, value.batch_shape, value.event_shape)
    return on_array(value, event_ndim)
