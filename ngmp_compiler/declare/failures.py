"""Exceptions of model functions in words."""

import re

import jax

from ..errors import Problem

TRACED = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError,
          jax.errors.TracerIntegerConversionError, jax.errors.NonConcreteBooleanIndexError)  # fmt: skip


def explain(error: Exception) -> Problem:
    """An exception of the model function as a problem."""
    text = str(error).splitlines()[0] if str(error) else ""
    if isinstance(error, TRACED):
        works = "structure may depend on shapes and static arguments only; use mask=, or pass the value as an int"
        if isinstance(error, jax.errors.TracerArrayConversionError):
            works += "; of what is computed from inputs use the functions of jax.numpy (jnp.stack for np.stack)"
        return Problem(None, None, f"the structure depends on the value of a traced input: {text}", works)
    if isinstance(error, TypeError) and "ngmp_compiler.declare." in text:
        named = re.match(r"(\w+) requires ndarray or scalar", text)
        what = f"jnp.{named[1]}" if named else "a function of jax"
        works = f"functions of NumPy work, np.{named[1] if named else 'exp'}, and those of ngmp (exp, dot, ...)"
        works += "; ngmp.apply(function, x) takes any smooth function, ngmp.factor any log-density"
        return Problem(None, None, f"{what} was applied to a random variable, which jax does not let through", works)
    return Problem(None, None, f"{type(error).__name__}: {error}", "")
