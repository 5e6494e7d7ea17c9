"""Numbers that rise, such as cutpoints."""

from collections.abc import Callable
from typing import Any

from ..lift.linear import Linear
from ..lift.values import Unlifted, moved


class Ordered:
    """Numbers that rise: `x_1, x_1 + exp(x_2), ...` of an array whose last axis they are."""

    is_random = True

    def __init__(self, inner: Linear):
        self.inner, self.shape = inner, inner.shape

    def key(self) -> Any:
        return "ordered", self.inner.key()

    def split(self) -> tuple[Callable, list[Any]]:
        raise Unlifted

    def moved(self, shape: Any, move: Callable, axes: Any = None) -> "Ordered":
        if shape[-1:] != self.shape[-1:] or any(n != 1 for n in (*shape[:-1], *self.shape[:-1])):
            raise Unlifted
        return Ordered(moved(self.inner, shape, move))

    picked = moved

    def expression(self) -> Any:
        raise Unlifted
