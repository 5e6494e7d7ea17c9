"""Binomial counts (and single trials) through other links than the logit: probit and complementary log-log."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import Lowered, as_float
from ..factor import Values
from ..numerics.special import binomial_cdf, is_count, log_binomial, safe_exp, safe_log
from .likelihood import AbstractLikelihood, at_constants


def _cloglog(z: Array) -> tuple[Array, Array]:
    """With `t = e^z`: `log(1 - e^{-t})` and `-t`."""
    t = safe_exp(z)
    small = z < -5.0  # log(1 - e^{-t}) = z - t/2 + O(t^2)
    return jnp.where(small, z - 0.5 * t, safe_log(-jnp.expm1(-jnp.where(small, 1.0, t)))), -t


LINKS = {"probit": lambda z: (log_ndtr(z), log_ndtr(-z)), "cloglog": _cloglog}
"""Logarithms of the probabilities of success and failure."""


class BinomialLinked(AbstractLikelihood):
    """`f(z) = Binomial(out; trials, link^{-1}(z))`."""

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    support: ClassVar[str | None] = "count"
    out: Float[Values, " #n"]
    trials: Float[Values, " #n"]
    link: str = eqx.field(static=True)

    def log_density(self, z: Array) -> Array:
        hit, miss = LINKS[self.link](z)
        out, trials = jnp.asarray(self.out), jnp.asarray(self.trials)
        return out * hit + (trials - out) * miss + log_binomial(trials, out)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        inside = is_count(self.out) & is_count(self.trials) & (self.out <= self.trials)
        return {"outcomes must be 0 or 1, or integers from 0 to the number of trials n": inside}

    def moments(self, z: Array) -> tuple[Array, Array]:
        hit, miss = map(jnp.exp, LINKS[self.link](z))
        return self.trials * hit, self.trials * hit * miss

    def cdf(self, out: Array, z: Array) -> Array:
        return binomial_cdf(out, self.trials, jnp.exp(LINKS[self.link](z)[1]))


def lower_linked(out: Any, n: Any = None, **given: Any) -> Lowered:
    """The factor of `probit=z` or `cloglog=z`."""
    ((link, z),) = given.items()
    out = as_float(out)
    factor = BinomialLinked(out, jnp.ones(1, out.dtype) if n is None else as_float(n), link)
    return at_constants(factor, as_float(z)) if hasattr(z, "dtype") else Lowered(factor, (z,))
