r"""A hidden Markov model with fixed tables and categorical emissions. Conjugate, so one sweep is exact.

$$ z_0 \sim \pi, \quad z_k \mid z_{k-1} \sim A_{z_{k-1}, \cdot}, \quad y_k \mid z_k \sim B_{z_k, \cdot} $$
"""

from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical


def hmm(
    y: Int[Array, " n"],
    initial: Float[Array, " k"],
    transition: Float[Array, "k k"],
    emission: Float[Array, "k m"],
    mask: Bool[Array, " n"] | None = None,
) -> None:
    """`z0` () and `z` (n,), Categorical over k states: forward-backward.

    `initial` is the law of the state one step *before* the first observation; the law of the state at the first one is
    `initial @ transition`.
    """
    z0 = ngmp.sample("z0", Categorical(probs=initial))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Categorical(probs=ngmp.take(transition, z)))
        ngmp.sample("y", Categorical(probs=ngmp.take(emission, z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))
