"""What every executor of the Gaussian core shares: potentials, and the solution it returns.

The Gaussian core is the density `exp{ sum_f sum_n xi_n r_n - Lambda_n r_n^2 / 2 }` over Gaussian variables, where
every `r` is an affine functional of them and `(xi, Lambda)` is either fixed (a conjugate factor) or a leaf (a projected
one). An executor solves a part of it that is connected to no other part.
"""

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ngmp_kernels.families import AbstractFamily, Gaussian, MvGaussian

from ...graph.planes import Plane
from ..base import AbstractExecutor
from ..merge import together
from .pieces import Piece


class Centred(NamedTuple):
    """A leaf on the deviation `d` of a functional from a value that is known, `xi d - Lambda d^2 / 2`: of the offset
    nothing is left. The two parameters may differ in rows, n or one."""

    eta1: Float[Array, " #n *width"]
    eta2: Float[Array, " #n *width width"]

    @property
    def dtype(self) -> Any:
        return self.eta1.dtype


Leaf = AbstractFamily | Centred
Draws = dict[Plane, tuple[np.ndarray, Array]]  # positions, (draws, positions, *event)


def offset(piece: Piece, leaves: Sequence[Leaf | None]) -> Any:
    """The offset of a piece, zero where its leaf speaks of deviations."""
    return 0.0 if isinstance(leaves[piece.functional], Centred) else piece.offset


class Potential(NamedTuple):
    """A leaf on `r`, rewritten on `f = r - offset`: precision and linear coefficient, per row.

    `xi r - Lambda r^2 / 2 = -Lambda f^2 / 2 + (xi - Lambda c) f + constant`   for r = f + c.
    """

    precision: Float[Array, " n *width width"]
    linear: Float[Array, " n *width"]


def potential(piece: Piece, leaves: Sequence[Leaf | None], shared: bool = False) -> Potential:
    """The potential of a piece under the current leaves.

    A leaf of one row stands for n equal ones (see `prepare`); with `shared`, so do precision and linear coefficient.
    """
    leaf: Any = leaves[piece.functional]
    eta1, eta2 = (x if piece.rows is None or x.shape[0] == 1 else x[piece.rows] for x in (leaf.eta1, leaf.eta2))
    if not shared:
        eta1, eta2 = fill(eta1, piece.n), fill(eta2, piece.n)
    precision, c = -2 * eta2, piece.offset
    if isinstance(leaf, Centred) or isinstance(c, np.ndarray) and not c.any():  # known when the model is declared
        return Potential(precision, eta1)
    if eta1.ndim == 1:
        return Potential(precision, eta1 - precision * c)
    c = jnp.broadcast_to(c, jnp.broadcast_shapes(jnp.shape(c), eta1.shape))
    shifted = c @ precision[0].T if precision.shape[0] == 1 else jnp.einsum("nij,nj->ni", precision, c)
    return Potential(precision, eta1 - shifted)


class Solution(NamedTuple):
    """Exact marginals of a part of the Gaussian core under the current leaves.

    `marginals[plane]` is (positions, Gaussian or MvGaussian of them); `functionals[f]` is (rows, mean, variance).
    `log_volume` is the log-integral of the quadratic part, `log det(2 pi C) / 2` with C the joint covariance: what the
    density is at its mean is left to the core, which sums it over residuals.
    """

    log_volume: Float[Array, ""]
    proper: Bool[Array, ""]
    marginals: Mapping[Plane, tuple[np.ndarray, Gaussian | MvGaussian]]
    functionals: dict[int, tuple[np.ndarray | None, Array, Array]]
    neighbours: tuple[tuple[Plane, np.ndarray, Array], ...] = ()  # of chains: order (B, T), Cov(x_k, x_{k+1}) (B, T-1)
    jitter: Float[Array, ""] | float = 0.0  # the largest that a Cholesky factor needed, relative to the diagonal
    cavities: dict[int, tuple[np.ndarray | None, Gaussian]] = {}  # by functional, where an executor knows them
    means: Mapping[Plane, tuple[np.ndarray, Array]] = {}  # those of `marginals`, which would have to solve for them

    @classmethod
    def merged(cls, solutions: "list[Solution]", planes: Mapping[Plane, int], rows: Mapping[int, int]) -> "Solution":
        """The solution of all parts, of as many variables by plane and rows by functional; these are all there.

        A cavity of which some rows are not known is left out.
        """
        volumes = [s.log_volume for s in solutions]
        proper = functools.reduce(jnp.logical_and, [s.proper for s in solutions], jnp.asarray(True))
        jitter = functools.reduce(jnp.maximum, [s.jitter for s in solutions], 0.0)
        known = {f for s in solutions for f in s.cavities}
        whole = {f for f in known if all((f in s.cavities) == (f in s.functionals) for s in solutions)}
        cavities = [{f: x for f, x in s.cavities.items() if f in whole} for s in solutions]
        neighbours = tuple(x for s in solutions for x in s.neighbours)
        columns: Any = [(s.functionals, s.marginals, s.means) for s in solutions]
        functionals, marginals, means = zip(*columns, strict=True) if columns else ((), (), ())
        by_row, by_plane = together([functionals, cavities], rows), together([marginals, means], planes)
        return cls(sum(volumes), proper, by_plane[0], by_row[0], neighbours, jitter, by_row[1], by_plane[1])  # type: ignore[arg-type]


class GaussianExecutor(AbstractExecutor):
    """Solves parts of the Gaussian core exactly. Its class is given `GaussianPart`s."""

    pieces: list[Piece]
    space: str | None = None  # of vectors: weight or function
    subtracts: bool = False  # whether the variance of what ties two variables is a difference of theirs

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Any:
        """What does not change between sweeps, from the leaves that do not (the others are None).

        It is computed once, before the iteration: XLA does not move factorisations out of loops. A leaf that is the
        same for all factors of a group has one row here.
        """
        return None

    def level(self, leaves: list[Leaf]) -> tuple[Plane, np.ndarray, Array] | None:
        """Values near the solution that cost next to nothing, (plane, positions, values); None if there are none.

        Rounding errors of a solution are relative to its size, and along a chain they add up. In single precision the
        core therefore solves for deviations from these values.
        """
        return None

    @abc.abstractmethod
    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:  # type: ignore[override]
        """Marginals of all variables and of the requested functionals; with centred leaves, those of deviations."""

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        """Draws from the joint of all variables, as deviations from its mean; `solved` is what `solve` returned.

        By default along a band: see `dense.jointly`.
        """
        from .dense import jointly  # which derives from this class

        joint = jointly(self.pieces)
        dtype = leaves[self.pieces[0].functional].dtype
        return joint.draw(joint.prepare(list(leaves), dtype), leaves, solved, key, count)


def numbered(sizes: dict[Plane, int], members: dict[Plane, np.ndarray]) -> tuple[dict[Plane, np.ndarray], int]:
    """One numbering for scalar members of several planes: by position in each plane, and how many there are."""
    number, total = {}, 0
    for plane, positions in members.items():
        number[plane] = np.full(sizes[plane], -1)
        number[plane][positions] = total + np.arange(len(positions))
        total += len(positions)
    return number, total


def put(functionals: dict[int, Any], piece: Piece, mean: Array, spread: Array) -> None:
    """Mean and variance of the rows of a piece, beside those of other pieces of the same functional."""
    if piece.functional in functionals:
        rows, before, around = functionals[piece.functional]
        assert rows is not None and piece.rows is not None
        joined = np.concatenate([rows, piece.rows]), jnp.concatenate([before, mean]), jnp.concatenate([around, spread])
        functionals[piece.functional] = joined
    else:
        functionals[piece.functional] = (piece.rows, mean, spread)


def scale(coefficient: Any) -> Any:
    """A coefficient as a number or array."""
    return 1.0 if coefficient is None else coefficient


def fill(x: Array, n: int) -> Array:
    """Broadcast a shared (leading axis 1) array to n rows."""
    return jnp.broadcast_to(x, (n, *x.shape[1:]))
