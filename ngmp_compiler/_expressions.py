"""Expressions of declared variables: what may stand where a distribution takes a parameter.

A `Variable` is a handle on random variables of one *plane* (a family and an event shape). Gaussian ones form
`Affine` expressions  `sum_j a_j x_j + c`, kept as a list of terms; `Exp` and `Take` are links around them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from ngmp_kernels.families import AbstractFamily, Categorical, Gaussian, MvGaussian

from ._inputs import Input, unwrap


class Plane(NamedTuple):
    """All variables of one family and event shape; a program stores a plane as one array per natural parameter."""

    family: type[AbstractFamily]
    event_shape: tuple[int, ...]

    def __str__(self) -> str:
        size = "x".join(map(str, self.event_shape))
        return self.family.__name__ + (f"[{size}]" if size else "")


def _is_array(x: Any) -> bool:
    return isinstance(x, (int, float, Input, np.ndarray, np.generic)) or hasattr(x, "aval") or hasattr(x, "__jax_array__")


class _Arithmetic:
    """Operators shared by variables and affine expressions; only Gaussian ones may be combined."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy arrays on the left defer to us
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
            raise TypeError("a random variable cannot be divided by another one; only by a constant")
        return _scale(as_affine(self), 1.0 / unwrap(other))

    def __rmatmul__(self, matrix: Any) -> "Affine":
        return _matmul(matrix, as_affine(self))

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth value of a random variable is not known while the model is declared: structure (which factors "
            "exist) may depend on shapes and static arguments only"
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar expression")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))  # type: ignore[index]


class Variable(_Arithmetic):
    """Random variables: positions `index` (an integer array of the batch shape) in a plane of a trace frame."""

    __slots__ = ("frame", "index", "plane")

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
        return () if self.plane.family is Categorical else self.plane.event_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape + self.event_shape

    def __getitem__(self, key: Any) -> "Variable":
        return Variable(self.frame, self.plane, np.asarray(self.index[static_index(key)]))

    def __repr__(self) -> str:
        return f"Variable({self.plane}, shape={self.shape})"


class Term(NamedTuple):
    """`op` is "scale" (coefficient times variable), "dot" (row vector) or "matmul" (matrix); None means one."""

    variable: Variable
    op: str
    coefficient: Any


class Affine(_Arithmetic):
    """`sum_j coefficient_j variable_j + offset`, elementwise over `batch_shape`, each value of `event_shape`."""

    __slots__ = ("batch_shape", "event_shape", "offset", "terms")

    def __init__(self, terms: tuple[Term, ...], offset: Any, batch_shape: tuple, event_shape: tuple):
        self.terms = terms
        self.offset = offset  # None means zero
        self.batch_shape = batch_shape
        self.event_shape = event_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch_shape + self.event_shape

    def __getitem__(self, key: Any) -> "Affine":
        key = static_index(key)
        terms = []
        for variable, op, coefficient in self.terms:
            index = np.broadcast_to(variable.index, self.batch_shape)[key]
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


class Exp(NamedTuple):
    """`exp(inner)` of an affine expression: a rate or a precision through its logarithm."""

    inner: Affine


class Take(NamedTuple):
    """Row of a constant `table` picked by a categorical variable."""

    table: Any
    index: Variable


def static_index(key: Any) -> Any:
    """An index usable at declaration time, or a clear error."""
    for k in key if isinstance(key, tuple) else (key,):
        if isinstance(k, Input) or (hasattr(k, "aval") and not isinstance(k, np.ndarray)):
            raise TypeError(
                "a random variable was indexed with a traced array; which variables a factor touches is structure, so "
                "indices must be static: integers, slices or numpy arrays closed over by the model"
            )
    return key


def as_affine(x: Any) -> Affine:
    """A Gaussian variable as the affine expression of one term."""
    if isinstance(x, Affine):
        return x
    if isinstance(x, Variable) and x.plane.family in (Gaussian, MvGaussian):
        return Affine((Term(x, "scale", None),), None, x.batch_shape, x.event_shape)
    what = f"a {x.plane.family.__name__} variable" if isinstance(x, Variable) else f"{type(x).__name__}"
    raise TypeError(f"arithmetic needs Gaussian variables, but {what} was given; use it directly as a parameter")


def _broadcast(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise ValueError(f"{what}: shapes {listed} do not broadcast") from None


def _product(a: Any, b: Any) -> Any:
    return b if a is None else unwrap(a) * unwrap(b)


def _add(x: Affine, other: Any) -> Affine:
    if isinstance(other, (Variable, Affine)):
        y = as_affine(other)
        if x.event_shape != y.event_shape:
            raise ValueError(f"cannot add expressions of event shapes {x.event_shape} and {y.event_shape}")
        offset = y.offset if x.offset is None else x.offset if y.offset is None else unwrap(x.offset) + unwrap(y.offset)
        return Affine(x.terms + y.terms, offset, _broadcast("sum", x.batch_shape, y.batch_shape), x.event_shape)
    if not _is_array(other):
        return NotImplemented
    if type(other) in (int, float) and other == 0:
        return x
    shape = _broadcast("sum", x.shape, np.shape(other))
    offset = other if x.offset is None else unwrap(x.offset) + unwrap(other)
    return Affine(x.terms, offset, shape[: len(shape) - len(x.event_shape)], x.event_shape)


def _scale(x: Affine, c: Any) -> Affine:
    if isinstance(c, _Arithmetic):
        raise TypeError("a product of two random variables is not affine; one side of * must be a constant")
    if not _is_array(c):
        return NotImplemented
    if x.event_shape and np.ndim(c):  # elementwise on a vector: a diagonal matrix
        return _matmul(jnp.eye(x.event_shape[0]) * unwrap(c)[..., None, :], x)
    batch = _broadcast("product", x.batch_shape, np.shape(c))
    terms = []
    for variable, op, coefficient in x.terms:
        factor = unwrap(c)
        if np.ndim(factor) and _TAIL[op]:
            factor = factor[(..., *(None,) * _TAIL[op])]
        terms.append(Term(variable, op, _product(coefficient, factor)))
    offset = None if x.offset is None else unwrap(x.offset) * unwrap(c)
    return Affine(tuple(terms), offset, batch, x.event_shape)


def _contract(x: Affine, rows: Any, op: str, event_shape: tuple[int, ...]) -> Affine:
    """Apply `rows` ((..., D) for "dot", (..., m, D) for "matmul") to a vector-valued expression."""
    rows = unwrap(rows)
    width = np.shape(rows)[-1]
    if x.event_shape != (width,):
        raise ValueError(f"features of width {width} meet a vector of shape {x.event_shape}; they must agree")
    lead = np.shape(rows)[: np.ndim(rows) - _TAIL[op]]
    terms = []
    for variable, inner, coefficient in x.terms:
        if inner == "scale":
            scaled = rows if coefficient is None else jnp.asarray(coefficient)[(..., *(None,) * _TAIL[op])] * rows
        else:
            scaled = jnp.einsum("...d,...de->...e" if op == "dot" else "...md,...de->...me", rows, unwrap(coefficient))
        terms.append(Term(variable, op, scaled))
    offset = None
    if x.offset is not None:
        offset = jnp.einsum("...d,...d->..." if op == "dot" else "...md,...d->...m", rows, unwrap(x.offset))
    return Affine(tuple(terms), offset, _broadcast("features", x.batch_shape, lead), event_shape)


def _matmul(matrix: Any, x: Affine) -> Affine:
    if isinstance(matrix, _Arithmetic):
        raise TypeError("a product of two random variables is not affine; the matrix of @ must be a constant")
    if np.ndim(matrix) < 1:
        raise ValueError("the left side of @ must be a vector or a matrix")
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
        return jnp.sum(unwrap(features) * unwrap(w), axis=-1)
    w = as_affine(w)
    if not w.event_shape:
        raise TypeError("dot(features, w) needs a vector variable; declare w with MvNormal")
    return _contract(w, features, "dot", ())


def exp(x: Any) -> Any:
    """`exp` of an array, or the exponential link of an affine expression of Gaussian variables."""
    return Exp(as_affine(x)) if isinstance(x, _Arithmetic) else jnp.exp(unwrap(x))


def take(table: Any, index: Any) -> Any:
    """`table[index]`: a row of a constant table picked by a categorical variable (or by constant integers)."""
    if isinstance(table, _Arithmetic):
        raise TypeError("take(table, z) needs a constant table; rows that are random variables are not supported yet")
    if isinstance(index, Variable):
        if index.plane.family is not Categorical:
            raise TypeError(f"take(table, z) needs a Categorical variable z, not {index!r}")
        if np.ndim(table) < 1 or np.shape(table)[0] != index.plane.event_shape[0]:
            rows = np.shape(table)[0] if np.ndim(table) else 0
            raise ValueError(f"take: the table has {rows} rows but z has {index.plane.event_shape[0]} classes")
        return Take(table, index)
    return jnp.asarray(unwrap(table))[unwrap(index)]


def rebuild(value: Any, event_ndim: int, on_array: Callable, on_variable: Callable) -> Any:
    """Copy an argument with every array replaced by `on_array(array, event_ndim)` and every variable mapped."""
    if isinstance(value, Variable):
        return on_variable(value)
    if isinstance(value, Exp):
        return Exp(rebuild(value.inner, event_ndim, on_array, on_variable))
    if isinstance(value, Take):
        return Take(on_array(value.table, np.ndim(value.table)), on_variable(value.index))
    if isinstance(value, Affine):
        terms = tuple(
            Term(on_variable(v), op, None if c is None else on_array(c, _TAIL[op])) for v, op, c in value.terms
        )
        offset = None if value.offset is None else on_array(value.offset, len(value.event_shape))
        return Affine(terms, offset, value.batch_shape, value.event_shape)
    return on_array(value, event_ndim)
