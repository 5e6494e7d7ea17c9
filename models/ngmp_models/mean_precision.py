r"""A sample from a normal of unknown mean and unknown precision: the smallest model with two coupled projections.

$$ x \sim N(0, 25), \quad \tau \sim \mathrm{Gamma}(2, 1), \quad y_n \mid x, \tau \sim N(x, \tau^{-1}) $$
"""

from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal


def mean_precision(y: Float[Array, " n"], mask: Bool[Array, " n"] | None = None) -> None:
    """A plate by broadcasting: n factors share `x` (), Gaussian, and `tau` (), Gamma."""
    x = ngmp.sample("x", Normal(0.0, variance=25.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(x, precision=tau), obs=y, mask=mask)
