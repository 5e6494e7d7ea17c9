r"""Linear regression whose noise has its own regression: a softdot with a log-precision path.

$$ v \sim N(0, 4 I), \quad w \sim N(0, 2.56 I), \quad s_n \mid w \sim N(\psi_n^\top w, c^{-1}), \quad
   y_n \mid v, s_n \sim N(\phi_n^\top v, e^{-s_n}) $$
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, dot, exp


def heteroscedastic(
    phi: Float[Array, "n d"],
    psi: Float[Array, "n e"],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    c_top: float = 25.0,
) -> None:
    """Weights `v` (d,) of the mean and `w` (e,) of the log-precision, MvGaussian; log-precisions `s` (n,), Gaussian."""
    v = ngmp.sample("v", MvNormal(jnp.zeros(phi.shape[-1], phi.dtype), covariance=4.0))
    w = ngmp.sample("w", MvNormal(jnp.zeros(psi.shape[-1], psi.dtype), covariance=2.56))
    s = ngmp.sample("s", Normal(dot(psi, w), precision=c_top))
    ngmp.sample("y", Normal(dot(phi, v), precision=exp(s)), obs=y, mask=mask)
