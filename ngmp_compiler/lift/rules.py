"""Rules of the interpreter, by the name of a primitive: from an equation and its inputs to the value of its output."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.inputs import unwrap
from . import linear
from .general import General, Whole, general
from .linear import Linear
from .signs import known
from .values import (
    Bilinear,
    Linked,
    Native,
    is_random,
)

RULES: dict[str, Callable] = {}
ELEMENTWISE: set[str] = set()
Value = Any


def rule(*names: str, moves: bool = False) -> Callable:
    """Register a rule; what does not move elements is elementwise."""

    def add(f: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, f))
        ELEMENTWISE.update(() if moves else names)
        return f

    return add


def is_constant(x: Any) -> bool:
    return not is_random(x)


def is_exp(x: Any) -> bool:
    return isinstance(x, Linked) and x.link == "exp"


def is_positive(own: Any, equation: Any, x: Any) -> bool:
    """Whether a constant among the inputs of an equation is positive: known to be, or made so that it must be."""
    x = unwrap(x)
    return known(x) or any(a in own.positive for a in equation.invars if not hasattr(a, "val") and _is_of(own, a, x))


def _is_of(own: Any, atom: Any, x: Any) -> bool:
    return unwrap(own.values.get(atom)) is x


def elementwise(equation: Any, *given: Value) -> Value:
    """Any elementwise function of values."""
    from .interpret import bound, whole

    shape = np.broadcast_shapes(*map(np.shape, given))
    if any(isinstance(x, Whole) for x in given):
        return whole(equation, list(given))[0]
    return general(lambda *x: bound(equation, jnp.broadcast_arrays(*x) if len(x) > 1 else x)[0], list(given), shape)


@rule("log1p", "expm1", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
      "atan2", "abs", "sign", "floor", "ceil", "round", "erf", "erfc", "erf_inv", "lgamma", "digamma", "cbrt", "exp2",
      "max", "min", "rem", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "xor", "is_finite", "igamma",
      "igammac", "regularized_incomplete_beta", "bessel_i0e", "bessel_i1e", "polygamma", "clamp",
      "nextafter")  # fmt: skip
def _elementwise(_: Any, equation: Any, *given: Value) -> Value:
    return elementwise(equation, *given)


@rule("convert_element_type", "copy", "copy_p", "reduce_precision", "optimization_barrier", "stop_gradient", "pvary")
def _same(_: Any, equation: Any, x: Value) -> Value:
    if equation.primitive.name == "convert_element_type" and not isinstance(x, Linear | Linked | Native):
        if not jnp.issubdtype(equation.params["new_dtype"], jnp.floating) or isinstance(x, (General, Whole)):
            return elementwise(equation, x)
    return x


@rule("add", "add_any")
def _add(_: Any, equation: Any, x: Value, y: Value) -> Value:
    if _affine(x) and _affine(y):
        return linear.add(x, y)
    if isinstance(x, Bilinear) or isinstance(y, Bilinear):
        a, b = (x, y) if isinstance(x, Bilinear) else (y, x)
        if isinstance(b, Bilinear):
            return Bilinear(a.pairs + b.pairs, _plus(a.rest, b.rest))
        if _affine(b):
            return Bilinear(a.pairs, _plus(a.rest, b))
    return elementwise(equation, x, y)


def _affine(x: Any) -> bool:
    return isinstance(x, Linear) or is_constant(x)


def _plus(x: Any, y: Any) -> Any:
    return linear.add(x, y) if is_random(x) or is_random(y) else x + y


def _times(x: Any, c: Any) -> Any:
    return linear.scale(x, c) if isinstance(x, Linear) else x * c


@rule("neg")
def _neg(_: Any, equation: Any, x: Value) -> Value:
    if isinstance(x, Linear):
        return linear.scale(x, -1.0)
    if isinstance(x, Bilinear):
        return Bilinear(tuple((linear.scale(a, -1.0), b) for a, b in x.pairs), _times(x.rest, -1.0))
    return elementwise(equation, x)


@rule("sub")
def _sub(own: Any, equation: Any, x: Value, y: Value) -> Value:
    if isinstance(y, Linked) and y.link == "sigmoid" and is_constant(x) and not isinstance(x, Tracer):
        if (np.asarray(x) == 1).all():
            return Linked("sigmoid", linear.scale(y.inner, -1.0))
    if (_affine(x) or isinstance(x, Bilinear)) and (_affine(y) or isinstance(y, Bilinear)):
        minus: Any = -y if is_constant(y) else _neg(own, equation, y)  # type: ignore[operator]
        return _add(own, equation, x, minus)
    return elementwise(equation, x, y)


@rule("mul")
def _mul(own: Any, equation: Any, x: Value, y: Value) -> Value:
    if is_constant(x):
        x, y = y, x
    if is_constant(y):
        return _scaled(own, equation, x, y)
    if is_exp(x) and is_exp(y):
        return Linked("exp", linear.add(x.inner, y.inner))
    if isinstance(x, Linear) and isinstance(y, Linear):
        return Bilinear(((x, y),))
    if isinstance(x, Native) and isinstance(y, Native) and x.variable is y.variable:
        return Native(x.variable, x.exponent + y.exponent, _product(x.coefficient, y.coefficient))
    return elementwise(equation, x, y)


def _product(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a * b


def _scaled(own: Any, equation: Any, x: Value, c: Any) -> Value:
    if isinstance(x, Linear):
        return linear.scale(x, c)
    if isinstance(x, Bilinear):
        return Bilinear(tuple((linear.scale(a, c), b) for a, b in x.pairs), _times(x.rest, c))
    if is_exp(x) and is_positive(own, equation, c):
        return Linked("exp", linear.add(x.inner, _log(c)))
    if isinstance(x, Native) and is_positive(own, equation, c):
        return Native(x.variable, x.exponent, _product(x.coefficient, c))
    return elementwise(equation, x, c)


def _log(c: Any) -> Any:
    return jnp.log(c) if isinstance(c, Tracer) else np.log(c)


@rule("div")
def _div(own: Any, equation: Any, x: Value, y: Value) -> Value:
    if is_constant(y):
        if isinstance(x, (Linear, Bilinear)):
            return _scaled(own, equation, x, 1.0 / y)
        return _over(x, y, equation) if is_positive(own, equation, y) else elementwise(equation, x, y)
    if is_exp(y) and is_exp(x):
        return Linked("exp", linear.add(x.inner, linear.scale(y.inner, -1.0)))
    if is_exp(y) and is_constant(x) and is_positive(own, equation, x):
        return Linked("exp", linear.add(linear.scale(y.inner, -1.0), _log(x)))
    if isinstance(y, Native) and is_constant(x) and is_positive(own, equation, x):
        return Native(y.variable, -y.exponent, x if y.coefficient is None else x / y.coefficient)
    return elementwise(equation, x, y)


def _over(x: Value, c: Any, equation: Any) -> Value:
    if is_exp(x):
        return Linked("exp", linear.add(x.inner, -_log(c)))
    if isinstance(x, Native):
        return Native(x.variable, x.exponent, 1 / c if x.coefficient is None else x.coefficient / c)
    return elementwise(equation, x, c)


def _power(x: Value, p: float, equation: Any) -> Value:
    if is_exp(x):
        return Linked("exp", linear.scale(x.inner, p))
    if isinstance(x, Native):
        return Native(x.variable, x.exponent * p, None if x.coefficient is None else x.coefficient**p)
    return elementwise(equation, x)


@rule("integer_pow")
def _integer_pow(_: Any, equation: Any, x: Value) -> Value:
    return x if equation.params["y"] == 1 else _power(x, float(equation.params["y"]), equation)


@rule("square")
def _square(_: Any, equation: Any, x: Value) -> Value:
    return _power(x, 2.0, equation)


@rule("sqrt")
def _sqrt(_: Any, equation: Any, x: Value) -> Value:
    return _power(x, 0.5, equation)


@rule("rsqrt")
def _rsqrt(_: Any, equation: Any, x: Value) -> Value:
    return _power(x, -0.5, equation)


@rule("pow")
def _pow(_: Any, equation: Any, x: Value, y: Value) -> Value:
    if is_constant(y) and np.ndim(y) == 0 and not isinstance(y, Tracer) and (is_exp(x) or isinstance(x, Native)):
        return _power(x, float(y), equation)
    if is_exp(x) and is_constant(y):
        return Linked("exp", linear.scale(x.inner, y))
    return elementwise(equation, x, y)


@rule("exp")
def _exp(_: Any, equation: Any, x: Value) -> Value:
    return Linked("exp", x) if isinstance(x, Linear) else elementwise(equation, x)


@rule("log")
def _log_of(_: Any, equation: Any, x: Value) -> Value:
    return x.inner if is_exp(x) else elementwise(equation, x)


@rule("logistic")
def _logistic(_: Any, equation: Any, x: Value) -> Value:
    return Linked("sigmoid", x) if isinstance(x, Linear) else elementwise(equation, x)


@rule("select_n")
def _select(_: Any, equation: Any, which: Value, *cases: Value) -> Value:
    if is_constant(which) and all(map(_affine, cases)) and len(cases) == 2:
        if not isinstance(which, Tracer):
            if not np.any(which):
                return cases[0]
            if np.all(which):
                return cases[1]
        parts = []
        for take, x in ((~jnp.asarray(which, bool), cases[0]), (jnp.asarray(which, bool), cases[1])):
            if isinstance(x, Linear):
                parts.append(linear.scale(x, take.astype(float)))
            else:
                parts.append(jnp.where(take, x, 0.0))
        return linear.add(*parts)
    return elementwise(equation, which, *cases)
