r"""Gaussian mixtures with learned weights, means and precisions.

$$ \pi \sim \mathrm{Dirichlet}, \quad z_n \sim \pi, \quad m_k \sim N(\mu_k, v), \quad w_k \sim \mathrm{Gamma}
   \ (\text{or } W_k \sim \mathrm{Wishart}), \quad y_n \mid z_n \sim N(m_{z_n}, w_{z_n}^{-1}) $$

Classes are exchangeable, so the prior means `centres` must differ: from equal ones no rule leaves the symmetric start.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    MvNormal,
    Normal,
    Poisson,
    Wishart,
    broadcast_to,
    dot,
    take,
)


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


def poisson_mixture(y: Int[Array, " n"], shape: Float[Array, " k"], rate: float = 1.0) -> None:
    r"""Counts of several kinds: $z_n \sim \pi$, $y_n \sim \mathrm{Poisson}(\lambda_{z_n})$,
    $\lambda_k \sim \mathrm{Gamma}(a_k, b)$, $\pi$ uniform."""
    k = len(shape)
    pi = ngmp.sample("pi", Dirichlet(jnp.ones(k)))
    rates = ngmp.sample("rates", Gamma(shape, rate=rate))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(pi, (len(y),))))
    ngmp.sample("y", Poisson(take(rates, z)), obs=y)


def outliers(
    features: Float[Array, "n d"], y: Float[Array, " n"], share: float = 0.1, noise: float = 0.3, wild: float = 5.0
) -> None:
    r"""Outliers named: $z_n \sim \mathrm{Bernoulli}(\epsilon)$, $y_n \sim N(\phi_n^\top w, s_{z_n}^2)$."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(features.shape[-1]), covariance=4.0))
    z = ngmp.sample("z", Categorical(probs=jnp.broadcast_to(jnp.stack([1.0 - share, share]), (len(y), 2))))
    precision = take(jnp.stack([noise**-2.0, wild**-2.0]), z)
    ngmp.sample("y", Normal(dot(features, w), precision=precision), obs=y)


def latent_classes(y: Int[Array, "n j"], a: Float[Array, "k j"], b: Float[Array, "k j"]) -> None:
    r"""Answers of several kinds of people: $z_n \sim \pi$, $y_{nj} \sim \mathrm{Bernoulli}(p_{z_n j})$,
    $p_{kj} \sim \mathrm{Beta}(a_{kj}, b_{kj})$, $\pi$ uniform."""
    classes, items = np.shape(a)
    pi = ngmp.sample("pi", Dirichlet(jnp.ones(classes)))
    z = ngmp.sample("z", Categorical(probs=broadcast_to(pi, (len(y),))))
    for j in range(items):
        p = ngmp.sample(f"p{j}", Beta(a[:, j], b[:, j]))
        ngmp.sample(f"y{j}", Bernoulli(probs=take(p, z)), obs=y[:, j])
