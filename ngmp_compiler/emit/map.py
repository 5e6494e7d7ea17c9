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
from jaxtyping import Array, Bool, Float

from ngmp_kernels import Delta, Quadrature, tangent_projection
from ngmp_kernels.families import AbstractFamily

from ..graph.groups import FactorGroup
from ..schedule.choose import Plan
from ..value import Value
from .apart import apart
from .chunks import by_chunks
from .core import Core, CoreResult, Leaves, masked
from .initial import Given, at_interface, guesses
from .newton import near_mode
from .rules import AbstractRule, Incoming, StructuredVMP, select, settled

Shares = dict[str, Float[Array, " n"]]


class Evaluation(NamedTuple):
    """The map at one point: targets, the core they came from, and which factors have a proper marginal and target."""

    target: Leaves
    core: CoreResult
    fine: dict[str, Bool[Array, " n"]]
    borrowed: dict[str, Bool[Array, " n"]]  # by leaf: which targets are, in part, those of mean field


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
        rule = self.rules[group.name]
        return by_chunks(lambda factor, incoming: rule.target(factor, j, incoming), group.n, group.factor, incoming)

    def _at_point(self, group: FactorGroup, j: int, incoming: Incoming) -> AbstractFamily:
        """The target of an interface where it is a constant: the limit of the projection at a point."""
        message = self.rules[group.name].message(group.factor, j, incoming)  # type: ignore[arg-type]
        eta = tangent_projection(incoming.marginals[j], message, Delta())
        return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), eta)

    def evaluate(self, leaves: Leaves, keys: frozenset[str] | None = None, shares: Shares | None = None) -> Evaluation:
        """One run of the core and one target for every interface (or for the ones in `keys`).

        Args:
            leaves: the point.
            keys: of the leaves that targets are wanted for; all by default.
            shares: see `whole_shares`; all of one by default.
        """
        result = self.core.run(leaves)
        shares = self.whole_shares() if shares is None else shares
        target: Leaves = {}
        fine: dict[str, Bool[Array, " n"]] = {}
        borrowed: dict[str, Bool[Array, " n"]] = {}
        for group in self.projected:
            incoming = self.incoming(group, result, leaves)
            for j, q in enumerate(incoming.marginals):
                key = group.keys[j]
                fine[key] = jnp.broadcast_to(q.is_proper(), (group.n,))
                if keys is not None and key not in keys:
                    continue
                eta, exists = self.target(group, j, incoming)
                if self.settles:
                    eta = settled(self.rules[group.name], group.factor, eta, incoming)  # type: ignore[arg-type]
                # Where there is no target it is flat: the leaf decays. The leaf itself is never clipped.
                eta = select(exists, eta, jax.tree.map(jnp.zeros_like, eta))
                if group.name in shares:
                    share = jnp.where(exists, shares[group.name], 0.0)
                    borrowed[key] = masked(group, share < 1.0)
                    eta = self._tempered(group, j, incoming.marginals, eta, share)
                if key in result.points and not q.event_shape:
                    eta = select(result.points[key], self._at_point(group, j, incoming), eta)
                target[key] = eta = jax.tree.map(lambda x, g=group: masked(g, x), eta)
                for x in jax.tree.leaves(eta):
                    fine[key] &= jnp.all(jnp.isfinite(x), axis=tuple(range(1, x.ndim)))
        return Evaluation(target, result, fine, borrowed)

    def whole_shares(self) -> Shares:
        """One for every factor of several interfaces: the share of its own rule in its targets.

        The rest, `1 - share`, is the message of mean field, whose integrals exist under any marginals and which is
        never convex where the log-factor is not. A factor whose message does not exist, because a cavity is improper,
        has it whole; the solver lowers the share of factors that do not settle.
        """
        return {g.name: jnp.ones(g.n, self.plan.dtype) for g in self.projected
                if len(g.edges) > 1 and self.rules[g.name].borrows and not g.factor.deterministic}  # fmt: skip

    def _tempered(
        self, group: FactorGroup, j: int, marginals: Any, eta: AbstractFamily, share: Float[Array, " n"]
    ) -> AbstractFamily:
        """`share eta + (1 - share) eta_mf`, the second the message of mean field toward interface j."""

        def message(factor: Any, marginals: Any) -> AbstractFamily:
            return factor.mean_field_projection(j, marginals, Quadrature())

        def mixed() -> AbstractFamily:
            field = by_chunks(message, group.n, group.factor, marginals)
            finite = jnp.ones(group.n, bool)
            for x in jax.tree.leaves(field):
                finite &= jnp.all(jnp.isfinite(x), axis=tuple(range(1, x.ndim)))
            field = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), field, eta)
            return eta * share + select(finite, field * (1.0 - share), 0.0 * eta)

        return jax.lax.cond(jnp.all(share >= 1.0), lambda: eta, mixed)

    def free_energy(self, leaves: Leaves, result: CoreResult, shares: Shares | None = None) -> Float[Array, ""]:
        """The Bethe free energy; see the module docstring. A factor with a share has a share of each energy."""
        total = -result.log_partition
        for group in self.projected:
            incoming = self.incoming(group, result, leaves)
            for edge, q, leaf in zip(group.edges, incoming.marginals, incoming.leaves, strict=True):
                if edge is not None and edge.family.core != "gaussian":  # functionals are in the partition function
                    total += jnp.sum(masked(group, leaf.dot(q.to_mean())))
            energy = by_chunks(self.rules[group.name].evidence, group.n, group.factor, incoming)
            if shares and group.name in shares:
                energy = self._mean_field_share(group, incoming, energy, shares[group.name])
            total -= jnp.sum(masked(group, energy))
        return total

    def _mean_field_share(self, group: FactorGroup, incoming: Incoming, energy: Array, share: Array) -> Array:
        """`share e + (1 - share) e_mf`, the second the energy under mean field."""

        def mixed() -> Array:
            field = by_chunks(StructuredVMP().evidence, group.n, group.factor, incoming)
            return share * energy + (1.0 - share) * field

        return jax.lax.cond(jnp.all(share >= 1.0), lambda: jnp.broadcast_to(energy, (group.n,)), mixed)

    def energy(self, leaves: Leaves) -> Float[Array, ""]:
        """The free energy as a function of the leaves."""
        return self.free_energy(leaves, self.core.refined(leaves))

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
                leaves[group.keys[j]] = jax.tree.map(lambda x, g=group: masked(g, x), leaf)
        flat = frozenset(g.keys[0] for g in self.projected if g.joined and g.factor.initial()[0] is None)  # type: ignore[attr-defined]
        if given:
            return leaves
        return apart(self, near_mode(self, leaves, flat) if flat else leaves)

    def masked(self, leaves: Leaves) -> Leaves:
        """Leaves that are flat where their group is masked."""
        groups = {key: group for group in self.projected for key in group.keys}
        return {k: jax.tree.map(lambda x, g=groups[k]: masked(g, x), leaf) for k, leaf in leaves.items()}

    def hinted(self) -> dict[str, bool]:
        """By leaf, whether `initial` starts it at the data."""
        found = [(g, g.factor.initial()) for g in self.projected]  # type: ignore[attr-defined]
        return {g.keys[j]: hint is not None for g, hints in found for j, hint in enumerate(hints)}

    def _fill(self, group: FactorGroup, hint: AbstractFamily) -> AbstractFamily:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (group.n, *x.shape[1:])).astype(self.plan.dtype), hint)

    def _flat(self, group: FactorGroup, j: int) -> AbstractFamily:
        edge: Any = group.edges[j]
        return edge.family.flat((group.n,), edge.event_shape, self.plan.dtype)


def _once(edge: Any, marginal: AbstractFamily) -> AbstractFamily:
    """The marginal of a variable that all factors of a group share with one row, so that its nodes are placed once."""
    return jax.tree.map(lambda x: x[:1], marginal) if edge.shared else marginal
