"""Expressions of declared variables: what may stand where a distribution takes a parameter.

A `Variable` is a handle on random variables of one plane. Gaussian ones form `Affine` expressions
`sum_j a_j x_j + c`, kept as a list of terms; `Exp` and `Take` are functions around them. Passes ask every one of them
the same questions, through the functions below, which answer for constants as well.
"""

import abc
from collections.abc import Callable
from typing import Any

OnArray = Callable[[Any, int], Any]  # of an array and the number of its event axes
Shape = tuple[int, ...]


class Expression(abc.ABC):
    """A random expression, elementwise over `batch_shape`."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy arrays on the left defer to us
    is_expression = True
    neutral = 0
    """What stands where one of its arrays is not finite."""

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """In the vocabulary of `ngmp_kernels.Signature`."""

    @property
    @abc.abstractmethod
    def leaves(self) -> tuple[Any, ...]:
        """Its variables and arrays, in the order of `map`."""

    @property
    @abc.abstractmethod
    def structure(self) -> Any:
        """What expressions share that can be stacked leaf by leaf."""

    @property
    @abc.abstractmethod
    def eta_shape(self) -> Shape:
        """The event shape of the plane it stands on: of classes, their number."""

    @abc.abstractmethod
    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        """A copy with other leaves.

        Args:
            on_array: of an array and the number of its event axes.
            on_variable: of a variable.
            on_batch: of a batch shape that is not that of a variable.
            ndim: the event axes of a value, where the expression does not know them.
        """

    def parameter(self) -> Any:
        """What a signature's `lower` receives."""
        return self


def kind_of(value: Any) -> str:
    return value.kind if getattr(value, "is_expression", False) else "constant"


def leaves_of(value: Any) -> tuple[Any, ...]:
    return value.leaves if getattr(value, "is_expression", False) else () if value is None else (value,)


def variables_of(value: Any) -> tuple[Any, ...]:
    if not getattr(value, "is_expression", False):
        return ()
    return tuple(x for x in value.leaves if getattr(x, "is_expression", False))


def map_leaves(
    value: Any, ndim: int, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b
) -> Any:
    """`Expression.map`, also of a constant, with its number of event axes."""
    if getattr(value, "is_expression", False):
        return value.map(on_array, on_variable, on_batch, ndim)
    return None if value is None else on_array(value, ndim)
