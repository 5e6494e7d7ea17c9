"""Sums along axes, and products of matrices with plates of numbers, as NumPy has them: `X @ w` of a plate w."""

import functools
import operator
from typing import Any

import numpy as np

from .inputs import unwrap
from .naming import label, refuse

_WIDE, _TALL = (..., slice(None), slice(None), None), (..., None, slice(None), slice(None))


def of_plates(left: Any, right: Any) -> Any:
    """`left @ right`, of which one is an affine expression of numbers, and the other a constant."""
    left, right = unwrap(left), unwrap(right)
    one, other = np.shape(left), np.shape(right)
    random = left if getattr(left, "is_expression", False) else right
    if not one or not other:
        refuse(f"a scalar @ {label(random)}", "both sides of @ must be vectors or matrices, or plates of numbers")
    if one[-1] != other[-2:][0]:
        given = f"{one} @ {other}, of which one is {label(random)},"
        refuse(given, "the last axis on the left must be as long as the first of the last two on the right")
    if len(other) == 1:
        return _times(left, right).sum(-1)
    if len(one) == 1:
        return _times(left[..., :, None], right).sum(-2)
    return _times(left[_WIDE], right[_TALL]).sum(-2)


def _times(left: Any, right: Any) -> Any:
    """The product, by the side that is random."""
    return left * right if getattr(left, "is_expression", False) else right * left


def sum_along(x: Any, axis: int | None) -> Any:
    """The sum of an affine expression along an axis, or of all; the last axis of vectors is that of their entries."""
    if axis is None:
        return x if not x.shape else sum_along(sum_along(x, -1), None)
    rank, batch = len(x.shape), len(x.batch_shape)
    if not -rank <= axis < rank:
        refuse(f"sum over axis {axis} of {label(x)}, of shape {x.shape}", "sum over an axis that there is")
    if axis % rank == batch:
        return np.ones(x.event_shape) @ x
    before = (slice(None),) * (axis % rank)
    return functools.reduce(operator.add, (x[(*before, k)] for k in range(x.shape[axis])))
