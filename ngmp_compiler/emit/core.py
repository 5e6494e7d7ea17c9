"""The conjugate core as a function: leaves in, marginals of every interface and the log-partition out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import AbstractFamily, Categorical, Gaussian, MvGaussian

from ..executors import Solution
from ..graph.edges import PlaneEdge, TableEdge
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from ..schedule.choose import Plan
from ..value import Value
from .centre import at_mean, centre, exponent, moved, term, value
from .frontier import frontiers
from .points import may_vanish, widen
from .rules import select

Leaves = dict[str, AbstractFamily]


def expand(flags: Array, like: Array) -> Array:
    """Flags (n,) with trailing axes to broadcast against `like` (n, *event)."""
    return flags.reshape(flags.shape + (1,) * (like.ndim - flags.ndim))


def masked(group: FactorGroup, x: Array) -> Array:
    """Values (n|1, *event) broadcast to the n factors of a group, zero where the group is masked."""
    x = jnp.broadcast_to(x, (group.n, *x.shape[1:]))
    return x if group.mask is None else jnp.where(expand(group.mask, x), x, jnp.zeros((), x.dtype))


class CoreResult(NamedTuple):
    """`edges[key]` is the marginal of a projected interface; `planes[plane]` the marginals of all its variables.

    `log_partition` is less the expected exponents of the leaves on functionals, `eta . mu`: both are as large as the
    square of the data, and their difference, all that a free energy needs, is not.
    """

    log_partition: Float[Array, ""]
    proper: Bool[Array, ""]
    edges: Leaves
    planes: dict[Plane, AbstractFamily]
    functionals: dict[int, Gaussian | MvGaussian]
    neighbours: list  # of chains: (plane, order, covariance of neighbours)
    jitter: Float[Array, ""]  # the largest that a Cholesky factor needed, relative to the diagonal
    tables: dict[int, Categorical]  # joint marginals of table interfaces by group, over the cells of the table
    settled: Bool[Array, ""]  # whether the approximate executors have converged
    cavities: Leaves  # of projected interfaces at shared frontiers; of the others marginal minus leaf is as good
    points: dict[str, Bool[Array, " n"]]  # where a functional is a constant, of interfaces where it can be


class Core(Value):
    """The fixed part of a plan's core (messages of conjugate factors, summed once) and the function of its leaves."""

    def __init__(self, plan: Plan):
        self.plan = plan
        dtype = plan.dtype
        self.constant = jnp.zeros((), dtype)
        self.fixed: dict[tuple[int, int], AbstractFamily] = {}
        self.shared: dict[tuple[int, int], AbstractFamily] = {}  # the same with one row, where all rows are equal
        self.totals = {p: p.family.flat((n,), p.event_shape, dtype) for p, n in plan.planes.items()
                       if p.family.core != "gaussian"}  # fmt: skip
        self.tables: dict[int, Array] = {}
        for g, group in enumerate(plan.groups):
            if not group.edges or all(e is None for e in group.edges):
                values = group.factor.log_density(*group.constants)
                self.constant += jnp.sum(masked(group, jnp.asarray(values)))
            elif group.conjugate:
                self._add_fixed(g, group)
        self.still = [self.shared.get((g, j), self.fixed.get((g, j))) for g, j, _ in plan.functionals]
        if plan.sums is not None:  # what is left of a sum moves whenever a private variable does
            self.still = [None if f in plan.sums.functionals else leaf for f, leaf in enumerate(self.still)]
        self.prepared: list[Any] = [executor.prepare(list(self.still), dtype) for executor in plan.gaussian]
        self.frontiers = frontiers(plan)
        self.vanishing = frozenset(f for f, (_, _, edge) in enumerate(plan.functionals) if may_vanish(edge))

    def _add_fixed(self, g: int, group: FactorGroup) -> None:
        message, log_scale = group.factor.message()  # type: ignore[attr-defined]
        self.constant += jnp.sum(masked(group, log_scale))
        edge: Any = group.edges[0]
        functional = edge.family.core == "gaussian"
        if functional and group.n > 1:
            # Behind a barrier: XLA would compute with a million constant precisions of a chain while it compiles.
            message = type(message)(message.eta1, jax.lax.optimization_barrier(message.eta2))
        if functional and group.mask is None and message.batch_shape == (1,):
            self.shared[g, 0] = message
        message = jax.tree.map(lambda x: masked(group, x), message)
        if functional:
            self.fixed[g, 0] = message
        elif isinstance(edge, PlaneEdge):
            self.totals[edge.plane] += jax.tree.map(edge.index.add, message)
        else:
            shared = group.mask is None
            self.tables[g] = group.factor.message()[0].eta1 if shared else message.eta1  # type: ignore[attr-defined]

    def refined(self, leaves: Leaves) -> CoreResult:
        """`run`, in single precision about the levels of conjugate chains: what a free energy is computed from."""
        plan = self.plan
        # Sweeps are as accurate as their means; and what a chain sees of a sum is not at hand.
        if plan.dtype != jnp.float32 or leaves or plan.sums is not None:
            return self.run(leaves)
        stacked = self._stacked(leaves)
        known = [x for x in (executor.level(stacked) for executor in plan.gaussian) if x is not None]
        if not known:
            return self.run(leaves)
        planes = {link.plane for _, _, edge in plan.functionals for link in edge.links}
        about = {p: jnp.zeros((plan.planes[p], *p.event_shape), plan.dtype) for p in planes}
        for plane in {plane for plane, _, _ in known}:
            parts = [(at, jax.lax.stop_gradient(values)) for p, at, values in known if p == plane]
            (about[plane],) = _assemble(plan.planes[plane], parts)
        return self.run(leaves, about=about)

    def _stacked(self, leaves: Leaves) -> list[Any]:
        """The leaves of all functionals, fixed or not."""
        keys = (((g, j), self.plan.groups[g].key(j)) for g, j, _ in self.plan.functionals)
        return [leaves[key] if key in leaves else self.fixed[at] for at, key in keys]

    def run(
        self, leaves: Leaves, requested: frozenset[int] | None = None, about: dict[Plane, Array] | None = None
    ) -> CoreResult:
        """Exact inference under the given leaves; by default only the marginals that projections need.

        Gaussian variables are solved for as deviations from values `about`, if these are given.
        """
        plan = self.plan
        keys = [plan.groups[g].key(j) for g, j, _ in plan.functionals]
        given = stacked = self._stacked(leaves)
        prepared, offsets = self.prepared, [edge.offset for _, _, edge in plan.functionals]
        if about is not None:
            offsets = [value(edge, term(edge, None), about) for _, _, edge in plan.functionals]
            still = [None if x is None else centre(x, c) for x, c in zip(self.still, offsets, strict=True)]
            prepared = [executor.prepare(list(still), plan.dtype) for executor in plan.gaussian]
            given = [centre(x, c) for x, c in zip(stacked, offsets, strict=True)]
        log_partition, proper, jitter = self.constant, jnp.asarray(True), jnp.zeros((), plan.dtype)
        planes: dict[Plane, AbstractFamily] = {}
        parts: dict[Plane, list] = {}
        functional_parts: dict[int, list] = {}
        cavity_parts: dict[int, list] = {}
        neighbours = []
        wanted = frozenset(f for f, key in enumerate(keys) if key in leaves) if requested is None else requested
        means: dict[Plane, list] = {}
        for solution in self._gaussian(given, prepared, wanted):
            log_partition += solution.log_volume
            proper &= solution.proper
            jitter = jnp.maximum(jitter, solution.jitter)
            neighbours += [solution.neighbours] if solution.neighbours is not None else []
            for plane, part in solution.marginals.items():
                parts.setdefault(plane, []).append(part)
            for f, part in solution.functionals.items():
                functional_parts.setdefault(f, []).append(part)
            for f, (rows, q) in solution.cavities.items():
                cavity_parts.setdefault(f, []).append((rows, q.eta1, q.eta2))
            for plane, part in solution.means.items():
                means.setdefault(plane, []).append(part)
        for plane, found in parts.items():
            flat = [(where, *jax.tree.leaves(q)) for where, q in found]
            merged = _assemble(plan.planes[plane], flat)
            planes[plane] = jax.tree.unflatten(jax.tree.structure(found[0][1]), merged)
            planes[plane] = planes[plane] if about is None else moved(planes[plane], about[plane])
        totals = self._totals(leaves)
        functionals, points = {}, {}
        terms = [term(edge, self.shared.get((g, j), x), c)
                 for (g, j, edge), x, c in zip(plan.functionals, stacked, offsets, strict=True)]  # fmt: skip
        for f, parts_of in functional_parts.items():
            edge = plan.functionals[f][2]
            mean, spread = _assemble(edge.n, parts_of)
            mean = mean if about is None else mean + offsets[f]
            if f in self.vanishing:
                spread, points[keys[f]] = widen(mean, spread)
            functionals[f] = _gaussian(edge.width)(mean, spread)
            if keys[f] in leaves:  # about its mean, a leaf has the same share in both
                middle = jax.lax.stop_gradient(mean)
                leaf = centre(stacked[f], middle)
                terms[f] = term(edge, leaf, offsets[f] - middle)
                log_partition -= jnp.sum(exponent(leaf, mean - middle, spread))
        if terms:
            point = {plane: _assemble(plan.planes[plane], found)[0] for plane, found in means.items()}
            log_partition += at_mean([edge for _, _, edge in plan.functionals], terms, point)
        for plane, total in totals.items():
            if plane.family.core == "categorical":
                continue
            planes[plane] = total
            log_partition += jnp.sum(total.log_partition())
            proper &= jnp.all(total.is_proper())
        discrete, tables, settled = self._discrete(totals, leaves, planes)
        log_partition += discrete
        edges: Leaves = {}
        for g, group in enumerate(plan.groups):
            for j, edge in enumerate(group.edges):
                if group.key(j) in leaves and isinstance(edge, PlaneEdge):
                    edges[group.key(j)] = edge.marginal(planes)
                elif group.key(j) in leaves and isinstance(edge, TableEdge):
                    edges[group.key(j)] = tables[g]
        for f, q in functionals.items():
            edges[keys[f]] = q
        found = {key: q for frontier in self.frontiers for key, q in frontier.cavities(self.totals, leaves).items()}
        for f, parts_of in cavity_parts.items():
            functional = plan.functionals[f][2]
            left = plan.sums is not None and f in plan.sums.functionals  # the executor saw what a sum left of it
            if not left and len(parts_of) == len(functional_parts.get(f, ())):  # all its rows
                cavity = Gaussian(*_assemble(functional.n, parts_of))
                found[keys[f]] = cavity if about is None else moved(cavity, offsets[f])
        for key, flags in points.items():  # a leaf on a constant acts on nothing
            if key in leaves:
                found[key] = select(flags, edges[key], found.get(key, edges[key] - leaves[key]))
        # Not of the whole log-partition: a sweep, which does not need that, would take a logarithm of every pivot.
        proper &= jnp.isfinite(self.constant) & jnp.isfinite(discrete)
        return CoreResult(
            log_partition, proper, edges, planes, functionals, neighbours, jitter, tables, settled, found, points
        )  # fmt: skip

    def _gaussian(self, leaves: list[Any], prepared: list[Any], wanted: frozenset[int]) -> list[Solution]:
        """The solutions of the Gaussian executors; sums are reduced before and expanded after them."""
        executors, sums = list(zip(self.plan.gaussian, prepared, strict=True)), self.plan.sums
        if sums is None:
            return [executor.solve(prepared, leaves, wanted) for executor, prepared in executors]
        reduced = sums.reduce(leaves)
        found = [executor.solve(p, reduced.leaves, wanted | sums.functionals) for executor, p in executors]
        rests = {}
        for f in sums.functionals:
            parts = [s.functionals.pop(f) for s in found if f in s.functionals]
            if parts:
                mean, variance = _assemble(self.plan.functionals[f][2].n, parts)
                rests[f] = (mean, variance)
        return [*found, sums.expand(reduced, rests, wanted)]

    def _totals(self, leaves: Leaves) -> dict[Plane, AbstractFamily]:
        totals = dict(self.totals)
        for group in self.plan.groups:
            for j, edge in enumerate(group.edges):
                if isinstance(edge, PlaneEdge) and group.key(j) in leaves:
                    totals[edge.plane] += jax.tree.map(edge.index.add, leaves[group.key(j)])
        return totals

    def _discrete(
        self, totals: dict[Plane, AbstractFamily], leaves: Leaves, planes: dict[Plane, AbstractFamily]
    ) -> tuple[Array, dict[int, Categorical], Array]:
        """Fill `planes`; the log-partition, joint marginals of tables with several variables, and `settled`."""
        unary = {p: t.eta1 for p, t in totals.items() if p.family.core == "categorical"}  # type: ignore[attr-defined]
        tables, wanted = dict(self.tables), set()
        for g, group in enumerate(self.plan.groups):
            for j, edge in enumerate(group.edges):
                if isinstance(edge, TableEdge):
                    wanted |= {g} if group.observed or not group.conjugate else set()
                    if group.key(j) in leaves:
                        tables[g] = leaves[group.key(j)].eta1.reshape(group.n, *edge.shape)  # type: ignore[attr-defined]
        log_partition, settled = jnp.zeros((), self.plan.dtype), jnp.asarray(True)
        parts: dict[Plane, list] = {}
        table_parts: dict[int, list] = {}
        for executor in self.plan.discrete:
            solution = executor.solve(unary, tables, frozenset(wanted))
            log_partition += solution.log_partition
            settled &= True if solution.settled is None else solution.settled
            for plane, found in solution.marginals.items():
                parts.setdefault(plane, []).extend(found)
            for g, found in solution.tables.items():
                table_parts.setdefault(g, []).extend(found)
        for plane, found in parts.items():
            planes[plane] = Categorical(*_assemble(self.plan.planes[plane], [_joined(found)]))
        merged = {g: _assemble(self.plan.groups[g].n, [_joined(found)])[0] for g, found in table_parts.items()}
        return log_partition, {g: Categorical(x.reshape(x.shape[0], -1)) for g, x in merged.items()}, settled


def _gaussian(width: int | None) -> Callable[..., Gaussian | MvGaussian]:
    return Gaussian.from_mean_variance if width is None else MvGaussian.from_mean_covariance


def _joined(parts: list) -> tuple:
    """Parts (positions, array) as one, so that they are put in place by one operation."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([where for where, _ in parts]), jnp.concatenate([x for _, x in parts])


def _assemble(n: int, parts: list) -> list[Array]:
    """Merge (positions, *arrays) of several executors into arrays of n rows; one whole part is passed through."""
    (where, *arrays), *rest = parts
    in_order = where is None or (len(where) == n and bool((where[1:] > where[:-1]).all()))
    if not rest and in_order:
        return arrays
    out = [jnp.zeros((n, *x.shape[1:]), x.dtype) for x in arrays]
    for positions, *values in parts:
        out = [o.at[positions].set(v) for o, v in zip(out, values, strict=True)]
    return out
