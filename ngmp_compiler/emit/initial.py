"""Initial values by name: marginals to start from, for variables that names or patterns such as `neuron*/x` pick out.

`guesses(plan, given)` lays the given marginals out by plane; `Map.initial` starts the leaves of every factor that
touches one of them at their targets there. Given marginals only say where the iteration starts, never where it ends.
"""

import fnmatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels.families import AbstractFamily

from ..errors import ModelError, Problem, listed
from ..graph.edges import AbstractEdge
from ..graph.planes import Plane
from ..schedule.choose import Plan

Given = dict[str, AbstractFamily]


class Guess(NamedTuple):
    """Marginals of all variables of a plane, and which of them were given."""

    marginal: AbstractFamily
    known: np.ndarray


def guesses(plan: Plan, given: Given) -> dict[Plane, Guess]:
    """The given marginals by plane, or one error that lists all that do not fit. The first pattern that fits a name
    is used, and a name itself before any pattern."""
    problems, out = [], {}
    used = set()
    for name, (plane, positions) in plan.names.items():
        key = name if name in given else next((k for k in given if fnmatch.fnmatchcase(name, k)), None)
        if key is None:
            continue
        used.add(key)
        q: Any = given[key]
        works = f"give {plane} of batch shape {positions.shape} or (), such as post['{name}']"
        if not isinstance(q, plane.family) or q.event_shape != plane.event_shape:
            problems.append(Problem(name, None, f"init= holds {_words(q)} for it", works))
        elif q.batch_shape not in (positions.shape, ()):
            problems.append(Problem(name, None, f"init= holds batch shape {q.batch_shape} for it", works))
        else:
            out[plane] = _put(out.get(plane), plan, plane, positions, q)
    for key in (k for k in given if k not in used):
        problems.append(Problem(key, None, "init= names no variable", f"there are {listed(plan.names)}"))
    if problems:
        raise ModelError(problems)
    return out


def _words(q: Any) -> str:
    return f"{type(q).__name__} of event shape {q.event_shape}" if isinstance(q, AbstractFamily) else repr(q)


def _put(guess: Guess | None, plan: Plan, plane: Plane, positions: np.ndarray, q: AbstractFamily) -> Guess:
    size = plan.planes[plane]
    if guess is None:
        # Of what was not given, which is not used, any proper values do: those of functionals are divided by.
        family: Any = plane.family
        make = family.standard if family.core == "gaussian" else family.flat
        guess = Guess(make((size,), plane.event_shape, plan.dtype), np.zeros(size, bool))
    at, batch = positions.reshape(-1), len(q.batch_shape)

    def put(whole: Array, x: Array) -> Array:
        rows = x.reshape(-1, *x.shape[batch:])
        return whole.at[at].set(jnp.broadcast_to(rows, (len(at), *rows.shape[1:])).astype(whole.dtype))

    known = guess.known.copy()
    known[at] = True
    return Guess(jax.tree.map(put, guess.marginal, q), known)


def at_interface(found: dict[Plane, Guess], edge: AbstractEdge) -> tuple[AbstractFamily, np.ndarray] | None:
    """The marginal of an interface under the given ones, independent of each other, and the rows (n,) that have one."""
    ends = edge.ends()
    if any(end.plane not in found for end in ends):
        return None
    rows = np.logical_and.reduce([end.index.every(found[end.plane].known) for end in ends])
    return (edge.marginal({plane: guess.marginal for plane, guess in found.items()}), rows) if rows.any() else None
