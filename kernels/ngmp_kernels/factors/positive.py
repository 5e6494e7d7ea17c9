r"""Likelihoods of positive outcomes through a log-rate u: all of the form $l(u) = k u - x e^u + c$.

If $y^p$ is Gamma(a) with rate $e^u$, then k = a and $x = y^p$: p = a = 1 is the exponential distribution, p = 1 the
Gamma, a = 1 Weibull's, and p = 2, a = 1/2 the half-normal. Of a Pareto outcome, $\log(y / m)$ is exponential.
Projections are those of counts (`poisson`): with $\rho = x\, e^{m + v/2}$, $E[l'] = k - \rho$ and $E[l''] = -\rho$.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaincc
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import AbstractConjugate, AbstractProjected, AbstractQuadrature, Cavities, Families, Values
from ..families import Gamma, Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.special import safe_exp, safe_log
from . import weibull
from .exponential import settle
from .generic import ConstantFactor
from .likelihood import at_constants, broadcast, positive

_POSITIVE = "outcomes must be positive and finite"


class AbstractRate(AbstractProjected):
    """`l(u) = k u - x e^u + c`."""

    interfaces: ClassVar[tuple[str, ...]] = ("u",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "positive"

    @abc.abstractmethod
    def line(self) -> tuple[Array, Array, Array]:
        """`k`, `x` and `c`, each (n or 1,)."""

    def log_density(self, u: Array) -> Array:
        k, x, c = self.line()
        return k * u - x * safe_exp(u) + c

    def project(self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature) -> Gaussian:
        (k, x, _), m = self.line(), marginal.mean
        rho = x * safe_exp(m + 0.5 * marginal.variance)
        return Gaussian(k + (m - 1.0) * rho, -0.5 * rho)

    def settle(self, marginal: Gaussian, cavity: Gaussian, leaf: Gaussian, once: Gaussian) -> Gaussian:
        k, x, _ = self.line()
        return settle(k, safe_log(x), marginal, cavity)

    def expected_log_message(
        self, j: int, marginal: Gaussian, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        k, x, c = self.line()
        return k * marginal.mean - x * safe_exp(marginal.mean + 0.5 * marginal.variance) + c

    def initial(self) -> tuple[Gaussian]:
        k, x, _ = self.line()
        centre = safe_log(k) - safe_log(x)
        return (Gaussian.from_mean_variance(*broadcast(centre, jnp.minimum(1.0 / k, 1.0) + 0.0 * centre)),)


class PowerGamma(AbstractRate):
    """`y^power` is Gamma(concentration, rate=e^u); `exponential`: the concentration is known to be one."""

    out: Float[Values, " #n"]
    concentration: Float[Values, " #n"]
    power: Float[Values, " #n"]
    exponential: bool = eqx.field(static=True, default=False)

    def line(self) -> tuple[Array, Array, Array]:
        a, p = jnp.asarray(self.concentration), jnp.asarray(self.power)
        log_y = safe_log(jnp.asarray(self.out))
        return a, jnp.exp(p * log_y), jnp.log(p) + (a * p - 1.0) * log_y - gammaln(a)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        inside = (self.out > 0.0) & jnp.isfinite(self.out)
        return {_POSITIVE: inside, **positive("concentration", self.concentration), **positive("power", self.power)}

    def moments(self, u: Array) -> tuple[Array, Array]:
        a, step = jnp.asarray(self.concentration), 1.0 / jnp.asarray(self.power)
        first = jnp.exp(gammaln(a + step) - gammaln(a))
        second = jnp.exp(gammaln(a + 2.0 * step) - gammaln(a))
        scale = safe_exp(-step * u)
        return first * scale, (second - first**2) * scale**2

    def _scaled(self, out: Array, u: Array) -> tuple[Array, Array]:
        inside = jnp.where(out > 0.0, out, 1.0)
        a, x = broadcast(self.concentration, safe_exp(self.power * jnp.log(inside) + u))
        return a, jnp.where(out > 0.0, x, 0.0)

    def cdf(self, out: Array, u: Array) -> Array:
        a, x = self._scaled(out, u)
        return -jnp.expm1(-x) if self.exponential else gammainc(a, x)

    def log_tails(self, out: Array, u: Array) -> tuple[Array, Array]:
        """Logarithms of `P(outcome <= out | u)` and of the rest, which is exact, -x, where a is one."""
        a, x = self._scaled(out, u)
        if self.exponential:
            return safe_log(-jnp.expm1(-x)), -x
        simple = a == 1.0
        inside = jnp.where(simple, 1.0, x)  # the series below takes as many steps as its slowest element
        below = jnp.where(simple, safe_log(-jnp.expm1(-x)), safe_log(gammainc(a, inside)))
        return below, jnp.where(simple, -x, safe_log(gammaincc(a, inside)))


class ParetoLog(AbstractRate):
    """`f(u) = Pareto(out; concentration=e^u, scale)`: `log(out / scale)` is exponential."""

    out: Float[Values, " #n"]
    scale: Float[Values, " #n"]

    def line(self) -> tuple[Array, Array, Array]:
        log_y = safe_log(jnp.asarray(self.out))
        excess = log_y - safe_log(jnp.asarray(self.scale))
        return jnp.ones_like(excess), jnp.maximum(excess, 0.0), -log_y

    def initial(self) -> tuple[Gaussian]:
        _, x, _ = self.line()
        centre = -jnp.log(x + 0.1)
        return (Gaussian.from_mean_variance(centre, jnp.ones_like(centre)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        inside = (self.out >= self.scale) & jnp.isfinite(self.out)
        return {"outcomes must be at least the scale, and finite": inside, **positive("scale", self.scale)}

    def moments(self, u: Array) -> tuple[Array, Array]:
        """Infinite where the concentration is at most one, or two."""
        a = safe_exp(u)
        mean = jnp.where(a > 1.0, a * self.scale / jnp.where(a > 1.0, a - 1.0, 1.0), jnp.inf)
        tail = jnp.where(a > 2.0, (a - 1.0) ** 2 * (a - 2.0), 1.0)
        return mean, jnp.where(a > 2.0, self.scale**2 * a / tail, jnp.inf)

    def cdf(self, out: Array, u: Array) -> Array:
        excess = jnp.log(jnp.maximum(out, self.scale)) - jnp.log(self.scale)
        return -jnp.expm1(-safe_exp(u) * excess)


class GammaRate(AbstractConjugate):
    """`f(tau) = Gamma(out; concentration, rate=tau)`: the Gamma message (concentration, -out)."""

    interfaces: ClassVar[tuple[str, ...]] = ("tau",)
    families: ClassVar[Families] = (Gamma,)
    support: ClassVar[str | None] = "positive"
    out: Float[Values, " #n"]
    concentration: Float[Values, " #n"]

    def _constant(self) -> Array:
        a = jnp.asarray(self.concentration)
        return (a - 1.0) * safe_log(jnp.asarray(self.out)) - gammaln(a)

    def log_density(self, tau: Array) -> Array:
        return self.concentration * safe_log(tau) - self.out * tau + self._constant()

    def message(self) -> tuple[Gamma, Array]:
        a, out = broadcast(self.concentration, self.out)
        return Gamma(a, -out), self._constant()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        inside = (self.out > 0.0) & jnp.isfinite(self.out)
        return {_POSITIVE: inside, **positive("concentration", self.concentration)}

    def moments(self, tau: Array) -> tuple[Array, Array]:
        return self.concentration / tau, self.concentration / tau**2

    def cdf(self, out: Array, tau: Array) -> Array:
        return gammainc(*broadcast(self.concentration, jnp.maximum(out, 0.0) * tau))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """Of 1/tau under Gamma(s, b): b/(s - 1) and b^2/((s - 1)(s - 2)), where they exist."""
        (q,) = marginals
        s, b, a = q.concentration, q.rate, jnp.asarray(self.concentration)
        first = jnp.where(s > 1.0, b / jnp.where(s > 1.0, s - 1.0, 1.0), jnp.inf)
        second = jnp.where(s > 2.0, b * first / jnp.where(s > 2.0, s - 2.0, 1.0), jnp.inf)
        spread = jnp.where(s > 2.0, second - first**2, jnp.inf)
        return a * first, a**2 * spread, a * second


def _ones(out: Any) -> np.ndarray:
    return np.ones(1, out.dtype)


def _weibull(out: Any, concentration: Any, scale: Any) -> Lowered:
    """`out^k` is exponential with rate `scale^{-k}`."""
    out, k = as_float(out), as_float(concentration)
    return Lowered(PowerGamma(out, _ones(out), k, True), (-1.0 * k * scale,))  # type: ignore[arg-type]


def _weibull_constant(out: Any, concentration: Any, scale: Any) -> Lowered:
    (u,) = _weibull(out, concentration, jnp.log(as_float(scale))).interfaces
    return at_constants(PowerGamma(as_float(out), _ones(as_float(out)), as_float(concentration), True), u)  # type: ignore[arg-type]


def _pareto_constant(out: Any, concentration: Any, scale: Any) -> Lowered:
    return at_constants(ParetoLog(as_float(out), as_float(scale)), jnp.log(as_float(concentration)))


def _pareto(out: Any, concentration: Any, scale: Any) -> Lowered:
    return Lowered(ParetoLog(as_float(out), as_float(scale)), (concentration,))


_SHAPES: Any = {"out": 0, "concentration": 0, "scale": 0}
_CONSTANTS = dict.fromkeys(_SHAPES, CONSTANT)


@register
class Weibull(Distribution):
    """`Weibull(concentration, scale=)` of observed times; each is a constant or `exp` of an affine expression."""

    __slots__ = ()
    family = None
    support = "positive"
    event_ndims: ClassVar = _SHAPES
    placeholder = 1.0
    signatures = (
        Signature({**_CONSTANTS, "scale": EXP_GAUSSIAN}, _weibull, PowerGamma),
        *weibull.SIGNATURES,
        Signature(_CONSTANTS, _weibull_constant, ConstantFactor),
    )

    def __init__(self, concentration: Any, *, scale: Any):
        self.arguments = {"concentration": concentration, "scale": scale}

    @staticmethod
    def standard(concentration: Any, scale: Any) -> tuple[Any, Any]:
        return jnp.log(scale) - 0.6 / concentration, 1.3 / concentration


@register
class Pareto(Distribution):
    """`Pareto(concentration, scale=)`: outcomes beyond the scale; the concentration may be `exp` of an expression."""

    __slots__ = ()
    family = None
    support = "above"
    event_ndims: ClassVar = _SHAPES
    placeholder = 1e30  # at least any scale
    signatures = (
        Signature({**_CONSTANTS, "concentration": EXP_GAUSSIAN}, _pareto, ParetoLog),
        Signature(_CONSTANTS, _pareto_constant, ConstantFactor),
    )

    def __init__(self, concentration: Any, *, scale: Any):
        self.arguments = {"concentration": concentration, "scale": scale}

    @staticmethod
    def standard(concentration: Any, scale: Any) -> tuple[Any, Any]:
        return jnp.log(scale / concentration) - 0.4, 1.4

    def ends(self, concentration: Any, scale: Any) -> tuple[Any, Any]:
        return scale, scale
