r"""The von Mises distribution of angles: for r ~ N(m, v), $E[\cos r] = e^{-v/2} \cos m$, so projections are closed."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import i0e, i1e
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import Cavities, Families, Values
from ..families import Gaussian
from ..numerics.special import LOG_2PI
from ..quadrature.edge import Moments
from .generic import ConstantFactor
from .likelihood import AbstractClosed, at_constants, positive


class VonMisesNoise(AbstractClosed):
    """`f(r) = e^{kappa cos r} / (2 pi I_0(kappa))` of the residual `r = out - mean`."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    calm: ClassVar[float] = float("inf")  # not concave, as Student's t
    concentration: Float[Values, " #n"]

    def _constant(self) -> Array:
        kappa = jnp.asarray(self.concentration)
        return -LOG_2PI - jnp.log(i0e(kappa)) - kappa

    def log_density(self, r: Array) -> Array:
        return self.concentration * jnp.cos(r) + self._constant()

    def edge_moments(self, mean: Array, variance: Array) -> Moments:
        size = self.concentration * jnp.exp(-0.5 * variance)
        c, s = size * jnp.cos(mean), size * jnp.sin(mean)
        return Moments(c + self._constant(), -s, -c, s, c)

    def initial(self) -> tuple[Gaussian]:
        variance = 1.0 / jnp.asarray(self.concentration)
        return (Gaussian.from_mean_variance(jnp.zeros_like(variance), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return positive("concentration", self.concentration)

    def moments(self, r: Array) -> tuple[Array, Array]:
        """The direction of the mean, and the circular variance `1 - I_1/I_0`."""
        kappa = jnp.asarray(self.concentration)
        direction = jnp.arctan2(jnp.sin(-r), jnp.cos(-r))
        return direction, jnp.broadcast_to(1.0 - i1e(kappa) / i0e(kappa), r.shape)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """Circular: the variances are one minus the lengths of mean vectors, which multiply."""
        (q,) = marginals
        direction, aleatoric = self.moments(q.mean)
        return direction, (1.0 - aleatoric) * -jnp.expm1(-0.5 * q.variance), aleatoric


def _lower(out: Any, mean: Any, concentration: Any) -> Lowered:
    return Lowered(VonMisesNoise(as_float(concentration)), (out - mean,))


def _lower_constant(out: Any, mean: Any, concentration: Any) -> Lowered:
    factor, mean = VonMisesNoise(as_float(concentration)), jnp.asarray(as_float(mean))
    found: Any = at_constants(factor, as_float(out) - mean).factor
    moments = factor.moments(jnp.broadcast_to(-mean, found.value.shape))
    return Lowered(ConstantFactor(found.value, *moments, found.checks(), factor, (-mean,)), ())


_TABLE = 1025  # of the inverse of its distribution function
_NAMES = ("out", "mean", "concentration")


@register
class VonMises(Distribution):
    """`VonMises(mean, concentration=)` of observed angles; the mean is affine in Gaussian variables.

    Angles are points of a circle: predicted are the direction of the mean and circular variances, from 0 to 1.
    """

    __slots__ = ()
    family = None
    event_ndims: ClassVar = dict.fromkeys(_NAMES, 0)
    placeholder = 0.0
    signatures = (
        Signature({**dict.fromkeys(_NAMES, CONSTANT), "mean": GAUSSIAN}, _lower, VonMisesNoise),
        Signature(dict.fromkeys(_NAMES, CONSTANT), _lower_constant, ConstantFactor),
    )

    def __init__(self, mean: Any, *, concentration: Any):
        self.arguments = {"mean": mean, "concentration": concentration}

    def draw(self, key: Any, like: Array, mean: Array, concentration: Array) -> Array:
        """By the inverse of the distribution function, tabulated over the circle; finer where the density is."""
        wide = jnp.minimum(1.0, 8.0 / jnp.sqrt(jnp.maximum(concentration, 1e-6)) / jnp.pi)
        angle = jnp.pi * wide[..., None] * jnp.linspace(-1.0, 1.0, _TABLE, dtype=like.dtype)
        density = jnp.exp(concentration[..., None] * (jnp.cos(angle) - 1.0))
        mass = jnp.cumsum(0.5 * (density[..., 1:] + density[..., :-1]), -1)
        cdf = jnp.concatenate([jnp.zeros_like(mass[..., :1]), mass], -1) / mass[..., -1:]
        rows = like.shape
        cdf, angle = (jnp.broadcast_to(x, (*rows, _TABLE)).reshape(-1, _TABLE) for x in (cdf, angle))
        u = jax.random.uniform(key, rows, like.dtype)
        off = jax.vmap(jnp.interp)(u.reshape(-1), cdf, angle).reshape(rows)
        return jnp.mod(mean + off + jnp.pi, 2.0 * jnp.pi) - jnp.pi
