r"""Integrate: the posterior of a model whose hyperparameters are summed over the nodes of an integral.

$p(\theta \mid y) \propto p(\theta) Z(\theta)$, where the compiled program gives the evidence $Z(\theta)$ and the
marginals at every node: $\log Z = \log \sum_m e^{l_m}$ with $l_m$ the log-density of the standard coordinates at node
m and the logarithm of its volume, and every marginal is the mixture of those at the nodes. Nodes are placed without
derivatives (`explore`); then all of them run in one batch, each from the state at the mode. Derivatives in the inputs
of the model are those of the sum, with the nodes where they are.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import Categorical

from ..declare.integrated import SLOTS, Integrated
from ..pipeline import Front, Specialised
from ..results.infer import infer
from ..results.mixture import mixed
from ..results.numeric import Numeric, free
from ..results.posterior import Posterior
from ..solve.implicit import flagged
from ..solve.solver import CONVERGED, INTEGRAL, INVALID
from .explore import Landscape, explore
from .nodes import Nodes, coarse, place, sides

_CHUNK = 2**20  # numbers of a batch of nodes
_ERROR = 0.2  # of the log-evidence by half of the nodes that is still fine: by all of them it is about its square
_INNER = 2.0  # standard deviations from the mode within which no node may fail

Conditional = Callable[[Array], tuple[Front, Specialised]]


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


class NodeTable(eqx.Module):
    """The nodes of an integral: values of the integrated sites, weights, and the run at each of them."""

    values: dict[str, Array]  # (m, ...)
    weights: Float[Array, " m"]
    log_joint: Float[Array, " m"]  # log-density of the coordinates, evidence and prior together
    coordinates: Float[Array, "m slots"]
    runs: Posterior  # with a leading axis m
    failed: Int[Array, ""]  # nodes that have not converged, and weigh nothing
    error: Float[Array, ""]  # of the log-evidence, estimated from half of the nodes
    found: Bool[Array, ""]  # whether the mode was
    ends: Bool[Array, ""]  # whether tails end

    def each(self, function: Callable[[Array, Any], Any]) -> Any:
        """A function of coordinates and leaves, of all nodes."""
        return jax.vmap(function)(self.coordinates, self.runs.state.leaves)


def integrate(
    passes: Callable[..., tuple[Front, Specialised]], inputs: list[Any], dtype: Any, finer: bool = False
) -> Posterior:
    """Run a program over the nodes of its hyperparameters.

    Args:
        passes: the model at given inputs and coordinates `v=` (slots,): its front and its specialisation.
        inputs: of the model.
        dtype: of the coordinates.
        finer: whether to use more nodes.
    """
    front, specialised = passes(inputs)
    sites, still = front.integrated, jax.lax.stop_gradient(inputs)
    if not sites:  # there was nothing to choose for "auto"
        return infer(specialised)

    def conditional(v: Array) -> tuple[Front, Specialised]:
        return passes(inputs, v=v)

    def fixed(v: Array) -> tuple[Front, Specialised]:
        return passes(still, v=v)

    layout = Layout.of(sites)
    configurations = jnp.asarray(layout.configurations, dtype)
    if layout.continuous:
        explored = jax.vmap(lambda c: _explored(fixed, layout, c))(configurations)
        landscape, leaves = jax.lax.stop_gradient(explored)
        nodes = jax.vmap(lambda one: place(one, len(layout.continuous), finer))(landscape)
    else:
        landscape, leaves = None, None
        nodes = Nodes(jnp.zeros((len(configurations), 1, 0), dtype), jnp.zeros((len(configurations), 1), dtype))
    where = np.repeat(np.arange(len(configurations)), nodes.v.shape[1])
    points = nodes.v.reshape(len(where), -1)
    coordinates = jax.vmap(layout.fill)(points, configurations[where])
    log, runs, values = _runs(conditional, coordinates, jnp.asarray(where), leaves)
    mass = log + nodes.log_volume.reshape(-1)
    total = logsumexp(mass)
    error = _error(mass.reshape(nodes.log_volume.shape), total, len(layout.continuous))
    flags = (jnp.all(x) for x in ((True, True) if landscape is None else (landscape.found, landscape.ends)))
    table = NodeTable(values, jnp.exp(mass - total), log, coordinates, runs, jnp.sum(~runs.converged), error, *flags)
    return _posterior(table, total, mass, sites, _inner(landscape, points, where), nodes.v.shape)


def _log_joint(model: Conditional, v: Array, leaves: Any) -> tuple[Array, Posterior, Front]:
    """The log-density of coordinates, minus infinity where the run has not converged, and the run; from leaves."""
    front, specialised = model(v)
    post = infer(specialised, None if leaves is None else specialised.solver.init(leaves))
    return jnp.where(post.converged, front.log_jacobian - post.free_energy, -jnp.inf), post, front


def _explored(model: Conditional, layout: Layout, configuration: Array) -> tuple[Landscape, Any]:
    """What the continuous coordinates look like for one combination of classes, and the leaves at the mode."""
    dim, dtype = len(layout.continuous), configuration.dtype
    first = model(layout.fill(jnp.zeros(dim, dtype), configuration))[1].map
    kept = first.initial() if first.projected else {}

    def evaluate(points: Array, leaves: Any) -> tuple[Array, Any]:
        def one(v: Array) -> tuple[Array, Any]:
            value, post, _ = _log_joint(model, layout.fill(v, configuration), leaves)
            return value, post.state.leaves

        return jax.vmap(one)(points)

    return explore(evaluate, dim, kept, dtype)


def _runs(model: Conditional, coordinates: Array, where: Array, leaves: Any) -> tuple[Array, Posterior, Any]:
    """All nodes: log-densities, runs and values; each from the leaves at the mode of its classes."""

    def row(x: tuple[Array, Array]) -> Any:
        v, k = x
        value, post, front = _log_joint(model, v, None if leaves is None else jax.tree.map(lambda a: a[k], leaves))
        slim = eqx.tree_at(lambda p: p.state.memory, post, ())
        return value, slim, {name: site.value for name, site in front.integrated.items()}

    count = len(coordinates)
    start = jax.eval_shape(lambda v: model(v)[1].map.initial(), coordinates[0])
    size = 1 + sum(x.size for x in jax.tree.leaves(start))
    if count * size <= _CHUNK:
        return jax.vmap(row)((coordinates, where))
    return jax.lax.map(row, (coordinates, where), batch_size=int(np.clip(_CHUNK // size, 1, count)))


def _inner(landscape: Landscape | None, points: Array, where: np.ndarray) -> Array:
    """Which nodes are near the mode."""
    if landscape is None:
        return jnp.ones(len(where), bool)
    off = points - landscape.centre[where]
    z = jax.vmap(jnp.linalg.solve)(landscape.axes[where], off)
    return jnp.all(jnp.abs(z) <= _INNER, -1)


def _error(mass: Array, total: Array, dim: int) -> Array:
    """How far the log-evidence by half of the nodes is off; the grids of all classes together."""
    if not dim:
        return jnp.zeros_like(total)
    return jnp.abs(logsumexp(jax.vmap(lambda m: coarse(m, dim))(mass)) - total)


def _posterior(
    nodes: NodeTable, total: Array, mass: Array, sites: dict[str, Integrated], inner: Array, shape: tuple[int, ...]
) -> Posterior:
    """The mixture of the runs at all nodes."""
    runs, weights = nodes.runs, nodes.weights
    grids, number, dim = shape
    side = None if sides(dim, False) is None else round(number ** (1 / dim))
    grid = (len(weights),) if side is None else (grids, *(side,) * dim)
    marginals: dict[str, Any] = {}
    for name, site in sites.items():
        values = nodes.values[name]
        if site.classes:
            picked = jax.nn.one_hot(values, site.classes, dtype=weights.dtype)
            marginals[name] = Categorical.from_probs(weights @ picked)
        else:
            ends = site.ends
            marginals[name] = Numeric(weights, values, free(site.support, values, ends), mass, ends, site.support, grid)
    marginals |= {name: mixed(weights, q) for name, q in runs.marginals.items()}
    top = jnp.argmax(mass)
    best = jax.tree.map(lambda x: x[top], runs)
    fine = nodes.found & nodes.ends & (nodes.error < _ERROR) & jnp.isfinite(total) & jnp.all(runs.converged | ~inner)
    status = jnp.where(fine, CONVERGED, jnp.where(jnp.isfinite(total), INTEGRAL, INVALID))
    status = jnp.where(jnp.all(runs.status == INVALID), INVALID, status)
    seen = runs.converged & (weights > 1e-6)
    post = Posterior(
        marginals, -total, status == CONVERGED, jnp.max(jnp.where(seen, runs.sweeps, 0)),
        jnp.max(jnp.where(seen, runs.residual, 0.0)), status, best.state, {}, jnp.max(jnp.where(seen, runs.jitter, 0)),
        runs.members, runs.approximate, runs.topology, nodes,
    )  # fmt: skip
    return flagged(post.converged, post)
