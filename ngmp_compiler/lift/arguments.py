"""Inputs of a model that is run with arrays of jax, and the equation that stands for a latent variable there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import Primitive

from ..declare.inputs import Input
from ..declare.numbers import Number, Structural

latent_p = Primitive("latent")
"""No inputs; the output is an array of a shape and dtype. `positive`: whether all its elements must be."""
latent_p.def_abstract_eval(lambda *, shape, dtype, name, positive: ShapedArray(shape, dtype))


def as_arrays(inputs: dict[str, Any]) -> tuple[list[Any], list[jax.ShapeDtypeStruct], Callable[..., dict[str, Any]]]:
    """The traced inputs, their shapes, and a function from arrays in their place to all inputs by name.

    Arrays of numpy are those whose contents the structure depends on: the model sees them as they are.
    """
    leaves, tree = jax.tree.flatten(inputs, is_leaf=lambda x: isinstance(x, Input))
    for x in leaves:
        if isinstance(x, Number):
            raise Structural(x.place)
    places = [i for i, x in enumerate(leaves) if isinstance(x, (Input, jax.Array))]

    def rebuilt(*arrays: Any) -> dict[str, Any]:
        own = list(leaves)
        for i, x in zip(places, arrays, strict=True):
            own[i] = x
        return jax.tree.unflatten(tree, own)

    traced = [leaves[i] for i in places]
    return traced, [jax.ShapeDtypeStruct(np.shape(x), jnp.asarray(x).dtype) for x in traced], rebuilt


def known(x: Any) -> Any:
    """An array that is known while compiling as one of numpy."""
    return np.asarray(x) if isinstance(x, jax.Array) and not isinstance(x, Tracer) else x
