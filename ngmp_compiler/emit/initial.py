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

from ngmp_kernels.families import AbstractFamily, Gaussian, MvGaussian

from ..errors import ModelError, Problem, listed
from ..graph.edges import Functional, PlaneEdge
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
        guess = Guess(plane.family.flat((size,), plane.event_shape, plan.dtype), np.zeros(size, bool))
    at, batch = positions.reshape(-1), len(q.batch_shape)

    def put(whole: Array, x: Array) -> Array:
        rows = x.reshape(-1, *x.shape[batch:])
        return whole.at[at].set(jnp.broadcast_to(rows, (len(at), *rows.shape[1:])).astype(whole.dtype))

    known = guess.known.copy()
    known[at] = True
    return Guess(jax.tree.map(put, guess.marginal, q), known)


def at_interface(found: dict[Plane, Guess], edge: Any) -> tuple[AbstractFamily, np.ndarray] | None:
    """The marginal of an interface under the given ones, independent of each other, and the rows (n,) that have one."""
    if isinstance(edge, PlaneEdge) and edge.plane in found:
        marginal, known = found[edge.plane]
        return edge.marginal({edge.plane: marginal}), known[edge.index.positions]
    if not isinstance(edge, Functional) or any(link.plane not in found for link in edge.links):
        return None
    rows = np.ones(edge.n, bool)
    mean: Any = edge.offset
    spread: Any = 0.0
    for plane, index, op, c in edge.links:
        rows &= found[plane].known[index.positions]
        # What was not given is flat: any proper values do, since its rows are not used.
        q = _proper(found[plane])
        m, v = index.take(q.mean), index.take(q.covariance if plane.event_shape else q.variance)
        m, v = _linear(op, c, m, v, plane, edge.width)
        mean, spread = mean + m, spread + v
    if not rows.any():
        return None
    make = Gaussian.from_mean_variance if edge.width is None else MvGaussian.from_mean_covariance
    return make(mean, spread), rows


def _linear(op: str, c: Any, m: Array, v: Array, plane: Plane, width: int | None) -> tuple[Array, Array]:
    """Mean and (co)variance of `c x`."""
    if op == "scale":
        a = jnp.ones(1, m.dtype) if c is None else jnp.asarray(c)
        return a.reshape(-1, *(1,) * (m.ndim - 1)) * m, (a**2).reshape(-1, *(1,) * (v.ndim - 1)) * v
    if op == "dot":
        return jnp.einsum("...d,...d->...", c, m), jnp.einsum("...d,...de,...e->...", c, v, c)
    if not plane.event_shape:  # stacked scalars
        m, v = m[..., None], v[..., None, None]
    return jnp.einsum("...md,...d->...m", c, m), jnp.einsum("...md,...de,...ke->...mk", c, v, c)


def _proper(guess: Guess) -> Any:
    marginal: Any = guess.marginal
    unit = jnp.ones_like(marginal.eta2) if isinstance(marginal, Gaussian) else jnp.eye(marginal.eta2.shape[-1])
    unknown = jnp.asarray(~guess.known).reshape(-1, *(1,) * (marginal.eta2.ndim - 1))
    return type(marginal)(marginal.eta1, jnp.where(unknown, -0.5 * unit, marginal.eta2))
