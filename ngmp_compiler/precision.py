"""Which precision a program computes in: that of its floating inputs, at least single, and said where it surprises."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_SINGLE = 4  # bytes


def input_name(path: tuple[Any, ...]) -> str:
    """The name of an input from its path in the tree of all of them."""
    return "".join([str(getattr(path[0], "key", path[0])), *map(str, path[1:])])


def _floating(x: Any) -> bool:
    """Whether an input has a say in the precision: Python numbers and what was made of them follow the arrays."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating) and not getattr(x, "weak_type", False)


def precision(leaves: list[Any]) -> Any:
    """The widest of the floating inputs, at least float32; without any, what jax takes a Python float for."""
    floats = [jax.dtypes.canonicalize_dtype(x.dtype) for x in leaves if _floating(x)]  # as jax will take them
    return jnp.result_type(jnp.float32, *floats) if floats else jnp.result_type(float)


def widen_halves(arguments: dict[str, Any]) -> dict[str, Any]:
    """The inputs with float16, bfloat16 and narrower ones as float32; a warning names them.

    It names those, too, that make single precision of a whole model although double precision is enabled.
    """
    paths, tree = jax.tree_util.tree_flatten_with_path(arguments)
    leaves = [x for _, x in paths]
    half = [i for i, x in enumerate(leaves) if _floating(x) and x.dtype.itemsize < _SINGLE]
    if half:
        named = ", ".join(f"'{input_name(paths[i][0])}' ({leaves[i].dtype})" for i in half)
        _warn(f"inputs {named} are converted to float32: half precision holds too few digits for messages")
        leaves = [_single(x) if i in half else x for i, x in enumerate(leaves)]
        arguments = jax.tree.unflatten(tree, leaves)
    if jax.config.jax_enable_x64 and precision(leaves) == jnp.float32:  # type: ignore[attr-defined]
        own = [input_name(path) for i, (path, x) in enumerate(paths) if _floating(x) and i not in half]
        if own:
            named = ", ".join(f"'{name}'" for name in own)
            _warn(f"the whole model is computed in float32, because of inputs {named}, although double precision is "
                  "enabled; give them as float64, or silence this warning")  # fmt: skip
    return arguments


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=6)  # the line that called the program


def _single(x: Any) -> Any:
    if isinstance(x, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(x.shape, jnp.float32)
    return x.astype(np.float32)


_FEW = 3


def reason(arguments: dict[str, Any]) -> str:
    """Why a program has its precision, in a few words."""
    paths = jax.tree_util.tree_leaves_with_path(arguments)
    wanted = precision([x for _, x in paths])
    decide = (path for path, x in paths if _floating(x) and precision([x]) == wanted)
    names = [f"'{input_name(path)}'" for path in decide]
    if not names:
        return "what jax takes Python numbers for: no input is a floating array"
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"as {', '.join(names[:_FEW])}{more} {'are' if len(names) > 1 else 'is'}"
