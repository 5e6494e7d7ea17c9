"""Scheduled inputs: a run during which some inputs change from sweep to sweep, and end at their last values.

Every sweep is one of the map at the values of that sweep; from the last values on the run is an ordinary one, and what
it has converged to, and its derivatives, are those of the program at these.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from ..declare.inputs import Input
from ..declare.numbers import LAZY
from ..emit.initial import Given
from ..errors import listed
from ..pipeline import Specialised, Static
from ..solve.solver import State
from .infer import finished, infer, iterated
from .posterior import Posterior


def check_schedules(anneal: Any, inputs: dict[str, Any], model: str, integrated: tuple) -> dict[str, Array]:
    """The values of every scheduled input, (S, *shape), all of one length; TypeError or ValueError, naming it."""
    if anneal is None:
        return {}
    if integrated:
        raise TypeError("anneal= is about one run, and integrate= makes a call many of them; compile without it")
    if not isinstance(anneal, Mapping) or not anneal:
        example = "{'beta': np.geomspace(1.0, 100.0, 60)}"
        raise TypeError(f"anneal={anneal!r}: give the values of an input sweep by sweep, by its name, e.g. {example}")
    found = {name: _schedule(name, values, inputs, model) for name, values in anneal.items()}
    lengths = {name: len(x) for name, x in found.items()}
    if len(set(lengths.values())) > 1:
        given = ", ".join(f"{name} for {n}" for name, n in lengths.items())
        raise ValueError(f"anneal= has schedules of several lengths ({given} sweeps); give one value a sweep for each")
    return found


def _schedule(name: str, values: Any, inputs: dict[str, Any], model: str) -> Array:
    where = f"anneal= of '{name}'"
    if name not in inputs:
        raise ValueError(f"{where}: {model} has no such input; its inputs are {listed(inputs)}")
    own = inputs[name]
    number = isinstance(own, (int, float, np.ndarray, np.generic, jax.Array, Input)) and not isinstance(own, bool)
    if not number or np.dtype(getattr(own, "dtype", type(own))).kind not in "iuf":
        works = "only inputs that are numbers, or arrays of them, can change from sweep to sweep"
        raise TypeError(f"{where}: the input is static, or none of numbers ({own!r}); {works}")
    try:
        found = jnp.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where} is {values!r}; give an array with one value a sweep") from error
    if found.ndim < 1 or not found.size or found.shape[1:] != np.shape(own):
        shape = f"(sweeps, {', '.join(map(str, np.shape(own)))})" if np.shape(own) else "(sweeps,)"
        raise ValueError(f"{where} has shape {found.shape}; the input has {np.shape(own)}, so give {shape}")
    if not isinstance(found, Tracer) and not np.isfinite(np.asarray(found)).all():
        raise ValueError(f"{where} has values that are NaN or infinite")
    return found.astype(jnp.result_type(float)) if found.dtype.kind in "iub" else found


def places(static: Static, names: list[str]) -> tuple[int, ...]:
    """Where scheduled inputs are among those that are traced."""
    leaves = jax.tree.unflatten(static.tree, range(len(static.static)))
    traced = [s is None or s is LAZY for s in static.static]
    return tuple(sum(traced[: leaves[name]]) for name in names)


def annealed(
    at: Callable[[list[Any]], Specialised], dynamic: list[Any], where: tuple[int, ...], values: list[Array],
    init: State | Given | None,
) -> Posterior:  # fmt: skip
    """The posterior at the last values, by way of a sweep at each of those before.

    Args:
        at: all passes, of the traced inputs.
        dynamic: these, with scheduled ones at their last values.
        where: the places of scheduled ones.
        values: what they are in every sweep, (S, *shape) each.
        init: as in a call.
    """
    last = at(dynamic)
    if not last.map.projected:
        return infer(last, init)
    fixed, values = jax.lax.stop_gradient((dynamic, values))

    def solver(now: list[Array]) -> Any:
        inputs = list(fixed)
        for i, x in zip(where, now, strict=True):
            inputs[i] = x.astype(inputs[i].dtype)
        return at(inputs).solver

    first = solver([x[0] for x in values])
    begin = first.init(init.leaves if isinstance(init, State) else first.map.initial(init))

    def sweep(state: State, now: list[Array]) -> tuple[State, None]:
        state = solver(now).sweep(state)
        # What a step remembers of one map is no secant of the next.
        memory = tuple(map(first.step.damped, state.memory))
        return eqx.tree_at(lambda s: s.memory, state, memory), None

    state, _ = jax.lax.scan(sweep, begin, [x[:-1] for x in values])
    centred = last.solver.centred(state.leaves)
    end, core = iterated(centred, state.leaves)
    return finished(Specialised(centred), eqx.tree_at(lambda s: s.sweeps, end, end.sweeps + state.sweeps), core)
