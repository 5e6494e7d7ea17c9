"""Stacks: the natural parameters of leaves, of any family, as the solver sees them.

Short leaves stand end to end, a row of one array for every element of a leaf, so that a step is compiled once for all
of them; rows of fewer parameters than others are filled up with zeros. A long leaf keeps its arrays.
"""

import itertools
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.families import AbstractFamily

from .flat import SHORT

_WASTE = 3.0  # times the numbers that rows of different lengths may take together


class Stack(eqx.Module):
    """Natural parameters of leaves of any family: one array (rows, width), or those of a long leaf, (rows, *event)."""

    natural: tuple[Array, ...]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.natural[0].shape[:1]

    @property
    def dtype(self) -> Any:
        return self.natural[0].dtype


class Layout(NamedTuple):
    """Which leaves are stacked, in order, with the number of parameters of a row."""

    keys: tuple[tuple[str, ...], ...]
    ends: tuple[tuple[int, ...], ...]  # where the rows of each leaf end in its stack
    widths: tuple[int | None, ...]  # None for a long leaf

    @classmethod
    def of(cls, leaves: dict[str, Any]) -> Self:
        """The layout of leaves; what is no family, as where a transformation does not look, is in none."""
        families = {key: jax.tree.leaves(q) for key, q in leaves.items() if isinstance(q, AbstractFamily)}
        sizes, dtypes, alike = {}, {}, {}
        for key, natural in families.items():
            rows, width = sizes[key] = len(natural[0]), sum([x[0].size for x in natural])
            dtypes[key] = natural[0].dtype
            alike.setdefault((key,) if rows > SHORT else ("", width, dtypes[key]), []).append(key)
        short = [own for kind, own in alike.items() if not kind[0]]
        together = _together(short, sizes, dtypes)
        long = [own for kind, own in alike.items() if kind[0]]
        keys = tuple(map(tuple, [*together, *long]))
        ends = tuple([tuple(itertools.accumulate(sizes[k][0] for k in own)) for own in keys])
        widths = [max(sizes[k][1] for k in own) for own in together]
        return cls(keys, ends, (*widths, *(None for _ in long)))

    def stack(self, leaves: dict[str, AbstractFamily]) -> list[Stack]:
        """Leaves as stacks."""
        out = []
        for own, width in zip(self.keys, self.widths, strict=True):
            short = [] if width is None else [_rows(leaves[k], width) for k in own]
            out.append(Stack((_joined(short),) if short else tuple(jax.tree.leaves(leaves[own[0]]))))
        return out

    def rows(self, values: dict[str, Array]) -> list[Array]:
        """A number for every row of every leaf, as arrays along the stacks."""
        return [_joined([values[k] for k in own]) for own in self.keys]

    def unstack(self, stacks: list[Any], like: dict[str, Any]) -> dict[str, Any]:
        """Stacks as leaves, of the families of others; what was in no stack stays as it is there."""
        out = dict(like)
        for own, ends, width, stack in zip(self.keys, self.ends, self.widths, stacks, strict=True):
            for key, (a, b) in zip(own, zip((0, *ends[:-1]), ends, strict=True), strict=True):
                parts = stack.natural if width is None else _columns(stack.natural[0][a:b], like[key])
                out[key] = jax.tree.unflatten(jax.tree.structure(like[key]), parts)
        return out

    def by_leaf(self, rows: list[Array]) -> dict[str, Array]:
        """Arrays along the stacks, by leaf."""
        out = {}
        for own, ends, x in zip(self.keys, self.ends, rows, strict=True):
            out |= {key: x[a:b] for key, a, b in zip(own, (0, *ends[:-1]), ends, strict=True)}
        return out


class Blocks(NamedTuple):
    """The leaves of a run as stacks and back, block by block of the schedule: laid out once a run."""

    like: dict[str, Any]  # leaves of the same families and shapes
    keys: list[list[str]]
    layouts: list[Layout]

    @classmethod
    def of(cls, leaves: dict[str, Any], keys: list[list[str]]) -> Self:
        """The blocks of leaves by their keys."""
        return cls(leaves, keys, [Layout.of({k: leaves[k] for k in own}) for own in keys])

    def pick(self, block: int) -> dict[str, Any]:
        """The leaves of a block."""
        return {k: self.like[k] for k in self.keys[block]}

    def stack(self, leaves: dict[str, Any]) -> list[list[Stack]]:
        """Leaves as stacks: every operation on all of them is one."""
        return [layout.stack(leaves) for layout in self.layouts]

    def unstack(self, stacks: list[list[Any]]) -> dict[str, Any]:
        """Stacks of all blocks as leaves."""
        leaves = self.like
        for layout, own in zip(self.layouts, stacks, strict=True):
            leaves = layout.unstack(own, leaves)
        return leaves


def _together(parts: list[list[str]], sizes: dict[str, tuple[int, int]], dtypes: dict[str, Any]) -> list[list[str]]:
    """Stacks of one width each, joined where filling rows up costs little; in the order of the leaves."""
    out: list[list[str]] = []
    for own in sorted(parts, key=lambda own: sizes[own[0]][1]):
        joined = [*(out[-1] if out else []), *own]
        filled = sum(sizes[k][0] for k in joined) * sizes[own[0]][1]
        fits = filled <= max(_WASTE * sum(rows * width for rows, width in (sizes[k] for k in joined)), 1024)
        if out and fits and dtypes[own[0]] == dtypes[out[-1][0]]:
            out[-1] = joined
        else:
            out.append(list(own))
    return out


def _rows(leaf: AbstractFamily, width: int) -> Float[Array, "rows width"]:
    """The natural parameters of every element of a leaf, side by side."""
    parts = [x.reshape(len(x), -1) for x in jax.tree.leaves(leaf)]
    missing = width - sum(x.shape[1] for x in parts)
    zeros = [jnp.zeros((len(parts[0]), missing), leaf.dtype)] if missing else []
    return jnp.concatenate([*parts, *zeros], 1) if len(parts) + len(zeros) > 1 else parts[0]


def _columns(rows: Float[Array, "rows width"], like: AbstractFamily) -> list[Array]:
    """The natural parameters of a leaf of such rows."""
    parts, start = [], 0
    for x in jax.tree.leaves(like):
        size = x[0].size
        parts.append(rows[:, start : start + size].reshape(x.shape))
        start += size
    return parts


def _joined(parts: Any) -> Array:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def chosen(flags: Array, yes: Stack, no: Stack) -> Stack:
    """One stack or the other, row by row or as a whole."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(flags.reshape(flags.shape + (1,) * (a.ndim - flags.ndim)) if flags.ndim else flags, a, b)

    return jax.tree.map(pick, yes, no)


def scaled(stack: Any, rate: Float[Array, " rows"]) -> Any:
    """A stack with every row multiplied by its rate."""
    return jax.tree.map(lambda x: x * rate.reshape(rate.shape + (1,) * (x.ndim - 1)), stack)


def scales(eta: AbstractFamily | Stack, *gradients: AbstractFamily | Stack) -> list[Array]:
    """What makes the coordinates of a leaf comparable: the sizes of the parameters and of what is added to them.

    A floor keeps the rounding noise of a coordinate that is zero from drowning the others.
    """
    batch = eta.batch_shape
    columns = list(zip(*(jax.tree.leaves(t) for t in (eta, *gradients)), strict=True))
    floor = sum([1e-4 * jnp.abs(x).reshape(*batch, -1).sum(-1) for x, *_ in columns])
    found = []
    for x, *rest in columns:
        least = jnp.asarray(floor).reshape(*batch, *(1,) * (x.ndim - len(batch))) + jnp.finfo(x.dtype).tiny
        found.append(sum(map(jnp.abs, rest), jnp.abs(x)) + least)
    return found
