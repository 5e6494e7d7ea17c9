"""Affine expressions of Gaussian variables: sums, and products with constants."""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..value import register
from .compound import Product, random_matmul
from .expressions import Expression, OnArray, Shape
from .inputs import Input, is_array, unwrap
from .naming import label, not_affine, picked_shape, refuse, split_key, static_index
from .plates import of_plates, sum_along


class Arithmetic(Expression):
    """Operators shared by variables and affine expressions; only Gaussian ones may be combined."""

    __slots__ = ()
    shape: tuple[int, ...]

    def affine(self) -> "Affine":
        """As an affine expression; refused for variables of other families than the Gaussian ones."""
        raise NotImplementedError

    def __add__(self, other: Any) -> "Affine":
        return _add(self.affine(), other)

    __radd__ = __add__

    def __neg__(self) -> "Affine":
        return _scale(self.affine(), -1.0)

    def __sub__(self, other: Any) -> "Affine":
        return _add(self.affine(), -unwrap(other))

    def __rsub__(self, other: Any) -> "Affine":
        return _add(-self, other)

    def __mul__(self, other: Any) -> "Affine":
        return _scale(self.affine(), other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Affine":
        if isinstance(other, Arithmetic):
            not_affine(f"{label(self)} / {label(other)}")
        return _scale(self.affine(), 1.0 / unwrap(other))

    def __rtruediv__(self, other: Any) -> NoReturn:
        not_affine(f"division by {label(self)}")

    def __pow__(self, other: Any) -> Any:
        from .elementwise import power  # a deterministic node, which is made of expressions

        return power(self, other)

    def __rmatmul__(self, matrix: Any) -> "Affine":
        x = self.affine()
        return _matmul(matrix, x) if x.event_shape or not is_array(matrix) else of_plates(matrix, x)

    def __matmul__(self, matrix: Any) -> "Affine":
        if isinstance(matrix, Arithmetic):
            return random_matmul(self.affine(), matrix.affine())  # type: ignore[return-value]
        x = self.affine()
        if not x.event_shape and is_array(matrix):
            return of_plates(x, matrix)
        return _matmul(matrix if np.ndim(matrix) < 2 else jnp.swapaxes(unwrap(matrix), -1, -2), self.affine())

    def sum(self, axis: int | None = None, out: None = None) -> "Affine":
        """The sum along an axis, or of all, as `np.sum` has it; the last axis of vectors is that of their entries."""
        return sum_along(self.affine(), axis)

    def __bool__(self) -> bool:
        refuse(
            f"the truth value of {label(self)}, a random variable, was asked for",
            "structure (which factors exist) may depend on shapes and static arguments only",
        )

    def _compare(self, other: Any) -> NoReturn:
        self.__bool__()
        raise AssertionError

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"len() of {label(self)}, a scalar")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))  # type: ignore[index]


TAIL = {"scale": 0, "dot": 1, "matmul": 2}  # trailing event axes of a coefficient


class Term(NamedTuple):
    """`op` is "scale" (coefficient times variable), "dot" (row vector) or "matmul" (matrix); None means one."""

    variable: Any
    op: str
    coefficient: Any


def _term_structure(term: Term) -> Any:
    tail = TAIL[term.op]
    shape = np.shape(term.coefficient)[-tail:] if tail else term.coefficient is None
    return term.variable.structure, term.op, shape


@register
class Affine(Arithmetic):
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
            return entry(self[key] if key else self, component)
        terms = []
        plain = tuple(map(unwrap, key)) if isinstance(key, tuple) else unwrap(key)
        for variable, op, coefficient in self.terms:
            try:
                variable = variable.at(np.broadcast_to(variable.index, self.batch_shape))[key]
            except IndexError as error:
                raise IndexError(f"expression of {label(self)} of shape {self.shape}: {error}") from None
            if coefficient is not None:
                tail = np.shape(coefficient)[np.ndim(coefficient) - TAIL[op] :]
                coefficient = jnp.broadcast_to(unwrap(coefficient), self.batch_shape + tail)[plain]
            terms.append(Term(variable, op, coefficient))
        offset = None if self.offset is None else jnp.broadcast_to(unwrap(self.offset), self.shape)[plain]
        return Affine(tuple(terms), offset, picked_shape(self.batch_shape, plain), self.event_shape)

    def affine(self) -> "Affine":
        return self

    @property
    def kind(self) -> str:
        return "mvgaussian" if self.event_shape else "gaussian"

    @property
    def leaves(self) -> tuple[Any, ...]:
        found = [x for variable, _, c in self.terms for x in ((variable,) if c is None else (variable, c))]
        return tuple(found) if self.offset is None else (*found, self.offset)

    @property
    def structure(self) -> Any:
        return tuple(map(_term_structure, self.terms)), self.offset is None, self.event_shape

    @property
    def eta_shape(self) -> Shape:
        return self.event_shape

    def map(
        self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0
    ) -> "Affine":
        terms = [Term(on_variable(v), op, None if c is None else on_array(c, TAIL[op])) for v, op, c in self.terms]
        offset = None if self.offset is None else on_array(self.offset, len(self.event_shape))
        return Affine(tuple(terms), offset, on_batch(self.batch_shape), self.event_shape)

    def __repr__(self) -> str:
        return f"Affine({len(self.terms)} terms, shape={self.shape})"


def entry(x: "Affine", key: Any) -> "Affine":
    """Entries of a vector: linear functionals with unit features."""
    unit = np.eye(x.event_shape[0])
    return _matmul(jnp.asarray(unit)[unwrap(key)] if isinstance(key, (Input, Tracer)) else unit[key], x)


def broadcast(what: str, x: Any, y: Any, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of operands `x` and `y`; their labels are looked up for the message only."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        sides = " and ".join(label(e) if isinstance(e, Arithmetic) else "a constant" for e in (x, y))
        listed = " and ".join(map(str, shapes))
        refuse(f"{what} of {sides}: shapes {listed} do not broadcast", "plates follow NumPy's broadcasting")


def _product(a: Any, b: Any) -> Any:
    # `b` alone may be a lazily indexed input, and stays one.
    return b if a is None else unwrap(a) * unwrap(b)


def _add(x: Affine, other: Any) -> Affine:
    if isinstance(other, Product):
        return other + x  # type: ignore[return-value]
    if isinstance(other, Arithmetic):
        y = other.affine()
        if x.event_shape != y.event_shape and not (x.event_shape and y.event_shape):
            from .functions import alike

            x, y = alike(x, y)
        if x.event_shape != y.event_shape:
            sides = f"sum of {label(x)} and {label(y)}: events of shape {x.event_shape} and {y.event_shape}"
            refuse(sides, "add scalars, or vectors of equal length")
        offset = y.offset if x.offset is None else x.offset if y.offset is None else unwrap(x.offset) + unwrap(y.offset)
        batch = broadcast("sum", x, y, x.batch_shape, y.batch_shape)
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
    shape = broadcast(what, x, other, x.shape, np.shape(other))
    if shape[len(shape) - len(x.event_shape) :] != x.event_shape:
        given = f"{what} of {label(x)}, vectors of length {x.event_shape[0]}, and a constant of shape {np.shape(other)}"
        refuse(given, "the last axes must agree")
    return shape


def _scale(x: Affine, c: Any) -> Affine:
    if isinstance(c, Arithmetic):
        y = c.affine()
        if x.event_shape or y.event_shape:
            not_affine(f"{label(x)} * {label(c)}, a product of random vectors,")
        broadcast("product", x, y, x.batch_shape, y.batch_shape)
        return Product(((x, y),))  # type: ignore[return-value]
    if not is_array(c):
        return NotImplemented
    shape = _elementwise(x, "product", c)
    if x.event_shape and np.ndim(c):  # elementwise on a vector: a diagonal matrix
        return _matmul(np.eye(x.event_shape[0]) * unwrap(c)[..., None, :], x)
    terms = []
    for variable, op, coefficient in x.terms:
        factor = c
        if np.ndim(factor) and TAIL[op]:
            factor = unwrap(factor)[(..., *(None,) * TAIL[op])]
        terms.append(Term(variable, op, _product(coefficient, factor)))
    offset = None if x.offset is None else unwrap(x.offset) * unwrap(c)
    return Affine(tuple(terms), offset, shape[: len(shape) - len(x.event_shape)], x.event_shape)


def contract(x: Affine, rows: Any, op: str, event_shape: tuple[int, ...]) -> Affine:
    """Apply `rows` ((..., D) for "dot", (..., m, D) for "matmul") to a vector-valued expression."""
    width = np.shape(rows)[-1]
    if not x.event_shape:
        given = f"a linear map of width {width} meets {label(x)}, which is scalar (of batch shape {x.batch_shape})"
        refuse(given, "the variable of dot(features, w) and A @ x must be a vector: declare it with MvNormal")
    if x.event_shape != (width,):
        given = f"features of shape {np.shape(rows)} meet {label(x)}, a vector of length {x.event_shape[0]}"
        refuse(given, f"the last axis of the features must be {x.event_shape[0]}")
    lead = np.shape(rows)[: np.ndim(rows) - TAIL[op]]
    terms = []
    for variable, inner, coefficient in x.terms:
        if inner == "scale" and coefficient is None:
            scaled = rows  # a lazily indexed input stays one
        elif inner == "scale":
            scaled = jnp.asarray(unwrap(coefficient))[(..., *(None,) * TAIL[op])] * unwrap(rows)
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
    return Affine(tuple(terms), offset, broadcast("product", rows, x, lead, x.batch_shape), event_shape)


def _matmul(matrix: Any, x: Affine) -> Affine:
    if not is_array(matrix):
        return NotImplemented
    if np.ndim(matrix) < 1:
        refuse(f"a scalar @ {label(x)}", "the other side of @ must be a vector or a matrix")
    if np.ndim(matrix) == 1:
        return contract(x, matrix, "dot", ())
    return contract(x, matrix, "matmul", (np.shape(matrix)[-2],))
