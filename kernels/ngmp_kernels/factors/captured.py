"""Functions of the user inside factors: static, but for the traced arrays that they have captured."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer, eval_jaxpr
from jaxtyping import Array

from .closed_form import ClosedForm


class Function(eqx.Module):
    """`call(*arguments)`; or `call(captured, *arguments)`, where arrays that it closed over are its own."""

    call: Callable[..., Any] = eqx.field(static=True)
    captured: tuple[Array, ...] | None = None  # each with a leading axis of one, as what all rows of a factor share

    def __call__(self, *arguments: Any) -> Any:
        if self.captured is None:
            return self.call(*arguments)
        return self.call([x[0] for x in self.captured], *arguments)


def as_function(function: Any) -> Any:
    """A callable as a pytree without arrays; one that is a pytree already stays as it is."""
    return function if isinstance(function, (Function, ClosedForm)) else Function(function)


def captured(function: Any, *shapes: jax.ShapeDtypeStruct) -> Any:
    """A function of arguments of these shapes as one that closes over no tracer.

    A factor outlives the trace in which it was declared; what a lambda in a model has captured of the inputs must
    therefore be among the arrays of the factor.
    """
    if isinstance(function, ClosedForm):
        return function
    program = jax.make_jaxpr(function)(*shapes)
    if not any(isinstance(x, Tracer) for x in program.consts):
        return Function(function)
    # Once more in the precision of what was captured, which is that of the model.
    dtype = jnp.result_type(jnp.float32, *(x.dtype for x in program.consts if jnp.issubdtype(x.dtype, jnp.floating)))
    floats = [jnp.issubdtype(s.dtype, jnp.floating) for s in shapes]
    shapes = tuple(jax.ShapeDtypeStruct(s.shape, dtype) if f else s for s, f in zip(shapes, floats, strict=True))
    program = jax.make_jaxpr(function)(*shapes)

    def call(consts: list[Array], *arguments: Array) -> Array:
        return eval_jaxpr(program.jaxpr, consts, *arguments)[0]

    return Function(call, tuple(jnp.asarray(x)[None] for x in program.consts))
