"""Models of this language in which random variables went through functions of `jax.numpy`.

Such a model runs once more, with arrays of jax in the place of its random variables; what its sites are given is then
read off the jaxpr, as that of a NumPyro model is.
"""

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..declare.arguments import common_batch_shape, event_shape_of, plated
from ..declare.energies import functional
from ..declare.expressions import Expression
from ..declare.frame import current_frame, outermost
from ..declare.inputs import unwrap
from ..declare.redirect import RECORDER
from ..declare.report import deterministic
from ..declare.sample import factor, sample
from ..declare.variables import Variable
from ..errors import ModelError, Problem
from . import linear, structural, sums  # noqa: F401  # their rules
from .arguments import as_arrays, known, latent_p
from .general import merged
from .interpret import Interpreter, Stuck
from .linear import Linear
from .values import Chosen, Native, Unlifted, Vectors, expression, is_random


class Call(NamedTuple):
    """A declaration, with what was computed of random variables among its arguments: places in the jaxpr's outputs."""

    kind: str
    name: str
    what: Any  # the distribution, or the function of a factor
    given: dict[str, Any]  # what else it was given, by name
    places: dict[str, int]
    fresh: frozenset[str] | None  # of the frame, at the time: a model that is declared for old and new inputs together


def went_through_jax(error: BaseException | None) -> bool:
    """Whether an error came of a random variable that was given to a function of jax."""
    while error is not None:
        if isinstance(error, TypeError) and "ngmp_compiler.declare." in str(error):
            return True
        error = error.__cause__
    return False


class Lifted:
    """A model function that declares what another one declares, by way of a jaxpr."""

    def __init__(self, model: Callable[..., Any]):
        self.model = model
        functools.update_wrapper(self, model, updated=())

    def __call__(self, **inputs: Any) -> None:
        recorder = Recorder()

        arrays, shapes, rebuilt = as_arrays(inputs)

        def run(*given: Any) -> list[Any]:
            token = RECORDER.set(recorder)
            try:
                self.model(**rebuilt(*given))
            finally:
                RECORDER.reset(token)
            return recorder.outputs

        closed = jax.make_jaxpr(run)(*shapes)
        Replay(recorder.calls, closed.jaxpr, [*map(known, closed.consts), *arrays]).declare()


class Recorder:
    """What stands for `ngmp.sample`, `factor` and `deterministic` while random variables are arrays."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.outputs: list[Any] = []

    def _add(self, kind: str, name: str, what: Any, given: dict[str, Any]) -> None:
        places = {}
        for k, x in given.items():
            x = unwrap(x)
            if isinstance(x, Tracer):
                places[k] = len(self.outputs)
                self.outputs.append(x)
        self.calls.append(Call(kind, name, what, given, places, outermost().fresh))

    def sample(self, name: str, distribution: Any, obs: Any = None, mask: Any = None, censored: Any = None) -> Any:
        frame = current_frame("ngmp.sample")
        name = frame.prefix + name
        beside = {"#obs": obs, "#mask": mask, "#censored": censored}
        self._add("sample", name, distribution, {**distribution.arguments, **beside})
        if obs is not None:
            return obs
        if distribution.family is None and distribution.support is None:
            given = f"{distribution.label} has no family for a latent outcome"
            raise ModelError(Problem(name, None, given, "it can only be observed: give obs="))
        batch = plated(frame.root, name, common_batch_shape(name, distribution, distribution.arguments)) or ()
        classes = distribution.family is not None and distribution.family.core == "categorical"
        event = () if classes or distribution.family is None else event_shape_of(name, distribution)
        shape, dtype = (*batch, *event), jnp.result_type(int if classes else float)
        positive = distribution.support in ("positive", "unit")
        return latent_p.bind(shape=shape, dtype=dtype, name=f"{name}#{len(self.calls)}", positive=positive)

    def factor(self, name: str, log_density: Callable[..., Any], *arguments: Any) -> None:
        name = current_frame("ngmp.factor").prefix + name
        self._add("factor", name, log_density, {f"z{i}": x for i, x in enumerate(arguments)})

    def functional(self, name: str, energy: Callable[..., Any], *arguments: Any) -> None:
        name = current_frame("ngmp.functional").prefix + name
        self._add("functional", name, energy, {f"z{i}": x for i, x in enumerate(arguments)})

    def deterministic(self, name: str, value: Any) -> Any:
        self._add("deterministic", current_frame("ngmp.deterministic").prefix + name, None, {"x": value})
        return value


class Replay:
    """The calls again, with expressions in the place of what was computed."""

    def __init__(self, calls: list[Call], jaxpr: Any, values: list[Any]):
        self.calls, self.jaxpr = calls, jaxpr
        self.latents: dict[str, Any] = {}
        self.run = Interpreter(jaxpr, values, lambda p: self.latents[p["name"]])

    def declare(self) -> None:
        problems = []
        for number, call in enumerate(self.calls, 1):
            try:
                self._declare(call, f"{call.name}#{number}")
            except (Stuck, Unlifted) as error:
                reason = f": '{error.primitive}', {error.reason}" if isinstance(error, Stuck) else ""
                given = f"a function of jax.numpy of random variables has no form here{reason}"
                problems.append(Problem(call.name, None, given, "integrate= what it depends on, or use ngmp.factor"))
                break
        if problems:
            raise ModelError(problems)

    def _declare(self, call: Call, key: str) -> None:
        frame = outermost()
        frame.fresh, frame.prefix = call.fresh, ""  # names have their prefixes
        found = {k: self.run.read(self.jaxpr.outvars[i]) for k, i in call.places.items()}
        given = {k: found.get(k, x) for k, x in call.given.items()}
        if call.kind == "deterministic":
            if is_random(given["x"]):
                deterministic(call.name, expression(given["x"]))
        elif call.kind == "factor":
            function, values = merged(call.what, [unwrap(x) for x in given.values()])
            factor(call.name, function, *map(expression, values))
        elif call.kind == "functional":
            functional(call.name, call.what, *map(expression, given.values()))
        else:
            beside = {k[1:]: given.pop(k) for k in ("#obs", "#mask", "#censored")}
            own = copy.copy(call.what)
            own.arguments = {k: _argument(x, own.event_ndims.get(k)) for k, x in given.items()}
            out = sample(call.name, own, **beside)
            if beside["obs"] is None:
                self.latents[key] = _value(out)


def _argument(x: Any, event_ndim: int | None) -> Any:
    return x.vector() if event_ndim == 1 and isinstance(x, Linear) else expression(x)


def _value(out: Any) -> Any:
    """What `ngmp.sample` returned, as a value of the interpreter."""
    if not isinstance(out, Expression):
        return out
    if not isinstance(out, Variable):
        raise Unlifted
    family = out.plane.family
    if family.core == "gaussian":
        return linear.of_variable(out, out.shape, len(out.shape) - 1 if out.event_shape else None)
    if family.core == "categorical":
        return Chosen(out.shape, out, [np.asarray(k) for k in range(out.plane.event_shape[0])])
    return Vectors(out) if out.event_shape else Native(out)

