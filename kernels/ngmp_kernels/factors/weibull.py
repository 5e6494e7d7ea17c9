r"""Weibull times with an unknown shape: `Weibull(exp(k), scale=exp(f))`.

With $u = \log y - f$, the logarithm of the time over its scale, and $c = e^k$,

$$ l = k + c u - e^{c u} - \log y. $$

Shape and scale are projected together, by quadrature.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, Lowered, Signature, as_float
from ..factor import AbstractProjected, Families, Values
from ..families import Gaussian
from ..numerics.gamma_functions import gammaln
from ..numerics.special import safe_exp, safe_log


class WeibullLogs(AbstractProjected):
    """`f(k, u) = Weibull(y; shape e^k, scale y e^{-u})`.

    Attributes:
        out: y.
        scale: of a known scale, its logarithm: u is then log y - log scale, and no interface.
    """

    support: ClassVar[str | None] = "positive"
    out: Float[Values, " #n"]
    log_scale: Float[Values, " #n"] | None = None

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.log_scale is None

    @property
    def interfaces(self) -> tuple[str, ...]:
        return ("k", "u") if self.log_scale is None else ("k",)

    @property
    def joins(self) -> str:  # type: ignore[override]
        return "always" if self.log_scale is None else "shared"

    @property
    def families(self) -> Families:
        return (Gaussian,) * len(self.interfaces)

    def _ratio(self, z: tuple[Array, ...]) -> Array:
        return z[1] if self.log_scale is None else safe_log(jnp.asarray(self.out)) - jnp.asarray(self.log_scale)

    def log_density(self, *z: Array) -> Array:
        k, u = z[0], self._ratio(z)
        x = safe_exp(k) * u
        return k + x - safe_exp(x) - safe_log(jnp.asarray(self.out))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        fine = {"outcomes must be positive and finite": (self.out > 0.0) & jnp.isfinite(self.out)}
        if self.log_scale is not None:
            fine["the scale must be positive and finite"] = jnp.isfinite(self.log_scale)
        return fine

    def moments(self, *z: Array) -> tuple[Array, Array]:
        """`scale G(1)` and `scale^2 (G(2) - G(1)^2)`, with `G(i) = Gamma(1 + i/c)`."""
        k, u = jnp.broadcast_arrays(z[0], self._ratio(z))
        scale, part = self.out * safe_exp(-u), safe_exp(-k)
        first, second = (safe_exp(gammaln(1.0 + i * part)) for i in (1.0, 2.0))
        return scale * first, scale**2 * (second - first**2)

    def _hazard(self, out: Array, z: tuple[Array, ...]) -> Array:
        """`(out / scale)^c`, minus the logarithm of the survival."""
        k, u = jnp.broadcast_arrays(z[0], self._ratio(z))
        ratio = safe_log(jnp.maximum(out, jnp.finfo(u.dtype).tiny)) - safe_log(jnp.asarray(self.out)) + u
        return safe_exp(safe_exp(k) * ratio)

    def cdf(self, out: Array, *z: Array) -> Array:
        return jnp.where(out > 0.0, -jnp.expm1(-self._hazard(out, z)), 0.0)

    def log_tails(self, out: Array, *z: Array) -> tuple[Array, Array]:
        """`log P(y <= out)` and `log P(y > out)`, which is linear in the hazard however large that is."""
        hazard = self._hazard(out, z)
        return safe_log(-jnp.expm1(-hazard)), -hazard


def _lower(out: Any, concentration: Any, scale: Any) -> Lowered:
    out = as_float(out)
    if hasattr(scale, "dtype"):  # an array: known
        return Lowered(WeibullLogs(out, jnp.log(as_float(scale))), (concentration,))  # type: ignore[call-arg]
    return Lowered(WeibullLogs(out), (concentration, jnp.log(jnp.maximum(out, np.finfo(out.dtype).tiny)) - scale))  # type: ignore[call-arg]


_KINDS = {"out": CONSTANT, "concentration": EXP_GAUSSIAN}
SIGNATURES = tuple(Signature({**_KINDS, "scale": kind}, _lower, WeibullLogs) for kind in (EXP_GAUSSIAN, CONSTANT))
