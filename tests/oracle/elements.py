"""Read a declared graph element by element: every site becomes single factors over single variables.

Gaussian variables, scalars and vectors alike, are laid side by side in one long vector x; a Gaussian interface is a row
(or block of rows) `A x + c`. Every other variable is a `Cell`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ngmp_compiler.declare.affine import Affine
from ngmp_compiler.declare.inputs import unwrap
from ngmp_compiler.declare.variables import Variable
from ngmp_compiler.graph.planes import Plane


class Linear(NamedTuple):
    """`rows @ x + offset`: rows (m, M), offset (m,); `scalar` tells a number from a vector of length one."""

    rows: np.ndarray
    offset: np.ndarray
    scalar: bool


class Cell(NamedTuple):
    """One variable that is not Gaussian."""

    plane: Plane
    position: int

    @property
    def family(self) -> str:
        return self.plane.family.__name__


class ExpOf(NamedTuple):
    inner: Linear


class TakeOf(NamedTuple):
    table: np.ndarray
    index: Cell


Interface = Linear | Cell


class Coordinates:
    """Where every Gaussian variable stands in the long vector x."""

    def __init__(self, graph: Any):
        self.start: dict[tuple[Plane, int], int] = {}
        self.size = 0
        for plane, count in graph.sizes.items():
            if plane.family.__name__ in ("Gaussian", "MvGaussian"):
                for position in range(count):
                    self.start[plane, position] = self.size
                    self.size += self.width(plane)

    @staticmethod
    def width(plane: Plane) -> int:
        return plane.event_shape[0] if plane.event_shape else 1

    def where(self, plane: Plane, position: int) -> slice:
        first = self.start[plane, position]
        return slice(first, first + self.width(plane))


class Element(NamedTuple):
    """One factor as declared: a site's name, its distribution, and arguments that belong to this element only."""

    name: str
    distribution: Any
    arguments: dict[str, Any]


def elements(graph: Any, coordinates: Coordinates) -> list[Element]:
    """Every single factor of a graph; a masked factor does not exist."""
    out = []
    for site in graph.sites:
        for at in np.ndindex(*site.batch_shape):
            if site.mask is None or np.broadcast_to(_array(site.mask), site.batch_shape)[at]:
                out.append(Element(site.name, site.distribution, _arguments(site, at, coordinates)))
    return out


def _arguments(site: Any, at: tuple[int, ...], coordinates: Coordinates) -> dict[str, Any]:
    ndims = site.event_ndims
    return {k: _read(v, at, site.batch_shape, ndims.get(k, 0), coordinates) for k, v in site.arguments.items()}


def _array(x: Any) -> np.ndarray:
    return np.asarray(unwrap(x))


def _pick(x: Any, at: tuple[int, ...], batch: tuple[int, ...], event_ndim: int | None) -> np.ndarray:
    """The part of a constant that belongs to one element."""
    x = _array(x)
    if event_ndim is None:
        return x
    event = x.shape[max(x.ndim - event_ndim, 0) :]
    return np.broadcast_to(x, (*batch, *event))[at]


def _read(value: Any, at: tuple[int, ...], batch: tuple[int, ...], event_ndim: int | None, where: Coordinates) -> Any:
    link = type(value).__name__
    if link == "Exp":
        return ExpOf(_read(value.inner, at, batch, 0, where))
    if link == "Take":
        return TakeOf(_pick(value.table, at, batch, 2), _read(value.index, at, batch, 0, where))
    if isinstance(value, Variable):
        position = int(np.broadcast_to(value.index, batch)[at])
        if (value.plane, position) not in where.start:
            return Cell(value.plane, position)
        rows = np.eye(where.size)[where.where(value.plane, position)]
        return Linear(rows, np.zeros(len(rows)), not value.plane.event_shape)
    if isinstance(value, Affine):
        return _read_affine(value, at, batch, where)
    return _pick(value, at, batch, event_ndim)


def _read_affine(value: Affine, at: tuple[int, ...], batch: tuple[int, ...], where: Coordinates) -> Linear:
    m = value.event_shape[0] if value.event_shape else 1
    rows, offset = np.zeros((m, where.size)), np.zeros(m)
    for variable, op, coefficient in value.terms:
        position = int(np.broadcast_to(variable.index, batch)[at])
        block = where.where(variable.plane, position)
        tail = {"scale": 0, "dot": 1, "matmul": 2}[op]
        c = np.ones(()) if coefficient is None else _pick(coefficient, at, batch, tail)
        rows[:, block] += c * np.eye(m) if op == "scale" else c.reshape(m, -1)
    if value.offset is not None:
        offset = offset + _pick(value.offset, at, batch, len(value.event_shape))
    return Linear(rows, offset, not value.event_shape)


def minus(a: Any, b: Any) -> Any:
    """`a - b` of constants and linear expressions."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        return Linear(a.rows - b.rows, a.offset - b.offset, a.scalar)
    if isinstance(a, Linear):
        return Linear(a.rows, a.offset - b, a.scalar)
    if isinstance(b, Linear):
        return Linear(-b.rows, a - b.offset, b.scalar)
    return a - b


def times(a: Linear, c: float) -> Linear:
    """`c * a`."""
    return Linear(c * a.rows, c * a.offset, a.scalar)


@functools.cache  # one compilation for all elements of a site
def vectorised(f: Callable) -> Callable[..., np.ndarray]:
    """A function of jax scalars as one of numpy arrays that broadcast."""
    compiled = jax.jit(jax.vmap(f))

    def call(*z: Any) -> np.ndarray:
        z = np.broadcast_arrays(*z)
        flat = compiled(*(jnp.asarray(x).reshape(-1) for x in z))
        return np.asarray(flat).reshape(z[0].shape)

    return call
