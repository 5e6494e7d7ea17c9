"""Chains of vectors."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...linalg import vector_chain
from .base import Leaf, Solution, fill, offset, potential, put
from .chain import Chain
from .ties import Tie, each, matrix, row_moments
from .vectors import Term, add_vectors, wide_moments


class _Potentials(NamedTuple):
    """Of all variables: precisions and linear coefficients."""

    unary: Float[Array, "n d d"]
    linear: Float[Array, "n d"]


class VectorChain(Chain):
    """Chains of vectors tied by `r_k = A x_{k+1} - B x_k + c`."""

    subtracts = True
    chain = staticmethod(vector_chain)

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> tuple[_Potentials, set[int], Any]:
        """The sum of the potentials that do not move, whose these are, and the ties if none of them moves."""
        d = self.plane.event_shape[0]
        zero = jnp.zeros((self.order.size, d), dtype)
        still = {f for f, leaf in enumerate(leaves) if leaf is not None}
        flat = _Potentials(jnp.zeros((*zero.shape, d), dtype), zero)
        moves = any(tie.piece.functional not in still for tie in self.ties)
        return self._add(flat, leaves, still, shared=True), still, None if moves else self._couplings(leaves)

    def _add(self, total: _Potentials, leaves: list[Any], among: set[int], shared: bool = False) -> _Potentials:
        """Add the potentials of the functionals in `among`."""
        unary, linear = total
        for piece, index in self.unary:
            if piece.functional in among:
                pot = potential(piece, leaves, shared)
                square, shift = add_vectors(Term(piece, 0, index), pot)
                unary, linear = unary + square, linear + shift
        return _Potentials(unary, self._pulled(linear, leaves, among, shared))

    def _pulled(self, linear: Array, leaves: list[Any], among: set[int], shared: bool) -> Array:
        """Add what is linear of the ties in `among`."""
        for tie in self.ties:
            if tie.piece.functional in among:
                pot = potential(tie.piece, leaves, shared)
                h = pot.linear if tie.piece.width is not None else pot.linear[:, None]
                for end, matrix in zip(tie.ends, self._matrices(tie, h.dtype), strict=True):
                    moved = h @ matrix[0] if matrix.shape[0] == 1 else jnp.einsum("nmd,nm->nd", matrix, h)
                    linear += end.add(fill(moved, tie.piece.n))
        return linear

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        chains, length = self.order.shape
        d = self.plane.event_shape[0]
        known, still, ties = prepared
        unary, linear = self._add(known, leaves, set(range(len(leaves))) - still)
        ties = self._couplings(leaves) if ties is None else ties
        result = each(self.chain, (unary.reshape(chains, length, d, d), linear.reshape(chains, length, d), *ties))
        mean, covariance = result.mean.reshape(-1, d), result.covariance.reshape(-1, d, d)
        functionals = {}
        for piece, index in self.unary:
            if piece.functional in requested:
                moments = row_moments if piece.width is None else wide_moments
                m, v = moments(Term(piece, 0, index), mean, covariance)
                functionals[piece.functional] = (piece.rows, m + offset(piece, leaves), v)
        for tie in self.ties:
            if tie.piece.functional in requested:
                b, a = (fill(x, tie.piece.n) for x in self._matrices(tie, mean.dtype))
                (m0, m1), (c0, c1) = ([e.take(x) for e in tie.ends] for x in (mean, covariance))
                cross = jnp.einsum("nmd,nde,nke->nmk", b, tie.index.take(result.cross.reshape(-1, d, d)), a)
                m = jnp.einsum("nmd,nd->nm", a, m1) + jnp.einsum("nmd,nd->nm", b, m0)
                v = jnp.einsum("nmd,nde,nke->nmk", a, c1, a) + jnp.einsum("nmd,nde,nke->nmk", b, c0, b)
                v = v + cross + jnp.swapaxes(cross, -1, -2)
                m, v = (m[:, 0], v[:, 0, 0]) if tie.piece.width is None else (m, v)
                put(functionals, tie.piece, m + offset(tie.piece, leaves), v)
        return self._solution(result, mean, covariance, result.cross, functionals)

    def _matrices(self, tie: Tie, dtype: Any) -> tuple[Array, Array]:
        """Coefficients of the earlier and of the later variable, (n|1, m, D)."""
        d = self.plane.event_shape[0]
        earlier, later = (matrix(tie.piece, j, d, dtype) for j in (1 - tie.later, tie.later))
        return earlier, later

    def _couplings(self, leaves: list[Any]) -> list[Any]:
        """Link matrices (chains, T-1, ...), or (chains, 1, ...) where one functional ties all with shared matrices."""
        chains, length = self.order.shape
        ties = []
        for tie in self.ties:
            lam = potential(tie.piece, leaves, shared=True).precision
            lam = lam if tie.piece.width is not None else lam[:, None, None]
            earlier, later = self._matrices(tie, lam.dtype)
            ties.append((tie, lam, later, -earlier))
        out = []
        for j in (1, 2, 3):
            x = ties[0][j]
            if len(ties) == 1 and (x.shape[0] == 1 or ties[0][0].piece.n == 1):
                out.append(jnp.broadcast_to(x[:1], (chains, 1, *x.shape[1:])))
                continue
            stacked: Any = sum(t[0].index.add(fill(t[j], t[0].piece.n)) for t in ties)
            out.append(stacked.reshape(chains, length - 1, *stacked.shape[1:]))
        return out
