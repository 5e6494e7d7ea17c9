"""Maps and smooth functions: Gaussian fields with structured precisions."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, HalfNormal, MvNormal, Normal, Poisson, dot, exp


def disease_map(y: Int[Array, " n"], expected: Float[Array, " n"], adjacency: Any, tau: float = 2.0) -> None:
    r"""Risks of areas, like those of their neighbours: $y_n \sim \mathrm{Poisson}(E_n e^{a + u_n})$, u an intrinsic
    autoregression of precision $\tau (D - W)$ that sums to zero, $a \sim N(0, 4)$."""
    a = ngmp.sample("a", Normal(0.0, variance=4.0))
    u = ngmp.sample("u", MvNormal(np.zeros(len(y)), precision=tau * ngmp.icar(adjacency), constraint="sum"))
    ngmp.sample("y", Poisson(expected * exp(a + u)), obs=y)


def besag_york_mollie(y: Int[Array, " n"], expected: Float[Array, " n"], adjacency: Any, tau: float = 2.0) -> None:
    r"""BYM: neighbours and noise of every area. $y_n \sim \mathrm{Poisson}(E_n e^{a + u_n + v_n})$ with u as in
    `disease_map` and $v_n \sim N(0, \sigma^2)$, $\sigma \sim \mathrm{HalfNormal}(1)$. Compile with `integrate=("sd",)`.
    """
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    a = ngmp.sample("a", Normal(0.0, variance=4.0))
    u = ngmp.sample("u", MvNormal(np.zeros(len(y)), precision=tau * ngmp.icar(adjacency), constraint="sum"))
    v = ngmp.sample("v", Normal(np.zeros(len(y)), std=sd))
    ngmp.sample("y", Poisson(expected * exp(a + u + v)), obs=y)


def smooth_curve(t: Float[Array, " n"], y: Float[Array, " n"], noise: float = 0.3) -> None:
    r"""A curve over irregular times: a random walk of order two of precision $\tau = 1/\lambda^2$, and noise;
    $\lambda \sim \mathrm{HalfNormal}(1)$. Compile with `integrate=("roughness",)`.
    """
    roughness = ngmp.sample("roughness", HalfNormal(std=1.0))
    f = ngmp.sample("f", MvNormal(np.zeros(len(y)), precision=roughness**-2.0 * ngmp.rw2(t)))
    ngmp.sample("y", Normal(f, std=noise), obs=y)


def gaussian_process(
    x: Float[Array, "n d"], y: Int[Array, " n"], lengthscale: float = 1.0, variance: float = 2.0
) -> None:
    r"""Classification: $f \sim N(0, K)$, $K_{nm} = v e^{-|x_n - x_m|^2 / 2 \ell^2}$,
    $y_n \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(f_n))$."""
    x = jnp.asarray(x)
    square = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    kernel = variance * (jnp.exp(-0.5 * square / lengthscale**2) + 1e-6 * jnp.eye(len(x)))
    f = ngmp.sample("f", MvNormal(jnp.zeros(len(x)), covariance=kernel))
    ngmp.sample("y", Bernoulli(logits=f), obs=y)


def lattice(
    y: Float[Array, "h w"], mask: Bool[Array, "h w"] | None = None, step: float = 0.5, noise: float = 0.5
) -> None:
    r"""Neighbours differ by $N(0, s^2)$, pixels are seen with $N(0, \rho^2)$, $x_{ij} \sim N(0, 9)$ besides."""
    x = ngmp.sample("x", Normal(np.zeros(np.shape(y)), std=3.0))
    down, right = np.zeros((y.shape[0] - 1, y.shape[1])), np.zeros((y.shape[0], y.shape[1] - 1))
    ngmp.sample("down", Normal(x[1:] - x[:-1], std=step), obs=down)
    ngmp.sample("right", Normal(x[:, 1:] - x[:, :-1], std=step), obs=right)
    ngmp.sample("y", Normal(x, std=noise), obs=y, mask=mask)


def kriging(x: Float[Array, "n d"], features: Float[Array, "n p"], y: Float[Array, " n"], noise: float = 0.3) -> None:
    r"""Trend and field: $y_n \sim N(\phi_n^\top w + f_n, \rho^2)$, $f \sim N(0, K)$, $K_{nm} = e^{-|x_n - x_m|}$."""
    x = jnp.asarray(x)
    distance = jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, -1))
    w = ngmp.sample("w", MvNormal(jnp.zeros(features.shape[-1]), covariance=4.0))
    f = ngmp.sample("f", MvNormal(jnp.zeros(len(x)), covariance=jnp.exp(-distance)))
    ngmp.sample("y", Normal(dot(features, w) + f, std=noise), obs=y)
