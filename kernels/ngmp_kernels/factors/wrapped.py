r"""Distributions made of others: truncated, censored, zero-inflated, hurdle.

A wrapper takes the factor of its base and changes its log-density; quadrature does the rest. Its interfaces are those
of the base at the placeholder outcome: where the base stands on a residual $r = y - \mu$, or $\log y - \mu$, the
wrapper has $-\mu$ and adds its `shift`.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import Distribution, Lowered, Signature, as_float
from ..factor import AbstractFactor, AbstractProjected, Values
from ..families import AbstractFamily, Gaussian
from ..numerics.special import safe_log
from ..quadrature.start import peak
from .around import AbstractAround
from .generic import ConstantFactor
from .likelihood import at_constants

NONE = 1e30  # a bound that is none: parameters must be finite


class AbstractWrapped(AbstractAround, AbstractProjected):
    """A factor with the interfaces of its base."""

    shift: Float[Values, " #n"]
    out: eqx.AbstractVar[Float[Values, " #n"]]

    def exact(self, *z: Array) -> Array:
        """The log-density of the base at the outcome."""
        if not z:  # a member of a family with constant parameters, a function of its outcome
            return self.base.log_density(jnp.asarray(self.out))
        return self.base.log_density(*self._shifted(z))

    def _shifted(self, z: tuple[Array, ...]) -> tuple[Array, ...]:
        j = _place(self.base)
        return *z[:j], z[j] + self.shift, *z[j + 1 :]

    def _tail(self, z: tuple[Array, ...]) -> tuple[Array, ...]:
        """What distribution functions of the base are given."""
        return self._shifted(z) if self.base.relative else z

    def moments(self, *z: Array) -> tuple[Array, Array]:
        return self.base.moments(*(self._tail(z) or (jnp.asarray(self.out),)))

    def cdf(self, out: Array, *z: Array) -> Array:
        return self.base.cdf(out, *self._tail(z))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.base.checks()

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        if self.families != (Gaussian,):
            return (None,) * len(self.families)
        sizes = [jnp.shape(x)[0] for x in jax.tree.leaves(self) if jnp.ndim(x)]
        return (peak(self.log_density, max(sizes), jnp.asarray(self.shift).dtype),)


def log_tails(factor: AbstractFactor, out: Array, *z: Array) -> tuple[Array, Array]:
    """`log P(y <= out | z)` and `log P(y > out | z)`; beyond `NONE`, there is nothing."""
    high, low = out >= NONE, out <= -NONE
    known = jnp.where(high | low, 0.0, out)
    if hasattr(factor, "score"):
        u = factor.score(known, *z)  # type: ignore[attr-defined]
        below, above = log_ndtr(u), log_ndtr(-u)
    elif hasattr(factor, "log_tails"):
        below, above = factor.log_tails(known, *z)  # type: ignore[attr-defined]
    else:
        cdf = factor.cdf(known, *z)
        above = factor.survival(known, *z) if hasattr(factor, "survival") else 1.0 - cdf  # type: ignore[attr-defined]
        below, above = safe_log(cdf), safe_log(above)
    never = jnp.log(jnp.finfo(below.dtype).tiny).astype(below.dtype)
    return (jnp.where(high, 0.0, jnp.where(low, never, below)), jnp.where(low, 0.0, jnp.where(high, never, above)))


def log_tail(factor: AbstractFactor, out: Array, upper: Bool[Array, " #n"], *z: Array) -> Array:
    """The one of `log_tails` that is asked for: of a normal outcome, no more than that is computed."""
    if not hasattr(factor, "score"):
        below, above = log_tails(factor, out, *z)
        return jnp.where(upper, above, below)
    u = factor.score(out, *z)  # type: ignore[attr-defined]
    return log_ndtr(jnp.where(upper, -u, u))


def log_between(factor: AbstractFactor, low: Array, high: Array, *z: Array) -> Array:
    """`log P(low < y <= high | z)`, from the tail that is smaller, so that far away its digits are kept."""
    (below_low, above_low), (below_high, above_high) = (log_tails(factor, x, *z) for x in (low, high))
    left = below_high < above_low
    larger, smaller = jnp.where(left, below_high, above_low), jnp.where(left, below_low, above_high)
    gap = jnp.minimum(smaller - larger, 0.0)
    never = jnp.log(jnp.finfo(gap.dtype).tiny).astype(gap.dtype)
    tiny = -jnp.finfo(gap.dtype).eps
    return jnp.maximum(larger + jnp.log(-jnp.expm1(jnp.minimum(gap, tiny))), never)


class AbstractWrapper(Distribution):
    """A distribution with a base; its further arguments are constants, or what `extra` says."""

    __slots__ = ("base",)
    extra: ClassVar[Mapping[str, tuple[frozenset[str], ...]]]
    """The kinds that further arguments may be, one signature for each combination that occurs."""

    def _wrap(self, base: Any, **further: Any) -> None:
        if not isinstance(base, Distribution):
            raise TypeError(f"{type(self).__name__} was given {base!r}; give a distribution, such as Poisson(rate)")
        self.base = base
        self.arguments = {**base.arguments, **further}

    @property
    def family(self) -> None:  # type: ignore[override]
        return None

    @property
    def event_ndims(self) -> Mapping[str, int | None]:  # type: ignore[override]
        return {**self.base.event_ndims, **dict.fromkeys(self.extra, 0)}

    @property
    def placeholder(self) -> float | int:  # type: ignore[override]
        return self.base.placeholder

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.base.label})"

    @property
    def key(self) -> Hashable:
        return type(self), self.base.key

    def blank(self) -> "AbstractWrapper":
        out: Any = super().blank()
        out.base = self.base.blank()
        return out

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        own = [s for s in self.base.signatures if "constant" in s.arguments["out"]]
        return tuple(
            Signature({**s.arguments, "out": frozenset({"constant"}), **dict(zip(self.extra, kinds, strict=True))},
                      lambda s=s, **given: self._lower(s, **given), AbstractWrapped)  # type: ignore[type-abstract]
            for s in own for kinds in zip(*self.extra.values(), strict=True)
        )  # fmt: skip

    def _lower(self, signature: Signature, out: Any, **given: Any) -> Lowered:
        further = {k: given.pop(k) for k in self.extra}
        out = as_float(out)
        base, _ = signature.lower(out=out, **given)
        placeholder = np.full((1,) * out.ndim, self.base.placeholder, out.dtype)
        still, interfaces = signature.lower(out=placeholder, **given)
        if not isinstance(base, ConstantFactor):
            return self._made(base, _shift(base, out), out, interfaces, **further)
        if still.conditional is None:  # type: ignore[attr-defined]
            needs = f"{self.label} needs a base that has random parameters or a distribution function"
            works = "integrate= what is unknown of it, or observe the logarithm of a LogNormal with a Normal"
            raise ValueError(f"{needs}; {works}")
        inner = base.conditional
        values = still.values  # type: ignore[attr-defined]
        return self._made(inner, _shift(inner, out), out, values, **further)

    def _made(self, base: Any, shift: Any, out: Array, interfaces: tuple, **further: Any) -> Lowered:
        """The factor on its interfaces; constants, if all of them are."""
        factor, added = self.wrapped(base, shift, out, **further)
        places = (*interfaces, *added)
        if all(isinstance(x, (jax.Array, np.ndarray)) for x in places):
            return at_constants(factor, *places)
        return Lowered(factor, places)

    wrapped: Callable[..., tuple[Any, tuple]]
    """`(base, shift, out, **further) -> factor, further interfaces`."""


def _place(base: Any) -> int:
    """Which interface of a base has the outcome in it; the first if none has."""
    return next((j for j, name in enumerate(base.interfaces) if name in ("r", "u", "w")), 0)


def _shift(base: Any, out: Array) -> Array:
    """What that interface has of the outcome."""
    name = base.interfaces[_place(base)]
    if base.relative or name == "r" and hasattr(base, "log_out"):
        return jnp.log(out)
    if name == "r":
        return out
    return out / base.scale if name == "u" and base.support == "real" else jnp.zeros_like(out)  # in units of its scale
