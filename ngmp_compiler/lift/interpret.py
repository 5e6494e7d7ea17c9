"""The abstract interpreter: evaluates the equations of a jaxpr on constants and on random values.

What depends on constants only is computed as ever, while compiling where all of it is known. The rest is found to be
one of `values` by the rules of `rules`; where none applies, a function of the few scalars it touches.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.inputs import unwrap
from .deferred import Deferred, deferred, settled
from .general import Whole
from .linear import Linear, TooMany
from .rules import ELEMENTWISE, RULES
from .signs import known, positive
from .values import (
    Chosen,
    Native,
    Unlifted,
    is_random,
    moved,
)

MOST_SCALARS = 6  # of which any other function may be
INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
           "checkpoint": "jaxpr", "remat2": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
           "custom_vjp_call_jaxpr": "fun_jaxpr", "remat": "jaxpr"}  # fmt: skip
JUMPS = frozenset({"round", "floor", "ceil", "sign"})  # functions without a slope: refused, not approximated


class Stuck(Exception):
    """An equation that depends on random variables and cannot be written with them."""

    def __init__(self, primitive: str, reason: str):
        super().__init__(primitive, reason)
        self.primitive, self.reason = primitive, reason


class Broken:
    """What an equation that is stuck would have returned: an error for whoever uses it."""

    is_random = True

    def __init__(self, error: Stuck, shape: tuple[int, ...] = ()):
        self.error, self.shape = error, shape

    def key(self) -> Any:
        return "broken", id(self)

    def fail(self, *_: Any) -> Any:
        raise self.error

    moved = picked = split = expression = fail


class Interpreter:
    """Evaluates a jaxpr from its first equation on, as far as is asked for.

    Args:
        jaxpr: with variables and equations, no constants.
        values: of its constants and inputs.
        latent: called for an equation `latent`, returns its value.
        sure: variables that are positive.
    """

    def __init__(self, jaxpr: Any, values: Sequence[Any], latent: Callable[[dict[str, Any]], Any] | None = None,
                 sure: Iterable[Any] = ()):  # fmt: skip
        self.jaxpr, self.latent, self.next = jaxpr, latent, 0
        self.values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], values, strict=True))
        self.made = {v: e for e in jaxpr.eqns for v in e.outvars}
        self.needed = _needed(jaxpr)
        above = [v for v, x in self.values.items() if not is_random(x) and known(unwrap(x))]
        self.positive = positive(jaxpr, [*sure, *above])

    def read(self, atom: Any) -> Any:
        """The value of a variable or literal, with all that comes before it."""
        if hasattr(atom, "val"):
            return atom.val
        while atom not in self.values:
            equation = self.jaxpr.eqns[self.next]
            self.next += 1
            if self.needed[self.next - 1]:
                self._equation(equation)
        return self.values[atom]

    def _equation(self, equation: Any) -> None:
        name = equation.primitive.name
        if name == "latent":
            assert self.latent is not None
            self.values[equation.outvars[0]] = self.latent(equation.params)
            return
        given = [self.read(a) for a in equation.invars]
        broken = next((x for x in given if isinstance(x, Broken)), None)
        try:
            found = self.apply(equation, given) if broken is None else [broken] * len(equation.outvars)
        except Stuck as error:
            found = [Broken(error, v.aval.shape) for v in equation.outvars]
        for v, x in zip(equation.outvars, found, strict=True):
            self.values[v] = x

    def apply(self, equation: Any, given: list[Any]) -> list[Any]:
        """The values of an equation's outputs."""
        name = equation.primitive.name
        if any(isinstance(x, Deferred) for x in given):
            found = deferred(name, tuple(equation.outvars[0].aval.shape), given)
            if found is not None:
                return [found]
            given = [settled(x) for x in given]
        if not any(map(is_random, given)):
            return computed(equation, [unwrap(x) for x in given])
        if name in INLINED:
            return self._inlined(equation.params[INLINED[name]], equation.invars, given)
        if name == "cond" and not is_random(given[0]) and not isinstance(unwrap(given[0]), Tracer):
            return self._inlined(equation.params["branches"][int(unwrap(given[0]))], equation.invars[1:], given[1:])
        given = [x if is_random(x) else unwrap(x) for x in given]
        try:
            if any(isinstance(x, Chosen) for x in given) and name in ELEMENTWISE:
                return [each(lambda *entries: self.apply(equation, list(entries))[0], given)]
            if name in JUMPS:
                raise Stuck(name, "it is flat but for jumps: no message passes through it")
            rule = RULES.get(name)
            if rule is None:
                raise Unlifted
            found = rule(self, equation, *given)
            return list(found) if isinstance(found, (list, tuple)) else [found]
        except Unlifted:
            return whole(equation, given)
        except TooMany as error:
            reason = f"a sum over {error.args[0]} scalar variables"
            raise Stuck(name, reason) from None

    def _inlined(self, jaxpr: Any, atoms: Sequence[Any], given: list[Any]) -> list[Any]:
        inner, consts = (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "jaxpr") else (jaxpr, ())
        sure = [v for v, a in zip(inner.invars, atoms, strict=True) if not hasattr(a, "val") and a in self.positive]
        run = Interpreter(inner, [*consts, *given], self.latent, sure)
        return [run.read(v) for v in inner.outvars]


def _needed(jaxpr: Any) -> list[bool]:
    """Which equations an output depends on."""
    wanted = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    out = []
    for equation in reversed(jaxpr.eqns):
        needed = any(v in wanted for v in equation.outvars)
        out.append(needed)
        if needed:
            wanted.update(v for v in equation.invars if not hasattr(v, "val"))
    return out[::-1]


def computed(equation: Any, given: list[Any]) -> list[Any]:
    """An equation of constants: while compiling, if all of them are known, and as arrays of numpy then."""
    if any(isinstance(x, Tracer) for x in given):
        return bound(equation, given)
    with jax.ensure_compile_time_eval():
        return [np.asarray(x) if not _is_key(x) else x for x in bound(equation, given)]


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def bound(equation: Any, given: Sequence[Any]) -> list[Any]:
    """The outputs of an equation by jax itself."""
    found = equation.primitive.bind(*given, **equation.primitive.get_bind_params(equation.params))
    return list(found) if equation.primitive.multiple_results else [found]


def each(function: Callable, given: list[Any]) -> Chosen:
    """An elementwise function of values that a categorical variable chooses, entry by entry."""
    chosen = [x for x in given if isinstance(x, Chosen)]
    v, shape = chosen[0].variable, np.broadcast_shapes(*map(np.shape, given))
    if any(c.variable.plane != v.plane or c.variable.frame is not v.frame for c in chosen):
        raise Unlifted
    first, *others = [np.broadcast_to(c.variable.index, shape) for c in chosen]
    if any((i != first).any() for i in others):
        raise Unlifted
    entries = [function(*(c.entries[k] if isinstance(c, Chosen) else c for c in given))
               for k in range(len(chosen[0].entries))]  # fmt: skip
    return Chosen(shape, v.at(first), entries)


def whole(equation: Any, given: list[Any]) -> list[Any]:
    """Outputs of an equation as functions of the scalars that its random inputs are of; refused if these are many."""
    scalars = Scalars(equation.primitive.name)
    parts = [scalars.part(x) for x in given]

    def function(k: int) -> Callable:
        return lambda *z: bound(equation, [part(z) for part in parts])[k]

    return [Whole(tuple(v.aval.shape), function(k), scalars.found) for k, v in enumerate(equation.outvars)]


class Scalars:
    """The few scalars that values are functions of, each once."""

    def __init__(self, what: str):
        self.what = what
        self.found: list[Any] = []
        self._places: dict[Any, int] = {}

    def _place(self, x: Any) -> int:
        if x.key() not in self._places:
            if len(self.found) == MOST_SCALARS:
                raise Stuck(self.what, f"more than {MOST_SCALARS} random numbers meet in it")
            self._places[x.key()] = len(self.found)
            self.found.append(x)
        return self._places[x.key()]

    def part(self, x: Any) -> Callable:
        """A value as a function of all scalars."""
        if not is_random(x):
            return lambda z: x
        if isinstance(x, Whole):
            at = [self._place(s) for s in x.scalars]
            return lambda z: x.function(*(z[i] for i in at))
        shape = x.shape
        if isinstance(x, Linear) or (isinstance(x, Native) and x.plain):
            size = int(np.prod(shape))
            if size > 64:
                raise Stuck(self.what, f"{size} random numbers meet in it")
            at = [self._place(moved(x, (), lambda a, k=k: jnp.reshape(a, (-1,))[k])) for k in range(size)]
            return lambda z: jnp.stack([z[i] for i in at]).reshape(shape) if shape else z[at[0]]
        try:
            inner, of = x.split()
        except Unlifted:
            raise Stuck(self.what, "of what is no number") from None
        parts = [self.part(a) for a in of]
        return lambda z: jnp.broadcast_to(inner(*(p(z) for p in parts)), shape)
