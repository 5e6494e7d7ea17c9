r"""The Wishart distribution, as a prior of precision matrices, and normal noise of such a precision.

`NoiseWishart` joins a vector residual r and a precision matrix W, $r \sim N(0, W^{-1})$. Integrals over W reduce to one
dimension: with W ~ Wishart(nu, S), r is Student's t, a scale mixture

$$ r \mid u \sim N(0, S^{-1}/u), \qquad u \sim \mathrm{Gamma}(\tfrac{\nu - d + 1}{2}, \tfrac12). $$
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, WISHART, Distribution, Lowered, Signature, as_float, register
from ..factor import AbstractConjugate, AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage, Values
from ..families import Gamma, MvGaussian
from ..families import Wishart as WishartFamily
from ..numerics.cholesky import cholesky, inverse, log_det, whiten
from ..numerics.special import LOG_2PI
from ..quadrature.projection import Quadrature, nodes
from .given import AbstractMember


class WishartPrior(AbstractMember):
    """`f(W) = Wishart(W; df, scale)` with constant parameters, by the inverse of the scale."""

    interfaces: ClassVar[tuple[str, ...]] = ("W",)
    families: ClassVar[Families] = (WishartFamily,)
    df: Float[Values, " #n"]
    inverse_scale: Float[Array, "#n d d"]

    def density(self) -> WishartFamily:
        return WishartFamily.from_df_inverse_scale(self.df, self.inverse_scale)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        d = self.inverse_scale.shape[-1]
        chol = cholesky(self.inverse_scale)
        return {
            f"df must be finite and above {d - 1}, the dimension less one": (self.df > d - 1) & jnp.isfinite(self.df),
            "scale must be symmetric positive definite": jnp.all(jnp.isfinite(chol), axis=(-2, -1)),
        }


class MvNormalPrecision(AbstractConjugate):
    """`f(W) = N(r; 0, W^{-1})` with a constant residual r: the Wishart message `(-r r^T/2, 1/2)`."""

    interfaces: ClassVar[tuple[str, ...]] = ("W",)
    families: ClassVar[Families] = (WishartFamily,)
    support: ClassVar[str | None] = "real"
    r: Float[Values, "#n d"]

    def log_density(self, w: Array) -> Array:
        return NoiseWishart(self.r.shape[-1]).log_density(jnp.asarray(self.r), w)

    def message(self) -> tuple[WishartFamily, Array]:
        r = jnp.asarray(self.r)
        half = jnp.full_like(r[..., 0], 0.5)
        return WishartFamily(-0.5 * r[..., :, None] * r[..., None, :], half), -r.shape[-1] * LOG_2PI * half

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"outcome and mean must be finite": jnp.all(jnp.isfinite(self.r), -1)}

    def moments(self, w: Array) -> tuple[Array, Array]:
        variance = jnp.diagonal(inverse(cholesky(w)), axis1=-2, axis2=-1)
        return jnp.broadcast_to(-jnp.asarray(self.r), variance.shape), variance

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        return NoiseWishart(self.r.shape[-1]).predictive_moments(self._with_residual(marginals))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        return NoiseWishart(self.r.shape[-1]).predictive_cdf(out, self._with_residual(marginals))

    def _with_residual(self, marginals: Cavities) -> Cavities:
        (w,) = marginals
        return _Point(jnp.broadcast_to(self.r, w.eta1.shape[:-1]), jnp.zeros_like(w.eta1)), w


class _Point(NamedTuple):
    """The moments of a residual that is known."""

    mean: Array
    covariance: Array


class NoiseWishart(AbstractProjected):
    """`f(r, W) = N(r; 0, W^{-1})`.

    Mean field: toward r, precision `E[W]`; toward W, `(-E[r r^T]/2, 1/2)`. The exact message toward W,
    `log N(0; m, V + W^{-1})`, has no projection in closed form, so NGMP and EP use structured VMP here.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("r", "W")
    families: ClassVar[Families] = (MvGaussian, WishartFamily)
    support: ClassVar[str | None] = "real"
    dimension: int = eqx.field(static=True)

    def log_density(self, r: Array, w: Array) -> Array:
        return 0.5 * (log_det(cholesky(w)) - r.shape[-1] * LOG_2PI - jnp.einsum("...i,...ij,...j->...", r, w, r))

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        if j == 0:
            w, mean_log_det = marginals[1].to_mean()
            return lambda r: 0.5 * (mean_log_det - r.shape[-1] * LOG_2PI - jnp.einsum("...i,...ij,...j->...", r, w, r))
        _, square = marginals[0].to_mean()
        return lambda w: 0.5 * (log_det(cholesky(w)) - w.shape[-1] * LOG_2PI - jnp.sum(square * w, axis=(-2, -1)))

    def mean_field_projection(
        self, j: int, marginals: Cavities, quadrature: AbstractQuadrature
    ) -> MvGaussian | WishartFamily:
        if j == 0:
            w = marginals[1].mean
            return MvGaussian(jnp.zeros_like(w[..., 0]), -0.5 * w)
        _, square = marginals[0].to_mean()
        return WishartFamily(-0.5 * square, jnp.full_like(square[..., 0, 0], 0.5))

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Array:
        (_, square), (w, log_det) = marginals[0].to_mean(), marginals[1].to_mean()
        return 0.5 * (log_det - w.shape[-1] * LOG_2PI - jnp.sum(square * w, axis=(-2, -1)))

    def in_family(self) -> tuple[bool, bool]:
        return True, True

    def has_projection(self) -> bool:
        return False

    def initial(self) -> tuple[MvGaussian, None]:
        # As in `NoisePrecision`: the leaf on r starts at the prior expectation of the precision.
        eye = jnp.eye(self.dimension)[None]
        return MvGaussian.from_information(jnp.zeros_like(eye[..., 0]), eye), None

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    # -- prediction ---------------------------------------------------------------------------------------------------

    def moments(self, r: Array, w: Array) -> tuple[Array, Array]:
        return -r, jnp.broadcast_to(jnp.diagonal(inverse(cholesky(w)), axis1=-2, axis2=-1), r.shape)

    def predictive_moments(self, marginals: Cavities) -> tuple[Array, Array, Array]:
        """With `E[W^{-1}] = S^{-1}/(nu - d - 1)`, infinite for nu <= d + 1."""
        r, w = marginals
        excess = (w.df - w.event_shape[0] - 1)[..., None]
        inverse = jnp.diagonal(w.inverse_scale, axis1=-2, axis2=-1)
        aleatoric = jnp.where(excess > 0, inverse / jnp.where(excess > 0, excess, 1.0), jnp.inf)
        return -r.mean, jnp.diagonal(r.covariance, axis1=-2, axis2=-1), aleatoric

    def _mixture(self, w: WishartFamily) -> tuple[Float[Array, "Q n"], Float[Array, "Q n"]]:
        """Nodes and log-weights of u."""
        half = 0.5 * (w.df - w.event_shape[0] + 1)
        return nodes(Quadrature(), Gamma.from_concentration_rate(half, jnp.full_like(half, 0.5)))

    def predictive_cdf(self, out: Array, marginals: Cavities) -> Array:
        """Of every entry by itself."""
        r, w = marginals
        u, log_weights = self._mixture(w)
        noise = jnp.diagonal(w.inverse_scale, axis1=-2, axis2=-1) / u[..., None]
        spread = jnp.sqrt(jnp.diagonal(r.covariance, axis1=-2, axis2=-1) + noise)
        return jnp.sum(jnp.exp(log_weights)[..., None] * ndtr((out + r.mean) / spread), axis=0)

    def predictive_log_density(self, marginals: Cavities) -> Array:
        """`log sum_u w_u N(0; m, C + S^{-1}/u)`, in the coordinates where S is the identity."""
        r, w = marginals
        chol = cholesky(w.inverse_scale)
        white = whiten(chol, jnp.swapaxes(whiten(chol, r.covariance), -1, -2))
        shift = whiten(chol, r.mean[..., None])
        u, log_weights = self._mixture(w)
        spread = cholesky(white + jnp.eye(shift.shape[-2], dtype=shift.dtype) / u[..., None, None])
        shift = whiten(spread, jnp.broadcast_to(shift, (*u.shape, *shift.shape[-2:])))[..., 0]
        log_normal = -0.5 * (jnp.sum(shift**2 + LOG_2PI, -1) + log_det(spread) + log_det(chol))
        return jax.nn.logsumexp(log_weights + log_normal, axis=0)


def lower_precision(out: Any, mean: Any, precision: Any) -> Lowered:
    """`MvNormal(mean, precision=W)` with W a Wishart variable, and outcome and mean constant."""
    _, (r, _) = lower_noise(out, mean, precision)
    return Lowered(MvNormalPrecision(as_float(r)), (precision,))


def lower_noise(out: Any, mean: Any, precision: Any) -> Lowered:
    """`MvNormal(mean, precision=W)` with W a Wishart variable."""
    d, (rows, _) = mean.shape[-1], precision.event_shape
    if d != rows:
        raise ValueError(f"MvNormal: the mean has {d} entries, but precision= is a Wishart variable of {rows} x {rows}")
    return Lowered(NoiseWishart(d), (out - mean, precision))


def _lower_prior(out: Any, df: Any, scale: Any) -> Lowered:
    scale = jnp.asarray(as_float(scale))
    if scale.shape[-1] != scale.shape[-2]:
        raise ValueError(f"Wishart: scale= must be a square matrix; got shape {scale.shape[-2:]}")
    symmetric = jnp.abs(scale - jnp.swapaxes(scale, -1, -2)) <= 1e-6 * jnp.max(jnp.abs(scale))
    # What is not positive definite gives NaN, which `checks` reports.
    precision = inverse(cholesky(jnp.where(symmetric, scale, jnp.nan)))
    return Lowered(WishartPrior(as_float(df), precision), (out,))


@register
class Wishart(Distribution):
    """`Wishart(df, scale=)` of latent precision matrices: mean `df * scale`, with `df` above the dimension less one."""

    __slots__ = ()
    family = WishartFamily
    event_ndims: ClassVar = {"out": 2, "df": 0, "scale": 2}
    placeholder = 1.0
    signatures = (Signature({"out": WISHART, "df": CONSTANT, "scale": CONSTANT}, _lower_prior, WishartPrior),)

    def __init__(self, df: Any, *, scale: Any):
        self.arguments = {"df": df, "scale": scale}
