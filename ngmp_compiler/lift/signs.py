"""Which variables of a jaxpr are positive, whatever its inputs are: what may stay inside of an exponential."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.core import Tracer

_EXP = {"exp", "logistic", "erfc", "exp2", "bessel_i0e"}  # positive of anything
_SAME = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev", "copy", "sqrt", "rsqrt",
         "convert_element_type", "stop_gradient", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum",
         "integer_pow", "square", "log1p", "expm1", "abs", "dynamic_slice", "gather", "cbrt"}  # fmt: skip
_ALL = {"mul", "div", "add", "concatenate", "min", "dot_general", "select_n", "pow", "split"}  # of positive ones


def positive(jaxpr: Any, given: Iterable[Any]) -> set[Any]:
    """The variables that must be positive if those that are `given` are."""
    found = set(given)
    for equation in jaxpr.eqns:
        name, inputs = equation.primitive.name, equation.invars
        if name == "latent":
            fine = equation.params["positive"]
        elif name in _EXP:
            fine = True
        elif name in _SAME:
            fine = _is(inputs[0], found)
        elif name == "max":
            fine = any(_is(x, found) for x in inputs)
        elif name in _ALL:
            fine = all(_is(x, found) for x in (inputs[1:] if name == "select_n" else inputs))
            fine = fine or name == "pow" and _is(inputs[0], found)
        else:
            fine = False
        if fine:
            found.update(equation.outvars)
    return found


def _is(atom: Any, found: set[Any]) -> bool:
    return known(atom.val) if hasattr(atom, "val") else atom in found


def known(x: Any) -> bool:
    """Whether a constant is known, and positive."""
    return not isinstance(x, Tracer) and np.asarray(x).dtype.kind in "iuf" and bool((np.asarray(x) > 0).all())
