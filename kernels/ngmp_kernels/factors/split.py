"""Factors with an interface taken apart, for mean-field rules that keep its variables independent."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..factor import (
    AbstractConjugate,
    AbstractFactor,
    AbstractProjected,
    AbstractQuadrature,
    Cavities,
    Families,
    LogMessage,
)
from ..families import AbstractFamily, Categorical, Gaussian, MvGaussian
from ..quadrature.projection import Quadrature, nodes, tangent_projection


class SplitFactor(AbstractProjected):
    """`f(sum_k r_{1k}, sum_k r_{2k}, ...)`: every Gaussian interface of `base` as a sum of independent parts.

    Only mean-field rules use it, so no cavity is ever integrated.

    Attributes:
        base: the factor as declared.
        parts: the number of parts of each interface of `base`.
    """

    base: AbstractFactor
    parts: tuple[int, ...] = eqx.field(static=True)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(
            f"{name}{k + 1}" if count > 1 else name
            for name, count in zip(self.base.interfaces, self.parts, strict=True)
            for k in range(count)
        )

    @property
    def families(self) -> Families:
        return tuple(f for f, count in zip(self.base.families, self.parts, strict=True) for _ in range(count))

    def _whole(self, pieces: tuple[Any, ...]) -> list[list[Any]]:
        rest = iter(pieces)
        return [[next(rest) for _ in range(count)] for count in self.parts]

    def log_density(self, *z: Array) -> Array:
        return self.base.log_density(*map(_total, self._whole(z)))

    def _sums(self, marginals: Cavities) -> tuple[AbstractFamily, ...]:
        """Marginals of the interfaces of `base`: sums of independent Gaussians."""
        return tuple(g[0] if len(g) == 1 else _sum(g) for g in self._whole(marginals))

    def _locate(self, j: int) -> tuple[int, int]:
        """The interface of `base` that interface j is a part of, and which part."""
        base, k = 0, j
        while k >= self.parts[base]:
            k -= self.parts[base]
            base += 1
        return base, k

    def leading(self) -> tuple[int, ...]:
        own = self.base.leading() if isinstance(self.base, AbstractProjected) else ()
        return tuple(j for j in range(len(self.interfaces)) if self._locate(j)[0] in own)

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        """`eta1 r + eta2 r^2` of the whole is `(eta1 + 2 eta2 m) r_k + eta2 r_k^2` of a part, m the mean of others."""
        base, k = self._locate(j)
        whole = self._sums(marginals)
        if isinstance(self.base, AbstractConjugate):
            message, _ = self.base.message()
            eta: Any = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), message, whole[0])
        elif isinstance(self.base, AbstractProjected) and (self.parts[base] == 1 or self.base.in_family()[base]):
            eta = self.base.mean_field_projection(base, whole, quadrature)
        else:
            return tangent_projection(marginals[j], self.mean_field_message(j, marginals, Quadrature()), quadrature)
        if self.parts[base] == 1:
            return eta
        rest = sum(q.mean for i, q in enumerate(self._whole(marginals)[base]) if i != k)
        return eta.shifted(-rest)

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        base, k = self._locate(j)
        whole = self._sums(marginals)
        message = _base_message(self.base, base, whole, quadrature)
        if self.parts[base] == 1:
            return message
        group = self._whole(marginals)[base]
        rest, log_weights = nodes(quadrature, _sum([q for i, q in enumerate(group) if i != k]))
        weights = jnp.exp(log_weights)

        def shifted(z: Array) -> Array:
            place = (slice(None), *(None,) * (z.ndim - 1))
            return jnp.sum(weights[place] * message(z[None] + rest[place]), axis=0)

        return shifted

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        whole = self._sums(marginals)
        if isinstance(self.base, AbstractProjected):
            return self.base.expected_log_density(whole, quadrature)
        assert isinstance(self.base, AbstractConjugate)
        eta, log_scale = self.base.message()
        assert eta is not None
        return eta.dot(whole[0].to_mean()) + log_scale

    def in_family(self) -> tuple[bool, ...]:
        flags = self.base.in_family() if isinstance(self.base, AbstractProjected) else (True,)
        return tuple(f for f, count in zip(flags, self.parts, strict=True) for _ in range(count))

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        base: Any = self.base
        hints = base.initial() if isinstance(base, AbstractProjected) else (base.message()[0],)
        # The data speak of the whole, not of its parts, whose start is therefore N(0, 1).
        units = [_unit(h) for h in hints]
        return tuple(h if c == 1 else u for h, u, c in zip(hints, units, self.parts, strict=True) for _ in range(c))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(*map(_total, self._whole(z)))


def _total(values: list[Any]) -> Any:
    return sum(values[1:], values[0])


def _sum(marginals: list[Any]) -> Gaussian | MvGaussian:
    mean, spread = sum(q.mean for q in marginals), sum(q.covariance for q in marginals)
    return type(marginals[0]).from_mean_covariance(mean, spread)


def _unit(like: AbstractFamily | None) -> Gaussian | MvGaussian:
    """N(0, 1), or N(0, I) of the dimension of `like`."""
    return Gaussian.standard((1,)) if like is None else type(like).standard((1,), like.event_shape)  # type: ignore


def _base_message(base: AbstractFactor, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
    if isinstance(base, AbstractProjected):
        return base.mean_field_message(j, marginals, quadrature)
    return base.log_density


class SplitTable(AbstractProjected):
    """A table factor of several classes with an interface for each: `E[log table | z_j]` for mean-field rules."""

    base: Any  # a conjugate factor whose one interface is a tuple of classes

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(self.base.interfaces[0].strip("()").split(", "))

    @property
    def families(self) -> Families:
        return (Categorical,) * len(self.interfaces)

    def log_density(self, *z: Array) -> Array:
        # A zero of the table is a very unlikely cell here: mean field would otherwise never leave its start.
        return jnp.maximum(self.base.log_density(tuple(jnp.broadcast_arrays(*z))), -1e4)

    def in_family(self) -> tuple[bool, ...]:
        return (True,) * len(self.interfaces)

    def initial(self) -> tuple[Categorical, ...]:
        table = self.base.message()[0].eta1
        return tuple(Categorical(jnp.zeros((1, classes))) for classes in table.shape[1:])

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(z)
