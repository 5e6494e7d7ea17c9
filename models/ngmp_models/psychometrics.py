r"""Persons and items: abilities $\theta_i \sim N(0, 1)$, difficulties $b_j$, and what is answered."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Normal, OrderedLogistic


def rasch(person: Int[Array, " n"], item: Int[Array, " n"], y: Int[Array, " n"], persons: int, items: int) -> None:
    r"""One parameter an item: $y_n \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(\theta_{i_n} - b_{j_n}))$,
    $b_j \sim N(0, 4)$."""
    theta = ngmp.sample("theta", Normal(np.zeros(persons), variance=1.0))
    b = ngmp.sample("b", Normal(np.zeros(items), variance=4.0))
    ngmp.sample("y", Bernoulli(logits=theta[person] - b[item]), obs=y)


def graded_response(
    person: Int[Array, " n"],
    item: Int[Array, " n"],
    y: Int[Array, " n"],
    cutpoints: Float[Array, " k"],
    persons: int,
    items: int,
) -> None:
    r"""Grades: $P(y_n \le k) = \mathrm{logit}^{-1}(c_k - \theta_{i_n} + b_{j_n})$, c known, $b_j \sim N(0, 1)$."""
    theta = ngmp.sample("theta", Normal(np.zeros(persons), variance=1.0))
    b = ngmp.sample("b", Normal(np.zeros(items), variance=1.0))
    ngmp.sample("y", OrderedLogistic(theta[person] - b[item], cutpoints), obs=y)


def bradley_terry(winner: Int[Array, " n"], loser: Int[Array, " n"], players: int) -> None:
    r"""Contests: player i beats j with probability $\mathrm{logit}^{-1}(s_i - s_j)$, $s_i \sim N(0, 1)$."""
    s = ngmp.sample("s", Normal(np.zeros(players), variance=1.0))
    ngmp.sample("won", Bernoulli(logits=s[winner] - s[loser]), obs=np.ones(np.shape(winner)))


def signal_detection(signal: Int[Array, " n"], y: Int[Array, " n"]) -> None:
    r"""Yes and no with and without a signal: $y_n \sim \mathrm{Bernoulli}(\Phi(d (x_n - 1/2) - c))$: sensitivity d and
    criterion c, standard normal."""
    d, c = ngmp.sample("d", Normal(0.0, std=2.0)), ngmp.sample("c", Normal(0.0, std=1.0))
    ngmp.sample("y", Bernoulli(probs=ngmp.Phi(d * (signal - 0.5) - c)), obs=y)


def two_parameter(y: Int[Array, "p j"], slope_std: float = 0.3) -> None:
    r"""Items that discriminate: $y_{ij} \sim \mathrm{Bernoulli}(\mathrm{logit}^{-1}(e^{k_j} \theta_i - b_j))$,
    $k_j \sim N(0, s^2)$, $b_j \sim N(0, 2)$."""
    persons, items = np.shape(y)
    theta = ngmp.sample("theta", Normal(np.zeros((persons, 1)), std=1.0))
    k = ngmp.sample("k", Normal(np.zeros(items), std=slope_std))
    b = ngmp.sample("b", Normal(np.zeros(items), variance=2.0))
    every = np.zeros((persons, items))

    def log_density(t, k, b, y):
        return jax.nn.log_sigmoid((2.0 * y - 1.0) * (jnp.exp(k) * t - b))

    ngmp.factor("y", log_density, theta + every, k + every, b + every, y)
