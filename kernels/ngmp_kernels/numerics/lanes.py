"""What `vmap` makes of a function on one CPU: one lane after the other."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.custom_batching import custom_vmap


def one_by_one(
    function: Callable[..., Any], most: int | None = None, together: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """`function`, whose lanes run one after the other under `vmap`, on a CPU and if there are no more than `most`.

    It is not to be differentiated, and must not close over tracers.

    Args:
        together: what is batched instead where the lanes do not run one after the other; `function` itself if None.
    """
    alone, batched_one = custom_vmap(function), together or function

    @alone.def_vmap
    def lanes(size: int, batched: Any, *arguments: Any) -> Any:
        arrays, structure = jax.tree.flatten(arguments)
        flags = jax.tree.leaves(batched)
        rows = [x for x, flag in zip(arrays, flags, strict=True) if flag]

        def lane(function: Callable[..., Any], rows: list[Any]) -> Any:
            own = iter(rows)
            whole = [next(own) if flag else x for x, flag in zip(arrays, flags, strict=True)]
            return function(*jax.tree.unflatten(structure, whole))

        side_by_side = jax.vmap(partial(lane, batched_one))
        if jax.device_count() > 1 or size > (most or size):  # lanes may lie on several devices
            found = side_by_side(rows)
        else:
            in_turn = partial(jax.lax.map, partial(lane, alone))
            found = jax.lax.platform_dependent(rows, cpu=in_turn, default=side_by_side)
        return found, jax.tree.map(lambda _: True, found)

    return alone
