r"""Bayesian logistic regression.

$$ w \sim N(0, V I), \quad y_n \mid w \sim \mathrm{Bernoulli}(1 / (1 + e^{-\phi_n^\top w})) $$
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, MvNormal, dot


def logistic_regression(
    features: Float[Array, "n d"],
    y: Int[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    prior_variance: float = 4.0,
) -> None:
    """Weights `w` (d,), MvGaussian. For an intercept give `features` a column of ones."""
    w = ngmp.sample("w", MvNormal(jnp.zeros(features.shape[-1], features.dtype), covariance=prior_variance))
    ngmp.sample("y", Bernoulli(logits=dot(features, w)), obs=y, mask=mask)
