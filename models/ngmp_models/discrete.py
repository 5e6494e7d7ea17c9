"""Classes: hidden Markov models, and small networks of tables, solved exactly by variable elimination.

Logical gates are tables of zeros and ones between variables of two classes, 0 (no) and 1 (yes).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, Categorical, Dirichlet, Normal

NOT = np.array([[0.0, 1.0], [1.0, 0.0]])
OR = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
AND = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
"""`GATE[a, b, out]`, and `NOT[a, out]`."""

RAIN = np.array([[0.8, 0.2], [0.2, 0.8]])
SPRINKLER = np.array([[0.5, 0.5], [0.9, 0.1]])
WET = np.array([[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]])


def hmm(
    y: Int[Array, " n"],
    initial: Float[Array, " k"],
    transition: Float[Array, "k k"],
    emission: Float[Array, "k m"],
    mask: Bool[Array, " n"] | None = None,
) -> None:
    r"""`z0` () and `z` (n,), Categorical over k states: forward-backward. Conjugate, so one sweep is exact.

    $$ z_0 \sim \pi, \quad z_k \mid z_{k-1} \sim A_{z_{k-1}, \cdot}, \quad y_k \mid z_k \sim B_{z_k, \cdot} $$

    `initial` is the law of the state one step *before* the first observation; the law of the state at the first one is
    `initial @ transition`.
    """
    _chain(y, ngmp.sample("z0", Categorical(probs=initial)), transition, emission, mask)


def learned_hmm(
    y: Int[Array, " n"],
    transition: Float[Array, "k k"],
    emission: Float[Array, "k m"],
    mask: Bool[Array, " n"] | None = None,
) -> None:
    """`A` (k,) and `B` (k,), Dirichlet rows, besides `z0` () and `z` (n,): structured VMP, q(A) q(B) q(z0, z).

    `transition` and `emission` are the concentrations of the rows. States with the same one are told apart by the data,
    at the start.
    """
    A = ngmp.sample("A", Dirichlet(transition))
    B = ngmp.sample("B", Dirichlet(emission))
    states = np.shape(transition)[0]
    _chain(y, ngmp.sample("z0", Categorical(probs=np.full(states, 1.0 / states))), A, B, mask)


def _chain(y: Array, z0: Any, transition: Any, emission: Any, mask: Array | None) -> None:
    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Categorical(probs=ngmp.take(transition, z)))
        ngmp.sample("y", Categorical(probs=ngmp.take(emission, z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def gaussian_hmm(
    y: Float[Array, " n"], transition: Float[Array, "k k"], means: Float[Array, " k"], std: float = 0.5
) -> None:
    r"""States seen through Gaussian noise: $z_k \sim A_{z_{k-1}, \cdot}$, $y_k \sim N(m_{z_k}, s^2)$; exact."""
    k = len(means)

    def step(z, y_k):
        z = ngmp.sample("z", Categorical(probs=ngmp.take(transition, z)))
        ngmp.sample("y", Normal(ngmp.take(means, z), std=std), obs=y_k)
        return z, None

    ngmp.scan(step, ngmp.sample("z0", Categorical(probs=np.full(k, 1.0 / k))), y)


def occupancy(y: Int[Array, " n"], visits: Int[Array, " n"], occupied: float = 0.4, detection: float = 0.3) -> None:
    r"""Is the animal there, though never seen? $z_n \sim \mathrm{Bernoulli}(\psi)$,
    $y_n \sim \mathrm{Binomial}(m_n, z_n p)$; exact."""
    z = ngmp.sample("z", Categorical(probs=jnp.broadcast_to(jnp.stack([1.0 - occupied, occupied]), (len(y), 2))))
    ngmp.sample("y", Binomial(visits, probs=ngmp.take(jnp.stack([jnp.zeros(()), detection]), z)), obs=y)


def sprinkler(wet: Int[Array, "..."]) -> None:
    """Was it the rain? `cloudy`, `rain` and `sprinkler`, of two classes each, given that the grass is wet or not.

    Clouds bring rain and keep the sprinkler off, and either wets the grass: a loop of four variables. `wet` is 0 or 1,
    or an array of independent gardens.
    """
    shape = np.shape(wet)
    cloudy = ngmp.sample("cloudy", Categorical(probs=np.full((*shape, 2), 0.5)))
    rain = ngmp.sample("rain", Categorical(probs=ngmp.take(RAIN, cloudy)))
    sprinkler = ngmp.sample("sprinkler", Categorical(probs=ngmp.take(SPRINKLER, cloudy)))
    ngmp.sample("wet", Categorical(probs=ngmp.take(WET, sprinkler, rain)), obs=wet)


def skills(score: Float[Array, "3"]) -> None:
    """Which skills has a student who scored so on three tests? `s0`, `s1`, `s2`, of two classes each.

    The tests ask for: not the first skill; that or the second; both that and the third. A passed test scores one with
    probability `score`, a failed one with probability `1 - score`.
    """
    coin = np.full(2, 0.5)
    s0, s1, s2 = (ngmp.sample(f"s{i}", Categorical(probs=coin)) for i in range(3))
    t0 = ngmp.sample("t0", Categorical(probs=ngmp.take(NOT, s0)))
    t1 = ngmp.sample("t1", Categorical(probs=ngmp.take(OR, t0, s1)))
    t2 = ngmp.sample("t2", Categorical(probs=ngmp.take(AND, t1, s2)))
    for i, test in enumerate((t0, t1, t2)):
        r = score[i]
        table = np.array([[0.0, 1.0], [1.0, 0.0]]) + np.array([[1.0, -1.0], [-1.0, 1.0]]) * r
        ngmp.sample(f"r{i}", Categorical(probs=ngmp.take(table, test)), obs=1)
