"""Hierarchies: effects of groups whose spread is learned. Groups are indices, inputs like any other."""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Gamma, HalfCauchy, HalfNormal, Normal, Poisson, dot, exp

from .regression import weights


def eight_schools(y: Float[Array, " k"], sd: Float[Array, " k"]) -> None:
    r"""$\mu \sim N(0, 100)$, $\tau \sim C^+(5)$, $\theta_k \sim N(\mu, \tau^2)$, $y_k \sim N(\theta_k, s_k^2)$.

    Compile with `integrate=("tau",)`.
    """
    tau = ngmp.sample("tau", HalfCauchy(scale=5.0))
    mu = ngmp.sample("mu", Normal(0.0, std=10.0))
    theta = ngmp.sample("theta", Normal(mu + np.zeros(np.shape(y)), std=tau))
    ngmp.sample("y", Normal(theta, std=sd), obs=y)


def random_intercepts(group: Int[Array, " n"], x: Float[Array, " n"], y: Float[Array, " n"], groups: int) -> None:
    r"""Levels by group, a common slope (radon in counties): $y_n \sim N(a_{g_n} + b x_n, \sigma^2)$,
    $a_j \sim N(\mu, \lambda^2)$, $\lambda, \sigma \sim \mathrm{HalfNormal}(1)$.

    Compile with `integrate=("between", "within")`.
    """
    between, within = ngmp.sample("between", HalfNormal(std=1.0)), ngmp.sample("within", HalfNormal(std=1.0))
    mu, b = ngmp.sample("mu", Normal(0.0, std=3.0)), ngmp.sample("b", Normal(0.0, std=3.0))
    a = ngmp.sample("a", Normal(mu + np.zeros(groups), std=between))
    ngmp.sample("y", Normal(a[group] + b * x, std=within), obs=y)


def growth_curves(
    subject: Int[Array, " n"], t: Float[Array, " n"], y: Float[Array, " n"], subjects: int, noise: float = 0.5
) -> None:
    r"""A line for every subject (rats): $y_n \sim N(a_{s_n} + b_{s_n} t_n, \sigma^2)$, $a_j \sim N(\mu, \lambda^2)$,
    $b_j \sim N(\beta, \kappa^2)$, $\lambda, \kappa \sim \mathrm{HalfNormal}(1)$.

    Compile with `integrate=("levels", "slopes")`.
    """
    levels, slopes = ngmp.sample("levels", HalfNormal(std=1.0)), ngmp.sample("slopes", HalfNormal(std=1.0))
    mu, beta = ngmp.sample("mu", Normal(0.0, std=5.0)), ngmp.sample("beta", Normal(0.0, std=5.0))
    a = ngmp.sample("a", Normal(mu + np.zeros(subjects), std=levels))
    b = ngmp.sample("b", Normal(beta + np.zeros(subjects), std=slopes))
    ngmp.sample("y", Normal(a[subject] + b[subject] * t, std=noise), obs=y)


def seeds(features: Float[Array, "n d"], trials: Int[Array, " n"], y: Int[Array, " n"]) -> None:
    r"""Plates of seeds that germinate: $y_n \sim \mathrm{Binomial}(m_n, \mathrm{logit}^{-1}(\phi_n^\top w + u_n))$,
    $u_n \sim N(0, \sigma^2)$, $\sigma \sim \mathrm{HalfNormal}(1)$. Compile with `integrate=("sd",)`.
    """
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    w = weights("w", features.shape[-1], dtype=features.dtype)
    u = ngmp.sample("u", Normal(np.zeros(len(y)), std=sd))
    ngmp.sample("y", Binomial(trials, logits=features @ w + u), obs=y)


def count_groups(group: Int[Array, " n"], y: Int[Array, " n"], groups: int) -> None:
    r"""Counts in groups: $y_n \sim \mathrm{Poisson}(e^{u_{g_n}})$, $u_j \sim N(\mu, \sigma^2)$,
    $\sigma \sim \mathrm{HalfNormal}(1)$. Compile with `integrate=("sd",)`.
    """
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    mu = ngmp.sample("mu", Normal(0.0, std=2.0))
    u = ngmp.sample("u", Normal(mu + np.zeros(groups), std=sd))
    ngmp.sample("y", Poisson(exp(u[group])), obs=y)


def pumps(t: Float[Array, " n"], y: Int[Array, " n"], shape: float = 1.0) -> None:
    r"""Failures of pumps: $\theta_n \sim \mathrm{Gamma}(\alpha, \beta)$, $y_n \sim \mathrm{Poisson}(t_n \theta_n)$,
    $\beta \sim \mathrm{Gamma}(2, 1)$. Compile with `integrate=("beta",)`.
    """
    beta = ngmp.sample("beta", Gamma(2.0, rate=1.0))
    theta = ngmp.sample("theta", Gamma(shape * np.ones(len(y)), rate=beta))
    ngmp.sample("y", Poisson(t * theta), obs=y)


def precision_hierarchy(
    features: tuple[Float[Array, "n d"], ...],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    c_top: float = 25.0,
    v_mean: Any = 0.0,
    v_variance: Any = 1.0,
    w_mean: Any = 0.0,
    w_variance: Any = 1.0,
) -> None:
    r"""A regression whose noise has a regression whose noise has a regression, and so on; one level: `heteroscedastic`.

    $$ y \sim N(\varphi_0^\top v, e^{-s_1}), \qquad s_l \sim N(\varphi_l^\top w_l, e^{-s_{l+1}}), \; l < L, \qquad
       s_L \sim N(\varphi_L^\top w_L, 1/c) $$

    Weights `v` of the mean and `w1`, `w2`, ... of the log-precisions `s1`, `s2`, ... (n,), Gaussian.

    Args:
        features: one matrix for the mean and one for every level of log-precision, at least two, of any widths.
        y: the data; None or masked rows are predicted.
        mask: True where y is seen.
        c_top: precision of the last level.
        v_mean, v_variance: prior of v; a number, a vector (diagonal covariance) or, for the variance, a matrix.
        w_mean, w_variance: the same for every level, or a tuple with an entry for each. An intercept is a column of
            ones whose weight has its own prior mean.
    """
    levels = len(features) - 1
    if levels < 1:
        raise ValueError(f"features must hold a matrix for the mean and one for each level; got {len(features)}")
    means, variances = _by_level("w_mean", w_mean, levels), _by_level("w_variance", w_variance, levels)
    names = [f"w{level}" for level in range(1, levels + 1)]
    dtype, widths = features[0].dtype, [phi.shape[-1] for phi in features]
    v = weights("v", widths[0], v_mean, v_variance, dtype)
    w = [weights(*prior, dtype) for prior in zip(names, widths[1:], means, variances, strict=True)]
    above = c_top
    for level in range(levels, 0, -1):
        s = ngmp.sample(f"s{level}", Normal(dot(features[level], w[level - 1]), precision=above))
        above = exp(s)
    ngmp.sample("y", Normal(dot(features[0], v), precision=above), obs=y, mask=mask)


def _by_level(name: str, given: Any, levels: int) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        return (given,) * levels
    if len(given) != levels:
        raise ValueError(f"{name} has {len(given)} entries for {levels} levels of log-precision")
    return tuple(given)
