r"""Normal noise of a covariance that is singular: a zero-mean factor on the vector residual `r = out - mean`.

With $Q = L L^T$, L a matrix (d, k) of independent columns, all mass is on the span of L, and the density there, with
respect to its own volume, is $\exp\{-\tfrac12 r^T Q^+ r\} / \sqrt{|2\pi L^T L|}$, with $Q^+ = T T^T$ and
$T = L (L^T L)^{-1}$. What of r is not in the span of L is not looked at: executors that can solve for such variables
(`degenerate`) keep it at zero.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ..distribution import Lowered, as_float
from ..factor import AbstractConjugate, Families
from ..families import MvGaussian
from ..numerics.cholesky import cholesky, inverse, log_det
from ..numerics.special import LOG_2PI

_SMALL = 1e-10  # an eigenvalue of the correlations of a covariance that counts as zero


class LowRankNoise(AbstractConjugate):
    """`f(r) = N(r; 0, L L^T)` with a constant L, `root`, of fewer columns than rows."""

    interfaces: ClassVar[tuple[str, ...]] = ("r",)
    families: ClassVar[Families] = (MvGaussian,)
    degenerate: ClassVar[bool] = True
    root: Float[Array, "#n d k"]

    def _gram(self) -> Float[Array, "#n k k"]:
        """The Cholesky factor of `L^T L`."""
        root = jnp.asarray(self.root)
        return cholesky(jnp.swapaxes(root, -1, -2) @ root)

    def log_volume(self) -> Float[Array, " #n"]:
        """`log |2 pi L^T L| / 2`."""
        return 0.5 * (self.root.shape[-1] * LOG_2PI + log_det(self._gram()))

    @property
    def precision(self) -> Float[Array, "#n d d"]:
        """The pseudo-inverse of the covariance."""
        thin = self.root @ inverse(self._gram())
        return thin @ jnp.swapaxes(thin, -1, -2)

    def log_density(self, r: Array) -> Array:
        return -self.log_volume() - 0.5 * jnp.einsum("...i,...ij,...j->...", r, self.precision, r)

    def message(self) -> tuple[MvGaussian, Array]:
        precision = self.precision
        return MvGaussian(jnp.zeros_like(precision[..., 0]), -0.5 * precision), -self.log_volume()

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {"covariance_root must have independent columns": jnp.isfinite(log_det(self._gram()))}

    def moments(self, r: Array) -> tuple[Array, Array]:
        return -r, jnp.broadcast_to(jnp.sum(jnp.asarray(self.root) ** 2, -1), r.shape)


def lower_low_rank(out: Any, mean: Any, covariance_root: Any) -> Lowered:
    d, root = mean.shape[-1], as_float(covariance_root)
    if root.shape[-2] != d or not 1 <= root.shape[-1] <= d:
        raise ValueError(
            f"MvNormal: the mean has {d} entries, so covariance_root= must be a matrix of {d} rows and at most as many "
            f"columns; got shape {root.shape[1:]}"
        )
    return Lowered(LowRankNoise(root), (out - mean,))


def root_of(covariance: Any) -> np.ndarray | None:
    """L of a covariance `L L^T` that is known and singular; None of any other, and of one that is no covariance.

    Ranks are of the correlations, so that units do not matter.
    """
    if isinstance(covariance, Tracer) or not isinstance(covariance, list | np.ndarray | jax.Array):
        return None
    try:
        matrix = np.asarray(covariance, float)
    except (TypeError, ValueError):
        return None  # said where arguments are checked
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        return None
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    most = scale[:, None] * scale
    if not scale.any() or np.any(np.abs(matrix) > 1.01 * most) or np.any(np.abs(matrix - matrix.T) > 1e-8 * most):
        return None
    wide, rest = np.flatnonzero(scale > 0), np.flatnonzero(scale == 0)
    inner = matrix[np.ix_(wide, wide)] / scale[wide, None] / scale[wide]
    values, vectors = np.linalg.eigh(inner)
    kept = values > _SMALL
    if values[0] < -_SMALL or kept.all() and not len(rest):
        return None
    root = np.zeros((len(matrix), int(kept.sum())))
    root[wide] = scale[wide, None] * vectors[:, kept] * np.sqrt(values[kept])
    return root


def draw(key: Any, like: Array, mean: Array, covariance_root: Array) -> Array:
    """Draws shaped as `like`."""
    noise = jax.random.normal(key, (*like.shape[:-1], covariance_root.shape[-1]), like.dtype)
    return mean + jnp.einsum("...dk,...k->...d", jnp.asarray(covariance_root, like.dtype), noise)
