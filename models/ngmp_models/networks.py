"""Small discrete networks: classes that pick the rows of tables, solved exactly by variable elimination.

Logical gates are tables of zeros and ones between variables of two classes, 0 (no) and 1 (yes).
"""

import numpy as np
from jaxtyping import Array, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical

NOT = np.array([[0.0, 1.0], [1.0, 0.0]])
OR = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
AND = np.array([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
"""`GATE[a, b, out]`, and `NOT[a, out]`."""

RAIN = np.array([[0.8, 0.2], [0.2, 0.8]])
SPRINKLER = np.array([[0.5, 0.5], [0.9, 0.1]])
WET = np.array([[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]])


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
