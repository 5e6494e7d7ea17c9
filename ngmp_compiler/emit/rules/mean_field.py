"""Rules that take the expected log-factor under the other marginals: VMP, structured, non-conjugate and projective."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels import AbstractProjected, Quadrature
from ngmp_kernels.families import AbstractFamily
from ngmp_kernels.quadrature.projection import LogMessage

from ...solve.adaptive import solve_edge
from .base import AbstractRule, Families, Incoming


def _mean_field_target(projection: Any, factor: AbstractProjected, j: int, marginals: Families) -> AbstractFamily:
    if len(marginals) == 1:  # unary: the expected log-factor is the log-factor, often in closed form
        return factor.project(0, marginals[0], marginals, projection)
    return factor.mean_field_projection(j, marginals, projection)


class AbstractVMP(AbstractRule):
    """Messages of the expected log-factor under the other marginals."""

    projection: eqx.AbstractVar[Any]

    def supports(self, factor: AbstractProjected, j: int) -> str | None:
        return "a delta has no expected logarithm" if factor.deterministic else None

    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> Any:
        eta = _mean_field_target(self.projection, factor, j, incoming.marginals)
        return eta, jnp.ones(incoming.marginals[j].batch_shape, bool)

    def message(self, factor: AbstractProjected, j: int, incoming: Incoming) -> LogMessage:
        return factor.mean_field_message(j, incoming.marginals, Quadrature())

    def evidence(self, factor: AbstractProjected, incoming: Incoming) -> Float[Array, " n"]:
        """`E[log f]` under the product of the marginals."""
        marginals = incoming.marginals
        if len(marginals) == 1:
            return factor.expected_log_message(0, marginals[0], marginals, Quadrature())
        return factor.expected_log_density(marginals, Quadrature())

    def stationary(self, factor: AbstractProjected) -> bool:
        return isinstance(self.projection, Quadrature)


class VMP(AbstractVMP):
    """Variational message passing: the expected log-factor under the other marginals, where it is in the family."""

    projection: ClassVar[Any] = Quadrature()
    mean_field: ClassVar[bool] = True

    def supports(self, factor: AbstractProjected, j: int) -> str | None:
        inside = not factor.deterministic and factor.in_family()[j]
        return None if inside else "its expected logarithm is not in the family"


class StructuredVMP(AbstractVMP):
    """The messages of VMP between the interfaces of a factor, with all that stands behind one of them kept joint.

    On `Normal(dot(phi, w), precision=tau)` that is q(out, w) q(tau), whatever else out and w are tied to. It is also
    what NGMP and EP fall back on where an exact log-message has no projection (toward vectors and matrices).
    """

    projection: ClassVar[Any] = Quadrature()


class NCVMP(AbstractVMP):
    """Non-conjugate VMP: one tangent projection, a sweep, of the expected log-factor under the other marginals."""

    projection: Any = Quadrature()
    mean_field: ClassVar[bool] = True

    @property
    def settles(self) -> bool:
        return isinstance(self.projection, Quadrature)


class PVMP(AbstractVMP):
    """Projective VMP: the projection of NCVMP iterated on the edge, all else fixed, until the marginal agrees with it.

    Args:
        projection: as in `NGMP`.
        iterations: at most this many inner steps.
        tol: relative residual at which the inner iteration stops.
    """

    projection: Any = Quadrature()
    iterations: int = eqx.field(static=True, default=100)
    tol: float = eqx.field(static=True, default=1e-10)
    mean_field: ClassVar[bool] = True

    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> Any:
        marginals, leaves = incoming.marginals, incoming.leaves
        # Not replaced where it is improper: the solution on the edge only needs cavity + message to be proper.
        cavity = marginals[j] - leaves[j]

        def toward(q: AbstractFamily) -> AbstractFamily:
            trial = tuple(q if i == j else m for i, m in enumerate(marginals))
            return _mean_field_target(self.projection, factor, j, trial)

        # The inner loop cannot be differentiated backwards, and need not be: the fixed points are those of NCVMP.
        once = _mean_field_target(self.projection, factor, j, marginals)
        found = solve_edge(toward, cavity, leaves[j], self.iterations, self.tol)
        eta = jax.lax.stop_gradient(found) + (once - jax.lax.stop_gradient(once))
        return eta, jnp.ones(cavity.batch_shape, bool)

    def variational(self, factor: AbstractProjected) -> AbstractRule:
        return NCVMP(self.projection)
