"""Networks: ties between nodes, and what flows along them."""

import numpy as np
from jaxtyping import Array, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal, Poisson, exp


def senders_receivers(
    sender: Int[Array, " n"], receiver: Int[Array, " n"], y: Int[Array, " n"], nodes: int, variance: float = 1.0
) -> None:
    r"""Directed ties: $y_n \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(\mu + a_{i_n} + b_{j_n}))$, effects of senders
    and receivers $N(0, v)$, $\mu \sim N(0, 4)$."""
    mu = ngmp.sample("mu", Normal(0.0, variance=4.0))
    a = ngmp.sample("a", Normal(np.zeros(nodes), variance=variance))
    b = ngmp.sample("b", Normal(np.zeros(nodes), variance=variance))
    ngmp.sample("y", Bernoulli(logits=mu + a[sender] + b[receiver]), obs=y)


def flows(
    source: Int[Array, " n"], target: Int[Array, " n"], distance: Float[Array, " n"], y: Int[Array, " n"], nodes: int
) -> None:
    r"""Gravity: $y_n \sim \mathrm{Poisson}(e^{\mu + a_{i_n} + b_{j_n} - \gamma d_n})$, effects $N(0, 1)$,
    $\gamma \sim N(0, 1)$, $\mu \sim N(0, 4)$."""
    mu, gamma = ngmp.sample("mu", Normal(0.0, variance=4.0)), ngmp.sample("gamma", Normal(0.0, variance=1.0))
    a = ngmp.sample("a", Normal(np.zeros(nodes), variance=1.0))
    b = ngmp.sample("b", Normal(np.zeros(nodes), variance=1.0))
    ngmp.sample("y", Poisson(exp(mu + a[source] + b[target] - gamma * distance)), obs=y)


def potentials(
    source: Int[Array, " n"], target: Int[Array, " n"], y: Float[Array, " n"], nodes: int, noise: float = 0.3
) -> None:
    r"""Heights from differences (levelling, synchronisation): $y_n \sim N(h_{j_n} - h_{i_n}, s^2)$, $h_i \sim N(0, 4)$;
    exact."""
    h = ngmp.sample("h", Normal(np.zeros(nodes), variance=4.0))
    ngmp.sample("y", Normal(h[target] - h[source], std=noise), obs=y)
