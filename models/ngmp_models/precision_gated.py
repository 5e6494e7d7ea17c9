r"""Ensembles of frozen forecasters with gates: how far to trust each of them, told by a context.

An expert i says $f_{ij}$ of $y_j$; a softdot of the context $\varphi_j$ is its log-precision:

$$ z_{ij} \sim N(\varphi_j^\top w_i, 1/\tau_i), \quad \gamma_{ij} \sim \mathrm{Gamma}(1, \beta_i), \quad
   z_{ij} = \log \gamma_{ij}, \quad y_j \sim N(f_{ij}, 1/\gamma_{ij}) \text{ for every } i, $$

$\tau_i \sim \mathrm{Gamma}(1, 10^{-3})$, $\beta_i \sim \mathrm{Gamma}(1, 10^3)$: a product of experts, independent
given y, so that experts are lanes of a `vmap`. The carrier $\gamma$ is a function of z, so it is left out exactly: its
prior is the factor $\beta e^z e^{-\beta e^z}$ of z and β, which is the density at 1 of an Exponential of rate
$\beta e^z$. (One $e^z$ of it is the Jacobian of the logarithm, which the study's Log node has toward z as well.)

Errors of experts are correlated: the product is far too certain, unless its scale is learned (`consensus`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Exponential, Gamma, MvNormal, Normal, dot, exp

FAMILIES = {"beta": "log-gaussian"}
"""What `precision_gate` is compiled with: β times e^z is then exp of a sum of Gaussians."""

Mask = Bool[Array, " n"] | None


def precision_gate(
    context: Float[Array, "n d"],
    forecast: Float[Array, " n"],
    y: Float[Array, " n"],
    w_mean: Float[Array, " d"],
    w_variance: Float[Array, " d"],
    mask: Mask = None,
) -> None:
    r"""One expert: weights `w` (d,), log-precisions `z` (n,), `tau` (), `beta` (). Compile with `FAMILIES`.

    Args:
        context: a row for each time, a column of ones for the intercept.
        forecast: of this expert.
        y: what came; masked rows say nothing.
        w_mean, w_variance: prior of w, diagonal; see `gate_prior`.
        mask: True where y is seen.
    """
    _same_width("w_mean", w_mean, context)
    _same_width("w_variance", w_variance, context)
    n = len(y)
    w = ngmp.sample("w", MvNormal(w_mean, covariance=w_variance))
    tau = ngmp.sample("tau", Gamma(1.0, rate=1e-3))
    beta = ngmp.sample("beta", Gamma(1.0, rate=1e3))
    z = ngmp.sample("z", Normal(dot(context, w), precision=tau))
    ngmp.sample("carrier", Exponential(beta * exp(z)), obs=jnp.ones(n), mask=mask)
    ngmp.sample("y", Normal(forecast, precision=exp(z)), obs=y, mask=mask)


def direct_gate(
    context: Float[Array, "n d"],
    forecast: Float[Array, " n"],
    y: Float[Array, " n"],
    w_mean: Float[Array, " d"],
    w_variance: Float[Array, " d"],
    mask: Mask = None,
) -> None:
    r"""One expert without noise between context and precision, $z_j = \varphi_j^\top w$: to have `beta` integrated.

    $\tau$ of `precision_gate` grows to thousands, where its z are $\varphi^\top w$. Compile with `integrate=("beta",)`.
    """
    _same_width("w_mean", w_mean, context)
    _same_width("w_variance", w_variance, context)
    w = ngmp.sample("w", MvNormal(w_mean, covariance=w_variance))
    beta = ngmp.sample("beta", Gamma(1.0, rate=1e3))
    z = dot(context, w)
    ngmp.sample("carrier", Exponential(beta * exp(z)), obs=jnp.ones(len(y)), mask=mask)
    ngmp.sample("y", Normal(forecast, precision=exp(z)), obs=y, mask=mask)


def consensus(
    spread: Float[Array, "n k"],
    centre: Float[Array, " n"],
    psi: Float[Array, "n e"],
    y: Float[Array, " n"],
    v_variance: Float[Array, " k"],
    u_mean: Float[Array, " e"],
    u_variance: Float[Array, " e"],
    mask: Mask = None,
    c_top: float = 4.0,
) -> None:
    r"""Experts whose errors are correlated, with a scale that is learned and tails that are heavy.

    $$ v \sim N(0, S_v), \quad u \sim N(m_u, S_u), \quad s_j \sim N(\psi_j^\top u, 1/c), \quad
       y_j \sim N(c_j + d_j^\top v, e^{-s_j}) $$

    around a fused forecast c_j. v moves weight between experts against their deviations d_ij = f_ij - c_j: the
    regression knows all covariances of their errors. A small c makes tails heavy, as a t has them.

    Args:
        spread: d, and any column that may be added to the forecast.
        centre: c, for example that of `fuse`.
        psi: what the scale depends on, with a column of ones.
        y: what came.
        v_variance, u_mean, u_variance: diagonal priors.
        mask: True where y is seen.
        c_top: precision of the log-precision.
    """
    _same_width("v_variance", v_variance, spread)
    _same_width("u_mean", u_mean, psi)
    _same_width("u_variance", u_variance, psi)
    v = ngmp.sample("v", MvNormal(jnp.zeros(spread.shape[1]), covariance=v_variance))
    u = ngmp.sample("u", MvNormal(u_mean, covariance=u_variance))
    s = ngmp.sample("s", Normal(dot(psi, u), precision=c_top))
    ngmp.sample("y", Normal(centre + dot(spread, v), precision=exp(s)), obs=y, mask=mask)


def drifting_consensus(
    spread: Float[Array, "n k"],
    centre: Float[Array, " n"],
    psi: Float[Array, "n e"],
    y: Float[Array, " n"],
    v_variance: Float[Array, " k"],
    u_mean: Float[Array, " e"],
    u_variance: Float[Array, " e"],
    v_walk: Float[Array, " k"],
    u_walk: Float[Array, " e"],
    memory: float = 1.0,
    mask: Mask = None,
    c_top: float = 4.0,
) -> None:
    r"""One batch of `consensus` as a filter: weights and scale drift from batch to batch. Compile with `CARRY`.

    $$ v' \sim N(\rho v, W_v), \quad u' \sim N(m_u + \rho (u - m_u), W_u). $$

    Args:
        spread, centre, psi, y, v_variance, u_mean, u_variance, c_top, mask: as in `consensus`.
        v_walk, u_walk: W, variances of a step.
        memory: ρ, one for walks, less for what comes back to its prior.
    """
    _same_width("v_variance", v_variance, spread)
    _same_width("u_mean", u_mean, psi)
    first_v = ngmp.sample("v0", MvNormal(jnp.zeros(spread.shape[1]), covariance=v_variance))
    first_u = ngmp.sample("u0", MvNormal(u_mean, covariance=u_variance))
    v = ngmp.sample("v", MvNormal(memory * first_v, covariance=v_walk))
    u = ngmp.sample("u", MvNormal(memory * first_u + (1.0 - memory) * u_mean, covariance=u_walk))
    s = ngmp.sample("s", Normal(dot(psi, u), precision=c_top))
    ngmp.sample("y", Normal(centre + dot(spread, v), precision=exp(s)), obs=y, mask=mask)


CARRY = {"v0": "v", "u0": "u"}


# -- priors and predictions --------------------------------------------------------------------------------------------


class GatePrior(NamedTuple):
    """Of the weights of every expert: means (k, d), and variances (d,) that all share."""

    w_mean: Float[np.ndarray, "k d"]
    w_variance: Float[np.ndarray, " d"]


def gate_prior(
    width: int, forecasts: Float[np.ndarray, "n k"], y: Float[np.ndarray, " n"], sd: float = 2.0
) -> GatePrior:
    """Weights have mean 0 and this sd; the last, the intercept, minus the log of the mean square error, variance 2."""
    mean = np.zeros((forecasts.shape[1], width))
    mean[:, -1] = -np.log(np.maximum(np.mean((forecasts - y[:, None]) ** 2, axis=0), 1e-8))
    variance = np.full(width, sd**2)
    variance[-1] = 2.0
    return GatePrior(mean, variance)


class Fused(NamedTuple):
    """Mean, variance (n,) and the precisions they come from (n, k)."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    precision: Float[Array, "n k"]


def gates(
    context: Float[Array, "n d"],
    w_mean: Float[Array, "k d"],
    w_covariance: Float[Array, "k d d"],
    z_variance: Float[Array, " k"],
    beta: Float[Array, " k"],
) -> Float[Array, "n k"]:
    r"""Precisions as the study has them: $1/g = e^{-m + v/2} + E\beta$, with m, v the moments of a new z, clipped."""
    if context.shape[1] != w_mean.shape[-1]:
        raise ValueError(f"context has {context.shape[1]} columns; the weights of the gates have {w_mean.shape[-1]}")
    m = jnp.einsum("nd,kd->nk", context, w_mean)
    v = jnp.einsum("nd,kde,ne->nk", context, w_covariance, context) + z_variance
    return jnp.clip(1.0 / (jnp.exp(0.5 * v - m) + beta), 1e-6, 1e6)


def fuse(precision: Float[Array, "n k"], forecasts: Float[Array, "n k"]) -> Fused:
    """The product of Gaussians."""
    if precision.shape != forecasts.shape:
        raise ValueError(f"a precision for each forecast: got shapes {precision.shape} and {forecasts.shape}")
    total = jnp.sum(precision, axis=1)
    return Fused(jnp.sum(precision * forecasts, axis=1) / total, 1.0 / total, precision)


def consensus_moments(
    v: Any,
    u: Any,
    spread: Float[Array, "n k"],
    centre: Float[Array, " n"],
    psi: Float[Array, "n e"],
    c_top: float = 4.0,
) -> tuple[Array, Array, Array, Array]:
    """Mean and variance of the forecast, and of its log-precision, at marginals v and u of `consensus`."""
    mean, variance = (
        (x @ q.mean, jnp.einsum("nd,de,ne->n", x, q.covariance, x)) for x, q in ((spread, v), (psi, u))
    )  # fmt: skip
    return centre + mean[0], mean[1], variance[0], variance[1] + 1.0 / c_top


def log_scale_mixture(
    y: Float[Array, " n"], mean: Array, variance: Array, s: Array, s_variance: Array, points: int = 61
) -> Float[Array, " n"]:
    r"""$\log \int N(y; m, V + e^{-s})\, q(s)\, ds$, on nodes out to seven standard deviations."""
    t = jnp.linspace(-7.0, 7.0, points)[:, None]
    log_w = jax.nn.log_softmax(-0.5 * t**2, axis=0)
    total = variance + jnp.exp(-(s + jnp.sqrt(s_variance) * t))
    return jax.nn.logsumexp(log_w - 0.5 * jnp.log(2 * jnp.pi * total) - 0.5 * (y - mean) ** 2 / total, axis=0)


def _same_width(name: str, given: Any, matrix: Any) -> None:
    if np.shape(given) != (matrix.shape[-1],):
        raise ValueError(
            f"the context has {matrix.shape[-1]} columns, and {name} the shape {np.shape(given)}: give it one entry "
            f"for each column, ({matrix.shape[-1]},), the column of ones included"
        )
