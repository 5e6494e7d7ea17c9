"""Times to an event, some of which are known only to be longer: `censored` is 1 where no event was seen by then."""

import numpy as np
from jaxtyping import Array, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Exponential, HalfNormal, LogNormal, MvNormal, Normal, Poisson, Weibull, exp

from .regression import Features, weights


def exponential_survival(features: Features, t: Float[Array, " n"], censored: Int[Array, " n"]) -> None:
    r"""A constant hazard $e^{\phi_n^\top w}$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    ngmp.sample("t", Exponential(exp(features @ w)), obs=t, censored=censored)


def weibull_survival(features: Features, t: Float[Array, " n"], censored: Int[Array, " n"]) -> None:
    r"""Survival $e^{-(t / e^{\phi_n^\top w})^k}$, $k \sim \mathrm{HalfNormal}(2)$. Compile with `integrate=("k",)`."""
    k = ngmp.sample("k", HalfNormal(std=2.0))
    w = weights("w", features.shape[-1], dtype=features.dtype)
    ngmp.sample("t", Weibull(k, scale=exp(features @ w)), obs=t, censored=censored)


def lognormal_survival(features: Features, t: Float[Array, " n"], censored: Int[Array, " n"]) -> None:
    r"""Accelerated failure: $\log t_n \sim N(\phi_n^\top w, \sigma^2)$, $\sigma \sim \mathrm{HalfNormal}(1)$.

    Compile with `integrate=("sd",)`.
    """
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    w = weights("w", features.shape[-1], dtype=features.dtype)
    ngmp.sample("t", LogNormal(features @ w, std=sd), obs=t, censored=censored)


def frailty(
    group: Int[Array, " n"], features: Features, t: Float[Array, " n"], censored: Int[Array, " n"], groups: int
) -> None:
    r"""Hazards $e^{\phi_n^\top w + u_{g_n}}$ with effects of groups, $u_j \sim N(0, 1/4)$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    u = ngmp.sample("u", Normal(np.zeros(groups), variance=0.25))
    ngmp.sample("t", Exponential(exp(features @ w + u[group])), obs=t, censored=censored)


def piecewise_hazard(deaths: Int[Array, " k"], at_risk: Float[Array, " k"], precision: float = 4.0) -> None:
    r"""A hazard constant in each of k intervals that walks between them: $d_k \sim \mathrm{Poisson}(r_k e^{h_k})$
    with $r_k$ the time at risk, $h_1 \sim N(0, 4)$, $h_{k+1} - h_k \sim N(0, 1/\tau)$."""
    k = len(deaths)
    h = ngmp.sample("h", MvNormal(np.zeros(k), precision=precision * ngmp.rw1(k)))
    ngmp.sample("first", Normal(h[0], variance=4.0), obs=0.0)
    ngmp.sample("deaths", Poisson(at_risk * exp(h)), obs=deaths)
