"""A stand-in for the compiler's expressions."""

import jax.numpy as jnp


class Expression:
    """A stand-in for the compiler's expressions: records the arithmetic done on it."""

    __array_ufunc__ = None

    def __init__(self, text, kind="gaussian", shape=(4,)):
        self.text, self.kind, self.shape = text, kind, shape

    def _make(self, text):
        return Expression(text, self.kind, self.shape)

    def __sub__(self, other):
        return self._make(f"({self.text} - {getattr(other, 'text', 'c')})")

    def __rsub__(self, other):
        return self._make(f"(c - {self.text})")

    def __mul__(self, c):
        return self._make(f"{c}*{self.text}")

    __rmul__ = __mul__


class Take:
    kind = "take(categorical)"

    def __init__(self, table):
        self.table, self.indices = table, (Expression("z", "categorical"),)


def lower(distribution, out):
    """What the compiler does: the first signature that fits, with the kinds of the arguments."""
    given = {"out": out, **distribution.arguments}
    kinds = {name: getattr(value, "kind", "constant") for name, value in given.items()}
    for signature in distribution.signatures:
        if set(signature.arguments) == set(kinds) and all(kinds[k] in v for k, v in signature.arguments.items()):
            break
    else:
        raise LookupError(f"no signature of {type(distribution).__name__} for {kinds}")
    stacked = {k: v if isinstance(v, (Expression, Take)) else jnp.atleast_1d(v) for k, v in given.items()}
    lowered = signature.lower(**stacked)
    assert type(lowered.factor) is signature.factor
    assert len(lowered.interfaces) == len(lowered.factor.interfaces)
    return lowered


X = Expression("x")
G = Expression("g", "exp(gaussian)")
