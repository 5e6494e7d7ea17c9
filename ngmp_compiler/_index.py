"""Index maps: which variable of a plane each of n interfaces touches, recognised as affine where it is."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped


@dataclasses.dataclass(frozen=True, eq=False)
class IndexMap:
    """A map from n interfaces to `size` variables.

    `kind` is "all" (identity), "shift" (consecutive from `start`), "one" (all touch `start`), "repeat" (each
    variable touched by a run of consecutive interfaces), "tile" (the whole plane over and over) or "gather".
    Anything but "gather" needs no scatter or gather operation at run time.
    """

    positions: np.ndarray
    size: int
    kind: str
    start: int = 0

    @property
    def n(self) -> int:
        return len(self.positions)

    def __str__(self) -> str:
        return {"shift": f"shift({self.start})", "one": f"one({self.start})"}.get(self.kind, self.kind)

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
        zeros = jnp.zeros((self.size, *event), values.dtype)
        if self.kind == "one":
            return zeros.at[self.start].set(values.sum(0))
        if self.kind == "shift":
            return zeros.at[self.start : self.start + self.n].set(values)
        return zeros.at[self.positions].add(values)


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
    return make("gather")
