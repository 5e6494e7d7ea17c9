r"""Correlation matrices: `LKJ` and `LKJCholesky`, as a few numbers that are integrated.

The partial correlations of a vine are independent under the LKJ prior of concentration $\eta$ on d x d matrices,

$$ \tfrac12 (1 + z_{ij}) \sim \mathrm{Beta}(b_j, b_j), \quad b_j = \eta + \tfrac12 (d - 2 - j), \qquad
   L_{ij} = z_{ij} \prod_{k < j} (1 - z_{ik}^2)^{1/2}, \quad j < i, $$

and L, with rows of length one, is the Cholesky factor.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions.util import signed_stick_breaking_tril

import ngmp_kernels as kernels

from ..declare.frame import outermost
from ..declare.inputs import unwrap
from ..declare.sample import sample
from ..lift.values import Unlifted, is_random
from .site import Site, integrated

_MOST = 4  # rows: six numbers


def partial_name(name: str) -> str:
    """The site that stands for a correlation matrix: its partial correlations, from (-1, 1) to (0, 1)."""
    head, _, tail = name.rpartition("/")
    return f"{head}/partial_{tail}" if head else f"partial_{tail}"


def cholesky_of(p: Float[Array, "*n m"]) -> Float[Array, "*n d d"]:
    """The Cholesky factor of such partial correlations, in the order of the rows of the matrix."""
    return signed_stick_breaking_tril(2.0 * p - 1.0)


def correlation(site: Site, contracted: bool) -> Any:
    """A correlation matrix, or its Cholesky factor, as an array of numbers."""
    del contracted
    base, size = site.base, site.shape[-1]
    if site.batch or size > _MOST or size < 2 or is_random(base.concentration):
        raise Unlifted
    column = np.tril_indices(size, -1)[1]
    b = unwrap(base.concentration) + 0.5 * (size - 2 - column)
    own, name = kernels.Beta(b, b), partial_name(site.name)
    coordinates = outermost().coordinates
    if coordinates is not None and site.name in coordinates.names:
        coordinates.names[name] = coordinates.names.pop(site.name)
    elif coordinates is not None and coordinates.automatic:
        coordinates.names.setdefault(name, "a matrix of correlations has no family that messages could be in")
    if not integrated(name, own, b.shape):
        raise Unlifted
    factor = cholesky_of(jnp.asarray(sample(name, own)))
    site.notes.append(f"of {len(column)} partial correlations '{name}', integrated: numbers")
    return factor @ factor.T if type(base).__name__ == "LKJ" else factor
