"""What several executors know of rows, put together."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def assemble(n: int, parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Merge (rows, *trees) of several executors into trees of n rows; one whole part is passed through.

    Rows of None are all of them: such a part takes the place of those before it, and others are written over it.
    """
    start = max([i for i, (rows, *_) in enumerate(parts) if rows is None], default=0)
    (where, *whole), *rest = parts[start:]
    if not rest and (where is None or (len(where) == n and bool((where[1:] > where[:-1]).all()))):
        return tuple(whole)
    # Side by side, so that one operation puts them in place.
    rows = np.concatenate([rows for rows, *_ in parts[start:] if rows is not None])

    def put(first: Array, *others: Array) -> Array:
        x = jnp.concatenate([*others] if where is None else [first, *others])
        base = first if where is None else jnp.zeros((n, *x.shape[1:]), x.dtype)
        return base.at[rows].set(x)

    return jax.tree.map(put, tuple(whole), *[tuple(trees) for _, *trees in rest])


def together(tables: Sequence[Sequence[Mapping[Any, Any]]], sizes: Mapping[Any, int]) -> list[dict[Any, Any]]:
    """What several executors know, (rows, *trees) by plane, functional or group, as one: all rows, in order.

    Args:
        tables: of each thing that is known, those of all executors.
        sizes: the number of rows of each plane, functional or group.
    """
    out = []
    for found in tables:
        parts: dict[Any, list[tuple[Any, ...]]] = {}
        for one in found:
            for key, part in one.items():
                parts.setdefault(key, []).append(part)
        out.append({key: (None, *assemble(sizes[key], own)) for key, own in parts.items()})
    return out
