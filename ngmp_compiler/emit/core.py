"""The conjugate core as a function: leaves in, marginals of every interface and the log-partition out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels.families import AbstractFamily, Categorical, Gaussian, MvGaussian

from ..executors import DiscreteSolution, Solution
from ..executors.merge import assemble
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from ..schedule.choose import Plan
from ..value import Value, replaced
from .centre import at_mean, centre, exponent, may_vanish, term, value, widen
from .frontier import frontiers
from .rules import select

Leaves = dict[str, AbstractFamily]


def expand(flags: Array, like: Array) -> Array:
    """Flags (n,) with trailing axes to broadcast against `like` (n, *event)."""
    return flags.reshape(flags.shape + (1,) * (like.ndim - flags.ndim))


def masked(group: FactorGroup, x: Array, rows: int | None = None) -> Array:
    """Values (n|1, *event) broadcast to the n factors of a group, or so many rows; zero where the group is masked."""
    x = jnp.broadcast_to(x, (group.n if rows is None else rows, *x.shape[1:]))
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
    neighbours: tuple  # of chains: (plane, order, covariance of neighbours)
    jitter: Float[Array, ""]  # the largest that a Cholesky factor needed, relative to the diagonal
    tables: dict[int, Categorical]  # joint marginals of table interfaces by group, over the cells of the table
    settled: Bool[Array, ""]  # whether the approximate executors have converged
    cavities: Leaves  # of projected interfaces at shared frontiers; of the others marginal minus leaf is as good
    points: dict[str, Bool[Array, " n"]]  # where a functional is a constant, of interfaces where it can be


class _Stage(NamedTuple):
    """Of functionals: their leaves, those that executors are given, what they prepared, and the offsets."""

    stacked: list[Any]
    given: list[Any]
    prepared: list[Any]
    offsets: list[Any]


class _About(NamedTuple):
    """Values of Gaussian variables that a core solves for deviations from; functionals there, and what is prepared."""

    values: dict[Plane, Array]
    offsets: list[Any]
    prepared: list[Any]


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
            if group.constant:
                values = group.factor.log_density(*group.constants)
                self.constant += jnp.sum(masked(group, jnp.asarray(values)))
            elif group.conjugate:
                self._add_fixed(g, group)
        self.still = [self.shared.get((g, j), self.fixed.get((g, j))) for g, j, _ in plan.functionals]
        if plan.sums is not None:  # what is left of a sum moves whenever a private variable does
            self.still = [None if f in plan.sums.functionals else leaf for f, leaf in enumerate(self.still)]
        # Projected interfaces on variables or tables: (group, key, edge).
        self.direct: list[tuple[int, str, Any]] = [
            (g, key, edge) for g, group in enumerate(plan.groups) if group.projected
            for key, edge in zip(group.keys, group.edges, strict=True) if edge.family.core != "gaussian"
        ]  # fmt: skip
        self.prepared: list[Any] = [executor.prepare(list(self.still), dtype) for executor in plan.gaussian]
        self.frontiers = frontiers(plan)
        self.vanishing = frozenset(f for f, (_, _, edge) in enumerate(plan.functionals) if may_vanish(edge))
        self.about: _About | None = None

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
        elif edge.plane is not None:
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
        stacked = self.stacked(leaves)
        known = [x for x in (executor.level(stacked) for executor in plan.gaussian) if x is not None]
        if not known:
            return self.run(leaves)
        planes = {link.plane for _, _, edge in plan.functionals for link in edge.links}
        about = {p: jnp.zeros((plan.planes[p], *p.event_shape), plan.dtype) for p in planes}
        for plane in {plane for plane, _, _ in known}:
            parts = [(at, jax.lax.stop_gradient(values)) for p, at, values in known if p == plane]
            (about[plane],) = assemble(plan.planes[plane], parts)
        return self.run(leaves, about=self._about(about))

    def centred(self, leaves: Leaves) -> "Core":
        """The core, in single precision as one that solves for deviations from its means under some leaves.

        Residuals are then differences of small numbers, as accurate as the data; without it, data of 10^4 standard
        deviations are known to a thousandth of one, in every sweep to another.
        """
        plan = self.plan
        if plan.dtype != jnp.float32 or not plan.functionals:
            return self
        means = self._gaussian(self._stage(leaves, None), frozenset()).means
        found = {p: jnp.where(jnp.isfinite(x), x, 0) for p, (_, x) in jax.lax.stop_gradient(means).items()}
        return replaced(self, about=self._about(found))

    def _about(self, values: dict[Plane, Array]) -> _About:
        plan = self.plan
        offsets = [value(edge, term(edge, None), values) for _, _, edge in plan.functionals]
        still = [None if x is None else centre(x, c) for x, c in zip(self.still, offsets, strict=True)]
        return _About(values, offsets, [executor.prepare(list(still), plan.dtype) for executor in plan.gaussian])

    def stacked(self, leaves: Leaves) -> list[Any]:
        """The leaves of all functionals, fixed or not."""
        keys = (((g, j), self.plan.groups[g].keys[j]) for g, j, _ in self.plan.functionals)
        return [leaves[key] if key in leaves else self.fixed[at] for at, key in keys]

    def run(
        self, leaves: Leaves, requested: frozenset[int] | None = None, about: _About | None = None
    ) -> CoreResult:
        """Exact inference under the given leaves; by default only the marginals that projections need.

        Gaussian variables are solved for as deviations from values `about`, if these are given, or its own.
        """
        about = self.about if about is None else about
        stage = self._stage(leaves, about)
        wanted = frozenset(f for f, key in enumerate(self.keys) if key in leaves) if requested is None else requested
        solution = self._gaussian(stage, wanted)
        moments, points = self._moments(solution, stage, about)
        families: list[Any] = [edge.family for _, _, edge in self.plan.functionals]
        functionals = {f: families[f].from_mean_covariance(*x) for f, x in moments.items()}
        totals = self._totals(leaves)
        products = {plane: total for plane, total in totals.items() if plane.family.core == "product"}
        discrete = self._discrete(totals, leaves)
        planes: dict[Plane, AbstractFamily] = {p: Categorical(x) for p, [(_, x)] in discrete.marginals.items()}
        tables = {g: Categorical(x.reshape(x.shape[0], -1)) for g, [(_, x)] in discrete.tables.items()}
        for plane, (_, q) in solution.marginals.items():
            planes[plane] = q if about is None else q.shifted(about.values[plane])
        planes |= products
        log_partition = self.constant + solution.log_volume + self._exponent(leaves, stage, solution, moments)
        log_partition += sum(jnp.sum(total.log_partition()) for total in products.values()) + discrete.log_partition
        # Not of the whole log-partition: a sweep, which does not need that, would take a logarithm of every pivot.
        proper = solution.proper & jnp.isfinite(self.constant) & jnp.all(jnp.isfinite(discrete.log_partition))
        for total in products.values():
            proper &= jnp.all(total.is_proper())
        edges = self._edges(leaves, planes, tables)
        edges.update((self.keys[f], q) for f, q in functionals.items())
        cavities = self._cavities(leaves, solution, stage, about)
        for key, flags in points.items():  # a leaf on a constant acts on nothing
            if key in leaves:
                cavities[key] = select(flags, edges[key], cavities.get(key, edges[key] - leaves[key]))
        jitter, settled = jnp.asarray(solution.jitter, self.plan.dtype), jnp.asarray(discrete.settled)
        return CoreResult(
            log_partition, proper, edges, planes, functionals, solution.neighbours, jitter, tables, settled, cavities,
            points,
        )  # fmt: skip

    @property
    def keys(self) -> list[str]:
        """Of the leaves of functionals."""
        return [self.plan.groups[g].keys[j] for g, j, _ in self.plan.functionals]

    def _stage(self, leaves: Leaves, about: _About | None) -> _Stage:
        stacked = self.stacked(leaves)
        if about is None:
            return _Stage(stacked, stacked, self.prepared, [edge.offset for _, _, edge in self.plan.functionals])
        given = [centre(x, c) for x, c in zip(stacked, about.offsets, strict=True)]
        return _Stage(stacked, given, about.prepared, about.offsets)

    def _gaussian(self, stage: _Stage, wanted: frozenset[int]) -> Solution:
        """The solution of the Gaussian executors; sums are reduced before and expanded after them."""
        executors, sums = list(zip(self.plan.gaussian, stage.prepared, strict=True)), self.plan.sums
        planes, rows = self.plan.planes, {f: edge.n for f, (_, _, edge) in enumerate(self.plan.functionals)}
        if sums is None:
            return Solution.merged([_named(e, p, stage.given, wanted) for e, p in executors], planes, rows)
        reduced = sums.reduce(stage.given)
        found = [_named(e, p, reduced.leaves, wanted | sums.functionals) for e, p in executors]
        left = Solution.merged(found, planes, rows)
        rests = {f: left.functionals[f][1:] for f in sums.functionals if f in left.functionals}
        # What executors saw of a sum is what was left of it.
        own = {f: x for f, x in left.functionals.items() if f not in sums.functionals}
        cavities = {f: x for f, x in left.cavities.items() if f not in sums.functionals}
        left = left._replace(functionals=own, cavities=cavities)
        return Solution.merged([left, sums.expand(reduced, rests, wanted)], planes, rows)

    def _moments(
        self, solution: Solution, stage: _Stage, about: _About | None
    ) -> tuple[dict[int, tuple[Array, Array]], dict[str, Array]]:
        """Mean and spread of functionals; and where those are a constant that can be one."""
        moments, points = {}, {}
        for f, (_, mean, spread) in solution.functionals.items():
            mean = mean if about is None else mean + stage.offsets[f]
            if f in self.vanishing:
                spread, points[self.keys[f]] = widen(mean, spread, len(self.plan.functionals[f][2].links) > 1)
            moments[f] = mean, spread
        return moments, points

    def _exponent(self, leaves: Leaves, stage: _Stage, solution: Solution, moments: dict) -> Float[Array, ""]:
        """The exponent of the Gaussian core at its mean, less the expected exponents of the leaves."""
        functionals, total = self.plan.functionals, jnp.zeros((), self.plan.dtype)
        if not functionals:
            return total
        terms = [term(edge, self.shared.get((g, j), x), c)
                 for (g, j, edge), x, c in zip(functionals, stage.stacked, stage.offsets, strict=True)]  # fmt: skip
        for f, (mean, spread) in moments.items():
            if self.keys[f] in leaves:  # about its mean, a leaf has the same share in both
                middle = jax.lax.stop_gradient(mean)
                leaf = centre(stage.stacked[f], middle)
                terms[f] = term(functionals[f][2], leaf, stage.offsets[f] - middle)
                total -= jnp.sum(exponent(leaf, mean - middle, spread))
        means = {plane: mean for plane, (_, mean) in solution.means.items()}
        return total + at_mean([edge for _, _, edge in functionals], terms, means)

    def _edges(self, leaves: Leaves, planes: dict[Plane, AbstractFamily], tables: dict[int, Categorical]) -> Leaves:
        """The marginals of projected interfaces that are variables or tables."""
        return {key: edge.marginal(planes, tables.get(g)) for g, key, edge in self.direct if key in leaves}

    def _cavities(self, leaves: Leaves, solution: Solution, stage: _Stage, about: _About | None) -> Leaves:
        """Those that are known without subtraction."""
        found = {key: q for frontier in self.frontiers for key, q in frontier.cavities(self.totals, leaves).items()}
        for f, (_, q) in solution.cavities.items():
            found[self.keys[f]] = q if about is None else q.shifted(stage.offsets[f])
        return found

    def _totals(self, leaves: Leaves) -> dict[Plane, AbstractFamily]:
        totals = dict(self.totals)
        for _, key, edge in self.direct:
            if edge.plane is not None and key in leaves:
                totals[edge.plane] += jax.tree.map(edge.index.add, leaves[key])
        return totals

    def tables_of(self, totals: dict[Plane, AbstractFamily], leaves: Leaves) -> tuple[Any, dict[int, Array], set[int]]:
        """What the categorical executors are given: unary log-potentials, tables, and which of these are wanted."""
        unary = {p: t.eta1 for p, t in totals.items() if p.family.core == "categorical"}  # type: ignore[attr-defined]
        tables = dict(self.tables)
        wanted = {g for g in tables if self.plan.groups[g].observed}
        for g, key, edge in self.direct:
            if edge.plane is None and key in leaves:
                tables[g] = leaves[key].eta1.reshape(edge.n, *edge.shape)  # type: ignore[attr-defined]
                wanted.add(g)
        return unary, tables, wanted

    def _discrete(self, totals: dict[Plane, AbstractFamily], leaves: Leaves) -> DiscreteSolution:
        """The solution of the categorical executors."""
        unary, tables, wanted = self.tables_of(totals, leaves)
        found = [_named(e, unary, tables, frozenset(wanted)) for e in self.plan.discrete]
        return DiscreteSolution.merged(found, {**self.plan.planes, **dict(enumerate([g.n for g in self.plan.groups]))})


def _named(executor: Any, *given: Any) -> Any:
    """What an executor solves for, under its name in profiles."""
    with jax.named_scope(f"solve_{executor.name}"):
        return executor.solve(*given)
