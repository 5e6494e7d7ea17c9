"""A marginal that is given: the prior of a filter's next batch is the posterior of the last one."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..factor import AbstractConjugate, Families
from ..families import AbstractFamily


class Given(AbstractConjugate):
    """`f(z) = q(z)`, normalised: `log f(z) = eta . T(z) - A(eta)` with `eta` the natural parameters of `q`."""

    interfaces: ClassVar[tuple[str, ...]] = ("out",)
    q: AbstractFamily

    @property
    def families(self) -> Families:
        return (type(self.q),)

    def log_density(self, z: Array) -> Array:
        return self.q.log_density(z)

    def message(self) -> tuple[AbstractFamily, Array]:
        return self.q, -self.q.log_partition()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"the marginal given in place of its prior must be proper": jnp.asarray(self.q.is_proper())}

    def moments(self, z: Array) -> tuple[Array, Array]:
        raise TypeError("a given marginal stands for the prior of a latent variable, which has no outcome to predict")
