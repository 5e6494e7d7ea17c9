r"""Emit: the fixed-point map of a plan, as pure functions of its leaves.

One evaluation runs the conjugate core and finds a target for the leaf on every interface that is not conjugate, by the
message rule of its factor (see `emit.rules`); for NGMP

$$ \eta^*_{a \to i} = \nabla_{\mu_i} \mathbb E_{q_{\lambda_i}}[\ell_{a \to i}], \qquad
   \ell_{a \to i}(z_i) = \log \int f_a \prod_{j \ne i} q_{c_{aj}}(z_j)\, dz_j, \qquad c_{aj} = \lambda_j - \eta_{aj}. $$

The free energy is $F = -(\log Z(\eta) - \sum_{aj} \eta_{aj} \cdot \mu_j) - \sum_a e_a$, with Z the partition function
of the core under its leaves and e_a the share of a projected factor under its rule:

- NGMP: $e_a = \sum_j \mathbb E_{q_{\lambda_j}}[\ell_{a \to j}] - (d_a - 1) \log \int f_a \prod_j q_{c_{aj}}$, d_a the
  number of its interfaces: the Bethe free energy of the projected factors on the exact core;
- VMP, NCVMP, PVMP: $e_a = \mathbb E[\log f_a]$, the variational free energy;
- EP: $e_a = \log \int f_a \prod_j q_{c_{aj}} + \sum_j KL[q_{\lambda_j} \| q_{c_{aj}}]$;
- NGMP with a power $p_j$ for every interface: with $\ell_j$, $c_i$ and the local evidence $L_j = \frac1{p_j} \log \int
  f^{p_j} \prod_i q_{c_i}$ at power $p_j$, and $D_{ji} = (A(\lambda_i) - A(c_i)) / p_j$, which is what the leaf of
  interface i adds to them, $e_a = \sum_j (\mathbb E[\ell_j] - \sum_{i \ne j} D_{ji}) - \frac{d_a - 1}{d_a} \sum_j
  (L_j - \sum_i D_{ji})$. It is zero for a factor that is in the family of its interfaces, whatever the powers; at
  equal ones the D cancel. EP takes the average over interfaces.

On a conjugate graph F is minus the log-evidence; for unary factors under NGMP it is minus the evidence lower bound.
With the cavities held fixed, the gradient of F in the mean parameters of an edge is eta - eta*, zero at a fixed point.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ngmp_kernels import Delta, tangent_projection
from ngmp_kernels.families import AbstractFamily, MvGaussian

from ..graph.groups import FactorGroup
from ..schedule.choose import Plan
from ..value import Value, replaced
from .apart import apart
from .chunks import by_chunks
from .core import Core, CoreResult, Leaves, masked
from .folds import unfolded
from .initial import Given, at_interface, guesses
from .kinds import Kind, kinds
from .newton import near_mode
from .rules import AbstractRule, Incoming, select, settled


class Evaluation(NamedTuple):
    """The map at one point: targets, the core they came from, and which factors have a proper marginal and target."""

    target: Leaves
    core: CoreResult
    fine: dict[str, Bool[Array, " n"]]
    borrowed: Int[Array, ""]  # how many factors have a cavity that is improper, and are heard by mean field in part


class Map(Value):
    """The emitted functions: `initial`, `evaluate`, `free_energy`."""

    def __init__(self, plan: Plan, rules: dict[str, AbstractRule], settles: bool = False):
        self.core = Core(plan)
        self.rules = rules  # message rule by group name
        self.settles = settles  # whether unary factors are solved on their edges: see `settled`

    @property
    def plan(self) -> Plan:
        return self.core.plan

    @property
    def projected(self) -> list[FactorGroup]:
        """The groups whose factors are not conjugate."""
        return [g for g in self.plan.groups if g.projected]

    def incoming(self, group: FactorGroup, result: CoreResult, leaves: Leaves) -> Incoming:
        """What stands around a group; a variable that all its factors share may have one row."""
        keys = group.keys
        marginals = tuple(_once(edge, result.edges[k]) for edge, k in zip(group.edges, keys, strict=True))
        known = tuple(map(result.cavities.get, keys)) if len(keys) > 1 else None
        return Incoming(marginals, tuple(leaves[k] for k in keys), known)

    def target(self, group: FactorGroup, j: int, incoming: Incoming) -> tuple[AbstractFamily, Array]:
        """The target of an interface by the rule of its factors, and where it exists."""
        return _target(Kind([group], group.factor, incoming, self.rules[group.name]), j)  # type: ignore[arg-type]

    def kinds(self, result: CoreResult, leaves: Leaves) -> list[Kind]:
        """The projected groups with what stands around them, as few as they come to: see `emit.kinds`."""
        groups = self.projected
        return kinds(groups, [self.incoming(g, result, leaves) for g in groups], [self.rules[g.name] for g in groups])

    def _at_point(self, group: FactorGroup, j: int, incoming: Incoming) -> AbstractFamily:
        """The target of an interface where it is a constant: the limit of the projection at a point."""
        message = self.rules[group.name].message(group.factor, j, incoming)  # type: ignore[arg-type]
        eta = tangent_projection(incoming.marginals[j], message, Delta())
        return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), eta)

    def evaluate(self, leaves: Leaves, keys: frozenset[str] | None = None) -> Evaluation:
        """One run of the core and one target for every interface (or for the ones in `keys`).

        Args:
            leaves: the point.
            keys: of the leaves that targets are wanted for; all by default.
        """
        result = self.core.run(leaves)
        target: Leaves = {}
        fine: dict[str, Bool[Array, " n"]] = {}
        borrowed = jnp.asarray(0)
        for kind in self.kinds(result, leaves):
            if kind.rule.divides(kind.factor):
                parts = kind.split(kind.incoming.shared()[2] < 1)
                borrowed += sum(jnp.sum(masked(g, part)) for g, part in zip(kind.groups, parts, strict=True))
            for j, q in enumerate(kind.incoming.marginals):
                for group, flags in zip(kind.groups, kind.split(q.is_proper()), strict=True):
                    fine[group.keys[j]] = jnp.broadcast_to(flags, (group.rows(j),))
                if keys is None or keys.intersection(group.keys[j] for group in kind.groups):
                    target |= self._targets(kind, j, result, leaves)
        for key, eta in target.items():
            for x in jax.tree.leaves(eta):
                fine[key] &= jnp.all(jnp.isfinite(x), axis=tuple(range(1, x.ndim)))
        return Evaluation(target, result, fine, borrowed)

    def _targets(self, kind: Kind, j: int, result: CoreResult, leaves: Leaves) -> Leaves:
        """The targets of interface j of all groups of a kind."""
        found, exists = _target(kind, j)
        if self.settles:
            found = settled(kind.rule, kind.factor, found, kind.incoming)
        # Where there is no target it is flat: the leaf decays. The leaf itself is never clipped.
        found = select(exists, found, jax.tree.map(jnp.zeros_like, found))
        target: Leaves = {}
        for group, eta in zip(kind.groups, kind.split(found), strict=True):
            key, n = group.keys[j], group.rows(j)
            if key in result.points and not result.edges[key].event_shape:
                eta = select(result.points[key], self._at_point(group, j, self.incoming(group, result, leaves)), eta)
            target[key] = jax.tree.map(lambda x, g=group, n=n: masked(g, x, n), eta)
        return target

    def free_energy(self, leaves: Leaves, result: CoreResult) -> Float[Array, ""]:
        """The Bethe free energy; see the module docstring."""
        total = -result.log_partition
        for kind in self.kinds(result, leaves):
            edges: Any = kind.groups[0].edges
            for j, (q, leaf) in enumerate(zip(kind.incoming.marginals, kind.incoming.leaves, strict=True)):
                if edges[j] is not None and edges[j].family.core != "gaussian":  # those are in the partition function
                    exponents = kind.split(leaf.dot(q.to_mean()))
                    total += sum(jnp.sum(masked(g, x, g.rows(j))) for g, x in zip(kind.groups, exponents, strict=True))
            energies = kind.split(by_chunks(kind.rule.evidence, kind.n, kind.factor, kind.incoming))
            total -= sum(jnp.sum(masked(g, x)) for g, x in zip(kind.groups, energies, strict=True))
        return total.astype(self.plan.dtype)  # constants of numpy are float64, whatever the inputs are

    def undefined(self, leaves: Leaves) -> dict[str, Bool[Array, ""]]:
        """By site, whether the share of its factors in the free energy is not a number."""
        result, found = self.core.run(leaves), {}
        for group in self.projected:
            evidence = self.rules[group.name].evidence(group.factor, self.incoming(group, result, leaves))  # type: ignore[arg-type]
            found[group.name] = jnp.any(jnp.isnan(masked(group, evidence)))
        return found

    def energy(self, leaves: Leaves) -> Float[Array, ""]:
        """The free energy as a function of the leaves."""
        return self.free_energy(leaves, self.core.refined(leaves))

    def centred(self, leaves: Leaves) -> "Map":
        """The map on a core that solves for deviations: see `Core.centred`."""
        return replaced(self, core=self.core.centred(leaves))

    @property
    def stationary(self) -> bool:
        """Whether the free energy is stationary in the leaves at a fixed point, so that the envelope theorem holds."""
        return all(self.rules[g.name].stationary(g.factor) for g in self.projected)  # type: ignore[arg-type]

    def initial(self, given: Given | None = None) -> Leaves:
        """Leaves to start from: the target at marginals that are given or that the data suggest, flat without either.

        Given ones speak for all interfaces of the factors that touch them: what a mixture's selector is told depends on
        where its components start.
        """
        leaves: Leaves = {}
        found = guesses(self.plan, given) if given else {}
        for group in self.projected:
            factor: Any = group.factor
            hints = [None if h is None else self._fill(group, h) for h in factor.initial()]
            flat = [self._flat(group, j) for j in range(len(group.edges))]
            known = [at_interface(found, edge) for edge in group.edges]
            priors = (edge.prior(self.core.totals, self.plan.dtype) for edge in group.edges)
            start = [prior if h is None else h for h, prior in zip(hints, priors, strict=True)]
            start = tuple(s if k is None else select(jnp.asarray(k[1]), k[0], s)
                          for s, k in zip(start, known, strict=True))  # fmt: skip
            told = any(k is not None for k in known)
            for j, hint in enumerate(hints):
                leaf = flat[j]
                if hint is not None or told:
                    eta, exists = self.target(group, j, Incoming(start, tuple(flat)))
                    # A start that would make the core improper is not used.
                    leaf = select(exists & eta.is_proper(), eta, leaf)
                rows = group.rows(j)
                leaves[group.keys[j]] = jax.tree.map(lambda x, g=group, n=rows: masked(g, x, n), leaf)
        if given:
            return leaves
        leaves = unfolded(self, leaves)
        return apart(self, near_mode(self, leaves, self.by_newton) if self.by_newton else leaves)

    @property
    def by_newton(self) -> frozenset[str]:
        """The leaves that start by steps of Newton's method: of vectors of which the data alone say nothing."""
        return frozenset(g.keys[0] for g in self.projected if _of_vectors(g) and g.factor.initial()[0] is None)  # type: ignore[attr-defined]

    def masked(self, leaves: Leaves) -> Leaves:
        """Leaves that are flat where their group is masked."""
        groups = {key: (group, group.rows(j)) for group in self.projected for j, key in enumerate(group.keys)}
        return {k: jax.tree.map(lambda x, own=groups[k]: masked(own[0], x, own[1]), leaf) for k, leaf in leaves.items()}

    def hinted(self) -> dict[str, bool]:
        """By leaf, whether `initial` starts it at the data."""
        found = [(g, g.factor.initial()) for g in self.projected]  # type: ignore[attr-defined]
        return {g.keys[j]: hint is not None for g, hints in found for j, hint in enumerate(hints)}

    def _fill(self, group: FactorGroup, hint: AbstractFamily) -> AbstractFamily:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (group.n, *x.shape[1:])).astype(self.plan.dtype), hint)

    def _flat(self, group: FactorGroup, j: int) -> AbstractFamily:
        edge: Any = group.edges[j]
        return edge.family.flat((edge.n,), edge.event_shape, self.plan.dtype)


def _target(kind: Kind, j: int) -> tuple[AbstractFamily, Array]:
    """The targets of interface j of all factors of a kind, and where they exist."""

    def own(factor: Any, incoming: Incoming) -> Any:
        return kind.rule.target(factor, j, incoming)

    with jax.named_scope(f"project_{kind.groups[0].keys[j]}"):
        return by_chunks(own, kind.n, kind.factor, kind.incoming)


def _of_vectors(group: FactorGroup) -> bool:
    """Whether the first interface is one of Gaussian vectors, and its message integrated as a whole."""
    return bool(group.joined) or len(group.edges) == 1 and group.factor.families == (MvGaussian,)


def _once(edge: Any, marginal: AbstractFamily) -> AbstractFamily:
    """The marginal of a variable that all factors of a group share with one row, so that its nodes are placed once."""
    return jax.tree.map(lambda x: x[:1], marginal) if edge.shared else marginal
