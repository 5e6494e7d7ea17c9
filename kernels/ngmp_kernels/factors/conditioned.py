r"""Conditioned: moments of a Gaussian times a factor that is Gaussian once a few of its unknowns are known.

Of a vector x with density N(m, V), let u = R_u x + o_u be the few, and $f(x) = N(g(x); 0, P^{-1})$ with a residual g
that is affine in x where u is known. Then everything but u integrates out: with

$$ G = V R_u^T C_u^{-1}, \quad W = V - G C_u G^T, \quad C_u = R_u V R_u^T, \quad x_u = m + G (u - c_u), \quad
   B_u = W (\partial g / \partial x)^T, \quad M_u = (\partial g / \partial x) B_u + P^{-1}, $$

the mass at u is $N(u; c_u, C_u) N(g(x_u); 0, M_u)$, the mean there $x_u - B_u M_u^{-1} g(x_u)$ and the covariance
$W - B_u M_u^{-1} B_u^T$. What remains are sums over nodes of u: for a product a b, of one of the two.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families import MvGaussian
from ..families.mv_gaussian import MOST_DIMENSIONS
from ..numerics.cholesky import cholesky, inverse_factor, log_det
from ..numerics.special import LOG_2PI
from ..quadrature.nodes import hermite_product, symmetric

_PER_AXIS = {1: 24, 2: 26, 3: 7, 4: 5}  # nodes, as of `MvGaussian`; fewer are as good, as most is integrated


class Known(NamedTuple):
    """What a factor is where u is known."""

    residual: Float[Array, "Q n m"]  # g at x_u
    slope: Float[Array, "Q n m d"]  # its derivative
    noise: Float[Array, "#Q #n m m"]  # P^{-1}


def independent(rows: np.ndarray, among: list[int]) -> tuple[int, ...] | None:
    """Those of the rows (n, k, d) that all others `among` them are sums of; None if not the same for all n."""
    chosen: tuple[int, ...] = ()
    for i in among:
        rank = np.linalg.matrix_rank(rows[:, [*chosen, i]])
        if (rank > len(chosen)).all():
            chosen = (*chosen, i)
        elif (rank > len(chosen)).any():
            return None
    return chosen


def fewest(rows: np.ndarray, sides: list[list[int]]) -> tuple[int, ...] | None:
    """The side with the fewest independent entries: these; None if they are too many, or all there is."""
    found = [chosen for side in sides if (chosen := independent(rows, side)) is not None]
    best = min(found, key=len, default=())
    return best if 0 < len(best) <= min(MOST_DIMENSIONS, rows.shape[-1] - 1) else None


def moments(
    q: MvGaussian, cavity: MvGaussian, rows: Float[Array, "#n u d"], known: Any, power: float
) -> tuple[MvGaussian, Float[Array, " n"]]:
    """The Gaussian with the moments of `cavity f^power`, and the logarithm of that integral.

    Args:
        q: the receiving marginal, (n,): it places the nodes.
        cavity: (n,), proper.
        rows: u = rows x, up to a constant.
        known: `Known` of x_u, (Q, n, d).
        power: of f.
    """
    size = rows.shape[-2]
    table = hermite_product(_PER_AXIS[size], size) if size in _PER_AXIS else symmetric(size)
    eps, log_weights = (jnp.asarray(x, q.dtype) for x in table)
    m, v = cavity.mean, cavity.covariance
    rows = jnp.broadcast_to(rows, (*m.shape[:-1], *rows.shape[-2:]))
    across = v @ jnp.swapaxes(rows, -1, -2)
    root = cholesky(rows @ across)
    back = inverse_factor(root)  # of C_u
    own = cholesky(rows @ q.covariance @ jnp.swapaxes(rows, -1, -2))
    # In coordinates where the cavity of u is standard: w = root^{-1} (u - c_u).
    turn = back @ own
    w = jnp.einsum("nuv,qv->qnu", turn, eps) + jnp.einsum("nuv,nvd,nd->nu", back, rows, q.mean - m)
    gain = jnp.einsum("ndu,nvu->ndv", across, back)
    rest = v - gain @ jnp.swapaxes(gain, -1, -2)  # W
    at = m + jnp.einsum("ndu,qnu->qnd", gain, w)
    residual, slope, noise = known(at)
    noise = noise / power
    side = jnp.einsum("nde,qnme->qndm", rest, slope)  # B
    chol = cholesky(jnp.einsum("qnmd,qndl->qnml", slope, side) + noise)
    whiten = inverse_factor(chol)
    white = jnp.einsum("qnlm,qnm->qnl", whiten, residual)
    size = residual.shape[-1]
    # N(g; 0, P^{-1})^p is N(g; 0, (p P)^{-1}) times a power of the determinant of P and of p.
    scale = 0.5 * (1.0 - power) * (log_det(cholesky(noise * power)) + size * LOG_2PI) - 0.5 * size * math.log(power)
    log_f = scale - 0.5 * (log_det(chol) + size * LOG_2PI + jnp.sum(white**2, -1))
    ratio = 0.5 * jnp.sum(eps**2, -1)[:, None] - 0.5 * jnp.sum(w**2, -1) + 0.5 * log_det(turn)
    log_mass = log_weights[:, None] + ratio + log_f
    total = jax.nn.logsumexp(log_mass, axis=0)
    weights = jnp.exp(log_mass - total)
    bent = jnp.einsum("qndm,qnlm->qndl", side, whiten)
    means = at - jnp.einsum("qndl,qnl->qnd", bent, white)
    mean = jnp.einsum("qn,qnd->nd", weights, means)
    off = means - mean
    spread = jnp.einsum("qn,qnd,qne->nde", weights, off, off) - jnp.einsum("qn,qndl,qnel->nde", weights, bent, bent)
    return MvGaussian.from_mean_covariance(mean, rest + spread), total
