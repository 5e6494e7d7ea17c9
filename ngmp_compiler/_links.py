"""Links: what turns an expression into a rate, a precision or a row of probabilities."""

import math
from typing import Any, NoReturn

import jax.numpy as jnp

from ._errors import ModelError, Problem
from ._inputs import is_array, unwrap


class Exp:
    """`exp(inner)` of an affine expression: a rate or a precision through its logarithm.

    Products stay inside the exponential, `c exp(z) = exp(z + log c)` for c > 0; sums have no such form.
    """

    __slots__ = ("inner",)
    __array_ufunc__ = None  # numpy arrays on the left defer to us
    is_expression = True

    def __init__(self, inner: Any):
        self.inner = inner

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    def __getitem__(self, key: Any) -> "Exp":
        return Exp(self.inner[key])

    def __mul__(self, other: Any) -> "Exp":
        if isinstance(other, Exp):
            return Exp(self.inner + other.inner)
        return Exp(self.inner + _log(other)) if is_array(other) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Exp":
        if isinstance(other, Exp):
            return Exp(self.inner - other.inner)
        return Exp(self.inner - _log(other)) if is_array(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> "Exp":
        return Exp(_log(other) - self.inner) if is_array(other) else NotImplemented

    def _sum(self, other: Any) -> NoReturn:
        del other
        works = "it may be multiplied by positive constants and other exp(...); terms are added inside, exp(x + y)"
        raise ModelError(Problem(None, None, "a sum with exp(z) is not the exp of an affine expression", works))

    __add__ = __radd__ = __sub__ = __rsub__ = _sum

    def __repr__(self) -> str:
        return f"exp({self.inner!r})"


def _log(c: Any) -> Any:
    if not isinstance(c, (int, float)):
        return jnp.log(unwrap(c))  # what is not positive gives NaN, which the checks of the site report
    if c <= 0:
        raise ModelError(Problem(None, None, f"exp(z) was multiplied or divided by {c}", "give a positive constant"))
    return math.log(c)


class Take:
    """Row of a constant `table` picked by a categorical variable."""

    __slots__ = ("index", "table")
    __array_ufunc__ = None
    is_expression = True

    def __init__(self, table: Any, index: Any):
        self.table = table
        self.index = index

    def __repr__(self) -> str:
        return f"take(table {jnp.shape(self.table)}, {self.index!r})"
