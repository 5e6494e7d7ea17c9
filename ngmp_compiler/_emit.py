r"""Emit: the fixed-point map of a plan, as pure functions of its leaves.

One evaluation runs the conjugate core and projects every factor that is not conjugate:

$$ \eta^*_{a \to i} = \nabla_{\mu_i} \mathbb E_{q_{\lambda_i}}[\ell_{a \to i}], \qquad
   \ell_{a \to i}(z_i) = \log \int f_a \prod_{j \ne i} q_{c_{aj}}(z_j)\, dz_j, \qquad c_{aj} = \lambda_j - \eta_{aj}. $$

The free energy reported with it is the Bethe free energy of the projected factors on the exact core,

$$ F = -\log Z(\eta) - \sum_a \Big[ \sum_j \big( \mathbb E_{q_{\lambda_j}}[\ell_{a \to j}] - \eta_{aj} \cdot \mu_j \big)
       - (d_a - 1) \log \int f_a \prod_j q_{c_{aj}} \Big], $$

with Z the partition function of the core under its leaves and d_a the number of projected interfaces of factor a. On a
conjugate graph the sum is empty and F is minus the log-evidence; for unary factors F is minus the evidence lower
bound. With the cavities held fixed its gradient in the mean parameters of every edge is eta - eta*, zero at a fixed point.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from ngmp_kernels.families import AbstractFamily, Gaussian

from ._core import Core, CoreResult, Leaves, masked, select
from ._schedule import Plan
from ._type import FactorGroup, Functional


class Evaluation(NamedTuple):
    """The map at one point: targets, the core they came from, and whether all of it is usable."""

    target: Leaves
    core: CoreResult
    usable: Bool[Array, ""]


class Map:
    """The emitted functions: `initial`, `evaluate`, `free_energy`."""

    def __init__(self, plan: Plan, rules: dict[str, Any]):
        self.plan = plan
        self.core = Core(plan)
        self.rules = rules  # quadrature rule by group name
        self.hinted: dict[str, bool] = {}  # which leaves `initial` starts at the data
        self.projected = [g for g in plan.groups if g.edges and not g.conjugate and any(e is not None for e in g.edges)]

    def _interfaces(self, group: FactorGroup, result: CoreResult, leaves: Leaves):
        """Marginals and cavities of a group; an improper cavity is replaced by its marginal and flagged."""
        marginals, cavities, proper = [], [], []
        for j in range(len(group.edges)):
            q = result.edges[group.key(j)]
            c = q - leaves[group.key(j)]
            ok = c.is_proper()
            marginals.append(q)
            cavities.append(select(ok, c, q))
            proper.append(ok)
        return tuple(marginals), tuple(cavities), proper

    def evaluate(self, leaves: Leaves) -> Evaluation:
        """One run of the core and one projection of every interface."""
        result = self.core.run(leaves)
        target: Leaves = {}
        usable = result.proper
        for group in self.projected:
            marginals, cavities, proper = self._interfaces(group, result, leaves)
            for j, q in enumerate(marginals):
                eta = group.factor.project(j, q, cavities, self.rules[group.name])  # type: ignore[attr-defined]
                # A message integrated against an improper cavity does not exist; its target is flat. The leaf itself
                # is never clipped.
                others = jnp.ones(group.n, bool)
                for i, ok in enumerate(proper):
                    others &= ok if i != j else True
                eta = select(others, eta, jax.tree.map(jnp.zeros_like, eta))
                eta = jax.tree.map(lambda x, g=group: masked(g, x), eta)
                target[group.key(j)] = eta
                usable &= jnp.all(q.is_proper())
                for x in jax.tree.leaves(eta):
                    usable &= jnp.all(jnp.isfinite(x))
        return Evaluation(target, result, usable)

    def free_energy(self, leaves: Leaves, result: CoreResult) -> Float[Array, ""]:
        """The Bethe free energy; see the module docstring."""
        total = -result.log_partition
        for group in self.projected:
            marginals, cavities, proper = self._interfaces(group, result, leaves)
            rule = self.rules[group.name]
            factor: Any = group.factor
            energy = jnp.zeros(group.n, self.plan.dtype)
            for j, q in enumerate(marginals):
                expected = factor.expected_log_message(j, q, cavities, rule)
                energy += expected - leaves[group.key(j)].dot(q.to_mean())
            if len(marginals) > 1:
                energy -= (len(marginals) - 1) * factor.log_evidence(cavities, rule)
            total -= jnp.sum(masked(group, energy))
        return total

    def initial(self) -> Leaves:
        """Leaves to start from: projected at the marginal that the data suggest, flat where they suggest none."""
        leaves: Leaves = {}
        for group in self.projected:
            factor: Any = group.factor
            hints = factor.initial()
            cavities = tuple(self._prior(group, j) for j in range(len(group.edges)))
            for j, hint in enumerate(hints):
                self.hinted[group.key(j)] = hint is not None
                family, shape = self._edge_family(group, j)
                leaf = family.flat((group.n,), shape, self.plan.dtype)
                if hint is not None:
                    hint = jax.tree.map(lambda x, n=group.n: jnp.broadcast_to(x, (n, *x.shape[1:])), hint)
                    eta = factor.project(j, hint, cavities, self.rules[group.name])
                    good = (leaf + eta).is_proper()  # a start that would make the core improper is not used
                    leaf = select(good, eta, leaf)
                leaves[group.key(j)] = jax.tree.map(lambda x, g=group: masked(g, x), leaf)
        return leaves

    def _edge_family(self, group: FactorGroup, j: int) -> tuple[type[AbstractFamily], tuple[int, ...]]:
        edge = group.edges[j]
        if isinstance(edge, Functional):
            return Gaussian, ()
        return edge.plane.family, edge.plane.event_shape  # type: ignore[union-attr]

    def _prior(self, group: FactorGroup, j: int) -> AbstractFamily:
        """What is known of an interface before any projection: its conjugate messages, or N(0, 1)."""
        edge = group.edges[j]
        if isinstance(edge, Functional):
            one = jnp.ones(group.n, self.plan.dtype)
            return Gaussian.from_mean_variance(0 * one, one)
        return jax.tree.map(edge.index.take, self.core.totals[edge.plane])  # type: ignore[union-attr]
