r"""A hierarchy of log-precisions: a regression whose noise has a regression whose noise has a regression, and so on.

$$ y \sim N(\varphi_0^\top v, e^{-s_1}), \qquad s_l \sim N(\varphi_l^\top w_l, e^{-s_{l+1}}), \; l < L, \qquad
   s_L \sim N(\varphi_L^\top w_L, 1/c) $$

with Gaussian weights v, w_1, ..., w_L. One level is `heteroscedastic`.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal, dot, exp


def weights(name: str, d: int, mean: Any, variance: Any, dtype: Any) -> Any:
    """Declare a weight vector `name` (d,) with a Gaussian prior.

    `mean` is a number or a vector, `variance` a number, a vector (diagonal) or a matrix.
    """
    return ngmp.sample(name, MvNormal(jnp.broadcast_to(jnp.asarray(mean, dtype), (d,)), covariance=variance))


def precision_hierarchy(
    features: tuple[Float[Array, "n d"], ...],
    y: Float[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    c_top: float = 25.0,
    v_mean: Any = 0.0,
    v_variance: Any = 1.0,
    w_mean: Any = 0.0,
    w_variance: Any = 1.0,
) -> None:
    """Weights `v` of the mean and `w1`, `w2`, ... of the log-precisions `s1`, `s2`, ... (n,), Gaussian.

    Args:
        features: one matrix for the mean and one for every level of log-precision, at least two, of any widths.
        y: the data; None or masked rows are predicted.
        mask: True where y is seen.
        c_top: precision of the last level.
        v_mean, v_variance: prior of v; a number, a vector (diagonal covariance) or, for the variance, a matrix.
        w_mean, w_variance: the same for every level, or a tuple with an entry for each. An intercept is a column of
            ones whose weight has its own prior mean.
    """
    levels = len(features) - 1
    if levels < 1:
        raise ValueError(f"features must hold a matrix for the mean and one for each level; got {len(features)}")
    means, variances = _by_level("w_mean", w_mean, levels), _by_level("w_variance", w_variance, levels)
    names = [f"w{level}" for level in range(1, levels + 1)]
    dtype, widths = features[0].dtype, [phi.shape[-1] for phi in features]
    v = weights("v", widths[0], v_mean, v_variance, dtype)
    w = [weights(*prior, dtype) for prior in zip(names, widths[1:], means, variances, strict=True)]
    above = c_top
    for level in range(levels, 0, -1):
        s = ngmp.sample(f"s{level}", Normal(dot(features[level], w[level - 1]), precision=above))
        above = exp(s)
    ngmp.sample("y", Normal(dot(features[0], v), precision=above), obs=y, mask=mask)


def _by_level(name: str, given: Any, levels: int) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        return (given,) * levels
    if len(given) != levels:
        raise ValueError(f"{name} has {len(given)} entries for {levels} levels of log-precision")
    return tuple(given)
