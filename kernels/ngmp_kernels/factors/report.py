"""Reports: expressions whose marginals are part of the results, `ngmp.deterministic(name, expression)`.

A report is a factor that says nothing: a flat message, by which the core knows that the marginal is asked for.
"""

from collections.abc import Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, Distribution, Lowered, Signature
from ..factor import AbstractConjugate, Families, Values
from ..families import FAMILIES, AbstractFamily, Gaussian


class ReportFactor(AbstractConjugate):
    """`f(x) = 1`; with `link="exp"` what is reported is `exp(x)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("x",)
    family: type[AbstractFamily] = eqx.field(static=True)
    event_shape: tuple[int, ...] = eqx.field(static=True)
    link: str | None = eqx.field(static=True)
    zero: Float[Values, " 1"]

    @property
    def families(self) -> Families:
        return (self.family,)

    def log_density(self, x: Array) -> Array:
        return jnp.zeros(x.shape[: x.ndim - self.family.event_ndim], self.zero.dtype)

    def message(self) -> tuple[AbstractFamily, Array]:
        return self.family.flat((1,), self.event_shape, self.zero.dtype), jnp.asarray(self.zero)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, x: Array) -> tuple[Array, Array]:
        raise ValueError("a deterministic expression has no outcome to predict: its marginal is in the results")


class Report(Distribution):
    """`ngmp.deterministic(name, x)`. Not in the registry: it is no density."""

    __slots__ = ("name",)
    family = None
    event_ndims: ClassVar = {"x": 0, "zero": 0}
    placeholder = 0.0

    def __init__(self, name: str, x: Any):
        self.name = name
        self.arguments = {"x": x, "zero": 0.0}

    @property
    def label(self) -> str:
        return "ngmp.deterministic"

    @property
    def key(self) -> Hashable:
        return Report, self.name

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        variables = Signature({"x": frozenset(FAMILIES), "zero": CONSTANT}, self._lower, ReportFactor)
        return variables, Signature({"x": EXP_GAUSSIAN, "zero": CONSTANT}, self._lower_exp, ReportFactor)

    def _lower(self, x: Any, zero: Any) -> Lowered:
        plane = getattr(x, "plane", None)
        family, event = (Gaussian, ()) if plane is None else (plane.family, plane.event_shape)
        return Lowered(ReportFactor(family, event, None, zero), (x,))  # type: ignore[call-arg]

    def _lower_exp(self, x: Any, zero: Any) -> Lowered:
        return Lowered(ReportFactor(Gaussian, (), "exp", zero), (x,))  # type: ignore[call-arg]
