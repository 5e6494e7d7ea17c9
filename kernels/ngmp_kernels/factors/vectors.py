r"""Likelihoods of one Gaussian vector whose gradient and Hessian are known: $\eta^* $ by Bonnet and Price,

$$ \eta_2^* = \tfrac12 E[\nabla^2 l], \qquad \eta_1^* = E[\nabla l] - 2\, \eta_2^*\, m, $$

with expectations at nodes of the marginal: a product of Hermite rules in up to three dimensions, then
points that fill space.
"""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families
from ..families import MvGaussian
from ..numerics.cholesky import inverse_factor
from ..quadrature.nodes import hermite_product, spread
from ..quadrature.projection import Quadrature, tangent_projection

_POINTS = 512  # of more dimensions; right to a few thousandths up to a standard deviation of two


class AbstractVector(AbstractProjected):
    """A factor of one Gaussian vector."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (MvGaussian,)
    per_axis: ClassVar[dict[int, int]]
    """Nodes along every axis, by the number of dimensions."""

    @abc.abstractmethod
    def derivatives(self, w: Float[Array, " Q"], z: Float[Array, "Q n d"]) -> tuple[Array, Array]:
        """The expectations of gradient (n, d) and Hessian (n, d, d) of the log-density, by weights and nodes."""

    def vector_nodes(self, q: MvGaussian) -> tuple[Float[Array, " Q"], Float[Array, "Q n d"]]:
        """Weights and nodes of a marginal."""
        (d,) = q.event_shape
        u, log_weights = hermite_product(self.per_axis[d], d) if d in self.per_axis else spread(_POINTS, d)
        root = inverse_factor(q._chol)
        z = q.mean + jnp.einsum("nji,qj->qni", root, jnp.asarray(u, q.dtype), precision="highest")
        return jnp.asarray(np.exp(log_weights), q.dtype), z

    def project(self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature) -> Any:
        if not isinstance(quadrature, Quadrature):
            return tangent_projection(marginal, self.log_density, quadrature)
        slope, bend = self.derivatives(*self.vector_nodes(marginal))
        shift = jnp.einsum("nij,nj->ni", bend, jnp.broadcast_to(marginal.mean, slope.shape))
        return MvGaussian(slope - shift, 0.5 * bend)

    def expected_log_message(
        self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Float[Array, " n"]:
        if not isinstance(quadrature, Quadrature):
            return super().expected_log_message(j, marginal, cavities, quadrature)
        w, z = self.vector_nodes(marginal)
        return jnp.tensordot(w, self.log_density(z), 1, precision="highest")

    def predictive_log_density(self, marginals: Cavities) -> Float[Array, " n"]:
        w, z = self.vector_nodes(*marginals)
        return jax.nn.logsumexp(self.log_density(z) + jnp.log(w)[:, None], axis=0)
