r"""Linear regression whose noise has its own regression: a softdot with a log-precision path.

$$ v \sim N(m_v, S_v), \quad w \sim N(m_w, S_w), \quad s_n \mid w \sim N(\psi_n^\top w, c^{-1}), \quad
   y_n \mid v, s_n \sim N(\phi_n^\top v, e^{-s_n}) $$
"""

from typing import Any

from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, dot, exp

from .hierarchy import weights


def heteroscedastic(
    phi: Float[Array, "n d"],
    psi: Float[Array, "n e"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    c_top: float = 25.0,
    v_mean: Any = 0.0,
    v_variance: Any = 4.0,
    w_mean: Any = 0.0,
    w_variance: Any = 2.56,
) -> None:
    """Weights `v` (d,) of the mean and `w` (e,) of the log-precision, MvGaussian; log-precisions `s` (n,), Gaussian.

    Prior means are numbers or vectors, variances numbers, vectors (diagonal) or matrices.
    """
    v = weights("v", phi.shape[-1], v_mean, v_variance, phi.dtype)
    w = weights("w", psi.shape[-1], w_mean, w_variance, psi.dtype)
    s = ngmp.sample("s", Normal(dot(psi, w), precision=c_top))
    ngmp.sample("y", Normal(dot(phi, v), precision=exp(s)), obs=y, mask=mask)
