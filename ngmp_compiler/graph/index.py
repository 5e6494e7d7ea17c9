"""Index maps: which variable of a plane each of n interfaces touches, recognised as affine where it is."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Shaped

from ..value import register


@dataclasses.dataclass(frozen=True, eq=False)
class IndexMap:
    """A map from n interfaces to `size` variables.

    `kind` is "all" (identity), "shift" (consecutive from `start`), "one" (all touch `start`), "repeat" (each
    variable touched by a run of consecutive interfaces), "tile" (the whole plane over and over), "grid" (any other
    `start + sum_d stride_d i_d`: slices with a stride, neighbours on a grid, blocks that repeat) or "gather".
    Anything but "gather" needs no scatter or gather operation at run time.
    """

    positions: np.ndarray
    size: int
    kind: str
    start: int = 0
    levels: tuple[tuple[int, int], ...] = ()  # of a grid: (count, stride), the outermost first
    n: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", len(self.positions))

    @property
    def where(self) -> Any:
        """What `index_map` makes it of: positions, or itself where these are an input."""
        return self.positions

    def every(self, flags: np.ndarray) -> np.ndarray:
        """Of flags (size,) of the variables, those (n,) that hold whatever an interface touches."""
        return flags[self.positions]

    def __hash__(self) -> int:
        return hash((self.n, self.size, self.kind, self.start, self.levels))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexMap):
            return NotImplemented
        return self.size == other.size and np.array_equal(self.positions, other.positions)

    def __str__(self) -> str:
        grid = f"grid({self.start}" + "".join(f" + {stride}*{count}" for count, stride in self.levels) + ")"
        return {"shift": f"shift({self.start})", "one": f"one({self.start})", "grid": grid}.get(self.kind, self.kind)

    def take(self, x: Shaped[Array, "size *event"]) -> Shaped[Array, "n *event"]:
        """`x[positions]`."""
        event = x.shape[1:]
        if self.kind == "all":
            return x
        if self.kind == "shift":
            return x[self.start : self.start + self.n]
        if self.kind == "one":
            return jnp.broadcast_to(x[self.start], (self.n, *event))
        if self.kind == "repeat":
            return jnp.broadcast_to(x[:, None], (self.size, self.n // self.size, *event)).reshape(self.n, *event)
        if self.kind == "tile":
            return jnp.broadcast_to(x[None], (self.n // self.size, self.size, *event)).reshape(self.n, *event)
        if self.kind == "grid":
            return _read(x[self.start :], self.levels).reshape(self.n, *event)
        return x[self.positions]

    def add(self, values: Shaped[Array, "n *event"]) -> Shaped[Array, "size *event"]:
        """`sum` of the values that touch each variable: the frontier of the plane."""
        event = values.shape[1:]
        if self.kind == "all":
            return values
        if self.kind == "repeat":
            return values.reshape(self.size, -1, *event).sum(1)
        if self.kind == "tile":
            return values.reshape(-1, self.size, *event).sum(0)
        if self.kind == "one" and self.size == 1:
            return values.sum(0, keepdims=True)
        if self.kind == "grid":  # the transpose of reading, which is linear
            like = jax.ShapeDtypeStruct((self.size, *event), values.dtype)
            return jax.linear_transpose(self.take, like)(values)[0]
        zeros = jnp.zeros((self.size, *event), values.dtype)
        if self.kind == "one":
            return zeros.at[self.start].set(values.sum(0))
        if self.kind == "shift":
            return zeros.at[self.start : self.start + self.n].set(values)
        return zeros.at[self.positions].add(values)


@register
@dataclasses.dataclass(frozen=True, eq=False)
class GivenMap(IndexMap):
    """A map that is an input: interface i touches the variable `table[at[i]]`. Its `positions` are only an example of
    what they may be, for passes that ask whose variables these are; `ok` says where the index is within its range, and
    maps of one group with the same `number` have the same index."""

    table: np.ndarray = dataclasses.field(kw_only=True)
    at: Int[Array, " n"] = dataclasses.field(kw_only=True)
    ok: Bool[Array, " n"] = dataclasses.field(kw_only=True)
    number: int = dataclasses.field(kw_only=True)
    place: int | None = dataclasses.field(kw_only=True)  # of the index among the leaves of all inputs

    @property
    def where(self) -> "GivenMap":
        return self

    @property
    def given(self) -> Int[Array, " n"]:
        """The positions."""
        start, count = int(self.table[0]), len(self.table)
        return self.at + start if (self.table == start + np.arange(count)).all() else jnp.asarray(self.table)[self.at]

    def rows(self, rows: np.ndarray | None) -> "GivenMap":
        """The map of some interfaces; None: of all."""
        if rows is None:
            return self
        return dataclasses.replace(self, positions=self.positions[rows], at=self.at[rows], ok=self.ok[rows])

    def take(self, x: Shaped[Array, "size *event"]) -> Shaped[Array, "n *event"]:
        return x[self.given]

    def add(self, values: Shaped[Array, "n *event"]) -> Shaped[Array, "size *event"]:
        return jnp.zeros((self.size, *values.shape[1:]), values.dtype).at[self.given].add(values)

    def every(self, flags: np.ndarray) -> np.ndarray:
        return np.full(self.n, flags[self.table].all())


def given_map(table: np.ndarray, at: Int[Array, " n"], size: int, number: int, place: int | None = None) -> GivenMap:
    """The map of an index into a table of positions; negative entries count from its end."""
    count = len(table)
    at = jnp.where(at < 0, at + count, at)
    ok = (at >= 0) & (at < count)
    example = table[np.arange(at.shape[0]) % count]
    at = jnp.where(ok, at, 0)
    return GivenMap(example, size, "given", table=table, at=at, ok=ok, number=number, place=place)


def _read(x: Array, levels: tuple[tuple[int, int], ...]) -> Array:
    """`x[sum_d stride_d i_d]` for all indices, (count_1, count_2, ..., *event), by slices and reshapes."""
    if not levels:
        return x[0]
    (count, stride), rest = levels[0], levels[1:]
    if stride == 0:
        inner = _read(x, rest)
        return jnp.broadcast_to(inner[None], (count, *inner.shape))
    x = x[: count * stride]
    x = jnp.pad(x, [(0, count * stride - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    return jax.vmap(lambda row: _read(row, rest))(x.reshape(count, stride, *x.shape[1:]))


def _levels(positions: np.ndarray) -> tuple[tuple[int, int], ...] | None:
    """(count, stride) of a grid of at most three levels, the outermost first; None if it is none."""
    inner: list[tuple[int, int]] = []
    while len(positions) > 1:
        stride = int(positions[1] - positions[0])
        ends = np.flatnonzero(np.diff(positions) != stride)
        count = int(ends[0]) + 1 if len(ends) else len(positions)
        if len(inner) == 3 or stride < 0 or len(positions) % count:
            return None
        rows = positions.reshape(-1, count)
        if (np.diff(rows, axis=1) != stride).any():
            return None
        inner.append((count, stride))
        positions = rows[:, 0]
    # Slices and reshapes read blocks that do not overlap: every stride steps over what is inside of it.
    reach = 1
    for count, stride in inner:
        if stride and stride < reach:
            return None
        reach = max(reach, count * stride)
    return tuple(reversed(inner))


def index_map(positions: Any, size: int) -> IndexMap:
    """Recognise the structure of `positions` in a plane of `size` variables; a map stays what it is."""
    if isinstance(positions, IndexMap):
        return positions
    positions = np.asarray(positions).reshape(-1)
    make = functools.partial(IndexMap, positions, size)
    n = len(positions)
    if n == 0:
        return make("gather")
    first = int(positions[0])
    if n == 1 or (positions == first).all():
        return make("all") if n == size == 1 else make("one", first)
    if (np.diff(positions) == 1).all():
        return make("all") if n == size else make("shift", first)
    if n % size == 0 and (positions == np.repeat(np.arange(size), n // size)).all():
        return make("repeat")
    if n % size == 0 and (positions == np.tile(np.arange(size), n // size)).all():
        return make("tile")
    levels = _levels(positions)
    return make("grid", first, levels) if levels else make("gather")
