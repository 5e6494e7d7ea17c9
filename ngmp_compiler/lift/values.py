"""What an abstract interpreter finds a value to be: besides constants and `Linear`, one of these.

All of them are arrays: `moved` takes their elements elsewhere and `picked` picks them by a traced index, as
`linear.moved` and `linear.picked` do. `key` is what two values that are the same share, `split` a function with the
arrays it is of, elementwise.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..declare.compound import Exp, Take
from ..declare.elementwise import Phi, cloglog, sigmoid
from ..declare.functions import exp
from . import linear
from .linear import Linear

Move = Callable[[Any], Any]
Shape = tuple[int, ...]


class Unlifted(Exception):
    """A value that is none of those here."""


def is_random(x: Any) -> bool:
    return getattr(x, "is_random", False)


def _cloglog(z: Any) -> Any:
    return -jnp.expm1(-jnp.exp(z))


LINKS = {"exp": (jnp.exp, exp), "sigmoid": (jax.nn.sigmoid, sigmoid), "phi": (jax.scipy.stats.norm.cdf, Phi),
         "cloglog": (_cloglog, cloglog)}  # fmt: skip


class Linked:
    """A link, `exp` or one with values between zero and one, of an affine expression."""

    is_random = True

    def __init__(self, link: str, inner: Linear):
        self.link, self.inner, self.shape = link, inner, inner.shape

    def key(self) -> Any:
        return self.link, self.inner.key()

    def split(self) -> tuple[Callable, list[Any]]:
        return LINKS[self.link][0], [self.inner]

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Linked":
        return Linked(self.link, linear.moved(self.inner, shape, move, axes))

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "Linked":
        return Linked(self.link, linear.picked(self.inner, shape, move, key))

    def expression(self) -> Any:
        return LINKS[self.link][1](self.inner.affine())


class Native:
    """`coefficient * x ** exponent` of scalar variables of another family than the Gaussian one."""

    is_random = True

    def __init__(self, variable: Any, exponent: float = 1.0, coefficient: Any = None):
        self.variable, self.exponent, self.coefficient = variable, exponent, coefficient
        self.shape = np.broadcast_shapes(variable.index.shape, np.shape(coefficient))

    @property
    def family(self) -> str:
        return self.variable.plane.family.kind

    @property
    def plain(self) -> bool:
        return self.exponent == 1.0 and self.coefficient is None

    def key(self) -> Any:
        v, c = self.variable, self.coefficient
        return "native", id(v.frame), v.plane, v.index.shape, v.index.tobytes(), self.exponent, linear.same(c)

    def split(self) -> tuple[Callable, list[Any]]:
        p, base = self.exponent, Native(self.variable.at(np.broadcast_to(self.variable.index, self.shape)))
        if self.coefficient is None:
            return (lambda x: x**p), [base]
        return (lambda x, c: c * x**p), [base, self.coefficient]

    def _with(self, variable: Any, shape: Shape, move: Move) -> "Native":
        c = self.coefficient
        c = c if not np.ndim(c) else move(jnp.broadcast_to(c, self.shape))
        return Native(variable.at(variable.index.reshape(shape)), self.exponent, c)

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Native":
        index = linear.static(move, np.broadcast_to(self.variable.index, self.shape))
        return self._with(self.variable.at(index), shape, move)

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "Native":
        flat = self.variable.at(np.broadcast_to(self.variable.index, self.shape).reshape(-1))
        return self._with(flat[key if key is not None else _positions(self, move)], shape, move)

    def expression(self) -> Any:
        if not self.plain:
            raise Unlifted
        return self.variable


def _positions(x: Any, move: Move) -> Any:
    return move(jnp.arange(int(np.prod(x.shape))).reshape(x.shape))


class Vectors:
    """Variables that are vectors and no Gaussian ones (proportions), the last axis their entries."""

    is_random = True

    def __init__(self, variable: Any):
        self.variable = variable
        self.shape = (*variable.index.shape, *variable.plane.event_shape)

    def key(self) -> Any:
        v = self.variable
        return "vectors", id(v.frame), v.plane, v.index.shape, v.index.tobytes()

    def split(self) -> tuple[Callable, list[Any]]:
        raise Unlifted

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Vectors":
        """Only where the entries stay together, in order, at the end."""
        size = self.shape[-1]
        flat = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        out = linear.static(move, flat)
        if out.shape[-1:] != (size,) or not (np.diff(out, axis=-1) == 1).all() or (out[..., 0] % size).any():
            raise Unlifted
        return Vectors(self.variable.at(self.variable.index.reshape(-1)[out[..., 0] // size]))

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "Vectors":
        if shape[-1:] != self.shape[-1:] or len(self.shape) < 2:
            raise Unlifted
        rows = _positions(self, move)[..., 0] // self.shape[-1]
        flat = self.variable.at(self.variable.index.reshape(-1))[rows]
        return Vectors(flat.at(flat.index.reshape(shape[:-1])))

    def expression(self) -> Any:
        return self.variable


class Chosen:
    """The entry, of K values, that a categorical variable picks, elementwise; `variable` broadcasts to the shape."""

    is_random = True

    def __init__(self, shape: Shape, variable: Any, entries: list[Any]):
        self.shape, self.variable, self.entries = shape, variable, entries

    def key(self) -> Any:
        return "chosen", id(self)

    def split(self) -> tuple[Callable, list[Any]]:
        raise Unlifted

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Chosen":
        index = linear.static(move, np.broadcast_to(self.variable.index, self.shape))
        return Chosen(shape, self.variable.at(index), [self._entry(e, shape, move) for e in self.entries])

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "Chosen":
        flat = self.variable.at(np.broadcast_to(self.variable.index, self.shape).reshape(-1))
        variable = flat[key if key is not None else _positions(self, move)]
        entries = [picked(whole_shape(e, self.shape), shape, move) for e in self.entries]
        return Chosen(shape, variable.at(variable.index.reshape(shape)), entries)

    def _entry(self, e: Any, shape: Shape, move: Move) -> Any:
        if not is_random(e) and np.size(e) == 1:  # the same for all elements stays that
            return np.reshape(e, (1,) * len(shape)) if not isinstance(e, jax.Array) else e.reshape((1,) * len(shape))
        return moved(whole_shape(e, self.shape), shape, move)

    def selector(self, ndim: int = 0) -> Any:
        """The variable without the axes of an event, along which it must be the same."""
        index = np.broadcast_to(self.variable.index, self.shape)
        for _ in range(ndim):
            if not linear.constant_along(index, index.ndim - 1):
                raise Unlifted
            index = index[..., 0]
        return self.variable.at(index)

    def expression(self) -> Any:
        return Take(tuple(expression(e) for e in self.entries), self.selector())


def _spread(x: Any, shape: Shape) -> Any:
    """A value of the whole shape, where operations ask for it."""
    if is_random(x) or np.shape(x) == shape:
        return x
    known = isinstance(x, (np.ndarray, np.generic, int, float))
    return np.broadcast_to(x, shape) if known else jnp.broadcast_to(x, shape)


class Bilinear:
    """`sum_j left_j * right_j + rest` of affine expressions."""

    is_random = True

    def __init__(self, pairs: tuple[tuple[Linear, Linear], ...], rest: Any = 0.0):
        self.pairs, self.rest = pairs, rest
        self.shape = np.broadcast_shapes(*(s.shape for pair in pairs for s in pair), np.shape(rest))

    def key(self) -> Any:
        rest = self.rest.key() if is_random(self.rest) else linear.same(self.rest)
        return "bilinear", tuple((a.key(), b.key()) for a, b in self.pairs), rest

    def split(self) -> tuple[Callable, list[Any]]:
        def value(rest: Any, *sides: Any) -> Any:
            return rest + sum(sides[2 * j] * sides[2 * j + 1] for j in range(len(sides) // 2))

        return value, [self.rest, *(s for pair in self.pairs for s in pair)]

    def _each(self, change: Callable[[Any], Any]) -> "Bilinear":
        pairs = tuple((change(a), change(b)) for a, b in self.pairs)
        return Bilinear(pairs, change(self.rest) if np.ndim(self.rest) or is_random(self.rest) else self.rest)

    def moved(self, shape: Shape, move: Move, axes: Any = None) -> "Bilinear":
        return self._each(lambda x: moved(whole_shape(x, self.shape), shape, move, axes))

    def picked(self, shape: Shape, move: Move, key: Any = None) -> "Bilinear":
        return self._each(lambda x: picked(whole_shape(x, self.shape), shape, move, key))

    def expression(self) -> Any:
        from ..declare.compound import Product

        def side(x: Any) -> Any:
            return x.affine().affine()

        rest = side(self.rest) if is_random(self.rest) else self.rest
        return Product(tuple((side(a), side(b)) for a, b in self.pairs), rest)


def whole_shape(x: Any, shape: Shape) -> Any:
    """A value broadcast to a shape."""
    if np.shape(x) == shape:
        return x
    if not is_random(x):
        return _spread(x, shape)
    own = np.shape(x)
    lead = len(shape) - len(own)
    axes = {i: i + lead for i in range(len(own))}
    return moved(x, shape, lambda a: jnp.broadcast_to(a, shape), axes)


def moved(x: Any, shape: Shape, move: Move, axes: Any = None) -> Any:
    if isinstance(x, Linear):
        return linear.moved(x, shape, move, axes)
    if is_random(x):
        return x.moved(shape, move, axes)
    return linear.static(move, np.asarray(x)) if isinstance(x, (np.ndarray, np.generic, int, float)) else move(x)


def picked(x: Any, shape: Shape, move: Move, key: Any = None) -> Any:
    if isinstance(x, Linear):
        return linear.picked(x, shape, move, key)
    return x.picked(shape, move, key) if is_random(x) else move(x)


def expression(x: Any) -> Any:
    """A value as the argument of a distribution."""
    if not is_random(x):
        return x
    if isinstance(x, Linear):
        return x.affine()
    found = x.expression()
    return Exp(found.inner.affine()) if isinstance(found, Exp) else found
