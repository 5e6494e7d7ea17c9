"""Links: what turns an expression into a rate, a precision or a row of probabilities."""

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError, Problem
from ..value import register
from .expressions import Expression, OnArray, Shape
from .inputs import is_array, unwrap
from .naming import label, refuse
from .smooth import EXP, Smooth, combine, is_function


@register
class Exp(Expression):
    """`exp(inner)` of an affine expression: a rate or a precision through its logarithm.

    Products stay inside the exponential, `c exp(z) = exp(z + log c)` for c > 0; sums have no such form.
    """

    __slots__ = ("_structure", "inner")

    def __init__(self, inner: Any):
        self.inner = inner

    @property
    def shape(self) -> Shape:
        return self.inner.shape

    @property
    def batch_shape(self) -> Shape:
        return self.inner.batch_shape

    @property
    def kind(self) -> str:
        return f"exp({self.inner.kind})"

    @property
    def leaves(self) -> tuple[Any, ...]:
        return self.inner.leaves

    @property
    def structure(self) -> Any:
        return "exp", self.inner.structure

    @property
    def eta_shape(self) -> Shape:
        return ()  # a rate or a precision tells nothing of the outcome

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> "Exp":
        return Exp(self.inner.map(on_array, on_variable, on_batch, ndim))

    def parameter(self) -> Any:
        return self.inner

    def __getitem__(self, key: Any) -> "Exp":
        return Exp(self.inner[key])

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Exp):
            return Exp(self.inner + other.inner)
        if not is_array(other) or isinstance(other, (int, float)) and other <= 0:
            return combine("mul", self, other)
        return Exp(self.inner + _log(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Exp):
            return Exp(self.inner - other.inner)
        return Exp(self.inner - _log(other)) if is_array(other) else combine("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if not is_array(other) or isinstance(other, (int, float)) and other <= 0:
            return combine("div", other, self)
        return Exp(_log(other) - self.inner)

    def __pow__(self, other: Any) -> Any:
        return Exp(self.inner * other) if is_array(other) else NotImplemented

    link = EXP
    """The function that it is, where it cannot stay a link: what is added to it, say."""
    __add__, __radd__, __sub__, __rsub__ = Smooth.__add__, Smooth.__radd__, Smooth.__sub__, Smooth.__rsub__
    __neg__ = Smooth.__neg__

    def __repr__(self) -> str:
        return f"exp({self.inner!r})"


def _log(c: Any) -> Any:
    if not isinstance(c, (int, float)):
        return jnp.log(unwrap(c))  # what is not positive gives NaN, which the checks of the site report
    if c <= 0:
        raise ModelError(Problem(None, None, f"exp(z) was multiplied or divided by {c}", "give a positive constant"))
    return math.log(c)


def _is_random(x: Any) -> bool:
    return getattr(x, "is_expression", False)


@register
class Take(Expression):
    """The entry of a table picked by categorical variables, one for each of its leading axes.

    The table is a constant array, or a tuple of random variables: its entries, in row-major order.
    """

    __slots__ = ("_structure", "indices", "table")
    neutral = 1

    def __init__(self, table: Any, *indices: Any):
        self.table = table
        self.indices = indices

    @property
    def index(self) -> Any:
        """The index, where there is only one."""
        (index,) = self.indices
        return index

    @property
    def random(self) -> bool:
        return isinstance(self.table, tuple)

    @property
    def batch_shape(self) -> Shape:
        return np.broadcast_shapes(*(i.batch_shape for i in self.indices))

    @property
    def kind(self) -> str:
        entry = self.table[0] if self.random else self.indices[0]
        return f"take({entry.kind if _is_random(entry) else 'constant'})"

    @property
    def leaves(self) -> tuple[Any, ...]:
        entries = self.table if self.random else (self.table,)
        table = [x for entry in entries for x in (entry.leaves if _is_random(entry) else (entry,))]
        return *table, *self.indices

    @property
    def structure(self) -> Any:
        table = tuple(v.structure for v in self.table) if self.random else np.shape(self.table)
        return "take", table, tuple(i.structure for i in self.indices)

    @property
    def eta_shape(self) -> Shape:
        return self.table[0].eta_shape if self.random else np.shape(self.table)[-1:]

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> "Take":
        if self.random:
            table: Any = tuple(x.map(on_array, on_variable, on_batch, ndim) if _is_random(x) else on_array(x, ndim)
                               for x in self.table)  # fmt: skip
        else:
            table = on_array(self.table, len(self.indices) + ndim)
        return Take(table, *map(on_variable, self.indices))

    def entries(self) -> tuple[Any, ...]:
        """What is picked from, in row-major order."""
        if self.random:
            return self.table
        return tuple(self.table[at] for at in np.ndindex(*jnp.shape(self.table)[: len(self.indices)]))

    def each(self, function: Callable[..., Any], *others: Any) -> "Take":
        """`function` of every entry, and of the entries of others; what other variables pick adds their axes."""
        every = [self, *(x for x in others if isinstance(x, Take))]
        indices = list({id(i): i for take in every for i in take.indices}.values())
        axes = {id(i): axis for axis, i in enumerate(indices)}
        columns = [_column(x, axes, indices) for x in (self, *others)]
        return Take(tuple(map(function, *columns)), *indices)

    def __add__(self, other: Any) -> "Take":
        return self.each(operator.add, other)

    def __radd__(self, other: Any) -> "Take":
        return self.each(lambda x, y: y + x, other)

    def __sub__(self, other: Any) -> "Take":
        return self.each(operator.sub, other)

    def __rsub__(self, other: Any) -> "Take":
        return self.each(lambda x, y: y - x, other)

    def __mul__(self, other: Any) -> "Take":
        return self.each(operator.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Take":
        return self.each(operator.truediv, other)

    def __matmul__(self, other: Any) -> "Take":
        return self.each(operator.matmul, other)

    def __rmatmul__(self, other: Any) -> "Take":
        return self.each(lambda x, y: y @ x, other)

    def __neg__(self) -> "Take":
        return self.each(operator.neg)

    def __repr__(self) -> str:
        table = f"{len(self.table)} variables" if self.random else f"table {jnp.shape(self.table)}"
        return f"take({', '.join([table, *map(repr, self.indices)])})"


def _column(x: Any, axes: dict[int, int], indices: list[Any]) -> Any:
    """The entries of an operand at every combination of the indices; one that no variable picks, over and over."""
    if not isinstance(x, Take):
        return itertools.repeat(x)
    entries = x.entries()
    sizes = [i.plane.event_shape[0] for i in x.indices]
    own = [axes[id(i)] for i in x.indices]
    cells = np.ndindex(*(i.plane.event_shape[0] for i in indices))
    return [entries[int(np.ravel_multi_index([at[a] for a in own], sizes))] for at in cells]


class Product:
    """`sum_j left_j * right_j + rest` of affine expressions: the mean of a Normal or MvNormal, and nothing else.

    Attributes:
        pairs: the sides of every product: two scalars, two vectors (a dot product), or rows and a vector.
        rest: an affine expression or a constant.
        rows: how many rows a random matrix has; None: the value is a number.
    """

    __slots__ = ("pairs", "rest", "rows")
    __array_ufunc__ = Expression.__array_ufunc__
    is_expression = True

    def __init__(self, pairs: tuple[tuple[Any, Any], ...], rest: Any = 0.0, rows: int | None = None):
        self.pairs, self.rest, self.rows = pairs, rest, rows

    @property
    def shape(self) -> Shape:
        sides = [x.batch_shape for pair in self.pairs for x in pair]
        return np.broadcast_shapes(*sides, getattr(self.rest, "shape", np.shape(unwrap(self.rest))))

    batch_shape = shape

    @property
    def leaves(self) -> tuple[Any, ...]:
        rest = self.rest.leaves if _is_random(self.rest) else (self.rest,)
        return (*(leaf for pair in self.pairs for x in pair for leaf in x.leaves), *rest)

    def __add__(self, other: Any) -> Any:
        if is_function(other):
            return combine("add", self, other)
        if not isinstance(other, Product):
            return Product(self.pairs, self.rest + other, self.rows)
        if self.rows != other.rows:
            works = "add numbers, or vectors of equal length"
            raise ModelError(Problem(None, None, "a sum of products that are vectors of different lengths", works))
        return Product(self.pairs + other.pairs, self.rest + other.rest, self.rows)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-1.0 * other)

    def __rsub__(self, other: Any) -> Any:
        return -1.0 * self + other

    def __neg__(self) -> "Product":
        return -1.0 * self

    def __mul__(self, other: Any) -> Any:
        if not is_array(other):
            return combine("mul", self, other)
        if np.ndim(other) and (self.rows or any(left.event_shape for left, _ in self.pairs)):
            works = "multiply one of its sides"
            raise ModelError(Problem(None, None, "a product of random vectors was multiplied by an array", works))
        pairs = tuple((left * other, right) for left, right in self.pairs)
        return Product(pairs, self.rest * unwrap(other), self.rows)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * (1.0 / unwrap(other)) if is_array(other) else combine("div", self, other)

    def __repr__(self) -> str:
        return f"Product({' + '.join(f'{a!r} * {b!r}' for a, b in self.pairs)} + {self.rest!r})"


def random_matmul(a: Any, x: Any) -> Product:
    """`A @ x` with both random: A has vectors for rows, or is a vector itself."""
    if not a.event_shape or a.event_shape != x.event_shape:
        given = f"{label(a)} @ {label(x)}: rows of shape {a.event_shape} meet vectors of shape {x.event_shape}"
        refuse(given, "the rows of a random matrix are vectors (MvNormal) as long as x; stack numbers with ngmp.stack")
    if not a.batch_shape:
        return Product(((a, x),))
    return Product(((a, x),), np.zeros(a.batch_shape[-1]), a.batch_shape[-1])
