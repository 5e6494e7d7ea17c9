"""Index maps: which variable of a plane each of n interfaces touches, recognised as affine where it is."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped


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

    @property
    def n(self) -> int:
        return len(self.positions)

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


def index_map(positions: np.ndarray, size: int) -> IndexMap:
    """Recognise the structure of `positions` in a plane of `size` variables."""
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
