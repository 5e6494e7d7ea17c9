"""Regions that XLA compiles to one function on a CPU.

On a CPU XLA runs a program as a list of small kernels; in a loop whose step is a few dozen additions, going from one
kernel to the next costs ten times the arithmetic. XLA itself makes one function of a loop that touches less than 1 kB
a step (`small_while_loop_hoisting_pass`), which is why a scan over scalars is fast; it recognises the result by a
frontend attribute of the call. Here we set the attribute, on the call of an inner `jit`, whatever the size of the step.

What is inside must be loops, elementwise operations, reductions and small products: calls out of XLA (LAPACK) have no
place in a region. It runs in one thread, and outputs that nobody uses are computed all the same.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata

# A batch runs one after the other up to this size: a region has no cost between its kernels for a batch to share, and
# the arrays of one element stay in the cache. Beyond, lanes across the batch win.
IN_TURN = 256
# Off: on some programs XLA (jaxlib 0.10.2) fails a check while it emits a region, and takes the process with it.
ENABLED = False
SHORT = 32  # steps of a loop below which nothing is gained; XLA does not expect loops of no step at all in a region


def region(function: Callable[..., Any], plain: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`function` of arrays, compiled as one function on a CPU.

    Elsewhere, and in derivatives, it is `plain`: the same in other operations, if those are better outside of a region.
    """
    plain = function if plain is None else plain
    inner = jax.jit(function)

    @custom_vmap
    def tagged(*args: Any) -> Any:
        return set_xla_metadata(inner(*args), xla_cpu_small_call="true", inlineable="false")

    @tagged.def_vmap
    def batched(size: int, flags: Any, *args: Any) -> tuple[Any, Any]:
        mapped = [x for x, flag in zip(args, flags, strict=True) if flag]

        def one(mapped: list[Any]) -> Any:
            rest = iter(mapped)
            return tagged(*(next(rest) if flag else x for x, flag in zip(args, flags, strict=True)))

        if size <= IN_TURN:
            out = jax.lax.map(one, mapped)
        else:
            out = jax.vmap(plain, [0 if flag else None for flag in flags])(*args)
        return out, jax.tree.map(lambda _: True, out)

    @jax.custom_jvp
    def on_cpu(*args: Any) -> Any:
        return tagged(*args)

    @on_cpu.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(plain, primals, tangents)

    def call(*args: Any) -> Any:
        return on_cpu(*args) if ENABLED and jax.default_backend() == "cpu" else plain(*args)

    return call
