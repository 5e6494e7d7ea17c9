"""A model with its options, and everything that was compiled of it: from inputs to values and jitted functions."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp

from .declare.integrated import AUTO, SLOTS
from .emit.initial import Given
from .options import Options
from .passes.condition import Carry
from .pipeline import Front, Specialised, Static, build, stage
from .precision import precision
from .results.anneal import annealed
from .results.posterior import Posterior
from .solve.solver import State
from .specialise import Numbers, Specialisations
from .validate import bind, check_picklable


class Compiled:
    """What all parts of a `Program` share."""

    def __init__(self, model: Callable[..., Any], options: Options):
        self.model = model
        self._options = options
        self.signature = inspect.signature(model)
        functools.update_wrapper(self, model, updated=())  # type: ignore[arg-type]
        self._compiled = Specialisations(options.max_specialisations)
        self._next: Self | None = None  # the next rung of the ladder, once one is needed
        self._numbers, self.variants = Numbers(), {}  # programs of the model wrapped: see `results.renew`

    def __deepcopy__(self, memo: dict) -> Self:
        """A program of its own, with nothing compiled yet; models and options are shared, as they do not change."""
        return type(self)(self.model, self._options)

    def __reduce__(self) -> tuple:
        check_picklable(self.model, self._options._asdict())
        return type(self), (self.model, self._options)

    def _split(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Static, list[Any]]:
        """What is static of the inputs and what is traced; integers are data unless the structure needs their value."""
        return self._numbers.split(bind(self.model, self.signature, args, kwargs), self._try)

    def _try(self, static: Static, dynamic: list[Any]) -> None:
        """Declare the model for inputs of these types, and keep it; where they are indices, schedule it as well."""
        front = jax.eval_shape(lambda x: self._front(static, [*x, *self._centre(x)], ()), dynamic)
        if front.given:
            jax.eval_shape(lambda x: self._build(static, x), dynamic)

    def _centre(self, dynamic: list[Any]) -> list[Any]:
        """The coordinates of the integrated sites, at the centre of their priors; nothing if there are none."""
        return [jnp.zeros(SLOTS, precision(dynamic))] if self._options.integrate else []

    def declared(self, **inputs: Any) -> Front:
        """The model declared, rolled and typed, for these inputs."""
        static, dynamic = self._split((), inputs)
        return self._front(static, [*dynamic, *self._centre(dynamic)], ())

    def _jitted(self, function: Callable, static: Static, dynamic: list[Any], *fixed: Any) -> Callable:
        """`function(static, *fixed, ...)` compiled for inputs of these shapes."""
        return self._compiled.find(function, (static, *fixed), dynamic)

    def clear(self) -> None:
        """Drop everything that was compiled, and its memory; the next call compiles anew."""
        self._compiled.clear()

    def _front(self, static: Static, dynamic: list[Any], named: Iterable[str]) -> Front:
        """The model declared, rolled and typed; the model function runs once for inputs of these shapes and types."""
        dynamic = [jnp.asarray(x) for x in dynamic]
        key = static, frozenset(named), tuple([(x.shape, x.dtype, x.weak_type) for x in dynamic])
        make = functools.partial(stage, self.model, self._options, static, dynamic, key[1])
        return self._compiled.stage(key, make)(dynamic)

    def _build(self, static: Static, dynamic: list[Any], *options: Any, **others: Any) -> Specialised:
        """All passes, see `_passes`."""
        return self._passes(static, dynamic, *options, **others)[1]

    def _passes(
        self, static: Static, dynamic: list[Any], carry: Carry | None = None, seen: bool = True, v: Any = None
    ) -> tuple[Front, Specialised]:
        """The front and all passes; with `carry` in place of priors, without data that are not to be `seen`, and at
        coordinates v of the integrated sites, by default the centre of their priors."""
        front = self._front_at(static, dynamic, carry, v)
        return front, build(front, self._options, carry, seen)

    def _front_at(self, static: Static, dynamic: list[Any], carry: Carry | None = None, v: Any = None) -> Front:
        """The front of `_passes`."""
        others = (name for name in carry or {} if name not in self._options.carry)
        return self._front(static, [*dynamic, *(self._centre(dynamic) if v is None else [v])], others)

    def _anneal_impl(
        self, static: Static, where: tuple[int, ...], dynamic: list[Any], values: list[Any], init: State | Given | None
    ) -> Posterior:
        """A run with scheduled inputs."""
        return annealed(lambda x: self._build(static, x), dynamic, where, values, init)

    def _undefined_impl(self, static: Static, dynamic: list[Any], state: State) -> dict[str, jax.Array]:
        """By site, whether its share of the free energy is not a number."""
        return self._build(static, dynamic).map.undefined(state.leaves)

    def _other(self, **options: Any) -> Self:
        """The same model with other options, kept for the next time."""
        wanted = self._options._replace(**options)
        if self._next is None or self._next._options != wanted:
            self._next = type(self)(self.model, wanted)
        return self._next

    @functools.cached_property
    def _valued(self) -> Self:
        """The same model with integrated sites given as values."""
        return type(self)(self.model, self._options._replace(direct=True))

    def _needs_state(self, what: str) -> None:
        """Refuse what is about one run, where a call is an integral over many."""
        if self._options.integrate and self._options.integrate != (AUTO,):
            works = "compile without integrate=, with the hyperparameters as inputs"
            raise TypeError(f"{what} is about one run, and integrate= makes a call many of them; {works}")
