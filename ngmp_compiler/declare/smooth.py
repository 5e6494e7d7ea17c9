"""Smooth functions of random expressions, kept as they are written until it is known what they are for.

`np.exp(f) + 1` may be the rate of counts, the mean of a latent variable, or a report. As a parameter of an observed
outcome it needs no variable of its own: the unknowns behind it are on the factor of the data (`through`). Anywhere else
it is a deterministic node, elementwise (`as_node`).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError, Problem
from .expressions import Expression
from .inputs import is_array, unwrap


@dataclasses.dataclass(frozen=True)
class Operation:
    """An elementwise function.

    Attributes:
        name: for messages, and what operations that are the same share.
        value: of arrays.
        eager: of expressions, as deterministic nodes and sums of them.
    """

    name: str
    value: Callable[..., Any] = dataclasses.field(compare=False)
    eager: Callable[..., Any] = dataclasses.field(compare=False)


class Smooth:
    """`operation(*arguments)` of expressions, other functions of them, and constants."""

    __slots__ = ("arguments", "operation", "shape")
    __array_ufunc__ = Expression.__array_ufunc__
    is_expression = True
    kind = "function"

    def __init__(self, operation: Operation, *arguments: Any):
        self.operation, self.arguments = operation, arguments
        shapes = [x.shape if is_random(x) else np.shape(unwrap(x)) for x in arguments]
        try:
            self.shape: tuple[int, ...] = np.broadcast_shapes(*shapes)
        except ValueError:
            listed, works = " and ".join(map(str, shapes)), "plates follow NumPy's broadcasting"
            raise ModelError(Problem(None, None, f"{self!r}: shapes {listed} do not broadcast", works)) from None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.shape

    event_shape = eta_shape = ()

    @property
    def leaves(self) -> tuple[Any, ...]:
        return tuple(leaf for x in self.arguments for leaf in (x.leaves if is_random(x) else (x,)))

    def node(self) -> Any:
        """The variable, or sum of variables, that it is."""
        return self.operation.eager(*map(as_node, self.arguments))

    def __getitem__(self, key: Any) -> "Smooth":
        return Smooth(self.operation, *(_entry(x, self.shape, key) for x in self.arguments))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def sum(self, axis: int | None = None, out: None = None) -> Any:
        return self.node().sum(axis)

    def __add__(self, other: Any) -> Any:
        return combine("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return combine("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return combine("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return combine("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return combine("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return combine("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return combine("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return combine("div", other, self)

    def __neg__(self) -> Any:
        return combine("mul", -1.0, self)

    def __pow__(self, other: Any) -> Any:
        return combine("pow", self, other)

    def __matmul__(self, other: Any) -> Any:
        return self.node() @ other

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.node()

    def __bool__(self) -> NoReturn:
        works = "structure (which factors exist) may depend on shapes and static arguments only"
        raise ModelError(Problem(None, None, f"the truth value of {self!r}, which is random, was asked for", works))

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: self.__bool__()

    def __repr__(self) -> str:
        return f"{self.operation.name}({', '.join(repr(x) if is_random(x) else 'a constant' for x in self.arguments)})"


def is_random(x: Any) -> bool:
    return getattr(x, "is_expression", False)


def _entry(x: Any, shape: tuple[int, ...], key: Any) -> Any:
    """`broadcast_to(x, shape)[key]`."""
    if not is_random(x):
        return x if not np.ndim(x) else jnp.broadcast_to(unwrap(x), shape)[key]
    if isinstance(x, Smooth) or x.shape == shape:
        return x[key] if x.shape == shape else Smooth(SAME, x, np.zeros(shape))[key]
    if hasattr(x, "plane"):
        return x.at(np.broadcast_to(x.index, shape))[key]
    return (x + np.zeros(shape))[key]


def is_function(x: Any) -> bool:
    """Whether an expression is neither affine nor a product: what was written, or a link."""
    return isinstance(x, Smooth) or is_random(x) and hasattr(x, "link")


def as_node(x: Any) -> Any:
    """A function of random expressions as a variable of its own; anything else as it is."""
    if isinstance(x, Smooth):
        found = x.node()
        if isinstance(found, Smooth):
            works = "the mean of a Normal may hold products of two, and parameters of what is observed any function"
            raise ModelError(Problem(None, None, f"{found!r}, a product of three random variables,", works))
        return found
    return x.link.eager(x.inner) if is_function(x) else x


def combine(name: str, x: Any, y: Any) -> Any:
    """A binary operation of which one side at least is a function."""
    if not all(is_array(a) or is_random(a) for a in (x, y)):
        return NotImplemented
    return Smooth(_BINARY[name], x, y)


def _divided(x: Any, y: Any) -> Any:
    return x / y if not is_random(y) else x * _reciprocal(y)


def _reciprocal(y: Any) -> Any:
    return unary(jnp.reciprocal, "reciprocal").eager(y)


class _Power:
    """`x ** k`: one object for every k, so that sites of a loop are alike."""

    def __init__(self, k: int):
        self.k, self.__name__ = k, "square" if k == 2 else "cube" if k == 3 else f"power{k}"

    def __call__(self, x: Any) -> Any:
        return x**self.k


@functools.cache
def whole_power(k: int) -> Operation:
    """`x ** k`."""
    function = _Power(k)
    return unary(function, function.__name__)


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, (int, float)) and y == int(y) and y >= 1:
        return whole_power(int(y)).eager(x) if y > 1 else x
    given = f"power({x!r}, {y!r}) as a variable of its own"
    raise ModelError(Problem(None, None, given, "whole powers are; exp(z) may be raised to any constant"))


def unary(value: Callable[..., Any], name: str) -> Operation:
    """A function of one argument: eagerly, a deterministic node."""

    def eager(x: Any) -> Any:
        from .elementwise import node

        return node(value, x)

    return Operation(name, value, eager)


_BINARY = {
    "add": Operation("add", jnp.add, lambda x, y: x + y),
    "sub": Operation("subtract", jnp.subtract, lambda x, y: x - y),
    "mul": Operation("multiply", jnp.multiply, lambda x, y: x * y),
    "div": Operation("divide", jnp.divide, _divided),
    "pow": Operation("power", jnp.power, _power),
}
SAME = Operation("broadcast", lambda x, _: x, lambda x, zeros: x + zeros)
ADD, MULTIPLY = _BINARY["add"], _BINARY["mul"]
EXP, LOG, SQRT = unary(jnp.exp, "exp"), unary(jnp.log, "log"), unary(jnp.sqrt, "sqrt")
LINKS = {
    "sigmoid": unary(jax.nn.sigmoid, "sigmoid"),
    "phi": unary(jax.scipy.stats.norm.cdf, "phi"),
    "cloglog": unary(lambda z: -jnp.expm1(-jnp.exp(z)), "cloglog"),
}
