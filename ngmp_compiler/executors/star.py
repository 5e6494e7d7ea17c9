"""A hub and its satellites: scalars each tied once to one scalar or vector, and to nothing else.

A satellite `x` with own precision `u` and linear coefficient `h`, tied by `r = a x + f + c` (f a functional of the hub)
with potential `(xi, Lambda)`, is integrated out in closed form. With `s = u + Lambda a^2` and `e = xi - Lambda c`, the
hub sees on `f` a precision `Lambda u / s` (no subtraction, so no digits are lost) and a linear coefficient
`e - (h + a e) Lambda a / s`. Afterwards `x | f ~ N((h + a e - Lambda a f) / s, 1 / s)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_kernels.families import AbstractFamily, Gaussian

from .._expressions import Plane
from .._index import index_map
from ._base import GaussianExecutor, Piece, Potential, Roles, Solution, potential, scale
from ._vectors import TYPICAL_SWEEPS, Prepared, Term, Vectors
from .independent import anchors, local_index


class _Hub(NamedTuple):
    """The hub with its satellites integrated out; `moments` are those of its part of a piece."""

    marginal: Any
    log_partition: Array
    proper: Array
    jitter: Array | float
    moments: Callable[[Piece], tuple[Array, Array]]


class Star(GaussianExecutor):
    """See the module docstring. `hub` is one position of a plane, `satellites` positions of the scalar plane."""

    name = "star"

    def __init__(
        self,
        sizes: dict[Plane, int],
        hub: tuple[Plane, int],
        satellites: tuple[Plane, np.ndarray],
        pieces: list[Piece],
        roles: Roles,
        space: str | None = None,
    ):
        self.hub, self.satellites, self.pieces = hub, satellites, pieces
        plane, position = hub
        scalars, positions = satellites
        self.direct: list[Piece] = []  # on the hub alone
        self.unary, self.ties = [], []
        size = sizes[scalars]
        for piece in pieces:
            ends = [j for j, k in enumerate(piece.links) if (k.plane, int(k.positions[0])) == hub]
            if len(piece.links) == 2:
                self.ties.append((piece, ends[0], local_index(positions, size, piece, 1 - ends[0])))
            elif ends:
                self.direct.append(piece)
            else:
                self.unary.append((piece, local_index(positions, size, piece)))
        self.why = f"one hub, {len(positions)} scalars each tied to it once and integrated out in closed form"
        self.cost = f"O({sum(p.n for p in pieces)})"
        self.vectors = None
        if plane.event_shape:
            self.vectors = self._vectors(roles, space)
            self.why += f"; the hub is {self.vectors.why}"
            self.cost = self.vectors.cost

    def _vectors(self, roles: Roles, space: str | None) -> Vectors:
        """The hub alone: a satellite that is integrated out is a row that moves."""
        direct = [Term(p, 0, index_map(np.zeros(p.n, int), 1)) for p in self.direct]
        fixed = [t for t in direct if t.piece.functional in roles.fixed]
        moving = [t for t in direct if t.piece.functional not in roles.fixed]
        moving += [Term(p, end, index_map(np.zeros(p.n, int), 1)) for p, end, _ in self.ties]
        still = all(p.functional in roles.fixed for p in self.pieces)
        sweeps = 1 if still else TYPICAL_SWEEPS
        return Vectors(self.hub[0].event_shape[0], 1, fixed, moving, anchors(direct, roles, 1), sweeps, space)

    def prepare(self, leaves: list[AbstractFamily | None], dtype: Any) -> Prepared | None:
        if self.vectors is None:
            return None
        return self.vectors.prepare([potential(t.piece, leaves) for t in self.vectors.fixed], dtype)

    def solve(self, prepared: Any, leaves: list[AbstractFamily], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        own, linear, constant = zero, zero, zero
        for piece, index in self.unary:
            lam, h, k = potential(piece, leaves)
            a = scale(piece.links[0].coefficient)
            own += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
            linear += index.add(jnp.broadcast_to(h * a, (piece.n,)))
            constant += k
        terms, solved = [], []
        for piece in self.direct:
            pot = potential(piece, leaves)
            terms.append((piece, 0, pot))
            constant += pot.constant
        proper = jnp.asarray(True)
        for piece, end, index in self.ties:
            lam, e, k = potential(piece, leaves)
            a = scale(piece.links[1 - end].coefficient)
            u, h = (index.take(x) if jnp.ndim(x) else jnp.zeros_like(lam) for x in (own, linear))
            s = u + lam * a**2
            g = h + a * e
            proper &= jnp.all(s > 0)
            constant += k + 0.5 * jnp.sum(g**2 / s - jnp.log(s / (2 * jnp.pi)))
            terms.append((piece, end, Potential(lam * u / s, e - g * lam * a / s, jnp.zeros(()))))
            solved.append((piece, index, lam, a, s, g))
        hub = self._scalar_hub(terms) if self.vectors is None else self._vector_hub(self.vectors, prepared, terms)
        functionals = {}
        for piece in self.direct:
            if piece.functional in requested and piece.width is None:
                m, v = hub.moments(piece)
                functionals[piece.functional] = (piece.rows, m + piece.offset, v)
        count = len(self.satellites[1])
        dtype = hub.marginal.dtype
        x_mean, x_variance = jnp.zeros(count, dtype), jnp.zeros(count, dtype)
        for piece, index, lam, a, s, g in solved:
            f, kf = hub.moments(piece)
            m, gain = (g - lam * a * f) / s, lam * a / s
            v = 1 / s + gain**2 * kf
            x_mean, x_variance = x_mean + index.add(m), x_variance + index.add(v)
            if piece.functional in requested:
                variance = a**2 * v + kf - 2 * a * gain * kf
                functionals[piece.functional] = (piece.rows, a * m + f + piece.offset, variance)
        for piece, index in self.unary:
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(x_mean) + piece.offset, a**2 * index.take(x_variance)
                functionals[piece.functional] = (piece.rows, m, v)
        satellites = Gaussian.from_mean_variance(x_mean, x_variance)
        log_partition = hub.log_partition + constant
        marginals = self._marginals(hub.marginal, satellites)
        return Solution(log_partition, proper & hub.proper, marginals, functionals, jitter=hub.jitter)

    def _marginals(self, hub: Any, satellites: Gaussian) -> dict[Plane, Any]:
        plane, position = self.hub
        scalars, positions = self.satellites
        if plane != scalars:
            return {plane: (np.asarray([position]), hub), scalars: (positions, satellites)}
        return {scalars: (np.append(positions, position), jax.tree.map(jnp.append, satellites, hub))}

    def _vector_hub(self, vectors: Vectors, prepared: Prepared, terms: list) -> _Hub:
        given = {id(piece): pot for piece, _, pot in terms}
        solved = vectors.solve(prepared, [given[id(t.piece)] for t in vectors.moving])
        found = {id(t.piece): m for t, m in zip(vectors.moving, solved.moments, strict=True)}
        fixed = {id(t.piece): t for t in vectors.fixed}

        def moments(piece: Piece):
            return found[id(piece)] if id(piece) in found else vectors.fixed_moments(solved, fixed[id(piece)])

        return _Hub(solved.marginal, solved.log_partition, solved.proper, solved.jitter, moments)

    def _scalar_hub(self, terms: list) -> _Hub:
        ends = {id(piece): end for piece, end, _ in terms}
        zero: Any = 0.0
        precision, linear = zero, zero
        for piece, end, pot in terms:
            b = scale(piece.links[end].coefficient)
            precision += jnp.sum(jnp.broadcast_to(pot.precision * b**2, (piece.n,)))
            linear += jnp.sum(jnp.broadcast_to(pot.linear * b, (piece.n,)))
        variance = 1 / precision
        mean = linear * variance
        log_partition = 0.5 * (linear * mean - jnp.log(precision / (2 * jnp.pi)))

        def moments(piece: Piece):
            b = jnp.broadcast_to(scale(piece.links[ends[id(piece)]].coefficient), (piece.n,))
            return b * mean, b**2 * variance

        marginal = Gaussian.from_information(linear[None], precision[None])
        return _Hub(marginal, log_partition, (precision > 0) & jnp.isfinite(linear), 0.0, moments)
