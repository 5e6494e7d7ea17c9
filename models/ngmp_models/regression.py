r"""Regressions: outcomes $y_n$ that depend on features $\phi_n$ through $f_n = \phi_n^\top w$, $w \sim N(0, V I)$.

For an intercept give the features a column of ones. Unknown scales and shapes are logarithms, Gaussian.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    HalfNormal,
    Laplace,
    MvNormal,
    NegativeBinomial,
    Normal,
    OrderedLogistic,
    Poisson,
    StudentT,
    ZeroInflated,
    dot,
    exp,
)

Features = Float[Array, "n d"]
Mask = Bool[Array, " n"] | None


def weights(name: str, d: int, mean: Any = 0.0, variance: Any = 4.0, dtype: Any = float) -> Any:
    """Declare a weight vector `name` (d,) with a Gaussian prior.

    `mean` is a number or a vector, `variance` a number, a vector (diagonal) or a matrix.
    """
    return ngmp.sample(name, MvNormal(jnp.broadcast_to(jnp.asarray(mean, dtype), (d,)), covariance=variance))


def mean_precision(y: Float[Array, " n"], mask: Mask = None) -> None:
    r"""The smallest model with two coupled projections: n factors share `x` (), Gaussian, and `tau` (), Gamma.

    $$ x \sim N(0, 25), \quad \tau \sim \mathrm{Gamma}(2, 1), \quad y_n \mid x, \tau \sim N(x, \tau^{-1}) $$
    """
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y, mask=mask)


def linear_regression(
    features: Features, y: Float[Array, " n"], mask: Mask = None, prior_variance: float = 4.0
) -> None:
    r"""Noise of unknown precision: $\tau \sim \mathrm{Gamma}(2, 1)$, $y_n \sim N(f_n, \tau^{-1})$."""
    w = weights("w", features.shape[-1], variance=prior_variance, dtype=features.dtype)
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(dot(features, w), precision=tau), obs=y, mask=mask)


def logistic_regression(
    features: Features, y: Int[Array, " n"], mask: Mask = None, prior_variance: float = 4.0
) -> None:
    r"""Weights `w` (d,), MvGaussian: $y_n \sim \mathrm{Bernoulli}(1 / (1 + e^{-f_n}))$."""
    w = weights("w", features.shape[-1], variance=prior_variance, dtype=features.dtype)
    ngmp.sample("y", Bernoulli(logits=dot(features, w)), obs=y, mask=mask)


def probit_regression(features: Features, y: Int[Array, " n"], mask: Mask = None, prior_variance: float = 4.0) -> None:
    r"""$y_n \sim \mathrm{Bernoulli}(\Phi(f_n))$."""
    w = weights("w", features.shape[-1], variance=prior_variance, dtype=features.dtype)
    ngmp.sample("y", Bernoulli(probs=ngmp.Phi(features @ w)), obs=y, mask=mask)


def binomial_regression(
    features: Features, trials: Int[Array, " n"], y: Int[Array, " n"], mask: Mask = None, prior_variance: float = 4.0
) -> None:
    r"""Hazards seen in groups: $y_n \sim \mathrm{Binomial}(m_n, 1 - e^{-e^{f_n}})$, the complementary log-log link."""
    w = weights("w", features.shape[-1], variance=prior_variance, dtype=features.dtype)
    ngmp.sample("y", Binomial(trials, probs=ngmp.cloglog(features @ w)), obs=y, mask=mask)


def poisson_regression(
    features: Features,
    exposure: Float[Array, " n"],
    y: Int[Array, " n"],
    mask: Mask = None,
    prior_variance: float = 4.0,
) -> None:
    r"""Counts with exposures: $y_n \sim \mathrm{Poisson}(t_n e^{f_n})$."""
    w = weights("w", features.shape[-1], variance=prior_variance, dtype=features.dtype)
    ngmp.sample("y", Poisson(exposure * exp(features @ w)), obs=y, mask=mask)


def negative_binomial_regression(features: Features, y: Int[Array, " n"], mask: Mask = None) -> None:
    r"""Overdispersed counts: mean $e^{f_n}$, variance $e^{f_n} + e^{2 f_n - k}$, $k \sim N(0, 4)$ unknown."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    k = ngmp.sample("k", Normal(0.0, variance=4.0))
    ngmp.sample("y", NegativeBinomial(mean=exp(features @ w), dispersion=exp(k)), obs=y, mask=mask)


def zero_inflated_regression(features: Features, y: Int[Array, " n"], mask: Mask = None) -> None:
    r"""More zeros than Poisson has: zero with probability $p \sim U(0, 1)$, else $\mathrm{Poisson}(e^{f_n})$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    p = ngmp.sample("p", Beta(1.0, 1.0))
    ngmp.sample("y", ZeroInflated(Poisson(exp(features @ w)), p), obs=y, mask=mask)


def gamma_regression(features: Features, y: Float[Array, " n"], mask: Mask = None) -> None:
    r"""Positive outcomes of mean $e^{f_n}$ and unknown shape $e^k$, $k \sim N(0, 1)$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    k = ngmp.sample("k", Normal(0.0, variance=1.0))
    ngmp.sample("y", Gamma(exp(k), mean=exp(features @ w)), obs=y, mask=mask)


def beta_regression(features: Features, y: Float[Array, " n"], mask: Mask = None) -> None:
    r"""Shares of mean $1 / (1 + e^{-f_n})$ and unknown concentration $e^k$, $k \sim N(2, 1)$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    k = ngmp.sample("k", Normal(2.0, variance=1.0))
    ngmp.sample("y", Beta(logits=features @ w, concentration=exp(k)), obs=y, mask=mask)


def softmax_regression(features: Features, y: Int[Array, " n"], mask: Mask = None) -> None:
    r"""Three classes with the scores $0, \phi_n^\top v, \phi_n^\top w$."""
    d = features.shape[-1]
    v, w = weights("v", d, dtype=features.dtype), weights("w", d, dtype=features.dtype)
    ngmp.sample("y", Categorical(logits=[0.0, dot(features, v), dot(features, w)]), obs=y, mask=mask)


def ordinal_regression(features: Features, y: Int[Array, " n"], mask: Mask = None) -> None:
    r"""Grades 0, 1, 2: $P(y_n \le j) = 1 / (1 + e^{f_n - c_j})$, $c_1 = x_1$, $c_2 = x_1 + e^{x_2}$ unknown.

    No intercept: the first cutpoint is one.
    """
    w = weights("w", features.shape[-1], dtype=features.dtype)
    first, gap = ngmp.sample("first", Normal(0.0, std=2.0)), ngmp.sample("gap", Normal(0.0, std=0.7))
    ngmp.sample("y", OrderedLogistic(features @ w, ordered=[first, gap]), obs=y, mask=mask)


def robust_regression(features: Features, y: Float[Array, " n"], mask: Mask = None, df: float = 4.0) -> None:
    r"""Student's t noise of unknown scale: $y_n \sim t_\nu(f_n, e^s)$, $s \sim N(0, 1)$."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    s = ngmp.sample("s", Normal(0.0, variance=1.0))
    ngmp.sample("y", StudentT(df, features @ w, scale=exp(s)), obs=y, mask=mask)


def median_regression(features: Features, y: Float[Array, " n"], mask: Mask = None) -> None:
    r"""$y_n \sim \mathrm{Laplace}(f_n, b)$, $b \sim \mathrm{Exponential}(1)$. Compile with `integrate=("b",)`."""
    w = weights("w", features.shape[-1], dtype=features.dtype)
    b = ngmp.sample("b", Exponential(1.0))
    ngmp.sample("y", Laplace(features @ w, scale=b), obs=y, mask=mask)


def ridge_regression(features: Features, y: Float[Array, " n"], mask: Mask = None) -> None:
    r"""$w_j \sim N(0, \lambda^2)$, $y_n \sim N(f_n, \sigma^2)$, $\lambda, \sigma \sim \mathrm{HalfNormal}(1)$.

    Compile with `integrate=("ridge", "noise")`.
    """
    ridge, noise = ngmp.sample("ridge", HalfNormal(std=1.0)), ngmp.sample("noise", HalfNormal(std=1.0))
    w = ngmp.sample("w", MvNormal(jnp.zeros(features.shape[-1], features.dtype), covariance=ridge**2))
    ngmp.sample("y", Normal(features @ w, std=noise), obs=y, mask=mask)


def measurement_error(x: Float[Array, " n"], y: Float[Array, " n"], seen: float = 0.5, noise: float = 0.4) -> None:
    r"""Points seen with error: $t_n \sim N(0, 1)$, $x_n \sim N(t_n, e^2)$, $y_n \sim N(a + b t_n, s^2)$."""
    a, b = ngmp.sample("a", Normal(0.0, std=2.0)), ngmp.sample("b", Normal(0.0, std=2.0))
    with ngmp.plate("points", len(x)):
        t = ngmp.sample("t", Normal(0.0, std=1.0))
    ngmp.sample("x", Normal(t, std=seen), obs=x)
    ngmp.sample("y", Normal(b * t + a, std=noise), obs=y)


def heteroscedastic(
    phi: Float[Array, "n d"],
    psi: Float[Array, "n e"],
    y: Float[Array, " n"],
    mask: Mask = None,
    c_top: float = 25.0,
    v_mean: Any = 0.0,
    v_variance: Any = 4.0,
    w_mean: Any = 0.0,
    w_variance: Any = 2.56,
) -> None:
    r"""Linear regression whose noise has its own regression: a softdot with a log-precision path.

    $$ v \sim N(m_v, S_v), \quad w \sim N(m_w, S_w), \quad s_n \mid w \sim N(\psi_n^\top w, c^{-1}), \quad
       y_n \mid v, s_n \sim N(\phi_n^\top v, e^{-s_n}) $$

    Weights `v` (d,) of the mean and `w` (e,) of the log-precision, MvGaussian; log-precisions `s` (n,), Gaussian.
    Prior means are numbers or vectors, variances numbers, vectors (diagonal) or matrices.
    """
    v = weights("v", phi.shape[-1], v_mean, v_variance, phi.dtype)
    w = weights("w", psi.shape[-1], w_mean, w_variance, psi.dtype)
    s = ngmp.sample("s", Normal(dot(psi, w), precision=c_top))
    ngmp.sample("y", Normal(dot(phi, v), precision=exp(s)), obs=y, mask=mask)
