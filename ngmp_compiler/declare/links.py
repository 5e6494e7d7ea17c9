"""Links to probabilities: functions of affine expressions with values between zero and one."""

from collections.abc import Callable
from typing import Any

from ..value import register
from .compound import Exp
from .expressions import Expression, OnArray
from .smooth import LINKS, Operation, Smooth


@register
class InverseLink(Expression):
    """`sigmoid(inner)`, or another function with values between zero and one, of an affine expression: a probability.

    Where a distribution has no kernel for it, and in arithmetic, it is a variable of its own.
    """

    __slots__ = ("_structure", "inner", "name")

    def __init__(self, name: str, inner: Any):
        self.name, self.inner = name, inner

    shape, batch_shape, leaves = Exp.shape, Exp.batch_shape, Exp.leaves
    eta_shape = Exp.eta_shape

    @property
    def kind(self) -> str:
        return f"{self.name}({self.inner.kind})"

    @property
    def structure(self) -> Any:
        return self.name, self.inner.structure

    def map(self, on_array: OnArray, on_variable: Callable, on_batch: Callable = lambda b: b, ndim: int = 0) -> Any:
        return InverseLink(self.name, self.inner.map(on_array, on_variable, on_batch, ndim))

    def parameter(self) -> Any:
        return self.inner

    def __getitem__(self, key: Any) -> "InverseLink":
        return InverseLink(self.name, self.inner[key])

    @property
    def link(self) -> Operation:
        return LINKS[self.name]

    __add__, __radd__, __sub__, __rsub__ = Smooth.__add__, Smooth.__radd__, Smooth.__sub__, Smooth.__rsub__
    __mul__, __rmul__, __neg__, __pow__ = Smooth.__mul__, Smooth.__rmul__, Smooth.__neg__, Smooth.__pow__
    __truediv__, __rtruediv__ = Smooth.__truediv__, Smooth.__rtruediv__

    def __repr__(self) -> str:
        return f"{self.name}({self.inner!r})"
