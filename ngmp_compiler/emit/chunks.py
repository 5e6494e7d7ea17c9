"""Large groups in chunks: the values at quadrature nodes of a million factors need not be in memory at once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

MOST = 1 << 17  # numbers in one array of values at nodes: 1 MB, the size of a cache
_FEW = 1024  # rows that are not worth a look
_WIDE = 4  # values to a factor from which chunks pay for the copies they need


def by_chunks(function: Callable[..., Any], n: int, *trees: Any) -> Any:
    """`function(*trees)` for n factors, in chunks if it would make arrays of more than `MOST` numbers on the way.

    Args:
        function: pure, row by row: arrays in and out have a leading axis of n, or of 1 where all rows share them.
        n: the number of rows.
        trees: its arguments.
    """
    if n <= _FEW:
        return function(*trees)
    width = _widest(jax.make_jaxpr(function)(*trees).jaxpr) // n
    if width < _WIDE or n * width <= MOST:
        return function(*trees)
    count = _count(n, -(-n * width // MOST))
    size = -(-n // count)
    arrays, structure = jax.tree.flatten(trees)
    split = [jnp.ndim(x) > 0 and jnp.shape(x)[0] == n for x in arrays]

    def chunk(rows: list[Array]) -> Any:
        own = iter(rows)
        whole = [next(own) if flag else x for x, flag in zip(arrays, split, strict=True)]
        found = function(*jax.tree.unflatten(structure, whole))
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape[1:])), found)

    def cut(x: Array) -> Array:
        """Every `count`-th row to a chunk, so that rows on many devices stay where they are."""
        padded = x if size * count == n else jnp.concatenate([x, x[: size * count - n]])
        return jnp.moveaxis(padded.reshape(size, count, *x.shape[1:]), 1, 0)

    found = jax.lax.map(chunk, [cut(x) for x, flag in zip(arrays, split, strict=True) if flag])
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(size * count, *x.shape[2:])[:n], found)


def _count(n: int, least: int) -> int:
    """The number of chunks: one that divides n if there is one nearby."""
    return next((k for k in range(least, 2 * least) if n % k == 0), least)


def _widest(jaxpr: Any) -> int:
    """The size of the largest array that a program makes, inner programs included."""
    inner = (x for e in jaxpr.eqns for v in e.params.values() for x in (v if isinstance(v, tuple | list) else (v,)))
    nested = [_widest(getattr(x, "jaxpr", x)) for x in inner if hasattr(getattr(x, "jaxpr", x), "eqns")]
    made = [v.aval.size for e in jaxpr.eqns for v in e.outvars if hasattr(v.aval, "size")]
    return max([0, *nested, *made])
