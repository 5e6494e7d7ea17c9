"""Trees of arrays end to end: what is done to every number of them is compiled, and carried through a loop, once.

XLA takes a kernel of its own, 15 ms of compilation, for every array that a loop carries or an elementwise function
makes. Short arrays of one type therefore stand in one vector; where one function hands it to the next, nothing is
copied.
"""

import functools
import math
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

SHORT = 1000  # rows: a longer array may be split over devices, and its rows would have to move
_FEW = 1 << 11  # numbers in an array that is copied without a thought


class Flat(NamedTuple):
    """The arrays of a tree by type, and where they stand: vectors of the short ones, and the long ones as they are."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...]  # the numbers of the arrays in every vector

    @classmethod
    def of(cls, tree: Any) -> Self:
        """The layout of a tree of arrays."""
        leaves, structure = jax.tree.flatten(tree)
        alike: dict[Any, list[int]] = {}
        for i, x in enumerate(leaves):
            short = x.size <= _FEW and (x.ndim == 0 or max(x.shape) <= SHORT)
            alike.setdefault(jnp.dtype(x.dtype) if short else i, []).append(i)
        shapes, dtypes = tuple([x.shape for x in leaves]), tuple([x.dtype for x in leaves])
        return cls(structure, shapes, dtypes, tuple(map(tuple, alike.values())))

    def pack(self, tree: Any) -> list[Array]:
        """A tree of this layout as vectors, and long arrays."""
        leaves = self.tree.flatten_up_to(tree)
        return [
            jnp.concatenate([jnp.ravel(leaves[i]).astype(self.dtypes[i]) for i in own]) if own[1:]
            else jnp.asarray(leaves[own[0]], self.dtypes[own[0]])
            for own in self.groups
        ]  # fmt: skip

    def unpack(self, vectors: list[Array]) -> Any:
        """The tree of such vectors."""
        leaves: list[Any] = [None] * len(self.shapes)
        for own, x in zip(self.groups, vectors, strict=True):
            start = 0
            for i in own:
                shape = self.shapes[i]
                size = math.prod(shape)
                leaves[i] = jax.lax.slice_in_dim(x, start, start + size).reshape(shape) if len(own) > 1 else x
                start += size
        return jax.tree.unflatten(self.tree, leaves)


def select_all(flag: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One tree or the other."""
    flat = Flat.of(yes)
    return flat.unpack([jnp.where(flag, a, b) for a, b in zip(flat.pack(yes), flat.pack(no), strict=True)])


def every(*trees: Any) -> Bool[Array, ""]:
    """Whether all of the flags in some trees are true."""
    flags = [jnp.ravel(x) for tree in trees for x in jax.tree.leaves(tree)]
    short, long = [x for x in flags if x.size <= SHORT], [jnp.all(x) for x in flags if x.size > SHORT]
    whole = jnp.all(jnp.concatenate(short)) if short else jnp.asarray(True)
    return functools.reduce(jnp.logical_and, long, whole)  # long ones may be split over devices
