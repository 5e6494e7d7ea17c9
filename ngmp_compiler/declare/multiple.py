"""Multiples of Gamma variables, `c * tau`: precisions and rates known up to a common factor."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..value import register
from .expressions import Expression, OnArray, Shape
from .inputs import is_array, unwrap
from .naming import label, refuse
from .structures import Scaled, Structure, is_sparse, structure


@register
class Multiple(Expression):
    """`scale * variable` of a positive constant and a Gamma variable; a parameter, and nothing else."""

    __slots__ = ("_structure", "scale", "variable")
    neutral = 1

    def __init__(self, variable: Any, scale: Any):
        self.variable, self.scale = variable, scale

    @property
    def batch_shape(self) -> Shape:
        return np.broadcast_shapes(self.variable.batch_shape, np.shape(unwrap(self.scale)))

    shape = batch_shape

    @property
    def kind(self) -> str:
        return f"multiple({self.variable.kind})"

    @property
    def leaves(self) -> tuple[Any, ...]:
        return self.variable, self.scale

    @property
    def structure(self) -> Any:
        return "multiple", self.variable.structure

    @property
    def eta_shape(self) -> Shape:
        return ()

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        return Multiple(on_variable(self.variable), on_array(self.scale, 0))

    def __getitem__(self, key: Any) -> "Multiple":
        shape = self.batch_shape
        every = self.variable.at(np.broadcast_to(self.variable.index, shape))
        return Multiple(every[key], np.broadcast_to(self.scale, shape)[key])  # type: ignore[arg-type]

    def __mul__(self, other: Any) -> Any:
        return multiple(self.variable, unwrap(self.scale) * unwrap(other)) if is_array(other) else \
            multiple(self.variable, other, self.scale)  # fmt: skip

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if not is_array(other):
            return NotImplemented
        return Multiple(self.variable, unwrap(self.scale) / unwrap(other))

    def __repr__(self) -> str:
        return f"{self.variable!r} times a constant"


def multiple(variable: Any, other: Any, scale: Any = None) -> Any:
    """`scale * variable * other` of a Gamma variable: with a structure or a matrix, a structured precision."""
    matrix = is_sparse(other) or (np.ndim(other) == 2 and is_array(other))
    if isinstance(other, Structure) or (matrix and not variable.batch_shape):
        of = other if isinstance(other, Structure) else structure(other)
        return Scaled(variable, of if scale is None else of.times(scale))
    if not is_array(other):
        what = f"a product of {label(variable)}, a Gamma variable, and {label(other)}"
        works = 'families={"name": "log-gaussian"} of both makes it exp of a sum, which is a precision or a rate'
        refuse(what, works)
    return Multiple(variable, other)
