r"""Stochastic volatility: returns whose log-precision is a Gaussian random walk.

$$ s_0 \sim N(0, 10), \quad s_k \mid s_{k-1} \sim N(s_{k-1}, \sigma^2), \quad r_k \mid s_k \sim N(0, e^{-s_k}) $$
"""

from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, exp


def stochastic_volatility(r: Float[Array, " n"], mask: Bool[Array, " n"] | None = None, sigma2: float = 0.05) -> None:
    """`s0` () and `s` (n,), Gaussian log-precisions; the volatility is exp(-s/2)."""
    s0 = ngmp.sample("s0", Normal(0.0, variance=10.0))

    def step(s, x):
        r_k, seen = x
        s = ngmp.sample("s", Normal(s, variance=sigma2))
        ngmp.sample("r", Normal(0.0, precision=exp(s)), obs=r_k, mask=seen)
        return s, None

    ngmp.scan(step, s0, (r, mask))
