"""Inputs on many devices: the rows of a plate split over a mesh, everything else on all of it.

A program is a jitted function, so it runs where its inputs are: given sharded rows, XLA partitions the same program
over the devices (SPMD). What belongs to a row stays on its device, and a variable that all rows share is the sum of
their messages, an all-reduce. Nothing of the program changes, and nothing of it is needed to place the inputs.
"""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ..errors import listed


def shard(
    inputs: dict[str, Any],
    mesh: Mesh,
    plate: str | Iterable[str] | None = None,
    *,
    axis: int = 0,
    over: str | tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """The inputs of a program on the devices of a mesh: `program(**ngmp.shard(inputs, mesh))`.

    With several processes (`jax.distributed`) every process calls this with the same, whole inputs, and keeps its own
    rows of them; arrays that are global already are left alone, so rows that were read from disk by each process go
    through `jax.make_array_from_process_local_data` first.

    Args:
        inputs: inputs of the model by name.
        mesh: such as `jax.make_mesh((8,), ("rows",))`.
        plate: the inputs to split; by default every array with more than `axis` axes whose length there is the largest.
        axis: the axis of the plate in them: 0 for rows; 1 for panels, stored (time, chain), split over chains.
        over: the axes of the mesh to split over; by default all.

    Raises:
        ValueError: if the mesh does not divide the plate; `ngmp.pad` fills it up with masked rows.
    """
    over = tuple(mesh.axis_names) if over is None else (over,) if isinstance(over, str) else tuple(over)
    names = _plate(inputs, plate, axis)
    parts = int(np.prod([mesh.shape[name] for name in over]))
    for name in names:
        length = np.shape(inputs[name])[axis]
        if length % parts:
            works = f"pad it to {-(-length // parts) * parts}, with ngmp.pad if it is a plate with a mask"
            raise ValueError(
                f"shard: '{name}' has {length} along axis {axis}, which {parts} devices do not divide; {works}"
            )
    # `jax.make_mesh` makes axes whose sharding is part of every type; partitioning is left to XLA here.
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    split = NamedSharding(mesh, PartitionSpec(*(None,) * axis, over))
    whole = NamedSharding(mesh, PartitionSpec())
    return {
        name: jax.tree.map(lambda x, s=split if name in names else whole: _placed(x, s), value)
        for name, value in inputs.items()
    }


def _plate(inputs: dict[str, Any], plate: Any, axis: int) -> list[str]:
    if plate is not None:
        names = [plate] if isinstance(plate, str) else list(plate)
        bad = [name for name in names if name not in inputs or np.ndim(inputs[name]) <= axis]
        if bad:
            raise ValueError(
                f"shard: {listed(bad)} of plate= are no inputs with an axis {axis}; given {listed(inputs)}"
            )
        return names
    lengths = {k: np.shape(x)[axis] for k, x in inputs.items() if hasattr(x, "shape") and np.ndim(x) > axis}
    return [name for name, length in lengths.items() if length == max(lengths.values())]


def _placed(x: Any, sharding: NamedSharding) -> Any:
    if not isinstance(x, (np.ndarray, np.generic, jax.Array)):
        return x  # numbers are traced and go everywhere; anything else is static
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x
    whole: Any = x
    return jax.make_array_from_callback(np.shape(x), sharding, lambda where: whole[where])
