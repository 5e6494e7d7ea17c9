"""Names of expressions in messages, and the static indices they may be read with.

Expressions are told apart by their attributes here, so that their classes can import this module.
"""

from typing import Any, NoReturn

import jax
import numpy as np
from jax.core import Tracer

from ..errors import ModelError, Problem
from .inputs import Input


def refuse(given: str, works: str) -> NoReturn:
    """Refuse an expression. The site it is meant for is not known yet, so the text must name its variables."""
    raise ModelError(Problem(None, None, given, works))


def label(x: Any) -> str:
    """The name of a variable, as declared, for messages."""
    if hasattr(x, "terms"):
        return " + ".join(dict.fromkeys(label(t.variable) for t in x.terms)) or "a constant expression"
    if not hasattr(x, "plane"):
        return repr(x)
    if x.picked:
        return label(x.frame.source)
    for node in getattr(x.frame, "nodes", {}).values():
        if node.plane == x.plane and any(np.isin(x.index, rows).all() for rows in node.rows):
            return f"'{node.name}'"
    return f"a {x.plane} variable"


def not_affine(what: str) -> NoReturn:
    works = "expressions are sums of variables times constants; any other dependence can be an ngmp.factor"
    refuse(f"{what} is not affine in the random variables", works)


def static_index(x: Any, key: Any) -> Any:
    """An index with the arrays in it that are known as numpy ones; those that are traced must be integers."""
    items = key if isinstance(key, tuple) else (key,)
    for k in items:
        if isinstance(k, (Input, Tracer)) and np.dtype(k.dtype).kind not in "iu":
            given = f"{label(x)} was indexed with a traced array of dtype {k.dtype}"
            refuse(given, "which elements there are is structure: index with integers, or use mask=")
    items = tuple(np.asarray(k) if isinstance(k, jax.Array) and not isinstance(k, Tracer) else k for k in items)
    return items if isinstance(key, tuple) else items[0]


def picked_shape(shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
    """The shape of what a key picks; without jax where the key is plain, as in sums of thousands."""
    if all(isinstance(k, (int, slice)) for k in (key if isinstance(key, tuple) else (key,))):
        return np.broadcast_to(np.False_, shape)[key].shape
    return jax.eval_shape(lambda x: x[key], jax.ShapeDtypeStruct(shape, bool)).shape


def split_key(x: Any, key: Any) -> tuple[Any, Any]:
    """Split an index of a vector-valued `x` into that of its batch axes and that of its last axis, or None."""
    items = key if isinstance(key, tuple) else (key,)
    if not x.event_shape or any(k is None for k in items):
        return key, None
    if any(k is Ellipsis for k in items):
        place = next(i for i, k in enumerate(items) if k is Ellipsis)
        fill = (slice(None),) * (len(x.shape) - len(items) + 1)
        items = (*items[:place], *fill, *items[place + 1 :])
    if len(items) != len(x.shape):
        return key, None
    return items[:-1], items[-1]
