r"""Normal noise of unknown log-precision around a product: `Normal(a * b + ..., precision=exp(s))`.

With the residual $r = out - (\text{the affine rest of the mean})$ the factor is $N(r; a b, e^{-s})$. Its Gaussian
unknowns are projected together, in closed form: weighting by $e^s$ shifts the mean of a joint Gaussian by its
covariances with s.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, GAUSSIAN, Lowered, Signature
from ..factor import AbstractProjected, Cavities, Families, Values
from ..families import Gaussian
from ..numerics.special import LOG_2PI, safe_exp
from ..quadrature.predictive import product_nodes
from ..quadrature.projection import Quadrature
from .bilinear import Bilinear
from .noise_log_precision import LOG_PRECISION
from .product import product_square


class ProductLogPrecision(AbstractProjected):
    """`f(r, a, b, s) = N(r; a b, e^{-s})`, where r may be data.

    Attributes:
        out: r where it is data; then it is no interface.
    """

    support: ClassVar[str | None] = "real"
    joins: ClassVar[str] = "always"
    matches: ClassVar[str] = "jointly"
    out: Float[Values, " #n"] | None = None

    @property
    def interfaces(self) -> tuple[str, ...]:
        return ("r",) * (self.out is None) + ("a", "b", "s")

    @property
    def families(self) -> Families:
        return (Gaussian,) * len(self.interfaces)

    def _residual(self, z: tuple[Any, ...]) -> Any:
        """r, of which there is data, or a value or marginal in front of the others."""
        return jnp.asarray(self.out) if self.out is not None else z[0]

    def log_density(self, *z: Array) -> Array:
        a, b, s = z[-3:]
        return 0.5 * (s - LOG_2PI - (self._residual(z) - a * b) ** 2 * safe_exp(s))

    def joint_message(self, inside: tuple[int, ...], cavities: Cavities) -> Any:
        """`log N(m_r; a m_b, e^{-s} + v_r + a^2 v_b)` of a and s; r, b or both may be inside as well."""
        names = self.interfaces
        known = {names[i] for i in inside}
        if "s" not in known or not known & {"a", "b"}:
            return None

        def message(*z: Array) -> Array:
            values = dict(zip((names[i] for i in inside), z, strict=True))
            marginals: dict[str, Any] = {name: q for name, q in zip(names, cavities, strict=True) if name not in known}
            r, v = self._residual((values.get("r"),)), 0.0
            if "r" in marginals:
                r, v = marginals["r"].mean, marginals["r"].variance
            side = values["a"] if "a" in known else values["b"]
            other = values["b"] if known >= {"a", "b"} else None
            if other is None:
                q = marginals["b" if "a" in known else "a"]
                other, v = q.mean, v + side**2 * q.variance
            variance = v + safe_exp(-values["s"])
            return -0.5 * (jnp.log(variance) + LOG_2PI + (r - side * other) ** 2 / variance)

        return message

    def joint_expectation(self, mean: Array, covariance: Array) -> Array:
        """`E[(r - a b)^2 e^s] = E[e^s] E[(r - a b)^2]`, the second at means shifted by the covariances with s."""
        s, v = mean[..., -1], covariance[..., -1, -1]
        square = product_square(mean[..., :-1] + covariance[..., :-1, -1], covariance[..., :-1, :-1], self.out)
        return 0.5 * (s - LOG_2PI - safe_exp(s + 0.5 * v) * square)

    def matched(self, q: Any, cavity: Any, power: float) -> tuple[Any, Array] | None:
        out = None if self.out is None else jnp.asarray(self.out)[:, None]
        return Bilinear.of((1, 1), out, None).matched(q, cavity, power)

    def initial(self) -> tuple[Gaussian | None, ...]:
        unit = Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1))
        return tuple(unit if name == "r" else None for name in self.interfaces)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        a, b, s = z[-3:]
        mean, variance = jnp.broadcast_arrays(a * b - self._residual(z), safe_exp(-s))
        return mean, variance

    def cdf(self, out: Array, *z: Array) -> Array:
        mean, variance = self.moments(*z)
        return ndtr((out - mean) / jnp.sqrt(variance))

    def _given(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """Log-weights, means and variances of the outcome on nodes of a and s, with r and b integrated out."""
        a, b, s = marginals[-3:]
        (za, zs), log_weights, _ = product_nodes(Quadrature(), (a, s))
        r = self._residual(marginals)
        m, v = (r, 0.0) if self.out is not None else (r.mean, r.variance)
        return log_weights, za * b.mean - m, v + za * za * b.variance + safe_exp(-zs)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        a, b, s = marginals[-3:]
        r = self._residual(marginals)
        m, v = (r, 0.0) if self.out is not None else (r.mean, r.variance)
        spread = a.variance * b.variance + a.mean**2 * b.variance + b.mean**2 * a.variance
        return a.mean * b.mean - m, spread + v, safe_exp(0.5 * s.variance - s.mean)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        log_weights, mean, variance = self._given(marginals)
        return jnp.sum(jnp.exp(log_weights) * ndtr((out - mean) / jnp.sqrt(variance)), (0, 1))

    def predictive_log_density(self, marginals: Cavities) -> Array:
        log_weights, mean, variance = self._given(marginals)
        return jax.nn.logsumexp(log_weights - 0.5 * (jnp.log(variance) + LOG_2PI + mean**2 / variance), (0, 1))


def _lower(out: Any, mean: Any, left: Any, right: Any, **scale: Any) -> Lowered:
    ((name, value),) = scale.items()
    residual = out - mean
    data = residual if isinstance(residual, (jax.Array, np.ndarray)) else None
    before = () if data is not None else (residual,)
    return Lowered(ProductLogPrecision(out=data), (*before, left, right, LOG_PRECISION[name](value)))  # type: ignore[call-arg]


_ANY = CONSTANT | GAUSSIAN
_MEAN = {"out": _ANY, "mean": _ANY, "left": GAUSSIAN, "right": GAUSSIAN}
SIGNATURES = tuple(Signature({**_MEAN, k: EXP_GAUSSIAN}, _lower, ProductLogPrecision) for k in LOG_PRECISION)
