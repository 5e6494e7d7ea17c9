"""Series: hidden states that walk, and what is seen of them. A chain starts one step before the first observation."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, HalfNormal, MvNormal, Normal, Poisson, Uniform, dot, exp

Mask = Bool[Array, " n"] | None


def local_level(
    y: Float[Array, " n"],
    mask: Mask = None,
    level_variance: float = 0.1,
    noise_variance: float = 1.0,
    prior_variance: float = 10.0,
) -> None:
    r"""A Gaussian random walk seen through Gaussian noise: `z0` () and `z` (n,), Gaussian.

    $$ z_0 \sim N(0, V), \quad z_k \mid z_{k-1} \sim N(z_{k-1}, \sigma^2), \quad y_k \mid z_k \sim N(z_k, \rho^2) $$

    Conjugate, so one sweep is exact: the marginals of a Kalman smoother; the free energy is minus the log evidence.
    """
    z0 = ngmp.sample("z0", Normal(0.0, variance=prior_variance))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=level_variance))
        ngmp.sample("y", Normal(z, variance=noise_variance), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def unknown_level(y: Float[Array, " n"], mask: Mask = None, scale: float = 1.0) -> None:
    r"""The local level with both deviations unknown, HalfNormal. Compile with `integrate=("walk", "noise")`."""
    walk, noise = ngmp.sample("walk", HalfNormal(std=scale)), ngmp.sample("noise", HalfNormal(std=scale))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, std=walk))
        ngmp.sample("y", Normal(z, std=noise), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Normal(0.0, std=3.0)), (y, mask))


def local_trend(
    y: Float[Array, " n"], mask: Mask = None, level: float = 0.1, slope: float = 0.05, noise: float = 0.5
) -> None:
    r"""A level with a slope: $z_k \sim N(z_{k-1} + b_{k-1}, \sigma^2)$, $b_k \sim N(b_{k-1}, \kappa^2)$,
    $y_k \sim N(z_k, \rho^2)$, deviations known."""

    def step(carry, x):
        (z, b), (y_k, seen) = carry, x
        z = ngmp.sample("z", Normal(z + b, std=level))
        b = ngmp.sample("b", Normal(b, std=slope))
        ngmp.sample("y", Normal(z, std=noise), obs=y_k, mask=seen)
        return (z, b), None

    start = ngmp.sample("z0", Normal(0.0, std=3.0)), ngmp.sample("b0", Normal(0.0, std=1.0))
    ngmp.scan(step, start, (y, mask))


def seasonal_series(
    y: Float[Array, " n"],
    mask: Mask = None,
    period: int = 4,
    level: float = 0.1,
    season: float = 0.05,
    noise: float = 0.3,
) -> None:
    r"""A level and a season whose last `period` effects sum to about zero: $s_k \sim N(-\sum_{j<p} s_{k-j}, \kappa^2)$,
    $z_k \sim N(z_{k-1}, \sigma^2)$, $y_k \sim N(z_k + s_k, \rho^2)$."""

    def step(carry, x):
        (z, seasons), (y_k, seen) = carry, x
        z = ngmp.sample("z", Normal(z, std=level))
        s = ngmp.sample("s", Normal(-sum(seasons), std=season))
        ngmp.sample("y", Normal(z + s, std=noise), obs=y_k, mask=seen)
        return (z, (s, *seasons[:-1])), None

    first = ngmp.sample("s0", Normal(np.zeros(period - 1), std=1.0))
    start = ngmp.sample("z0", Normal(0.0, std=3.0)), tuple(first[j] for j in range(period - 1))
    ngmp.scan(step, start, (y, mask))


def poisson_chain(y: Int[Array, " n"], mask: Mask = None, sigma2: float = 0.1) -> None:
    r"""Counts whose log-rate is a Gaussian random walk, as a scan: `z0` () and `z` (n,), Gaussian.

    $$ z_0 \sim N(0, 10), \quad z_k \mid z_{k-1} \sim N(z_{k-1}, \sigma^2), \quad
       y_k \mid z_k \sim \mathrm{Poisson}(e^{z_k}) $$
    """
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def poisson_chain_loop(y: Int[Array, " n"], mask: Mask = None, sigma2: float = 0.1) -> None:
    """The same chain as a Python loop; repeated names collect into one array, in order."""
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k], mask=None if mask is None else mask[k])


def autoregression(y: Float[Array, " n"], mask: Mask = None, std: float = 0.5, noise: float = 0.4) -> None:
    r"""A hidden autoregression: $x_k \sim N(\phi x_{k-1}, \sigma^2)$, $y_k \sim N(x_k, \rho^2)$, $\phi \sim U(-1, 1)$.

    Compile with `integrate=("phi",)`.
    """
    phi = ngmp.sample("phi", Uniform(-1.0, 1.0))

    def step(x, given):
        y_k, seen = given
        x = ngmp.sample("x", Normal(phi * x, std=std))
        ngmp.sample("y", Normal(x, std=noise), obs=y_k, mask=seen)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", Normal(0.0, std=1.0)), (y, mask))


def second_order(y: Float[Array, " n"], mask: Mask = None, phi: Any = (1.2, -0.5), noise: float = 0.4) -> None:
    r"""AR(2): $x_k \sim N(\phi_1 x_{k-1} + \phi_2 x_{k-2}, 1/4)$, $y_k \sim N(x_k, \rho^2)$, links over two steps."""

    def step(carry, given):
        (before, last), (y_k, seen) = carry, given
        x = ngmp.sample("x", Normal(phi[0] * last + phi[1] * before, std=0.5))
        ngmp.sample("y", Normal(x, std=noise), obs=y_k, mask=seen)
        return (last, x), None

    start = ngmp.sample("x0", Normal(np.zeros(2), std=1.0))
    ngmp.scan(step, (start[0], start[1]), (y, mask))


def dynamic_regression(
    x: Float[Array, "n d"], y: Float[Array, " n"], mask: Mask = None, walk: float = 0.01, noise: float = 0.1
) -> None:
    r"""Coefficients that walk: $w_k \sim N(w_{k-1}, q I)$, $y_k \sim N(x_k^\top w_k, \rho)$; `w0` (d,), `w` (n, d)."""

    def step(w, given):
        x_k, y_k, seen = given
        w = ngmp.sample("w", MvNormal(w, covariance=walk))
        ngmp.sample("y", Normal(dot(x_k, w), variance=noise), obs=y_k, mask=seen)
        return w, None

    ngmp.scan(step, ngmp.sample("w0", MvNormal(np.zeros(np.shape(x)[-1]), covariance=1.0)), (x, y, mask))


def change_point(y: Int[Array, " n"], shape: float = 2.0, rate: float = 1.0) -> None:
    r"""Counts whose rate changes once: $t$ uniform, $y_k \sim \mathrm{Poisson}(\lambda_1)$ before and
    $\mathrm{Poisson}(\lambda_2)$ from t on, $\lambda_i \sim \mathrm{Gamma}$. Compile with `integrate=("t",)`.
    """
    n = len(y)
    t = ngmp.sample("t", Categorical(probs=np.full(n, 1.0 / n)))
    before, after = (ngmp.sample(name, Gamma(shape, rate=rate)) for name in ("before", "after"))
    late = jnp.arange(n) >= jnp.asarray(t)
    ngmp.sample("early", Poisson(before), obs=y, mask=~late)
    ngmp.sample("late", Poisson(after), obs=y, mask=late)
