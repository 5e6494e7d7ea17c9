r"""Conditional: the model at given hyperparameters, and what exploring their density finds.

Coordinates are those of all integrated sites, `declare.integrated`; classes among them are enumerated, and for every
combination of classes the continuous ones are explored on their own. Where several modes matter, each has a grid, of
the density times a share that the modes divide among them: $\phi_j = \pi_j N_j / \sum_k \pi_k N_k$, with the Gaussians
of Laplace's method.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ngmp_kernels.numerics.lanes import one_by_one

from ..declare.integrated import SLOTS, Integrated
from ..options import Effort
from ..pipeline import Front, Specialised
from ..results.infer import iterated, posterior
from ..results.posterior import Posterior
from ..solve.solver import Solver, State
from ..value import replaced
from .climb import Climbers, distinct
from .explore import LIGHT, NEAR, Landscape, explore

_PATIENCE = 40, 6  # sweeps, and times those of the best point: what a point may take that is no node


class Layout(NamedTuple):
    """Which coordinates are continuous, and what classes the others run over."""

    continuous: tuple[int, ...]
    classes: tuple[tuple[int, int], ...]  # slot, number of classes

    @classmethod
    def of(cls, sites: dict[str, Integrated]) -> "Layout":
        slots = [s.start + i for s in sites.values() for i in range(s.size)]
        return cls(tuple(slots), tuple((s.start, s.classes) for s in sites.values() if s.classes))

    @property
    def configurations(self) -> np.ndarray:
        """Every combination of classes, (k, number of sites)."""
        return np.array(list(itertools.product(*(range(n) for _, n in self.classes))), float)

    def fill(self, v: Float[Array, " d"], configuration: Array) -> Float[Array, " slots"]:
        """The coordinates of a model, of the continuous ones and of classes."""
        out = jnp.zeros(SLOTS, v.dtype).at[np.array(self.continuous, int)].set(v)
        return out.at[np.array([slot for slot, _ in self.classes], int)].set(configuration.astype(v.dtype))


class Conditional(NamedTuple):
    """The model at given hyperparameters: declared by `front(inputs, v=)`, specialised by `build`."""

    front: Callable[..., Front]
    build: Callable[[Front], Specialised]
    layout: Layout

    def at(self, inputs: list[Any], v: Float[Array, " slots"]) -> tuple[Front, Specialised]:
        front = self.front(inputs, v=v)
        return front, self.build(front)


def log_joint(front: Front, post: Posterior) -> Float[Array, ""]:
    """The log-density of coordinates, evidence and prior together; minus infinity where a run has not converged."""
    return jnp.where(post.converged, front.log_jacobian - post.free_energy, -jnp.inf)


class Grids(NamedTuple):
    """What exploration has found, for every combination of classes, and for every mode if there are several."""

    landscape: Landscape
    states: Any  # at the mode, (grids, ...), and at the nodes, (grids, m, ...), of models that iterate; else None
    configurations: Float[Array, "grids c"]
    modes: tuple[Climbers, Array] | None = None  # of the combination that each grid is of, with their log-masses
    own: Any = None  # which of them each grid is of

    def log_share(self, v: Float[Array, "grids m d"]) -> Float[Array, "grids m"]:
        """The share of its grid in the density at a node."""
        if self.modes is None:
            return jnp.zeros(v.shape[:2], v.dtype)
        return jax.vmap(lambda modes, j, v: jax.vmap(lambda one: _share(*modes, j, one))(v))(self.modes, self.own, v)  # type: ignore[call-arg]


def _share(climbers: Climbers, mass: Array, j: Any, v: Float[Array, " d"]) -> Float[Array, ""]:
    z = jnp.einsum("kij,kj->ki", climbers.inverse, v - climbers.centre)
    return jax.nn.log_softmax(mass - climbers.log_volume - 0.5 * jnp.sum(z**2, -1))[j]


def slim(state: State) -> State:
    """A state without what only further sweeps need."""
    return eqx.tree_at(lambda s: (s.memory, s.step, s.places), state, ((), {}, {}))


def _hurried(solver: Solver, searching: Array, best: Int[Array, ""]) -> Solver:
    """A solver that gives up, while we search, where it takes many times the sweeps of the best point so far.

    Points go in batches: one that never converges, millions of nats below the mode, would keep all others waiting.
    """
    least, times = _PATIENCE
    few = jnp.where(searching & (best > 0), least + times * best, solver.max_sweeps)
    return replaced(solver, max_sweeps=jnp.minimum(few, solver.max_sweeps))


def _each(function: Callable[[Any], Any], rows: Any) -> Any:
    """A function of every row, one after the other; of one row without a loop, which would be traced again."""
    if len(jax.tree.leaves(rows)[0]) > 1:
        return jax.lax.map(function, rows)
    return jax.tree.map(lambda x: x[None], function(jax.tree.map(lambda x: x[0], rows)))


def grids(model: Conditional, inputs: list[Any], configurations: Array, effort: Effort) -> Grids:
    """Explore the continuous coordinates for every combination of classes."""
    dim, dtype = len(model.layout.continuous), configurations.dtype

    def explored(inputs: list[Any], configuration: Array, mode: Any = None) -> tuple[Landscape, Any]:
        def specialised(v: Array) -> tuple[Front, Specialised]:
            return model.at(inputs, model.layout.fill(v, configuration))

        first = specialised(jnp.zeros(dim, dtype))[1]
        iterates = bool(first.map.projected)

        def evaluate(points: Array, kept: Any, searching: Array) -> tuple[Array, Any]:
            def one(v: Array) -> tuple[Array, Any]:
                front, program = specialised(v)
                if iterates:  # what is kept may be of no use here, at a scale that is smaller by many powers of ten
                    solver = _hurried(program.solver, searching, kept.sweeps)
                    state, core = iterated(solver, kept.leaves, begin.leaves)
                else:
                    state, core = program.solver.init({}), None
                f = log_joint(front, posterior(program, state, core))
                return f if mode is None else f + _share(*mode, v), slim(state) if iterates else ()  # type: ignore[call-arg]

            return jax.vmap(one)(points)

        begin: Any = slim(first.solver.init(first.map.initial())) if iterates else ()
        start = None if mode is None else jax.tree.map(lambda x: x[mode[2]][None], mode[0])
        landscape, kept, nodes = explore(evaluate, dim, begin, dtype, effort.finer if iterates else None, start)
        return landscape, (kept, nodes[1]) if iterates else None

    still = jax.lax.stop_gradient(inputs)
    alone = one_by_one(explored)  # in a batch, all would go as many rounds as the slowest
    landscape, states = _each(lambda row: alone(still, *row), (configurations,))
    if not effort.modes:
        return Grids(landscape, states, configurations)
    mass = jax.vmap(lambda climbers: distinct(climbers, NEAR, LIGHT))(landscape.climbers)
    number = mass.shape[1]
    modes = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), (landscape.climbers, mass))
    own = jnp.tile(jnp.arange(number), len(mass))
    configurations = jnp.repeat(configurations, number, axis=0)
    again, states = _each(lambda row: alone(still, *row), (configurations, (*modes, own)))
    found = jnp.repeat(landscape.found, number)
    empty = jnp.isneginf(mass.reshape(-1))
    ends = again.extent._replace(ends=again.extent.ends | empty)
    none = jnp.zeros_like(found)
    return Grids(again._replace(extent=ends, found=found, missed=none), states, configurations, modes, own)
