r"""Cavities of scalar functionals: what all but themselves say of them, without a subtraction.

Of a variable many functionals see, each leaves itself out of their sum (`rows.leave_one_out`). A functional
$r = a x + b z + c$ that alone ties x to z, told $(p, g)$ and $(q, h)$ by all others (precisions and linear
coefficients), has

$$ P = p q / (a^2 q + b^2 p), \qquad \xi = (a g q + b h p) / (a^2 q + b^2 p) + P c. $$

A leaf may outweigh that by more than there are digits: in float32 nothing is then left of $\lambda - \eta$.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels.families import Gaussian

from .base import Leaf, Potential, offset, scale
from .pieces import Piece
from .rows import Rows, leave_one_out

Cavities = dict[int, tuple[np.ndarray | None, Gaussian]]


def at_variables(frontier: Rows, pieces: list[Piece], told: list[Potential], leaves: list[Leaf]) -> Cavities:
    """Of functionals of one variable each.

    Args:
        frontier: which variable every row sees, all pieces end to end, and then what else the variables are told.
        pieces: the functionals.
        told: what the rows tell their variables, piece by piece, and so on.
        leaves: of the functionals.
    """
    precisions, linear = (leave_one_out(frontier, list(x)) for x in zip(*told, strict=True))
    out = {}
    for piece, p, h in zip(pieces, precisions, linear, strict=False):
        a = jnp.broadcast_to(scale(piece.links[0].coefficient), (piece.n,)).astype(p.dtype)
        a = jnp.where(a == 0, jnp.inf, a)  # seen not at all: flat
        out[piece.functional] = piece.rows, placed(Potential(p / a**2, h / a), offset(piece, leaves))
    return out


def between(x: Potential, z: Potential, a: Any, b: Any) -> Potential:
    """What is known of `a x + b z`, of independent variables."""
    both = a**2 * z.precision + b**2 * x.precision
    inverse = jnp.where(both == 0, 0, 1 / jnp.where(both == 0, 1, both))
    p, q = x.precision * inverse, z.precision * inverse
    return Potential(x.precision * q, a * q * x.linear + b * p * z.linear)


def placed(told: Potential, offset: Array | float) -> Gaussian:
    """What is known of `r - offset`, as a Gaussian of r."""
    return Gaussian.from_information(told.linear + told.precision * offset, told.precision)
