"""Variables that no functional couples to another: every one is solved alone, all of them at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ngmp_kernels.families import AbstractFamily

from .._expressions import Plane
from .._index import IndexMap, index_map
from ._base import GaussianExecutor, Piece, Potential, Solution, fill, potential, scale


def local_index(positions: np.ndarray, size: int, piece: Piece, link: int = 0) -> IndexMap:
    """Index map of a link into variables stored in the order of `positions`."""
    where = piece.links[link].positions
    if len(positions) == positions[-1] + 1 and positions[0] == 0:  # a whole plane from zero: numbers are positions
        return index_map(where, len(positions))
    table = np.full(size, -1)
    table[positions] = np.arange(len(positions))
    return index_map(table[where], len(positions))


class IndependentScalars(GaussianExecutor):
    """`v_i = 1 / sum a^2 Lambda`, `m_i = v_i sum a (xi - Lambda c)`: one segment sum per functional."""

    name = "star"

    def __init__(self, plane: Plane, size: int, positions: np.ndarray, pieces: list[Piece]):
        self.plane, self.positions, self.pieces = plane, positions, pieces
        self.index = [local_index(positions, size, p) for p in pieces]
        self.why = "scalars coupled to no other Gaussian variable"
        self.cost = f"O({sum(p.n for p in pieces)})"

    def solve(self, leaves: list[AbstractFamily], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        precision, linear, constant = zero, zero, zero
        for piece, index in zip(self.pieces, self.index, strict=True):
            lam, h, k = potential(piece, leaves)
            a = scale(piece.links[0].coefficient)
            precision += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
            linear += index.add(jnp.broadcast_to(h * a, (piece.n,)))
            constant += k
        precision, linear = jnp.asarray(precision), jnp.asarray(linear)
        proper = jnp.all(precision > 0) & jnp.all(jnp.isfinite(linear))
        variance = 1 / precision
        mean = variance * linear
        log_partition = 0.5 * jnp.sum(linear * mean - jnp.log(precision / (2 * jnp.pi))) + constant
        functionals = {}
        for piece, index in zip(self.pieces, self.index, strict=True):
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(mean) + piece.offset, a**2 * index.take(variance)
                functionals[piece.functional] = (piece.rows, m, v)
        return Solution(log_partition, proper, {self.plane: (self.positions, mean, variance)}, functionals)


def add_vectors(piece: Piece, index: IndexMap, link: int, pot: Potential) -> tuple[Array, Array]:
    """Precision (B, D, D) and linear (B, D) that one link of a piece adds to its B vectors.

    The rows of a "dot" functional are never expanded to D x D matrices when they share one vector or come in
    equal runs: the sum over rows is a matrix product.
    """
    _, _, op, c = piece.links[link]
    if op == "dot":
        phi = fill(c, piece.n)
        runs = {"one": 1, "all": piece.n, "repeat": index.size}.get(index.kind)
        if runs == 1 and index.size == 1 or index.kind == "repeat":
            phi, lam, h = (x.reshape(runs, -1, *x.shape[1:]) for x in (phi, pot.precision, pot.linear))
            return jnp.einsum("bnd,bn,bne->bde", phi, lam, phi), jnp.einsum("bnd,bn->bd", phi, h)
        outer = pot.precision[:, None, None] * phi[:, :, None] * phi[:, None]
        return index.add(outer), index.add(pot.linear[:, None] * phi)
    precision, linear = pot.precision, pot.linear
    if op == "scale":
        a = jnp.ones(1, linear.dtype) if c is None else jnp.asarray(c)
        square = precision * (a**2)[:, None, None]
        return index.add(fill(square, piece.n)), index.add(fill(linear * a[:, None], piece.n))
    c = jnp.asarray(c)
    return (
        index.add(fill(jnp.einsum("nmd,nmk,nke->nde", fill(c, piece.n), precision, fill(c, piece.n)), piece.n)),
        index.add(jnp.einsum("nmd,nm->nd", fill(c, piece.n), linear)),
    )


def solve_vectors(precision: Float[Array, "B D D"], linear: Float[Array, "B D"]):
    """Cholesky solution of B vectors: lower factors, means, log-partition, proper."""
    chol = jnp.linalg.cholesky(precision)
    white = jax.scipy.linalg.solve_triangular(chol, linear[..., None], lower=True)
    mean = jax.scipy.linalg.solve_triangular(chol, white, lower=True, trans=1)[..., 0]
    diagonal = jnp.diagonal(chol, axis1=-2, axis2=-1)
    log_partition = jnp.sum(0.5 * white[..., 0] ** 2 - jnp.log(diagonal) + 0.5 * jnp.log(2 * jnp.pi))
    proper = jnp.all(jnp.isfinite(chol)) & jnp.all(jnp.isfinite(linear))
    return chol, mean, log_partition, proper


def functional_moments(piece: Piece, index: IndexMap, link: int, chol: Array, mean: Array) -> tuple[Array, Array]:
    """Mean and variance of the scalar functionals `phi . w` given Cholesky factors of the precisions of w."""
    _, _, op, c = piece.links[link]
    if op != "dot":
        raise ValueError("only scalar functionals have marginals of their own")
    phi = fill(c, piece.n)
    m = jnp.einsum("nd,nd->n", phi, index.take(mean))
    if index.size == 1:
        white = jax.scipy.linalg.solve_triangular(chol[0], phi.T, lower=True)
        return m, jnp.sum(white**2, axis=0)
    white = jax.scipy.linalg.solve_triangular(index.take(chol), phi[..., None], lower=True)[..., 0]
    return m, jnp.sum(white**2, axis=-1)


class IndependentVectors(GaussianExecutor):
    """Vectors seen through linear functionals: one Cholesky factor per vector, in weight space."""

    name = "star"

    def __init__(self, plane: Plane, size: int, positions: np.ndarray, pieces: list[Piece]):
        self.plane, self.positions, self.pieces = plane, positions, pieces
        self.index = [local_index(positions, size, p) for p in pieces]
        d = plane.event_shape[0]
        self.why = "vectors coupled to no other Gaussian variable; Cholesky in weight space"
        self.cost = f"O({len(positions)} x {d}^3 + {sum(p.n for p in pieces)} x {d}^2)"

    def solve(self, leaves: list[AbstractFamily], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        precision, linear, constant = zero, zero, zero
        for piece, index in zip(self.pieces, self.index, strict=True):
            pot = potential(piece, leaves)
            p, h = add_vectors(piece, index, 0, pot)
            precision, linear, constant = precision + p, linear + h, constant + pot.constant
        chol, mean, log_partition, proper = solve_vectors(jnp.asarray(precision), jnp.asarray(linear))
        eye = jnp.broadcast_to(jnp.eye(mean.shape[-1], dtype=mean.dtype), chol.shape)
        covariance = jax.scipy.linalg.cho_solve((chol, True), eye)
        functionals = {}
        for piece, index in zip(self.pieces, self.index, strict=True):
            if piece.functional in requested and piece.width is None:
                m, v = functional_moments(piece, index, 0, chol, mean)
                functionals[piece.functional] = (piece.rows, m + piece.offset, v)
        marginals = {self.plane: (self.positions, mean, covariance)}
        return Solution(log_partition + constant, proper, marginals, functionals)
