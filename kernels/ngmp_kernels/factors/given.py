"""Priors with constant parameters, and given marginals: a filter's next prior is the posterior of its last batch."""

import abc
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..distribution import Lowered
from ..factor import AbstractConjugate, Families
from ..families import AbstractFamily
from .generic import ConstantFactor


class AbstractMember(AbstractConjugate):
    """A member q of its family, normalised: `log f(z) = eta . T(z) - A(eta)`."""

    @abc.abstractmethod
    def density(self) -> AbstractFamily:
        """The member q, (#n)."""

    def log_density(self, z: Array) -> Array:
        return self.density().log_density(z)

    def message(self) -> tuple[AbstractFamily, Array]:
        q = self.density()
        return q, -q.log_partition()

    def moments(self, z: Array) -> tuple[Array, Array]:
        q = self.density()
        return jnp.broadcast_to(q.mean, z.shape), jnp.broadcast_to(q.variance, z.shape)

    def observed(self, out: Array, conditions: dict[str, Array]) -> Lowered:
        """What is left where the outcome is a constant, scalar one too."""
        value = self.log_density(out)
        return Lowered(ConstantFactor(value, *self.moments(value), {**self.checks(), **conditions}, self), ())


class Given(AbstractMember):
    """`f(z) = q(z)`, normalised: `log f(z) = eta . T(z) - A(eta)` with `eta` the natural parameters of `q`."""

    interfaces: ClassVar[tuple[str, ...]] = ("out",)
    q: AbstractFamily

    @property
    def families(self) -> Families:
        return (type(self.q),)

    def density(self) -> AbstractFamily:
        return self.q

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"the marginal given in place of its prior must be proper": jnp.asarray(self.q.is_proper())}

    def moments(self, z: Array) -> tuple[Array, Array]:
        raise TypeError("a given marginal stands for the prior of a latent variable, which has no outcome to predict")
