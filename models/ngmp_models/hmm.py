r"""Hidden Markov models with categorical emissions: with fixed tables, and with tables that are learned.

$$ z_0 \sim \pi, \quad z_k \mid z_{k-1} \sim A_{z_{k-1}, \cdot}, \quad y_k \mid z_k \sim B_{z_k, \cdot} $$
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet


def hmm(
    y: Int[Array, " n"],
    initial: Float[Array, " k"],
    transition: Float[Array, "k k"],
    emission: Float[Array, "k m"],
    mask: Bool[Array, " n"] | None = None,
) -> None:
    """`z0` () and `z` (n,), Categorical over k states: forward-backward. Conjugate, so one sweep is exact.

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
