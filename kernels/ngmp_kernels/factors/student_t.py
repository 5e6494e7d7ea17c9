"""Student's t distribution, scalar: heavy-tailed noise on a residual `r = out - mean`; scale and df known or not."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, GAUSSIAN, Distribution, Lowered, Signature, as_float, register
from ..factor import AbstractProjected, Cavities, Families, Values
from ..families import Gamma, Gaussian
from ..numerics.special import safe_exp, safe_log, student_t_log_density
from ..quadrature.predictive import over_nodes, product_nodes
from ..quadrature.rules import GaussHermite
from .generic import ConstantFactor
from .normal_noise import NoisePrecision


class StudentTNoise(AbstractProjected):
    """`f(r) = t_df(r; 0, scale)`: `l(r) = const - (df + 1)/2 log(1 + (r/scale)^2/df)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    calm: ClassVar[float] = float("inf")  # not concave: an edge has several solutions, and sweeps choose better
    df: Float[Values, " #n"]
    scale: Float[Values, " #n"]

    def log_density(self, r: Array) -> Array:
        return student_t_log_density(r, self.df, safe_log(self.scale))

    def initial(self) -> tuple[Gaussian]:
        # Flat, the leaf would leave a random walk with such steps untied.
        variance = jnp.asarray(self.scale) ** 2
        return (Gaussian.from_mean_variance(jnp.zeros_like(variance), variance),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {
            "the degrees of freedom df must be positive and finite": (self.df > 0.0) & jnp.isfinite(self.df),
            "the scale must be positive and finite": (self.scale > 0.0) & jnp.isfinite(self.scale),
        }

    def moments(self, r: Array) -> tuple[Array, Array]:
        """The location, which is the mean for df > 1, and the variance, infinite for df <= 2."""
        heavy = self.df <= 2.0
        variance = self.scale**2 * self.df / jnp.where(heavy, 1.0, self.df - 2.0)
        return -r, jnp.broadcast_to(jnp.where(heavy, jnp.inf, variance), r.shape)

    def cdf(self, out: Array, r: Array) -> Array:
        """Both tails by `I_{df/(df + u^2)}(df/2, 1/2) / 2`."""
        u = (out + r) / self.scale
        df, square = jnp.broadcast_arrays(self.df, u * u)
        tail = 0.5 * betainc(0.5 * df, jnp.full_like(df, 0.5), df / (df + square))
        return jnp.where(u > 0.0, 1.0 - tail, tail)

    def _precision(self, shape: tuple[int, ...]) -> Gamma:
        """Student's t is normal noise whose precision is Gamma(df/2, scale^2 df/2)."""
        half = jnp.broadcast_to(0.5 * self.df, shape)
        return Gamma.from_concentration_rate(half, half * self.scale**2)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        (r,) = marginals
        return -r.mean, r.variance, self.moments(r.mean)[1]

    # Through the precision both integrals are smooth, however narrow the noise is beside r.
    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (r,) = marginals
        return NoisePrecision().predictive_cdf(out, (r, self._precision(r.batch_shape)))

    def predictive_log_density(self, marginals: Cavities) -> Array:
        (r,) = marginals
        return NoisePrecision().predictive_log_density((r, self._precision(r.batch_shape)))


class StudentTLogScale(AbstractProjected):
    """`f(r, s) = t_df(r; 0, e^s)`: the residual and its log-scale."""

    interfaces: ClassVar[tuple[str, ...]] = ("r", "s")
    families: ClassVar[Families] = (Gaussian, Gaussian)
    joins: ClassVar[str] = "always"
    support: ClassVar[str | None] = "real"
    df: Float[Values, " #n"]

    def log_density(self, r: Array, s: Array) -> Array:
        return student_t_log_density(r, self.df, s)

    def given(self, s: Array) -> StudentTNoise:
        """The factor of a known scale e^s."""
        return StudentTNoise(self.df, safe_exp(s))

    def initial(self) -> tuple[Gaussian, None]:
        return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"the degrees of freedom df must be positive and finite": (self.df > 0.0) & jnp.isfinite(self.df)}

    def moments(self, r: Array, s: Array) -> tuple[Array, Array]:
        r, s = jnp.broadcast_arrays(r, s)
        return self.given(s).moments(r)

    def cdf(self, out: Array, r: Array, s: Array) -> Array:
        return self.given(s).cdf(out, r)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        r, s = marginals
        each, log_weights = over_nodes(s, lambda s: self.given(s).predictive_cdf(out, (r,)))
        return jnp.sum(jnp.exp(log_weights) * each, 0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        r, s = marginals
        each, log_weights = over_nodes(s, lambda s: self.given(s).predictive_log_density((r,)))
        return jax.nn.logsumexp(log_weights + each, 0)


class StudentTScale(AbstractProjected):
    """`f(s) = t_df(out; mean, e^s)` with both ends constant."""

    interfaces: ClassVar[tuple[str, ...]] = ("s",)
    families: ClassVar[Families] = (Gaussian,)
    support: ClassVar[str | None] = "real"
    df: Float[Values, " #n"]
    out: Float[Values, " #n"]
    mean: Float[Values, " #n"]

    def log_density(self, s: Array) -> Array:
        """With `log(1 + u^2/df)` as a softplus of its logarithm, which does not overflow where the scale is tiny."""
        df, log_size = jnp.asarray(self.df), safe_log(jnp.abs(jnp.asarray(self.out - self.mean)))
        tail = jax.nn.softplus(2.0 * (log_size - s) - jnp.log(df))
        return student_t_log_density(jnp.zeros_like(df), df, jnp.zeros_like(df)) - s - 0.5 * (df + 1.0) * tail

    def given(self, s: Array) -> StudentTNoise:
        """The factor of a known scale e^s."""
        return StudentTNoise(self.df, safe_exp(s))

    def initial(self) -> tuple[Gaussian]:
        # At the residual itself, s = log |r|, where the density peaks; one that is zero says nothing of where.
        size = jnp.abs(jnp.asarray(self.out - self.mean))
        s = jnp.where(size > 0, safe_log(size), 0.0)
        return (Gaussian.from_mean_variance(s, jnp.ones_like(s)),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        fine = (self.df > 0.0) & jnp.isfinite(self.df)
        return {"the degrees of freedom df must be positive and finite": fine,
                "outcome and mean must be finite": jnp.isfinite(self.out - self.mean)}  # fmt: skip

    def moments(self, s: Array) -> tuple[Array, Array]:
        return self.given(s).moments(jnp.broadcast_to(-self.mean, s.shape))

    def cdf(self, out: Array, s: Array) -> Array:
        return self.given(s).cdf(out, -self.mean)


class StudentTLogs(AbstractProjected):
    """`f(r, s, k) = t_{e^k}(r; 0, e^s)`: residual, log-scale and the logarithm of the degrees of freedom.

    Attributes:
        scale: the scale where it is a constant; then it is no interface.
    """

    joins: ClassVar[str] = "always"
    support: ClassVar[str | None] = "real"
    scale: Float[Values, " #n"] | None = None

    @property
    def interfaces(self) -> tuple[str, ...]:
        return "r", *(("s",) * (self.scale is None)), "k"

    @property
    def families(self) -> Families:
        return (Gaussian,) * len(self.interfaces)

    def _log_scale(self, z: tuple[Array, ...]) -> Array:
        return z[1] if self.scale is None else safe_log(jnp.asarray(self.scale))

    def given(self, *z: Array) -> StudentTNoise:
        """The factor of known scale and degrees of freedom."""
        s, k = jnp.broadcast_arrays(self._log_scale(z), z[-1])
        return StudentTNoise(safe_exp(k), safe_exp(s))

    def log_density(self, *z: Array) -> Array:
        return student_t_log_density(z[0], safe_exp(z[-1]), self._log_scale(z))

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if self.scale is None:
            return {}
        return {"the scale must be positive and finite": (self.scale > 0.0) & jnp.isfinite(self.scale)}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        z = tuple(jnp.broadcast_arrays(*z))
        return self.given(*z).moments(z[0])

    def cdf(self, out: Array, *z: Array) -> Array:
        return self.given(*z).cdf(out, z[0])

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """The variance has no mean where df may be 2 or less: it is that at the means."""
        r = marginals[0]
        _, noise = self.moments(*(q.mean for q in marginals))
        return -r.mean, r.variance, noise

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        (r, *others), few = marginals, GaussHermite(12)
        z, log_weights, axes = product_nodes(few, tuple(others))
        each = NoisePrecision().predictive_cdf
        flat = [jnp.broadcast_to(x, log_weights.shape).reshape(-1, log_weights.shape[-1]) for x in z]
        found = jax.vmap(lambda *z: each(out, (r, self.given(r.mean, *z)._precision(r.batch_shape))))(*flat)
        return jnp.sum(jnp.exp(log_weights) * found.reshape(log_weights.shape), axes)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        (r, *others), few = marginals, GaussHermite(12)
        z, log_weights, axes = product_nodes(few, tuple(others))
        flat = [jnp.broadcast_to(x, log_weights.shape).reshape(-1, log_weights.shape[-1]) for x in z]
        found = jax.vmap(lambda *z: self.given(r.mean, *z).predictive_log_density((r,)))(*flat)
        return jax.nn.logsumexp(log_weights + found.reshape(log_weights.shape), axes)


def _lower_logs(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    if isinstance(scale, (jax.Array, np.ndarray)):
        return Lowered(StudentTLogs(as_float(scale)), (out - mean, df))  # type: ignore[call-arg]
    return Lowered(StudentTLogs(), (out - mean, scale, df))  # type: ignore[call-arg]


def _lower_log_scale(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    return Lowered(StudentTLogScale(as_float(df)), (out - mean, scale))


def _lower_scale(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    return Lowered(StudentTScale(as_float(df), as_float(out), as_float(mean)), (scale,))


def _lower_noise(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    return Lowered(StudentTNoise(as_float(df), as_float(scale)), (out - mean,))


def _lower_constant(out: Any, df: Any, mean: Any, scale: Any) -> Lowered:
    factor, out, mean = StudentTNoise(as_float(df), as_float(scale)), as_float(out), as_float(mean)
    value = factor.log_density(out - mean)
    conditions = {**factor.checks(), "outcome and mean must be finite": jnp.isfinite(out - mean)}
    moments = factor.moments(jnp.broadcast_to(-mean, value.shape))
    return Lowered(ConstantFactor(value, *moments, conditions, factor, (-mean,)), ())


_ANY = CONSTANT | GAUSSIAN


@register
class StudentT(Distribution):
    """`StudentT(df, mean, scale=)`: the mean is affine in Gaussian variables; so may the outcome be.

    Scale and degrees of freedom are constants, or `exp` of affine expressions.
    """

    __slots__ = ()
    support = "real"
    family = Gaussian
    event_ndims: ClassVar = {"out": 0, "df": 0, "mean": 0, "scale": 0}
    placeholder = 0.0
    signatures = (
        Signature(
            {"out": CONSTANT, "df": CONSTANT, "mean": CONSTANT, "scale": CONSTANT}, _lower_constant, ConstantFactor
        ),
        Signature({"out": _ANY, "df": CONSTANT, "mean": _ANY, "scale": CONSTANT}, _lower_noise, StudentTNoise),
        Signature(
            {"out": CONSTANT, "df": CONSTANT, "mean": CONSTANT, "scale": EXP_GAUSSIAN}, _lower_scale, StudentTScale
        ),
        Signature(
            {"out": _ANY, "df": CONSTANT, "mean": _ANY, "scale": EXP_GAUSSIAN}, _lower_log_scale, StudentTLogScale
        ),
        Signature(
            {"out": _ANY, "df": EXP_GAUSSIAN, "mean": _ANY, "scale": CONSTANT | EXP_GAUSSIAN}, _lower_logs, StudentTLogs
        ),
    )

    @staticmethod
    def standard(df: Any, mean: Any, scale: Any) -> tuple[Any, Any]:
        return mean, scale * (1 + 1 / df)

    def draw(self, key: Any, like: Array, df: Array, mean: Array, scale: Array) -> Array:
        return mean + scale * jax.random.t(key, df, like.shape, like.dtype)

    def __init__(self, df: Any, mean: Any, *, scale: Any):
        self.arguments = {"df": df, "mean": mean, "scale": scale}
