"""The outcome of a site whose parameters a selector picks, predicted: a mixture of its gates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..factor import AbstractFactor, Cavities, Families
from ..families import Categorical


class Mixture(AbstractFactor):
    """The gated factors of every element taken together, for prediction: a mixture with weights `q(z in k)`.

    Rows of `gated` and of its marginals are `(repeats, parts, size)`, those of an outcome `(repeats, size)`.
    """

    gated: Any  # Gated or GatedConstant
    repeats: int = eqx.field(static=True)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return self.gated.interfaces

    @property
    def families(self) -> Families:
        return self.gated.families

    @property
    def support(self) -> str | None:
        return self.gated.support

    def _split(self, x: Array) -> Array:
        return x.reshape(self.repeats, self.gated.parts, -1, *x.shape[1:])

    def _sum(self, x: Array) -> Array:
        return jnp.sum(self._split(x), axis=1).reshape(-1, *x.shape[1:])

    def _weights(self, z: Categorical) -> Float[Array, " n"]:
        return jnp.sum(z.probs * jnp.asarray(self.gated.k), axis=-1)

    def log_density(self, *z: Array) -> Array:
        return self._sum(self.gated.log_density(*z))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.gated.checks()

    def moments(self, *z: Array) -> tuple[Array, Array]:
        raise TypeError("a mixture is predicted from marginals")

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        found = self.gated.predictive_moments(marginals)
        weights = self._weights(marginals[-1])
        weights = weights.reshape(weights.shape + (1,) * (found[0].ndim - 1))
        mean, epistemic, aleatoric = (self._sum(weights * x) for x in found)
        return mean, epistemic + self._sum(weights * found[0] ** 2) - mean**2, aleatoric

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        whole = out.reshape(self.repeats, 1, -1, *out.shape[1:])
        shape = (self.repeats, self.gated.parts, *whole.shape[2:])
        found = self.gated.predictive_cdf(jnp.broadcast_to(whole, shape).reshape(-1, *out.shape[1:]), marginals)
        weights = self._weights(marginals[-1])
        return self._sum(weights.reshape(weights.shape + (1,) * (found.ndim - 1)) * found)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        terms = self.gated.predictive_log_density(marginals) + jnp.log(self._weights(marginals[-1]))
        return jax.nn.logsumexp(self._split(terms), axis=1).reshape(-1)
