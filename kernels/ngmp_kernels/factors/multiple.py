r"""Multiples of Gamma variables: `Normal(m, precision=c * tau)`, `Poisson(t * rate)`.

A factor f of $u = c\,\tau$ is a factor of $\tau$: where q is Gamma(a, b), u is Gamma(a, b/c), and a message
$e^{\eta_1 \log u + \eta_2 u}$ toward u is $e^{\eta_1 \log\tau + c \eta_2 \tau + \eta_1 \log c}$ toward $\tau$. Whatever
the base knows in closed form stays in closed form.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import GAMMA, MULTIPLE_GAMMA, Lowered, Signature, as_float
from ..factor import (
    AbstractConjugate,
    AbstractProjected,
    AbstractQuadrature,
    Cavities,
    LogMessage,
    Values,
)
from ..families import AbstractFamily, Gamma
from .around import AbstractAround


class _Multiple(AbstractAround):
    """What both kinds of base share: interfaces, checks and predictions."""

    scale: Float[Values, " #n"]

    @property
    def label(self) -> str:
        return f"{self.base.label} of a multiple"

    @property
    def at(self) -> int:
        """Which interface has the multiple."""
        return self.base.families.index(Gamma)

    def _points(self, z: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(x * self.scale if i == self.at else x for i, x in enumerate(z))

    def _inside(self, q: Any, j: int) -> Any:
        """The distribution of u where q is that of tau; others as they are."""
        return q if j != self.at or q is None else Gamma(q.eta1, q.eta2 / self.scale)

    def _all(self, marginals: Cavities) -> Cavities:
        return tuple(self._inside(q, j) for j, q in enumerate(marginals))

    def log_density(self, *z: Array) -> Array:
        return self.base.log_density(*self._points(z))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        text = "the multiple of a Gamma variable must be positive and finite"
        return {**self.base.checks(), text: (self.scale > 0.0) & jnp.isfinite(self.scale)}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(*self._points(z))

    def cdf(self, out: Array, *z: Array) -> Array:
        return self.base.cdf(out, *self._points(z))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        return self.base.predictive_moments(self._all(marginals))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        return self.base.predictive_cdf(out, self._all(marginals))


class MultipleConjugate(_Multiple, AbstractConjugate):
    """A conjugate base at `scale * tau`."""

    def message(self) -> tuple[Gamma, Array]:
        eta, log_scale = self.base.message()  # type: ignore[attr-defined]
        scale = jnp.asarray(self.scale)
        eta1, eta2, scale = jnp.broadcast_arrays(eta.eta1, eta.eta2, scale)
        return Gamma(eta1, eta2 * scale), log_scale + eta1 * jnp.log(scale)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        return self.base.predictive_log_density(self._all(marginals))


class MultipleProjected(_Multiple, AbstractProjected):
    """A projected base, one of whose interfaces is `scale * tau`."""

    def _outside(self, eta: Any, j: int) -> Any:
        return eta if j != self.at else Gamma(eta.eta1, eta.eta2 * self.scale)

    def _toward(self, message: LogMessage, j: int) -> LogMessage:
        return message if j != self.at else lambda tau: message(tau * self.scale)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        return self._toward(self.base.log_message(j, self._all(cavities)), j)  # type: ignore[attr-defined]

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        base: Any = self.base
        return self._outside(base.project(j, self._inside(marginal, j), self._all(cavities), quadrature), j)

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        base: Any = self.base
        return base.expected_log_message(j, self._inside(marginal, j), self._all(cavities), quadrature)

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        return self.base.log_evidence(self._all(cavities), quadrature)  # type: ignore[attr-defined]

    def predictive_log_density(self, marginals: Cavities) -> Array:
        return self.base.predictive_log_density(self._all(marginals))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        base: Any = self.base
        return self._toward(base.mean_field_message(j, self._all(marginals), quadrature), j)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        base: Any = self.base
        return self._outside(base.mean_field_projection(j, self._all(marginals), quadrature), j)

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        return self.base.expected_log_density(self._all(marginals), quadrature)  # type: ignore[attr-defined]

    def fractional_message(
        self, j: int, cavities: Cavities, power: float, quadrature: AbstractQuadrature
    ) -> LogMessage:
        base: Any = self.base
        return self._toward(base.fractional_message(j, self._all(cavities), power, quadrature), j)

    def in_family(self) -> tuple[bool, ...]:
        return self.base.in_family()  # type: ignore[attr-defined]

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        start = self.base.initial()  # type: ignore[attr-defined]
        return tuple(None if q is None else self._outside(q, j) for j, q in enumerate(start))


def with_multiples(signatures: tuple[Signature, ...]) -> tuple[Signature, ...]:
    """Signatures, and those of the same with `c * tau` for their Gamma variables."""
    more = [_signature(s, name) for s in signatures for name, kind in s.arguments.items()
            if kind == GAMMA and name != "out"]  # fmt: skip
    return (*signatures, *more)


def _signature(signature: Signature, name: str) -> Signature:
    conjugate = issubclass(signature.factor, AbstractConjugate)
    kind: Any = MultipleConjugate if conjugate else MultipleProjected

    def lower(**given: Any) -> Lowered:
        multiple = given[name]
        factor, interfaces = signature.lower(**{**given, name: multiple.variable})
        return Lowered(kind(factor, as_float(multiple.scale)), interfaces)

    return Signature({**signature.arguments, name: MULTIPLE_GAMMA}, lower, kind)
