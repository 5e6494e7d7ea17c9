"""Expressions of declared variables: what may stand where a distribution takes a parameter.

A `Variable` is a handle on random variables of one plane. Gaussian ones form `Affine` expressions
`sum_j a_j x_j + c`, kept as a list of terms; `Exp` and `Take` are functions around them. Passes ask every one of them
the same questions, through the functions below, which answer for constants as well.
"""

import abc
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

OnArray = Callable[[Any, int], Any]  # of an array and the number of its event axes
Shape = tuple[int, ...]


class Expression(abc.ABC):
    """A random expression, elementwise over `batch_shape`."""

    __slots__ = ()
    is_expression = True
    neutral = 0
    """What stands where one of its arrays is not finite."""
    whole: Any = None
    """Of an expression whose elements are rows of one factor: their batch shape."""

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

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        from .elementwise import on_ufunc  # which knows the classes derived from this one

        return on_ufunc(ufunc, method, inputs, options)


# Of all arguments of a site or group at once, constants among them.

Arguments = Mapping[str, Any]


def kinds_of(arguments: Arguments) -> dict[str, str]:
    return {k: x.kind if getattr(x, "is_expression", False) else "constant" for k, x in arguments.items()}


def leaves_of(arguments: Arguments) -> dict[str, tuple[Any, ...]]:
    """Variables and arrays."""
    return {k: x.leaves if getattr(x, "is_expression", False) else (x,) for k, x in arguments.items() if x is not None}


def map_arguments(
    arguments: Arguments, on_array: OnArray, on_variable: Callable = lambda v: v,
    on_batch: Callable = lambda b: b, ndims: Mapping[str, int | None] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """`Expression.map` of every one, with the number of event axes that each has as a constant; None: all are."""
    out = {}
    for name, x in arguments.items():
        ndim = ndims.get(name, 0)
        if getattr(x, "is_expression", False):
            out[name] = x.map(on_array, on_variable, on_batch, ndim or 0)
        else:
            out[name] = None if x is None else on_array(x, np.ndim(x) if ndim is None else ndim)
    return out
