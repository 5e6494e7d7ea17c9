"""Counts with more zeros, or fewer, than their distribution has: zero-inflated and hurdle."""

import abc
import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import BETA, CONSTANT, as_float
from ..factor import Families, Values
from ..families import Beta
from ..numerics.special import safe_log
from .around import AbstractAround
from .wrapped import AbstractWrapped, AbstractWrapper, log_tails


class AbstractZeros(AbstractWrapped):
    """A factor whose last interface, or field, is the probability of a zero of another kind."""

    out: Float[Values, " #n"]
    probability: Float[Values, " #n"] | None

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (*self.base.interfaces, *(("p",) if self.probability is None else ()))

    @property
    def families(self) -> Families:
        return (*self.base.families, *((Beta,) if self.probability is None else ()))

    def _split(self, z: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
        return (z[:-1], z[-1]) if self.probability is None else (z, jnp.asarray(self.probability))

    @abc.abstractmethod
    def positive_share(self, p: Array, *z: Array) -> Array:
        """What the probability of a positive outcome is multiplied by."""

    def moments(self, *z: Array) -> tuple[Array, Array]:
        z, p = self._split(z)
        mean, variance = super().moments(*z)
        share = self.positive_share(p, *z)
        return share * mean, share * (variance + mean**2) - (share * mean) ** 2

    def cdf(self, out: Array, *z: Array) -> Array:
        z, p = self._split(z)
        return jnp.where(out < 0.0, 0.0, 1.0 - self.positive_share(p, *z) * (1.0 - self.base.cdf(out, *z)))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if self.probability is None:
            return self.base.checks()
        inside = (self.probability > 0.0) & (self.probability < 1.0)
        return self.base.checks() | {"the probability must lie strictly between 0 and 1": jnp.asarray(inside)}


class ZeroInflatedFactor(AbstractZeros):
    """`p [y = 0] + (1 - p) f(y | z)`."""

    def log_density(self, *z: Array) -> Array:
        z, p = self._split(z)
        here, there = safe_log(p), safe_log(1.0 - p)
        value = there + self.base.log_density(*z)
        return jnp.where(self.out == 0.0, jnp.logaddexp(here, value), value)

    def positive_share(self, p: Array, *z: Array) -> Array:
        return 1.0 - p


class HurdleFactor(AbstractZeros):
    """`p [y = 0] + (1 - p) f(y | z) / (1 - f(0 | z)) [y > 0]`."""

    def _log_positive(self, *z: Array) -> Array:
        if isinstance(self.base, AbstractAround):
            return log_tails(self.base, jnp.zeros(1, z[0].dtype), *z)[1]
        name = "counts" if hasattr(self.base, "counts") else "out"
        zero: Any = dataclasses.replace(self.base, **{name: jnp.zeros(1, z[0].dtype)})
        return safe_log(-jnp.expm1(zero.log_density(*z)))

    def log_density(self, *z: Array) -> Array:
        z, p = self._split(z)
        own = self.base.log_density(*z)
        # All positive counts are at least as likely as one; where rounding says otherwise, this would be a spike.
        value = safe_log(1.0 - p) + jnp.minimum(own - self._log_positive(*z), 0.0)
        return jnp.where(self.out == 0.0, safe_log(p), value)

    def positive_share(self, p: Array, *z: Array) -> Array:
        return (1.0 - p) * jnp.exp(-self._log_positive(*z))


class _Zeros(AbstractWrapper):
    """What both declare."""

    __slots__ = ()
    extra: ClassVar = {"probability": (CONSTANT, BETA)}
    factor: ClassVar[type[AbstractZeros]]

    def __init__(self, distribution: Any, probability: Any):
        self._wrap(distribution, probability=probability)

    def wrapped(self, base: Any, shift: Any, out: Array, probability: Any) -> tuple[Any, tuple]:
        if base.support != "count":
            raise ValueError(f"{type(self).__name__} takes a distribution of counts; {base.label} is none")
        if getattr(probability, "is_expression", False):
            return self.factor(base, shift, out, None), (probability,)  # type: ignore[call-arg]
        return self.factor(base, shift, out, as_float(probability)), ()  # type: ignore[call-arg]


class ZeroInflated(_Zeros):
    """`ZeroInflated(distribution, probability)`: zero with this probability (or Beta variable), else a count."""

    __slots__ = ()
    factor = ZeroInflatedFactor


class Hurdle(_Zeros):
    """`Hurdle(distribution, probability)`: zero with this probability, else a count that is not zero."""

    __slots__ = ()
    factor = HurdleFactor
