"""Factors with an interface taken apart, for mean-field rules that keep its variables independent."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .factor import AbstractFactor, AbstractProjected, Cavities, Families, LogMessage, Rule
from .families import AbstractFamily, Categorical, Gaussian
from .projection import expectation, nodes


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

    def mean_field_message(self, j: int, marginals: Cavities, rule: Rule) -> LogMessage:
        base, k = 0, j
        while k >= self.parts[base]:
            k -= self.parts[base]
            base += 1
        whole = self._sums(marginals)
        message = _base_message(self.base, base, whole, rule)
        if self.parts[base] == 1:
            return message
        group = self._whole(marginals)[base]
        rest, log_weights = nodes(rule, _sum([q for i, q in enumerate(group) if i != k]))
        weights = jnp.exp(log_weights)

        def shifted(z: Array) -> Array:
            place = (slice(None), *(None,) * (z.ndim - 1))
            return jnp.sum(weights[place] * message(z[None] + rest[place]), axis=0)

        return shifted

    def expected_log_density(self, marginals: Cavities, rule: Rule) -> Array:
        whole = self._sums(marginals)
        if isinstance(self.base, AbstractProjected):
            return self.base.expected_log_density(whole, rule)
        return expectation(whole[0], self.base.log_density, rule)

    def in_family(self) -> tuple[bool, ...]:
        flags = self.base.in_family() if isinstance(self.base, AbstractProjected) else (True,)
        return tuple(f for f, count in zip(flags, self.parts, strict=True) for _ in range(count))

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        unit = Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1))
        hints = self.base.initial() if isinstance(self.base, AbstractProjected) else (unit,)
        # The data speak of the whole, not of its parts, whose start is therefore N(0, 1).
        return tuple(h if c == 1 else unit for h, c in zip(hints, self.parts, strict=True) for _ in range(c))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(*map(_total, self._whole(z)))


def _total(values: list[Any]) -> Any:
    return sum(values[1:], values[0])


def _sum(marginals: list[Any]) -> Gaussian:
    return Gaussian.from_mean_variance(sum(q.mean for q in marginals), sum(q.variance for q in marginals))


def _base_message(base: AbstractFactor, j: int, marginals: Cavities, rule: Rule) -> LogMessage:
    if isinstance(base, AbstractProjected):
        return base.mean_field_message(j, marginals, rule)
    return base.log_density


class SplitPair(AbstractProjected):
    """A table factor of two classes with an interface for each: `E[log table | z_j]` for mean-field rules."""

    base: Any  # a conjugate factor whose one interface is a pair
    interfaces: ClassVar[tuple[str, ...]] = ("z", "out")
    families: ClassVar[Families] = (Categorical, Categorical)

    def log_density(self, z: Array, out: Array) -> Array:
        # A zero of the table is a very unlikely pair here: mean field would otherwise never leave its start.
        return jnp.maximum(self.base.log_density(jnp.broadcast_arrays(z, out)), -1e4)

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def initial(self) -> tuple[Categorical, Categorical]:
        table = self.base.message()[0].eta1  # type: ignore[union-attr]
        rows, columns = (jnp.zeros((1, table.shape[i])) for i in (-2, -1))
        return Categorical(rows), Categorical(columns)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def moments(self, z: Array, out: Array) -> tuple[Array, Array]:
        return self.base.moments((z, out))
