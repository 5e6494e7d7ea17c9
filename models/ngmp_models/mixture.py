r"""Gaussian mixtures with learned weights, means and precisions.

$$ \pi \sim \mathrm{Dirichlet}, \quad z_n \sim \pi, \quad m_k \sim N(\mu_k, v), \quad w_k \sim \mathrm{Gamma}
   \ (\text{or } W_k \sim \mathrm{Wishart}), \quad y_n \mid z_n \sim N(m_{z_n}, w_{z_n}^{-1}) $$

Classes are exchangeable, so the prior means `centres` must differ: from equal ones no rule leaves the symmetric start.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Gamma, MvNormal, Normal, Wishart, broadcast_to, take


def gaussian_mixture(
    y: Float[Array, " n"],
    centres: Float[Array, " k"],
    mask: Bool[Array, " n"] | None = None,
    variance: float = 1e3,
    shape: float = 0.01,
    rate: float = 0.01,
    concentration: float = 1.0,
) -> None:
    """`pi` (), Dirichlet; `m` and `w` (k,), Gaussian and Gamma; `z` (n,), Categorical."""
    k = len(centres)
    pi = ngmp.sample("pi", Dirichlet(concentration * jnp.ones(k)))
    m = ngmp.sample("m", Normal(centres, variance=variance))
    w = ngmp.sample("w", Gamma(shape * jnp.ones(k), rate=rate))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(pi, (len(y),))))
    ngmp.sample("y", Normal(take(m, z), precision=take(w, z)), obs=y, mask=mask)


def vector_mixture(
    y: Float[Array, "n d"],
    centres: Float[Array, "k d"],
    mask: Bool[Array, " n"] | None = None,
    variance: float = 1e3,
    scale: float = 100.0,
    concentration: float = 1.0,
) -> None:
    """`pi` (), Dirichlet; `m` and `W` (k,), MvGaussian and Wishart with df = d + 1; `z` (n,), Categorical."""
    k, d = centres.shape
    pi = ngmp.sample("pi", Dirichlet(concentration * jnp.ones(k)))
    m = ngmp.sample("m", MvNormal(centres, covariance=variance))
    w = ngmp.sample("W", Wishart((d + 1.0) * jnp.ones(k), scale=scale * jnp.eye(d)))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(pi, (len(y),))))
    ngmp.sample("y", MvNormal(take(m, z), precision=take(w, z)), obs=y, mask=mask)
