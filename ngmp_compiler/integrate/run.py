r"""Integrate: the posterior of a model whose hyperparameters are summed over the nodes of an integral.

$p(\theta \mid y) \propto p(\theta) Z(\theta)$, where the compiled program gives the evidence $Z(\theta)$ and the
marginals at every node: $\log Z = \log \sum_m e^{l_m}$ with $l_m$ the log-density of the standard coordinates at node
m and the logarithm of its volume, and every marginal is the mixture of those at the nodes. Nodes are placed without
derivatives (`explore`); those of models that iterate are iterated there as well, each from the state at the mode. Then
marginals are computed at all of them. Derivatives in the inputs of the model are those of the sum, with the nodes
where they are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels.families import Categorical
from ngmp_kernels.numerics.supports import to_real

from ..declare.integrated import Integrated
from ..options import Effort
from ..pipeline import Front, Specialised
from ..results.infer import finished, infer
from ..results.mixture import heavy, mixed
from ..results.numeric import Numeric
from ..results.posterior import Posterior
from ..solve.implicit import flagged
from ..solve.solver import CONVERGED, INTEGRAL, INVALID
from .conditional import Conditional, Layout, grids, log_joint
from .nodes import Nodes, coarse, outermost, place, sides
from .reach import in_parts
from .sample import MOST, Draws, draw

_CHUNK = 2**18  # numbers in the results of a batch of nodes
_ERROR = 0.2  # by half of the nodes that is still fine: by all of them it is about its square
_CUT = 50.0  # errors that a mass on the faces of a grid stands for: 0.4 % of it are too much
_R_HAT = 1.05  # of draws, above which chains do not agree
_INNER = 2.0  # standard deviations from the mode within which no node may fail


class NodeTable(eqx.Module):
    """The nodes of an integral: values of the integrated sites, weights, and the run at each of them."""

    values: dict[str, Array]  # (m, ...)
    weights: Float[Array, " m"]
    log_joint: Float[Array, " m"]  # log-density of the coordinates, evidence and prior together
    coordinates: Float[Array, "m slots"]
    runs: Posterior  # with a leading axis m
    failed: Int[Array, ""]  # nodes that have not converged, and weigh nothing
    error: Float[Array, ""]  # of log-evidence, means and log-deviations by half of the nodes: `_error`
    found: Bool[Array, ""]  # whether the mode was
    ends: Bool[Array, ""]  # whether tails end
    missed: Bool[Array, ""]  # whether there is another mode that the nodes do not resolve

    @property
    def many(self) -> bool:
        """Whether there are more numbers than grids are used for."""
        sizes = [x.size // x.shape[0] for x in self.values.values() if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(sizes) > 3

    def each(self, function: Callable[[Array, Any], Any]) -> Any:
        """A function of coordinates and leaves, of all nodes."""
        return over_rows(lambda row: function(*row), (self.coordinates, self.runs.state.leaves))


def over_rows(function: Callable[[Any], Any], rows: Any) -> Any:
    """A function of every row, side by side in batches whose results fit in `_CHUNK` numbers, one after the other."""
    count = len(jax.tree.leaves(rows)[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows)
    closed, one = jax.make_jaxpr(function, return_shape=True)(shapes)  # traced once, though its results are measured
    leaves, tree = jax.tree.flatten(one)

    def row(x: Any) -> Any:
        return jax.tree.unflatten(tree, map(jnp.asarray, eval_jaxpr(closed.jaxpr, closed.consts, *jax.tree.leaves(x))))

    number = int(np.clip(_CHUNK // (1 + sum(x.size for x in leaves)), 1, count))
    if number == count:
        return jax.vmap(row)(rows)
    found = jax.lax.map(jax.vmap(row), jax.tree.map(lambda x: in_parts(jnp.asarray(x), number), rows))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


def integrate(
    front: Callable[..., Front], build: Callable[[Front], Specialised], inputs: list[Any], dtype: Any, effort: Effort
) -> Posterior:
    """Run a program over the nodes of its hyperparameters.

    Args:
        front: the model, declared, at given inputs and coordinates `v=` (slots,).
        build: from there to its specialisation.
        inputs: of the model.
        dtype: of the coordinates.
        effort: what to spend on it.
    """
    declared = front(inputs)
    sites = declared.integrated
    if not sites:  # there was nothing to choose for "auto"
        return infer(build(declared))
    layout = Layout.of(sites)
    model, dim = Conditional(front, build, layout), len(layout.continuous)
    configurations = jnp.asarray(layout.configurations, dtype)
    draws = effort.draws or dim > MOST
    placed = _drawn(model, inputs, configurations) if draws else _placed(model, inputs, configurations, effort)
    where = np.repeat(np.arange(len(placed.configurations)), placed.nodes.v.shape[1])
    points = placed.nodes.v.reshape(len(where), dim)
    coordinates = jax.vmap(layout.fill)(points, placed.configurations[where])
    log, runs, values = _runs(model, inputs, coordinates, placed.states)
    volume = placed.nodes.log_volume.reshape(-1)
    mass = log + (volume - jax.lax.stop_gradient(log) if draws else volume)
    total = logsumexp(mass)
    error = placed.error if draws else _error(mass.reshape(placed.nodes.log_volume.shape), total, placed.nodes.v)
    flags = jnp.all(placed.found), jnp.all(placed.ends), jnp.any(placed.missed)
    table = NodeTable(values, jnp.exp(mass - total), log, coordinates, runs, jnp.sum(~runs.converged), error, *flags)
    inner = jnp.all(jnp.abs(placed.nodes.z) <= _INNER, -1).reshape(-1)
    grid = None if draws else sides(dim, effort.finer)
    shape = (len(where),) if grid is None else (len(placed.configurations), *(grid,) * dim)
    return _posterior(table, total, mass, sites, inner, shape)


class _Placed(NamedTuple):
    """The nodes of every grid, (grids, m, ...), and what is known of them."""

    nodes: Nodes
    configurations: Float[Array, "grids c"]
    states: Any  # at the nodes, of models that iterate, as far as they are known
    found: Any
    ends: Any
    missed: Any
    error: Any = 0.0


def _placed(model: Conditional, inputs: list[Any], configurations: Array, effort: Effort) -> _Placed:
    """Nodes on grids, or points; of classes alone, one for every combination."""
    if not model.layout.continuous:
        one = jnp.zeros((len(configurations), 1, 1), configurations.dtype)
        yes, no = jnp.asarray(True), jnp.asarray(False)
        return _Placed(Nodes(one[..., :0], one[..., :0], one[..., 0]), configurations, None, yes, yes, no)
    found = jax.lax.stop_gradient(grids(model, inputs, configurations, effort))
    nodes = jax.vmap(lambda one: place(one, effort.finer))(found.landscape.extent)
    nodes = nodes._replace(log_volume=nodes.log_volume + found.log_share(nodes.v))
    states = None if found.states is None else found.states[1]
    return _Placed(nodes, found.configurations, states, found.landscape.found, found.landscape.extent.ends,
                   found.landscape.missed)  # fmt: skip


def _drawn(model: Conditional, inputs: list[Any], configurations: Array) -> _Placed:
    """Draws as nodes: each stands for the evidence divided by their number and by its own density."""
    dim, dtype, still = len(model.layout.continuous), configurations.dtype, jax.lax.stop_gradient(inputs)

    def one(configuration: Array) -> Draws:
        def density(v: Array) -> Array:
            front, program = model.at(still, model.layout.fill(v, configuration))
            return log_joint(front, infer(program))

        return draw(density, dim, dtype)

    draws = jax.lax.stop_gradient(jax.lax.map(one, configurations))
    number = draws.v.shape[1]
    volume = jnp.broadcast_to((draws.log_evidence - np.log(number))[:, None], draws.v.shape[:2])
    yes = jnp.asarray(True)
    return _Placed(Nodes(draws.v, jnp.zeros_like(draws.v), volume), configurations, None, draws.r_hat < _R_HAT, yes,
                   ~yes, jnp.max(draws.error))  # fmt: skip


def _runs(
    model: Conditional, inputs: list[Any], coordinates: Array, states: Any
) -> tuple[Array, Posterior, dict[str, Array]]:
    """All nodes: log-densities, runs and values; at the states that exploration has left, where it has."""
    states = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)

    def row(x: Any) -> tuple[Array, Posterior, dict[str, Array]]:
        v, state = x
        front, program = model.at(inputs, v)
        if state is None and not program.map.projected:
            state = program.solver.init({})
        post = infer(program) if state is None else finished(program, state)
        post = eqx.tree_at(lambda p: p.state.memory, post, ())
        return log_joint(front, post), post, {name: site.value for name, site in front.integrated.items()}

    return over_rows(row, (coordinates, states))


def _error(mass: Float[Array, "grids m"], total: Array, v: Float[Array, "grids m d"]) -> Array:
    """How far half of the nodes are off: the largest error of the log-evidence, of a coordinate's mean, in standard
    deviations, and of the logarithm of its standard deviation; all grids together.

    Of points, four standard errors if that is more, of the same: halves may agree where both have missed the same, and
    a single point far off may hold most of a variance. 0.2 are 400 effective points, means that are good to 0.05. Of
    grids, what lies on their faces if that is more: there is as much beyond, which neither half has seen.
    """
    dim = v.shape[-1]
    if not dim:
        return jnp.zeros_like(total)
    v = jax.lax.stop_gradient(v)
    mean, spread = _moments(jnp.exp(mass - total), v)
    some, volume = coarse(v.shape[1], dim)
    part = logsumexp(mass[:, some])
    m, s = _moments(jnp.exp(mass[:, some] - part), v[:, some])
    found = [jnp.abs(part + volume - total)[None], jnp.abs(m - mean) / jnp.sqrt(spread)]
    found += [0.5 * jnp.abs(jnp.log(s / spread))]
    if sides(dim, False) is not None:
        found += [_CUT * jnp.exp(logsumexp(mass[:, outermost(v.shape[1], dim)]) - total)[None]]
    else:
        square, off = jnp.exp(2 * (mass - total)), (v - mean) ** 2 / spread
        each = jnp.ones_like(off), off, 0.25 * (off - 1) ** 2
        found += [4 * jnp.sqrt(jnp.einsum("gm,gmd->d", square, x)) for x in each]
    return jnp.max(jnp.concatenate(found))


def _moments(weights: Float[Array, "grids m"], v: Float[Array, "grids m d"]) -> tuple[Array, Array]:
    mean = jnp.einsum("gm,gmd->d", weights, v)
    return mean, jnp.einsum("gm,gmd->d", weights, (v - mean) ** 2)


def _summed(sites: dict[str, Integrated], nodes: int) -> tuple[str, ...]:
    """What is not exact about an integral, in words; sums over classes are."""
    numbers = ", ".join(name for name, site in sites.items() if not site.classes)
    return (f"{numbers}: integrated by a sum over {nodes} nodes",) if numbers else ()


def _posterior(
    nodes: NodeTable, total: Array, mass: Array, sites: dict[str, Integrated], inner: Array, shape: tuple[int, ...]
) -> Posterior:
    """The mixture of the runs at all nodes, which are on grids of this shape."""
    runs, weights = nodes.runs, nodes.weights
    marginals: dict[str, Any] = {}
    for name, site in sites.items():
        values = heavy(weights, nodes.values[name])
        if site.classes:
            picked = jax.nn.one_hot(values, site.classes, dtype=weights.dtype)
            marginals[name] = Categorical.from_probs(weights @ picked)
        else:
            u = to_real(site.support, nodes.values[name], site.ends)
            marginals[name] = Numeric(weights, values, u, mass, site.ends, site.support, shape)
    marginals |= {name: mixed(weights, heavy(weights, q)) for name, q in runs.marginals.items()}
    top = jnp.argmax(mass)
    best = jax.tree.map(lambda x: x[top], runs)
    placed = nodes.found & nodes.ends & ~nodes.missed
    fine = placed & (nodes.error < _ERROR) & jnp.isfinite(total) & jnp.all(runs.converged | ~inner)
    status = jnp.where(fine, CONVERGED, jnp.where(jnp.all(runs.status == INVALID), INVALID, INTEGRAL))
    seen = runs.converged & (weights > 1e-6)
    post = Posterior(
        marginals, -total, status == CONVERGED, jnp.max(jnp.where(seen, runs.sweeps, 0)),
        jnp.max(jnp.where(seen, runs.residual, 0.0)), status, best.state, {}, jnp.max(jnp.where(seen, runs.jitter, 0)),
        runs.members, (*runs.approximate, *_summed(sites, weights.shape[0])), runs.topology, nodes=nodes,
    )  # fmt: skip
    return flagged(post.converged, post)
