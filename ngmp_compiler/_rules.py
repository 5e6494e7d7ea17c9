"""Message rules: what a factor sends through an interface it is not conjugate to."""

from typing import Any

import equinox as eqx
from ngmp_kernels import Quadrature


class NGMP(eqx.Module):
    """Natural-gradient message passing: the exact BP log-message, projected at the receiving marginal.

    Args:
        projection: how expectations under the marginal are taken: `Quadrature()` (the default; Gauss-Hermite on
            Gaussian edges, a trapezoid in log space on Gamma and Beta ones), `GaussHermite(n)`, `LogTrapezoid(n)`,
            `Unscented()` (the paper's three points), `Delta()`.
    """

    projection: Any = Quadrature()


class BP(eqx.Module):
    """Exact belief propagation: refused, at compile time, on any interface that is not conjugate."""
