"""A hub and its satellites: scalars each tied once to one scalar or vector, and to nothing else.

A satellite `x` with own precision `u` and linear coefficient `h`, tied by `r = a x + f + c` (f a functional of the hub)
with potential `(xi, Lambda)`, is integrated out in closed form. With `s = u + Lambda a^2` and `e = xi - Lambda c`, the
hub sees on `f` a precision `Lambda u / s` (no subtraction, so no digits are lost) and a linear coefficient
`e - (h + a e) Lambda a / s`. Afterwards `x | f ~ N((h + a e - Lambda a f) / s, 1 / s)`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels.families import AbstractFamily

from .._expressions import Plane
from .._index import index_map
from ._base import GaussianExecutor, Piece, Potential, Solution, potential, scale
from .independent import add_vectors, functional_moments, local_index, solve_vectors


class Star(GaussianExecutor):
    """See the module docstring. `hub` is one position of a plane, `satellites` positions of the scalar plane."""

    name = "star"

    def __init__(
        self,
        sizes: dict[Plane, int],
        hub: tuple[Plane, int],
        satellites: tuple[Plane, np.ndarray],
        pieces: list[Piece],
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
        d = plane.event_shape[0] if plane.event_shape else 1
        self.why = f"one hub, {len(positions)} scalars each tied to it once and integrated out in closed form"
        self.cost = f"O({len(positions)} x {d}^2 + {d}^3)"

    def solve(self, leaves: list[AbstractFamily], requested: frozenset[int]) -> Solution:
        plane, position = self.hub
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
            solved.append((piece, end, index, lam, a, s, g))
        core = self._vector_hub(terms) if plane.event_shape else self._scalar_hub(terms)
        mean, spread, log_partition, hub_proper, moments = core
        functionals = {}
        for piece in self.direct:
            if piece.functional in requested and piece.width is None:
                m, v = moments(piece, 0)
                functionals[piece.functional] = (piece.rows, m + piece.offset, v)
        count = len(self.satellites[1])
        x_mean, x_variance = jnp.zeros(count, mean.dtype), jnp.zeros(count, mean.dtype)
        for piece, end, index, lam, a, s, g in solved:
            f, kf = moments(piece, end)
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
        return Solution(
            log_partition + constant, proper & hub_proper,
            self._marginals(mean, spread, x_mean, x_variance), functionals,
        )  # fmt: skip

    def _marginals(self, mean, spread, x_mean, x_variance):
        plane, position = self.hub
        scalars, positions = self.satellites
        if plane != scalars:
            return {plane: (np.asarray([position]), mean, spread), scalars: (positions, x_mean, x_variance)}
        both = np.append(positions, position)
        return {scalars: (both, jnp.append(x_mean, mean), jnp.append(x_variance, spread))}

    def _vector_hub(self, terms):
        zero: Any = 0.0
        precision, linear = zero, zero
        one = {p.functional: index_map(np.zeros(p.n, int), 1) for p, _, _ in terms}
        for piece, end, pot in terms:
            p, h = add_vectors(piece, one[piece.functional], end, pot)
            precision, linear = precision + p, linear + h
        chol, mean, log_partition, proper = solve_vectors(precision, linear)
        identity = jnp.eye(mean.shape[-1], dtype=mean.dtype)[None]
        covariance = jnp.linalg.solve(precision, identity)

        def moments(piece: Piece, end: int):
            return functional_moments(piece, one[piece.functional], end, chol, mean)

        return mean, 0.5 * (covariance + jnp.swapaxes(covariance, 1, 2)), log_partition, proper, moments

    def _scalar_hub(self, terms):
        zero: Any = 0.0
        precision, linear = zero, zero
        for piece, end, pot in terms:
            b = scale(piece.links[end].coefficient)
            precision += jnp.sum(jnp.broadcast_to(pot.precision * b**2, (piece.n,)))
            linear += jnp.sum(jnp.broadcast_to(pot.linear * b, (piece.n,)))
        variance = 1 / precision
        mean = linear * variance
        log_partition = 0.5 * (linear * mean - jnp.log(precision / (2 * jnp.pi)))

        def moments(piece: Piece, end: int):
            b = jnp.broadcast_to(scale(piece.links[end].coefficient), (piece.n,))
            return b * mean, b**2 * variance

        return mean[None], variance[None], log_partition, (precision > 0) & jnp.isfinite(linear), moments


