"""Functions of random values that are nothing better known: elementwise, or of a few scalars."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..declare.sample import apply
from ..declare.smooth import Operation, Smooth
from . import linear
from .linear import Linear
from .values import Move, Native, Shape, Unlifted, expression, is_random, moved, picked, whole_shape


class General:
    """Any function, elementwise, of arrays: `Linear` ones, `Native` ones and constants."""

    is_random = True

    def __init__(self, shape: Shape, function: Callable, arguments: list[Any]):
        self.shape, self.function, self.arguments = shape, function, arguments

    def key(self) -> Any:
        return "general", id(self)

    def split(self) -> tuple[Callable, list[Any]]:
        return self.function, self.arguments

    @property
    def unknowns(self) -> list[Any]:
        return [a for a in self.arguments if is_random(a)]

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "General":
        every = [moved(whole_shape(a, self.shape), shape, move) if np.ndim(a) or is_random(a) else a
                 for a in self.arguments]  # fmt: skip
        return General(shape, self.function, every)

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "General":
        every = [picked(whole_shape(a, self.shape), shape, move, key) if np.ndim(a) or is_random(a) else a
                 for a in self.arguments]  # fmt: skip
        return General(shape, self.function, every)

    def expression(self) -> Any:
        """The function of expressions."""
        if not all(isinstance(x, Linear) or isinstance(x, Native) and x.plain for x in self.unknowns):
            raise Unlifted
        given = [expression(whole_shape(a, self.shape)) if is_random(a) else a for a in self.arguments]
        return Smooth(Operation(f"function {id(self.function)}", self.function, self._node), *given)

    def _node(self, *given: Any) -> Any:
        """A deterministic node, of one Gaussian unknown."""
        unknown = [i for i, a in enumerate(self.arguments) if is_random(a)]
        if len(unknown) != 1 or not isinstance(self.arguments[unknown[0]], Linear):
            raise Unlifted
        (place,) = unknown

        def node(x: Any, *others: Any) -> Any:
            return self.function(*others[:place], x, *others[place:])

        return apply(node, given[place], *given[:place], *given[place + 1 :])


class Whole:
    """Any function, not elementwise, of a few scalars, each an array of shape ()."""

    is_random = True

    def __init__(self, shape: Shape, function: Callable, scalars: list[Any]):
        self.shape, self.function, self.scalars = shape, function, scalars

    def key(self) -> Any:
        return "whole", id(self)

    def split(self) -> tuple[Callable, list[Any]]:
        raise Unlifted

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Whole":
        return Whole(shape, lambda *s: move(jnp.broadcast_to(self.function(*s), self.shape)), self.scalars)

    picked = moved

    def expression(self) -> Any:
        if self.shape or len(self.scalars) > 1:
            raise Unlifted
        return General((), self.function, self.scalars).expression()


def general(function: Callable, values: list[Any], shape: Shape) -> General:
    """An elementwise function of values, as one of the arrays that they are functions of."""
    places: dict[Any, int] = {}
    arguments: list[Any] = []
    parts: list[tuple[Callable | None, list[Callable]]] = []

    def place(x: Any) -> int:
        key = x.key() if is_random(x) else linear.same(x)
        if key not in places:
            places[key] = len(arguments)
            arguments.append(x)
        return places[key]

    def read(x: Any) -> Callable:
        """Where a value is among the arguments, or of which of them it is a multiple."""
        if not isinstance(x, Linear) or x.root().base.key() not in shared:
            i = place(x)
            return lambda given: given[i]
        base, times, plus = x.root()
        i, c, j = place(base), place(times), None if plus is None else place(plus)
        return lambda given: given[c] * given[i] + (0.0 if j is None else given[j])

    split = [x.split() if is_random(x) and not isinstance(x, Linear) and not (isinstance(x, Native) and x.plain)
             else (None, [x]) for x in values]  # fmt: skip
    shared = _multiples([a for _, of in split for a in of if isinstance(a, Linear)])
    for inner, of in split:
        parts.append((inner, [read(a) for a in of]))

    def composed(*given: Any) -> Any:
        each = ((f, [one(given) for one in own]) for f, own in parts)
        return function(*(own[0] if f is None else f(*own) for f, own in each))

    return General(shape, composed, arguments)


def merged(function: Callable, values: list[Any]) -> tuple[Callable, list[Any]]:
    """A function as one of fewer values, where some are multiples of one another but for constants: two interfaces
    that are, have no joint density."""
    if not _multiples([x for x in values if isinstance(x, Linear)]):
        return function, values
    found = general(function, values, np.broadcast_shapes(*map(np.shape, values)))
    return found.function, found.arguments


def _multiples(every: list[Linear]) -> set[Any]:
    """What several arrays are multiples of, but for constants, as f and 1 - f of `g(f) + h(1 - f)`: one unknown."""
    found: dict[Any, set[Any]] = {}
    for x in every:
        found.setdefault(x.root().base.key(), set()).add(x.key())
    return {root for root, own in found.items() if len(own) > 1}
