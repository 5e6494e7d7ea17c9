r"""Normal noise around several products of Gaussian variables: `a1 * x1 + a2 * x2`, `dot(w, x)`, `A @ x` of random A.

With the residual r = out - (the affine rest of the mean), m numbers, a matrix a (m, K) and a vector b (K), the factor
is $N(g; 0, P^{-1})$ of $g_i = r_i - \sum_k a_{ik} b_k$. All of z = (r, a, b) is one interface of vectors. Of deviations
u, v, w of r, a, b, the mean of $g_i$ is $m_{r_i} - \sum_k (m_{a_{ik}} m_{b_k} + C(v_{ik}, w_k))$ and the covariance

$$ Cov(g_i, g_j) = \ell_i^T V \ell_j + \sum_{kl} \left\{ C(v_{ik}, v_{jl}) C(w_k, w_l) + C(v_{ik}, w_l) C(w_k, v_{jl})
   \right\}, \qquad \ell_i \cdot (u, v, w) = u_i - \sum_k (m_{b_k} v_{ik} + m_{a_{ik}} w_k), $$

so the expected log-density is closed, and by its gradients in mean and covariance the message too. Weighting by $e^s$,
s a log-precision that stands last in z, shifts the means by their covariances with s.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, EXP_GAUSSIAN, GAUSSIAN, MV_GAUSSIAN, Lowered, Signature, as_float
from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, Values
from ..families import AbstractFamily, MvGaussian
from ..families.mv_gaussian import MOST_DIMENSIONS
from ..numerics.cholesky import cholesky, inverse, inverse_factor, log_det
from ..numerics.special import LOG_2PI, safe_exp
from ..quadrature.nodes import spread
from ..quadrature.projection import Quadrature, tangent_projection
from .conditioned import Known, fewest, moments
from .joint import by_gradients
from .noise_log_precision import LOG_PRECISION

_POINTS = 512


class Bilinear(AbstractProjected):
    """`f(z) = N(r - a b; 0, P^{-1})`, z = (r, a, b) or, with P = e^s I, (r, a, b, s).

    Attributes:
        size: (m, K).
        out: r where it is data; then it is not in z.
        precision: P; None where it is e^s.
        rows, offset: where z is `rows x + offset` of fewer variables x, which are then the interface.
        pivots: entries of z such that all else is Gaussian where they are known; None if there are too many.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("z",)
    families: ClassVar[Families] = (MvGaussian,)
    size: tuple[int, int] = eqx.field(static=True)
    out: Float[Values, "#n m"] | None = None
    precision: Float[Array, "#n m m"] | None = None
    rows: Float[Array, "#n k d"] | None = None
    offset: Float[Array, "#n k"] | None = None
    pivots: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @classmethod
    def of(
        cls, size: tuple[int, int], out: Any, precision: Any, rows: Any = None, offset: Any = None
    ) -> "Bilinear":
        """With its pivots: one of the two sides, whichever is made of fewer numbers, and the log-precision."""
        m, k = size
        at = m * (out is None)
        ends, last = at + m * k, [] if precision is not None else [at + m * k + k]
        known = np.eye(ends + k + len(last))[None] if rows is None else rows
        sides = [[*range(ends, ends + k), *last], [*range(at, ends), *last]]
        pivots = fewest(known, sides) if isinstance(known, np.ndarray) else None
        return cls(size, out, precision, None if rows is None else jnp.asarray(rows), offset, pivots)

    def through(self, rows: Array, offset: Array) -> "Bilinear":
        return Bilinear.of(self.size, self.out, self.precision, rows, offset)

    @property
    def dimensions(self) -> int:
        m, k = self.size
        length = m * (self.out is None) + m * k + k + (self.precision is None)
        return length if self.rows is None else self.rows.shape[-1]

    @property
    def matchable(self) -> bool:  # type: ignore[override]
        return self.pivots is not None or self.dimensions <= MOST_DIMENSIONS

    @property
    def matches(self) -> str:  # type: ignore[override]
        return "jointly" if self.matchable else ""

    @property
    def support(self) -> str | None:
        return "real" if self.size[0] == 1 else None

    def _parts(self, z: Float[Array, "*b k"]) -> tuple[Array, Array, Array, Array | None]:
        """r (*b, m), a (*b, m, K), b (*b, K) and s (*b)."""
        m, k = self.size
        at = m * (self.out is None)
        r = z[..., :at] if self.out is None else jnp.asarray(self.out)
        a = z[..., at : at + m * k].reshape(*z.shape[:-1], m, k)
        return r, a, z[..., at + m * k : at + m * k + k], None if self.precision is not None else z[..., -1]

    def _inner(self, x: Array) -> Array:
        return x if self.rows is None else jnp.einsum("nkd,...nd->...nk", self.rows, x) + self.offset  # type: ignore[operator]

    def _residual(self, z: Array) -> tuple[Array, Array | None]:
        r, a, b, s = self._parts(z)
        return r - jnp.einsum("...ik,...k->...i", a, b), s

    def _noise(self, square: Array, s: Array | None) -> Array:
        """`log N` of an expected outer product of residuals (..., m, m), weighted by e^s where s is given."""
        m = self.size[0]
        if s is None:
            fit = jnp.sum(self.precision * square, (-2, -1))  # type: ignore[operator]
            return 0.5 * (log_det(cholesky(jnp.asarray(self.precision))) - m * LOG_2PI - fit)
        return 0.5 * (m * (s - LOG_2PI) - jnp.trace(square, axis1=-2, axis2=-1))

    def log_density(self, x: Array) -> Array:
        g, s = self._residual(self._inner(x))
        weight = 1.0 if s is None else safe_exp(s)[..., None, None]
        return self._noise(g[..., :, None] * g[..., None, :] * weight, s)

    def expected(self, mean: Float[Array, "n k"], covariance: Float[Array, "n k k"]) -> Float[Array, " n"]:
        """`E[log f]` under a joint Gaussian of z."""
        if self.precision is not None:
            return self._noise(self._square(mean, covariance), None)
        with_s = covariance[..., -1]
        weight = safe_exp(mean[..., -1] + 0.5 * covariance[..., -1, -1])
        square = self._square(mean + with_s, covariance) * weight[..., None, None]
        return self._noise(square, mean[..., -1])

    def _square(self, mean: Array, covariance: Array) -> Float[Array, "n m m"]:
        """`E[g g^T]`; see the module docstring."""
        m, k = self.size
        at = m * (self.out is None)
        r, a, b, _ = self._parts(mean)
        lead = covariance.shape[:-2]
        sides, ends = slice(at, at + m * k), slice(at + m * k, at + m * k + k)
        vv = covariance[..., sides, sides].reshape(*lead, m, k, m, k)
        vw = covariance[..., sides, ends].reshape(*lead, m, k, k)
        ww = covariance[..., ends, ends]
        centre = r - jnp.einsum("...ik,...k->...i", a, b) - jnp.einsum("...ikk->...i", vw)
        line = jnp.broadcast_to(self._line(mean), (*lead, m, ends.stop))  # (..., m, dims)
        inside = covariance[..., : line.shape[-1], : line.shape[-1]]
        linear = line @ inside @ jnp.swapaxes(line, -1, -2)
        bent = jnp.einsum("...ikjl,...kl->...ij", vv, ww) + jnp.einsum("...ikl,...jlk->...ij", vw, vw)
        return centre[..., :, None] * centre[..., None, :] + linear + bent

    def matched(self, q: Any, cavity: Any, power: float) -> tuple[Any, Array] | None:
        if self.pivots is None:
            return None
        d = self.dimensions
        rows = jnp.eye(d, dtype=q.dtype)[None] if self.rows is None else jnp.asarray(self.rows, q.dtype)

        def known(x: Float[Array, "Q n d"]) -> Known:
            z = self._inner(x)
            residual, s = self._residual(z)
            line = self._line(z)
            slope = jnp.einsum("qnmk,nkd->qnmd", line, rows[:, : line.shape[-1]])
            if s is None:
                return Known(residual, slope, self._noise_covariance[None])
            return Known(residual, slope, safe_exp(-s)[..., None, None] * jnp.eye(self.size[0], dtype=q.dtype))

        return moments(q, cavity, rows[:, np.array(self.pivots)], known, power)

    @property
    def _noise_covariance(self) -> Float[Array, "#n m m"]:
        return inverse(cholesky(jnp.asarray(self.precision)))

    def _line(self, z: Float[Array, "*b k"]) -> Float[Array, "*b m l"]:
        """`dg/dz`, ell of the module docstring, without s, of which g is no function."""
        _, a, b, _ = self._parts(z)
        m, k = self.size
        eye = jnp.eye(m, dtype=z.dtype)
        own = [] if self.out is not None else [jnp.broadcast_to(eye, (*z.shape[:-1], m, m))]
        left = -(eye[:, :, None] * b[..., None, None, :]).reshape(*z.shape[:-1], m, m * k)
        return jnp.concatenate([*own, left, -a], -1)

    def _value(self, mean: Array, covariance: Array) -> Float[Array, " n"]:
        """The same of the interface."""
        if self.rows is not None:
            mean = jnp.einsum("nkd,nd->nk", self.rows, mean) + self.offset  # type: ignore[operator]
            covariance = jnp.einsum("nkd,nde,nle->nkl", self.rows, covariance, self.rows)
        return self.expected(mean, covariance)

    def project(self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        if isinstance(quadrature, Quadrature):
            return by_gradients(self._value, marginal)
        return tangent_projection(marginal, self.log_density, quadrature)

    def expected_log_message(
        self, j: int, marginal: Any, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Float[Array, " n"]:
        return self._value(marginal.mean, marginal.covariance)

    def stuck(self, marginal: Any) -> Bool[Array, " n"]:
        """Where both sides are about zero: their products have no slope there."""
        _, a, b, _ = self._parts(self._inner(marginal.mean[None])[0])
        return (jnp.max(jnp.abs(a), (-2, -1)) < 1e-3) & (jnp.max(jnp.abs(b), -1) < 1e-3)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if self.precision is None:
            return {}
        fine = jnp.all(jnp.isfinite(cholesky(jnp.asarray(self.precision))), (-2, -1))
        return {"the scale (variance, covariance, precision or std) must be positive and finite": fine}

    def moments(self, x: Array) -> tuple[Array, Array]:
        g, s = self._residual(self._inner(x))
        if self.precision is None:
            return self._one(-g), self._one(jnp.broadcast_to(safe_exp(-s)[..., None], g.shape))  # type: ignore[operator]
        variance = jnp.diagonal(jnp.linalg.inv(self.precision), axis1=-2, axis2=-1)
        return self._one(-g), self._one(jnp.broadcast_to(variance, g.shape))

    def _one(self, x: Array) -> Array:
        """Outcomes that are numbers have no axis of their own."""
        return x[..., 0] if self.size[0] == 1 else x

    def _nodes(self, q: MvGaussian) -> Float[Array, "Q n d"]:
        u, _ = spread(_POINTS, q.event_shape[0])
        return q.mean + jnp.einsum("nji,qj->qni", inverse_factor(q._chol), jnp.asarray(u, q.dtype))

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        mean, variance = self.moments(self._nodes(*marginals))
        return jnp.mean(mean, 0), jnp.var(mean, 0), jnp.mean(variance, 0)

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        mean, variance = self.moments(self._nodes(*marginals))
        return jnp.mean(ndtr((out - mean) / jnp.sqrt(variance)), 0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        each = self.log_density(self._nodes(*marginals))
        return jax.nn.logsumexp(each, 0) - float(np.log(_POINTS))


def _lower(out: Any, mean: Any, lefts: Any, rights: Any, precision: Any, log: Any) -> Lowered:
    """`precision` is a matrix, or None where `log` is a log-precision."""
    (k,) = rights.event_shape
    m = lefts.event_shape[0] // k
    residual = out - mean
    data = residual if isinstance(residual, (jax.Array, np.ndarray)) else None
    scalar = data is not None and data.ndim == 1
    data = data[:, None] if scalar else data  # type: ignore[index]
    parts = [lefts, rights] if data is not None else [residual, lefts, rights]
    factor = Bilinear.of((m, k), None if data is None else as_float(data), precision)
    return Lowered(factor, (parts if log is None else [*parts, log],))


def _lower_number(out: Any, mean: Any, lefts: Any, rights: Any, **scale: Any) -> Lowered:
    ((name, value),) = scale.items()
    if not isinstance(value, (jax.Array, np.ndarray)):
        return _lower(out, mean, lefts, rights, None, LOG_PRECISION[name](value))
    value = jnp.asarray(as_float(value))
    precision = {"precision": value, "variance": 1.0 / value, "std": 1.0 / (value * abs(value))}[name]
    return _lower(out, mean, lefts, rights, precision[:, None, None], None)


_ANY = CONSTANT | GAUSSIAN
_MEAN = {"out": _ANY, "mean": _ANY, "lefts": MV_GAUSSIAN, "rights": MV_GAUSSIAN}
SIGNATURES = tuple(Signature({**_MEAN, k: CONSTANT | EXP_GAUSSIAN}, _lower_number, Bilinear) for k in LOG_PRECISION)


def vector_signatures(as_precision: Any) -> tuple[Signature, ...]:
    """Those of `MvNormal`, whose covariances and precisions `as_precision(name, value, d)` reads."""

    def lower(out: Any, mean: Any, lefts: Any, rights: Any, **scale: Any) -> Lowered:
        ((name, value),) = scale.items()
        d = mean.shape[-1]
        return _lower(out, mean, lefts, rights, as_precision(name, as_float(value), d)[0], None)

    some = CONSTANT | MV_GAUSSIAN
    kinds = {"out": some, "mean": some, "lefts": MV_GAUSSIAN, "rights": MV_GAUSSIAN}
    return tuple(Signature({**kinds, k: CONSTANT}, lower, Bilinear) for k in ("covariance", "precision"))


def whole_mean(mean: Any, **others: Any) -> dict[str, Any]:
    """Arguments, all of them arrays, with the products of a mean `sum_j left_j right_j + rest` multiplied out."""
    if "left" in others:
        mean = mean + others.pop("left") * others.pop("right")
    if "lefts" in others:
        left, right = others.pop("lefts"), others.pop("rights")
        rows = left.shape[-1] // right.shape[-1]
        matrix = left.reshape(*left.shape[:-1], rows, right.shape[-1])
        product = jnp.einsum("...ij,...j->...i", matrix, right)
        mean = mean + (product if mean.ndim == product.ndim else product[..., 0])
    return {"mean": mean, **others}
