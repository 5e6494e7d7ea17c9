"""Truncated and censored outcomes of any distribution that has a distribution function."""

from collections.abc import Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, as_float
from ..factor import Values
from .wrapped import NONE, AbstractWrapped, AbstractWrapper, log_between, log_tail

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_REACH = 12.0  # standard deviations of the base that moments look at
_COUNTS = 256  # outcomes that moments of counts look at


class TruncatedFactor(AbstractWrapped):
    """`f(y | z) / P(low < y <= high | z)`; of counts, low itself is possible."""

    low: Float[Values, " #n"]
    high: Float[Values, " #n"]
    out: Float[Values, " #n"]

    def _below(self) -> Array:
        """The end below which nothing is: of counts, P(y <= low - 1) is left out."""
        low = jnp.asarray(self.low)
        return jnp.ceil(low) - 1.0 if self.support == "count" else low

    def _mass(self, *z: Array) -> Array:
        return log_between(self.base, self._below(), jnp.asarray(self.high), *self._tail(z))

    def log_density(self, *z: Array) -> Array:
        value = self.exact(*z) - self._mass(*z)
        # All counts within the bounds are at least as likely as one; rounding that says otherwise would be a spike.
        return jnp.minimum(value, 0.0) if self.support == "count" else value

    def cdf(self, out: Array, *z: Array) -> Array:
        inside = jnp.exp(log_between(self.base, self._below(), jnp.clip(out, self._below(), self.high), *self._tail(z)))
        return jnp.where(out >= self.high, 1.0, jnp.where(out < self.low, 0.0, inside / jnp.exp(self._mass(*z))))

    def moments(self, *z: Array) -> tuple[Array, Array]:
        """By `E[y] = a + int (1 - F)` between the ends, or as far as the base reaches; of counts by sums."""
        mean, variance = super().moments(*z)
        reach = _REACH * jnp.sqrt(jnp.where(jnp.isfinite(variance), variance, 1.0)) + 1e-6
        start = jnp.maximum(self.low, mean - reach)
        start = jnp.where(start < self.high, start, self.high - reach)
        if self.support == "count":
            start = jnp.ceil(jnp.maximum(start, 0.0))
            y = jnp.arange(_COUNTS, dtype=mean.dtype).reshape(-1, *(1,) * jnp.ndim(start))
            weights = jnp.ones_like(y)
        else:
            end = jnp.minimum(self.high, jnp.maximum(mean, start) + reach)
            nodes, w = (jnp.asarray(x, mean.dtype).reshape(-1, *(1,) * jnp.ndim(start)) for x in (_NODES, _WEIGHTS))
            y, weights = 0.5 * (end - start) * (nodes + 1.0), 0.5 * (end - start) * w
        above = weights * (1.0 - self.cdf(start + y, *z))
        first = jnp.sum(above, axis=0)
        # Of y = 0, 1, ...: E[y^2] = sum (2 y + 1) P(Y > y).
        second = jnp.sum((2.0 * y + (1.0 if self.support == "count" else 0.0)) * above, axis=0)
        return start + first, jnp.maximum(second - first**2, 0.0)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks() | {
            "the bounds of a truncated distribution must have low < high": jnp.asarray(self.low < self.high),
            "outcomes must lie within the bounds": jnp.asarray((self.out >= self.low) & (self.out <= self.high)),
        }


class Truncated(AbstractWrapper):
    """`Truncated(distribution, low, high)`: outcomes outside of the bounds cannot be; either may be None.

    An observed outcome, or a number that is integrated.
    """

    __slots__ = ()
    extra: ClassVar = {"low": (CONSTANT,), "high": (CONSTANT,)}

    def __init__(self, distribution: Any, low: Any = None, high: Any = None):
        known = [x for x in (low, high) if isinstance(x, (int, float, np.ndarray, np.generic))]
        if low is None and high is None:
            raise TypeError("Truncated takes a distribution and low, high, or both of them; got neither")
        if len(known) == 2 and not np.all(np.asarray(low) < np.asarray(high)):
            raise ValueError(f"Truncated was given low={low} and high={high}; low must be below high")
        self._wrap(distribution, low=-NONE if low is None else low, high=NONE if high is None else high)

    @property
    def placeholder(self) -> float | int:  # type: ignore[override]
        return self.base.placeholder

    @property
    def support(self) -> str | None:  # type: ignore[override]
        """That of the base, as far as the bounds leave it: "above" or "below" one of them, or between the two."""
        if self.base.support not in ("real", "positive", "unit"):
            return None
        given = {k: not (isinstance(x := self.arguments[k], float) and abs(x) >= NONE) for k in ("low", "high")}
        upper = given["high"] or self.base.support == "unit"
        lower = given["low"] or self.base.support != "real"
        return "interval" if upper and lower else "below" if upper else "above"

    def ends(self, low: Any, high: Any, **arguments: Any) -> tuple[Any, Any]:
        if self.base.support == "real":
            return low, high
        return jnp.maximum(low, 0.0), jnp.minimum(high, 1.0) if self.base.support == "unit" else high

    def standard(self, low: Any, high: Any, **arguments: Any) -> tuple[Any, Any]:  # type: ignore[override]
        """Between two ends anywhere; beyond one of them, as far as the base is wide."""
        centre, spread = self.base.standard(**arguments)
        if self.support == "interval":
            return 0.0, 1.8
        if self.base.support == "positive":
            return jnp.logaddexp(centre, jnp.log(jnp.maximum(low, 1e-6))), spread
        end, side = (low, 1.0) if self.support == "above" else (high, -1.0)
        # Beyond the end by its distance to the mean, or, where that is on the other side, as the tail falls.
        reach = side * (centre - end) / spread
        return jnp.log(spread * jnp.where(reach > 1.0, reach, 1.0 / (2.0 - jnp.minimum(reach, 1.0)))), 1.2

    def wrapped(self, base: Any, shift: Any, out: Array, low: Any, high: Any) -> tuple[Any, tuple]:
        if base.support is None:
            raise ValueError(f"{base.label} has no distribution function, which Truncated and censored= need")
        return TruncatedFactor(base, shift, as_float(low), as_float(high), out), ()  # type: ignore[call-arg]


class CensoredFactor(AbstractWrapped):
    """An outcome known exactly (code 0), to be above `out` (1), at most `out` (-1), or between it and `upper` (2).

    Attributes:
        pairs: whether there are upper ends at all, and so intervals.
    """

    out: Float[Values, " #n"]
    code: Float[Values, " #n"]
    upper: Float[Values, " #n"]
    pairs: bool = eqx.field(static=True, default=True)

    def log_density(self, *z: Array) -> Array:
        tail = log_tail(self.base, jnp.asarray(self.out), jnp.asarray(self.code > 0.0), *self._tail(z))
        if self.pairs:
            between = log_between(self.base, jnp.asarray(self.out), jnp.asarray(self.upper), *self._tail(z))
            tail = jnp.where(self.code > 1.0, between, tail)
        return jnp.where(self.code == 0.0, self.exact(*z), tail)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        known = jnp.isin(jnp.asarray(self.code), jnp.asarray([-1.0, 0.0, 1.0, 2.0]))
        ordered = (self.code != 2.0) | (self.out < self.upper)
        own = {k: ok | (self.code != 0.0) for k, ok in self.base.checks().items()}
        return own | {
            "codes of censoring are 0 (seen), 1 (right), -1 (left) and 2 (interval)": known,
            "the ends of an interval must have lower < upper": jnp.asarray(ordered),
        }


CODES = {"none": 0, "right": 1, "left": -1, "interval": 2}


class Censored(AbstractWrapper):
    """`ngmp.sample(name, distribution, obs=y, censored=...)`; not declared by users."""

    __slots__ = ("pairs",)
    extra: ClassVar = {"code": (CONSTANT,), "upper": (CONSTANT,)}

    def __init__(self, distribution: Any, code: Any, upper: Any, pairs: bool = True):
        self._wrap(distribution, code=code, upper=upper)
        self.pairs = pairs

    @property
    def key(self) -> Hashable:
        return *super().key, self.pairs  # type: ignore[misc]

    def wrapped(self, base: Any, shift: Any, out: Array, code: Any, upper: Any) -> tuple[Any, tuple]:
        if base.support is None:
            raise ValueError(f"{base.label} has no distribution function, which Truncated and censored= need")
        return CensoredFactor(base, shift, out, as_float(code), as_float(upper), self.pairs), ()  # type: ignore[call-arg]
