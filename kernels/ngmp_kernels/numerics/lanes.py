"""What `vmap` makes of a function: on one CPU one lane after the other; of a branch, one that all lanes share."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool


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


def if_any(
    wanted: Bool[Array, "..."], then: Callable[..., Any], otherwise: Callable[..., Any], *arguments: Any
) -> Any:
    """`then(*arguments)` if anything is wanted, in any lane, else `otherwise(*arguments)`.

    For a branch that is dear and seldom needed, and right where it is not. Of a `cond` that each lane decides for
    itself `vmap` computes both sides for all lanes, and jax 0.10 has no reverse mode for one inside of a `custom_jvp`.
    """
    return jax.lax.cond(_in_any_lane(wanted), then, otherwise, *arguments)


@custom_vmap
def _in_any_lane(wanted: Bool[Array, "..."]) -> Bool[Array, ""]:
    return jnp.any(wanted)


@_in_any_lane.def_vmap
def _(size: int, batched: Any, wanted: Bool[Array, "lanes ..."]) -> tuple[Bool[Array, ""], bool]:
    return _in_any_lane(wanted), False
