"""Python integers among the inputs of a model: data until the model asks for their value.

`obs=3` and `n=10` trials need not compile anew for every value, `range(n)` must. So an integer comes to the model as a
`Number`, a traced scalar; what only a known value can answer (`range`, `len`, `if`, an index, text) raises
`Structural`, and the program declares the model again with that integer as it is.
"""

from typing import Any, NoReturn

import jax.numpy as jnp

from .inputs import Input


class Structural(BaseException):
    """The structure of the model depends on a number: it has to be static. Not for users' `except Exception`."""

    def __init__(self, place: int):
        super().__init__(place)
        self.place = place


class Number(Input):
    """An integer among the inputs, or what was computed of it; `place` is where, among the leaves of all inputs."""

    __slots__ = ()
    place: int

    def __init__(self, root: Any, place: int):
        super().__init__(root, place=place)

    def _known(self, *_: Any, **__: Any) -> NoReturn:
        raise Structural(self.place)

    __index__ = __int__ = __float__ = __complex__ = __bool__ = __len__ = __iter__ = __hash__ = _known
    __array__ = __getitem__ = __str__ = __format__ = __round__ = __floor__ = __ceil__ = __trunc__ = _known


def _forward(name: str) -> Any:
    def method(self: Number, *others: Any) -> Any:
        if any(getattr(x, "is_expression", False) for x in others):
            return NotImplemented
        values = [x.root if isinstance(x, Number) else x for x in others]
        out = getattr(jnp.asarray(self.root), name)(*values)
        if out is NotImplemented or not all(isinstance(x, (Number, int, float)) for x in others):
            return out
        return Number(out, self.place)

    return method


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_OTHERS = ("neg", "pos", "abs", "lt", "le", "gt", "ge", "eq", "ne")
for _name in (*_BINARY, *(f"r{n}" for n in _BINARY), *_OTHERS):
    setattr(Number, f"__{_name}__", _forward(f"__{_name}__"))


class Lazy:
    """Stands for a number among the static values of a specialisation: whatever it is, they are the same."""

    def __repr__(self) -> str:
        return "a number"


LAZY = Lazy()
