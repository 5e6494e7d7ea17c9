"""Elementwise functions of expressions: `ngmp.tanh(z)`, `np.tanh(z)` and `z ** 2` are kept as such; see `smooth`.

`exp` of a Gaussian expression is a link where a distribution has a kernel for it (rates, precisions), and such a
function anywhere else. NumPy's functions find their way here through `__array_ufunc__`; those of `jax.numpy` cannot.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ngmp_kernels.families.mv_gaussian import MOST_DIMENSIONS

from .affine import Arithmetic
from .compound import Exp, Product, Take
from .functions import exp, log, scalars
from .inputs import unwrap
from .links import InverseLink
from .naming import label, refuse
from .sample import apply
from .smooth import LINKS, SQRT, Operation, Smooth, as_node, is_function, is_random, unary, whole_power


def node(function: Callable[..., Any], x: Any) -> Any:
    """`function` of a Gaussian expression, elementwise: a deterministic node; of a long vector, a plate of entries."""
    if isinstance(x, Take):
        return x.each(lambda entry: node(function, entry))
    if isinstance(x, Product):
        works = "give it a variable of its own, sample(name, Normal(a * b, variance=small)), or use ngmp.factor"
        refuse(f"{getattr(function, '__name__', 'a function')} of a product of two random variables", works)
    x = as_node(x)
    if not isinstance(x, Arithmetic):
        return function(unwrap(x))
    x = x.affine()
    return apply(function, scalars(x) if x.event_shape and x.event_shape[0] > MOST_DIMENSIONS else x)


def composed(operation: Operation, x: Any) -> Any:
    """A function of an array, or of an expression, for which it is kept."""
    if isinstance(x, Take):
        return x.each(operation.eager)
    return Smooth(operation, x) if is_random(x) else operation.value(unwrap(x))


def _link(name: str, text: str) -> Callable[[Any], Any]:
    def on_expression(x: Any) -> Any:
        if isinstance(x, Take):
            return x.each(on_expression)
        return InverseLink(name, x.affine()) if isinstance(x, Arithmetic) else composed(LINKS[name], x)

    on_expression.__name__, on_expression.__doc__ = name, text
    return on_expression


sigmoid = _link("sigmoid", "`1 / (1 + exp(-x))` of an array, or of a Gaussian expression: a link, or a node.")
Phi = _link("phi", "The normal distribution function of an array, or of a Gaussian expression: the probit link.")
cloglog = _link("cloglog", "`1 - exp(-exp(x))`, the inverse of the complementary log-log link.")


def power(x: Any, exponent: Any) -> Any:
    """`x ** exponent` of an array, of `exp(z)` (any constant exponent), or of a Gaussian expression (2, 3, ...)."""
    if is_random(exponent):
        refuse(f"a power with the random exponent {label(exponent)}", "write it as exp(exponent * log(base))")
    if isinstance(x, Exp):
        return Exp(x.inner * exponent)
    if not is_random(x):
        return unwrap(x) ** unwrap(exponent)
    if is_function(x):
        return x**exponent
    if not isinstance(exponent, (int, float, np.integer, np.floating)) or exponent != int(exponent) or exponent < 1:
        works = "whole powers, z ** 2, are deterministic nodes; exp(z) may be raised to any constant"
        refuse(f"{label(x)} ** {exponent!r}: a Gaussian variable may be negative", works)
    return x if exponent == 1 else Smooth(whole_power(int(exponent)), x)


def square(x: Any) -> Any:
    """`x ** 2`."""
    return power(x, 2)


def sqrt(x: Any) -> Any:
    """`sqrt` of an array, of `exp(z)`, which is `exp(z / 2)`, or of another positive function."""
    if isinstance(x, Arithmetic):
        refuse(f"sqrt({label(x)})", "a Gaussian variable may be negative; sqrt takes ngmp.exp(z), and arrays")
    return Exp(0.5 * x.inner) if isinstance(x, Exp) else composed(SQRT, x)


def _function(function: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    operation = unary(function, name)

    def on_expression(x: Any) -> Any:
        return composed(operation, x)

    on_expression.__name__ = on_expression.__qualname__ = name
    on_expression.__doc__ = f"`{name}` of an array, or, as a deterministic node, of a Gaussian expression."
    return on_expression


softplus = _function(jax.nn.softplus, "softplus")
sin = _function(jnp.sin, "sin")
cos = _function(jnp.cos, "cos")
tan = _function(jnp.tan, "tan")
tanh = _function(jnp.tanh, "tanh")
sinh = _function(jnp.sinh, "sinh")
cosh = _function(jnp.cosh, "cosh")
arctan = _function(jnp.arctan, "arctan")
arcsinh = _function(jnp.arcsinh, "arcsinh")
expm1 = _function(jnp.expm1, "expm1")
absolute = _function(jnp.abs, "absolute")
log1p = _function(jnp.log1p, "log1p")
reciprocal = _function(jnp.reciprocal, "reciprocal")

_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": exp, "log": log, "square": square, "sqrt": sqrt, "sin": sin, "cos": cos, "tan": tan, "tanh": tanh,
    "sinh": sinh, "cosh": cosh, "arctan": arctan, "arcsinh": arcsinh, "expm1": expm1, "absolute": absolute,
    "log1p": log1p, "negative": operator.neg, "positive": lambda x: x, "reciprocal": reciprocal,
    "exp2": lambda x: exp(x * float(np.log(2.0))),
}  # fmt: skip
_BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "matmul": "matmul", "power": "pow",
    "float_power": "pow", "less": "lt", "greater": "gt", "less_equal": "le", "greater_equal": "ge",
}  # fmt: skip


def on_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What a function of NumPy means on expressions."""
    name = ufunc.__name__
    if method == "__call__" and not options and name in _UNARY:
        return _UNARY[name](*inputs)
    if method == "__call__" and not options and name in _BINARY:
        left, right = inputs
        own = getattr(left, "is_expression", False)
        operation = getattr(left if own else right, f"__{'' if own else 'r'}{_BINARY[name]}__", None)
        if operation is None and name in ("less", "greater", "less_equal", "greater_equal"):
            return right.__bool__()
        return NotImplemented if operation is None else operation(right if own else left)
    works = "NumPy's elementwise functions and operators work; ngmp.apply(function, x) takes any other smooth function"
    refuse(f"np.{name} of a random variable", works)
