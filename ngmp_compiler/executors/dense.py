"""Small Gaussian parts of any shape, loops included: one joint precision matrix, one Cholesky factor, exact."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ngmp_kernels.families import AbstractFamily, Gaussian, MvGaussian

from .._expressions import Plane
from ._base import GaussianExecutor, Piece, Solution, fill, potential
from .linalg import dense_gaussian


class DenseGaussian(GaussianExecutor):
    """All variables of the part, flattened to M dimensions; every functional is a row (or block of rows) of J."""

    name = "dense"

    def __init__(self, sizes: dict[Plane, int], members: dict[Plane, np.ndarray], pieces: list[Piece], why: str):
        self.members, self.pieces, self.why = members, pieces, why
        self.start: dict[Plane, np.ndarray] = {}
        total = 0
        for plane, positions in members.items():
            d = plane.event_shape[0] if plane.event_shape else 1
            table = np.full(sizes[plane], -1)
            table[positions] = total + d * np.arange(len(positions))
            self.start[plane] = table
            total += d * len(positions)
        self.total = total
        self.cost = f"O({total}^3)"

    def _rows(self, piece: Piece, dtype) -> Float[Array, "n m M"]:
        """The functionals of a piece as rows over the joint vector; m = 1 for scalar ones."""
        m = piece.width or 1
        out = jnp.zeros((piece.n, m, self.total), dtype)
        at = np.arange(piece.n)[:, None, None], np.arange(m)[None, :, None]
        for plane, positions, op, c in piece.links:
            d = plane.event_shape[0] if plane.event_shape else 1
            columns = self.start[plane][positions][:, None, None] + np.arange(d)
            if op == "scale":
                block = jnp.eye(m, d, dtype=dtype)[None] * (1.0 if c is None else jnp.asarray(c)[:, None, None])
            else:
                block = jnp.asarray(c).reshape(-1, m, d)
            out = out.at[(*at, columns)].add(fill(block.astype(dtype), piece.n))
        return out

    def prepare(self, leaves: list[AbstractFamily | None], dtype: Any) -> list[Array]:
        del leaves
        return [self._rows(piece, dtype) for piece in self.pieces]

    def solve(self, prepared: Any, leaves: list[AbstractFamily], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        precision, linear, constant = zero, zero, zero
        for piece, row in zip(self.pieces, prepared, strict=True):
            pot = potential(piece, leaves)
            lam, h = (pot.precision[:, None, None], pot.linear[:, None]) if piece.width is None else pot[:2]
            precision += jnp.einsum("nia,nij,njb->ab", row, lam, row)
            linear += jnp.einsum("nia,ni->a", row, h)
            constant += pot.constant
        result = dense_gaussian(precision, linear)
        functionals = {}
        for piece, row in zip(self.pieces, prepared, strict=True):
            if piece.functional in requested and piece.width is None:
                r = row[:, 0]
                m, v = r @ result.mean + piece.offset, jnp.einsum("na,ab,nb->n", r, result.covariance, r)
                functionals[piece.functional] = (piece.rows, m, v)
            elif piece.functional in requested:
                m, v = row @ result.mean + piece.offset, jnp.einsum("nia,ab,njb->nij", row, result.covariance, row)
                functionals[piece.functional] = (piece.rows, m, v)
        marginals = {}
        for plane, positions in self.members.items():
            at = self.start[plane][positions]
            if not plane.event_shape:
                marginals[plane] = (positions, Gaussian.from_mean_variance(result.mean[at], result.covariance[at, at]))
                continue
            at = at[:, None] + np.arange(plane.event_shape[0])
            block = result.covariance[at[:, :, None], at[:, None, :]]
            marginals[plane] = (positions, MvGaussian.from_mean_covariance(result.mean[at], block))
        log_partition = result.log_partition + constant
        return Solution(log_partition, result.proper, marginals, functionals, jitter=result.jitter)
