r"""Poisson counts whose log-rate is a Gaussian random walk, in two spellings of one graph.

$$ z_0 \sim N(0, 10), \quad z_k \mid z_{k-1} \sim N(z_{k-1}, \sigma^2), \quad
   y_k \mid z_k \sim \mathrm{Poisson}(e^{z_k}) $$
"""

from jaxtyping import Array, Bool, Int

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp


def poisson_chain(y: Int[Array, " n"], mask: Bool[Array, " n"] | None = None, sigma2: float = 0.1) -> None:
    """The chain as a scan: `z0` () and `z` (n,), Gaussian."""
    z0 = ngmp.sample("z0", Normal(0.0, variance=10.0))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))


def poisson_chain_loop(y: Int[Array, " n"], mask: Bool[Array, " n"] | None = None, sigma2: float = 0.1) -> None:
    """The same chain as a Python loop; repeated names collect into one array, in order."""
    z = ngmp.sample("z0", Normal(0.0, variance=10.0))
    for k in range(len(y)):
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k], mask=None if mask is None else mask[k])
