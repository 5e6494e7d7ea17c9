r"""The local level model: a Gaussian random walk seen through Gaussian noise. Conjugate, so one sweep is exact.

$$ z_0 \sim N(0, V), \quad z_k \mid z_{k-1} \sim N(z_{k-1}, \sigma^2), \quad y_k \mid z_k \sim N(z_k, \rho^2) $$
"""

from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Normal


def local_level(
    y: Float[Array, " n"],
    mask: Bool[Array, " n"] | None = None,
    level_variance: float = 0.1,
    noise_variance: float = 1.0,
    prior_variance: float = 10.0,
) -> None:
    """`z0` () and `z` (n,), Gaussian: the marginals of a Kalman smoother; the free energy is minus the log evidence."""
    z0 = ngmp.sample("z0", Normal(0.0, variance=prior_variance))

    def step(z, x):
        y_k, seen = x
        z = ngmp.sample("z", Normal(z, variance=level_variance))
        ngmp.sample("y", Normal(z, variance=noise_variance), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, z0, (y, mask))
