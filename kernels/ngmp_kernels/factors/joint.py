r"""Joint edges: Gaussian interfaces of a factor projected together, as one interface of vectors.

With k interfaces stacked to a vector z, the message toward them is a Gaussian of k dimensions: the natural gradient

$$ \eta^* = \nabla_\mu E_q[\ell], \quad \Lambda^* = -E_q[\nabla^2 \ell], \quad \xi^* = E_q[\nabla \ell] + \Lambda^* m $$

at their joint marginal q, by the theorems of Bonnet and Price. What the factor says of their correlation is kept, which
separate edges lose. If no interface is left, this is natural-gradient variational inference with a full covariance.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage
from ..families import AbstractFamily, Gaussian, MvGaussian
from ..quadrature.predictive import product_nodes
from ..quadrature.projection import GaussHermite, Quadrature, nodes, tangent_projection


class JointFactor(AbstractProjected):
    """`f(z, ...)` with `z = (z_i, i in members)`: scalar Gaussian interfaces of `base` as one of vectors, the first.

    Attributes:
        base: the factor as declared.
        members: the interfaces of `base` that are stacked, in order; the others follow as they are.
    """

    base: AbstractProjected
    members: tuple[int, ...] = eqx.field(static=True)

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def hard(self) -> bool:  # type: ignore[override]
        return self.base.hard

    @property
    def matches(self) -> str:  # type: ignore[override]
        return "" if self.rest else self.base.matches

    @property
    def rest(self) -> tuple[int, ...]:
        """The interfaces of `base` that stay on their own."""
        return tuple(i for i in range(len(self.base.interfaces)) if i not in self.members)

    @property
    def interfaces(self) -> tuple[str, ...]:
        names = self.base.interfaces
        return f"({', '.join(names[i] for i in self.members)})", *(names[i] for i in self.rest)

    @property
    def families(self) -> Families:
        return MvGaussian, *(self.base.families[i] for i in self.rest)

    def _apart(self, first: Any, rest: tuple[Any, ...]) -> list[Any]:
        """Values or marginals in the order of the interfaces of `base`."""
        found = dict(zip((*self.members, *self.rest), (*first, *rest), strict=True))
        return [found[i] for i in range(len(found))]

    def log_density(self, *z: Array) -> Array:
        return self.base.log_density(*self._apart(jnp.moveaxis(z[0], -1, 0), z[1:]))

    def _on_nodes(self, j: int, others: Cavities, quadrature: AbstractQuadrature) -> Any:
        """`log f` and log-weights on the product of the nodes of all interfaces but j, whose axes come first."""
        places = [i for i in range(len(self.interfaces)) if i != j]
        z, log_weights, axes = product_nodes(quadrature, tuple(others[i] for i in places))

        def evaluate(z_j: Array) -> tuple[Array, Array, tuple[int, ...]]:
            at = (*(slice(None) for _ in axes), None)  # the nodes of z_j, before n
            values: list[Any] = [x[at] for x in z]
            values.insert(j, z_j[(None,) * len(axes)])
            return log_weights[at], self.log_density(*values), axes

        return evaluate

    def _closed(self, j: int, cavities: Cavities) -> LogMessage | None:
        """The message toward j where `base` integrates all of the rest, but j, in closed form; else None. That toward
        one of the rest is a sum over the nodes of the joint edge."""
        toward = () if j == 0 else (self.rest[j - 1],)
        apart = self._apart([None] * len(self.members), cavities[1:])
        closed = self.base.joint_message((*self.members, *toward), tuple(apart))
        if closed is None or j == 0:
            return None if closed is None else lambda z: closed(*jnp.moveaxis(z, -1, 0))
        u, log_weights = nodes(_few(len(self.members)), cavities[0])
        u = jnp.moveaxis(u, -1, 0)[:, :, None]  # entries, nodes, those of z, n
        return lambda z: jax.nn.logsumexp(log_weights[:, None] + closed(*u, z[None]), axis=0)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        closed = self._closed(j, cavities) if self.rest else None
        return self.fractional_message(j, cavities, 1.0, Quadrature()) if closed is None else closed

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        if not self.rest:
            return self.log_density
        evaluate = self._on_nodes(j, cavities, quadrature)

        def message(z: Array) -> Array:
            log_weights, log_f, axes = evaluate(z)
            return jax.nn.logsumexp(log_weights + power * log_f, axis=axes) / power

        return message

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if not self.rest:
            return self.log_density
        evaluate = self._on_nodes(j, marginals, quadrature)

        def message(z: Array) -> Array:
            log_weights, log_f, axes = evaluate(z)
            return jnp.sum(jnp.exp(log_weights) * log_f, axis=axes)

        return message

    def project(self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        if j == 0 and isinstance(quadrature, Quadrature) and self._expectation(marginal) is not None:
            return by_gradients(self._value, marginal)
        return tangent_projection(marginal, self.log_message(j, cavities), quadrature)

    def expected_log_message(
        self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Float[Array, " n"]:
        if j == 0 and isinstance(quadrature, Quadrature) and (known := self._expectation(marginal)) is not None:
            return known
        return super().expected_log_message(j, marginal, cavities, quadrature)

    def _expectation(self, q: Any) -> Float[Array, " n"] | None:
        """`E_q[log f]` in closed form; None where none is known, or others have to be integrated out."""
        return None if self.rest else self._value(q.mean, q.covariance)

    def _value(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"]) -> Any:
        order = [self.members.index(i) for i in range(len(self.members))]
        return self.base.joint_expectation(mean[..., order], covariance[..., order, :][..., order])

    def matched(self, q: Any, cavity: Any, power: float) -> tuple[Any, Array] | None:
        in_order = self.members == tuple(range(len(self.base.interfaces)))
        return self.base.matched(q, cavity, power) if in_order else None

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        hints = self.base.initial()
        rest = tuple(hints[i] for i in self.rest)
        if all(hints[i] is None for i in self.members):
            return None, *rest
        unit = Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1))
        own: list[Any] = [unit if hints[i] is None else hints[i] for i in self.members]
        moments = zip(*((q.mean, q.variance) for q in own), strict=True)
        mean, variance = (jnp.stack(jnp.broadcast_arrays(*x), -1) for x in moments)
        return MvGaussian.from_mean_covariance(mean, variance[..., None] * jnp.eye(len(own))), *rest

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(*self._apart(jnp.moveaxis(z[0], -1, 0), z[1:]))


def _few(dimensions: int) -> AbstractQuadrature:
    """Nodes for an edge whose cavity many other factors make narrow."""
    return GaussHermite(5) if dimensions == 3 else Quadrature()


def by_gradients(expectation: Any, q: MvGaussian) -> MvGaussian:
    """Bonnet and Price, from `E[l]` as a function of mean and covariance: `E[l'] = d/dm`, `E[l''] = 2 d/dV`."""

    def total(mean: Array, covariance: Array) -> Array:
        return jnp.sum(expectation(mean, 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2))))

    n = jax.eval_shape(expectation, q.mean, q.covariance).shape  # q may be one row for all of them
    mean, covariance = (jnp.broadcast_to(x, n + x.shape[1:]) for x in (q.mean, q.covariance))
    slope, half = jax.grad(total, (0, 1))(mean, covariance)
    return MvGaussian(slope - 2.0 * jnp.einsum("...ij,...j->...i", half, mean), half)
