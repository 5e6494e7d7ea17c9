"""Hubs and their satellites: scalars each tied once to one scalar or vector, and to nothing else.

A satellite `x` with own precision `u` and linear coefficient `h`, tied by `r = a x + f + c` (f a functional of the hub)
with potential `(xi, Lambda)`, is integrated out in closed form. With `s = u + Lambda a^2` and `e = xi - Lambda c`, the
hub sees on `f` a precision `Lambda u / s` (no subtraction, so no digits are lost) and a linear coefficient
`e - (h + a e) Lambda a / s`. Afterwards `x | f ~ N((h + a e - Lambda a f) / s, 1 / s)`.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels.families import Gaussian

from ...graph.planes import Plane
from ..base import members
from .base import Draws, GaussianExecutor, Leaf, Potential, Solution, offset, potential, put, scale
from .core import Roles
from .independent import anchors, deviations, local_index
from .part import GaussianPart, only
from .pieces import Piece
from .vectors import TYPICAL_SWEEPS, Prepared, Term, Vectors, seen


class _Hubs(NamedTuple):
    """The hubs with their satellites integrated out; `moments` are those of their part of a piece."""

    marginal: Any
    mean: Array
    log_volume: Array
    proper: Array
    jitter: Array | float
    moments: Callable[[Piece], tuple[Array, Array]]


class Star(GaussianExecutor):
    """See the module docstring. `hubs` are positions of one plane, `satellites` positions of the scalar plane."""

    name = "star"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        hub, planes = part.shape.hub, part.planes
        if part.lone or part.knotted or hub is None or part.core.wide[part.nodes].any():
            return "the variables are no star of scalars"
        pair = len(part.nodes) == 2 and len(planes) == 2 and not all(p.event_shape for p in planes)
        satellites = part.core.nodes.split(part.nodes[part.nodes != hub])
        fits = pair or not any(p.event_shape for p in satellites)
        return None if fits else "the variables are no star of scalars"

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: GaussianPart) -> Hashable:
        hub = _hub(part)
        satellite = part.nodes[part.nodes != hub][:1]
        return *part.core.nodes.plane_of(np.append(satellite, hub)).tolist(), part.space

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[Star]":
        core, own = parts[0].core, members(parts)
        hubs = np.sort([_hub(part) for part in parts])
        is_hub = np.zeros(core.nodes.size, bool)
        is_hub[hubs] = True

        def end(t: np.ndarray) -> np.ndarray:
            """All rows of a piece have their hub at the same end."""
            found = is_hub[t]
            return np.where(found.any(0), found.argmax(0), -1)

        centres, satellites = only(core.nodes.split(hubs)), only(core.nodes.split(own[~is_hub[own]]))
        return [cls(core.planes, centres, satellites, core.pieces(own, end), core.roles, parts[0].space)]

    def __init__(
        self,
        sizes: dict[Plane, int],
        hubs: tuple[Plane, np.ndarray],
        satellites: tuple[Plane, np.ndarray],
        pieces: list[Piece],
        roles: Roles,
        space: str | None = None,
    ):
        self.hubs, self.satellites, self.pieces = hubs, satellites, pieces
        plane, centres = hubs
        scalars, positions = satellites
        self.direct: list[Term] = []  # on a hub alone
        self.unary, self.ties = [], []
        for piece in pieces:
            # All rows of a piece have their hub at the same end.
            ends = [j for j, k in enumerate(piece.links) if k.plane == plane and k.positions[0] in centres]
            own = [Term(piece, end, local_index(centres, sizes[plane], piece, end)) for end in ends]
            if len(piece.links) == 2:
                self.ties.append((own[0], local_index(positions, sizes[scalars], piece, 1 - ends[0])))
            elif ends:
                self.direct += own
            else:
                self.unary.append((piece, local_index(positions, sizes[scalars], piece)))
        many = f"{len(centres)} hubs" if len(centres) > 1 else "one hub"
        self.why = f"{many}, {len(positions)} scalars each tied once to one and integrated out in closed form"
        self.work = f"O({sum(p.n for p in pieces)})"
        self.vectors = None
        if plane.event_shape:
            self.vectors = self._vectors(roles, space)
            self.why += f"; the hubs are {self.vectors.why}" if len(centres) > 1 else f"; the hub is {self.vectors.why}"
            self.work, self.alone, self.space = self.vectors.work, self.vectors.alone, self.vectors.name

    def _vectors(self, roles: Roles, space: str | None) -> Vectors:
        """The hubs alone: a satellite that is integrated out is a row that moves."""
        fixed = [t for t in self.direct if t.piece.functional in roles.fixed]
        moving = [t for t in self.direct if t.piece.functional not in roles.fixed]
        moving += [tie for tie, _ in self.ties]
        still = all(p.functional in roles.fixed for p in self.pieces)
        plane, centres = self.hubs
        anchored = anchors(self.direct, roles, len(centres))
        sweeps = 1 if still else TYPICAL_SWEEPS
        return Vectors(plane.event_shape[0], len(centres), fixed, moving, anchored, sweeps, space)

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Prepared | None:
        if self.vectors is None:
            return None
        return self.vectors.prepare([potential(t.piece, leaves) for t in self.vectors.fixed], dtype)

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        """Hubs from their marginals, then satellites given them."""
        hub_key, own_key = jax.random.split(key)
        (plane, centres), (scalars, positions) = self.hubs, self.satellites
        own: Any = 0.0
        for piece, index in self.unary:
            lam, a = potential(piece, leaves).precision, scale(piece.links[0].coefficient)
            own += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
        marginal = jax.tree.map(lambda x: x[-len(centres) :], solved.marginals[plane][1])
        hubs = deviations(marginal, hub_key, count)
        noise = jax.random.normal(own_key, (count, len(positions)), hubs.dtype)
        found = jnp.zeros_like(noise)
        for tie, index in self.ties:
            lam = potential(tie.piece, leaves).precision
            a = scale(tie.piece.links[1 - tie.link].coefficient)
            s = (index.take(own) if jnp.ndim(own) else 0.0) + lam * a**2
            drawn = jax.vmap(index.take)(noise) / jnp.sqrt(s) - lam * a / s * seen(tie, hubs)
            found += jax.vmap(index.add)(drawn)
        if plane != scalars:
            return {plane: (centres, hubs), scalars: (positions, found)}
        return {scalars: (np.append(positions, centres), jnp.concatenate([found, hubs], 1))}

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        own, linear, log_volume = zero, zero, zero
        for piece, index in self.unary:
            lam, h = potential(piece, leaves)
            a = scale(piece.links[0].coefficient)
            own += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
            linear += index.add(jnp.broadcast_to(h * a, (piece.n,)))
        terms, solved = [(term, potential(term.piece, leaves)) for term in self.direct], []
        proper = jnp.asarray(True)
        for tie, index in self.ties:
            piece, end, _ = tie
            lam, e = potential(piece, leaves)
            a = scale(piece.links[1 - end].coefficient)
            u, h = (index.take(x) if jnp.ndim(x) else jnp.zeros_like(lam) for x in (own, linear))
            s = u + lam * a**2
            g = h + a * e
            proper &= jnp.all(s > 0)
            log_volume -= 0.5 * jnp.sum(jnp.log(s / (2 * jnp.pi)))
            terms.append((tie, Potential(lam * u / s, e - g * lam * a / s)))
            solved.append((piece, index, lam, a, s, g, u))
        hub = self._scalar_hubs(terms) if self.vectors is None else self._vector_hubs(self.vectors, prepared, terms)
        functionals = {}
        for piece in (term.piece for term in self.direct):
            if piece.functional in requested and piece.width is None:
                m, v = hub.moments(piece)
                put(functionals, piece, m + offset(piece, leaves), v)
        count = len(self.satellites[1])
        dtype = hub.marginal.dtype
        x_mean, x_variance = jnp.zeros(count, dtype), jnp.zeros(count, dtype)
        for piece, index, lam, a, s, g, u in solved:
            f, kf = hub.moments(piece)
            m, gain = (g - lam * a * f) / s, lam * a / s
            v = 1 / s + gain**2 * kf
            x_mean, x_variance = x_mean + index.add(m), x_variance + index.add(v)
            if piece.functional in requested:
                # Of a x + f, with 1 - a gain = u / s: no difference of large variances.
                put(functionals, piece, (a * g + u * f) / s + offset(piece, leaves), a**2 / s + (u / s) ** 2 * kf)
        for piece, index in self.unary:
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(x_mean) + offset(piece, leaves), a**2 * index.take(x_variance)
                put(functionals, piece, m, v)
        satellites = Gaussian.from_mean_variance(x_mean, x_variance)
        log_volume += hub.log_volume
        marginals, means = self._together(hub.marginal, satellites), self._together(hub.mean, x_mean)
        proper &= hub.proper
        return Solution(log_volume, proper, marginals, functionals, jitter=hub.jitter, means=means)

    def _together(self, hubs: Any, satellites: Any) -> dict[Plane, Any]:
        """What is known of hubs and satellites, by plane."""
        plane, centres = self.hubs
        scalars, positions = self.satellites
        if plane != scalars:
            return {plane: (centres, hubs), scalars: (positions, satellites)}
        return {scalars: (np.append(positions, centres), jax.tree.map(jnp.append, satellites, hubs))}

    def _vector_hubs(self, vectors: Vectors, prepared: Prepared, terms: list[tuple[Term, Potential]]) -> _Hubs:
        given = {_key(term.piece): pot for term, pot in terms}
        solved = vectors.solve(prepared, [given[_key(t.piece)] for t in vectors.moving])
        found = {_key(t.piece): m for t, m in zip(vectors.moving, solved.moments, strict=True)}
        fixed = {_key(t.piece): t for t in vectors.fixed}

        def moments(piece: Piece):
            key = _key(piece)
            return found[key] if key in found else vectors.fixed_moments(solved, fixed[key])

        return _Hubs(solved.marginal, solved.mean, solved.log_volume, solved.proper, solved.jitter, moments)

    def _scalar_hubs(self, terms: list[tuple[Term, Potential]]) -> _Hubs:
        own = {_key(term.piece): term for term, _ in terms}
        zero: Any = 0.0
        precision, linear = zero, zero
        for (piece, end, index), pot in terms:
            b = scale(piece.links[end].coefficient)
            precision += index.add(jnp.broadcast_to(pot.precision * b**2, (piece.n,)))
            linear += index.add(jnp.broadcast_to(pot.linear * b, (piece.n,)))
        variance = 1 / precision
        mean = linear * variance
        log_volume = -0.5 * jnp.sum(jnp.log(precision / (2 * jnp.pi)))

        def moments(piece: Piece):
            _, end, index = own[_key(piece)]
            b = scale(piece.links[end].coefficient)
            return b * index.take(mean), b**2 * index.take(variance)

        proper = jnp.all(precision > 0) & jnp.all(jnp.isfinite(linear))
        return _Hubs(Gaussian.from_information(linear, precision), mean, log_volume, proper, 0.0, moments)


def _key(piece: Piece) -> tuple[int, int | None]:
    """What tells the pieces of a star apart: their functional and their first row in it."""
    return piece.functional, None if piece.rows is None else int(piece.rows[0])


def _hub(part: GaussianPart) -> int:
    """The hub of a star; of two ends the vector."""
    vectors = [x[0] + part.core.nodes.offset[p] for p, x in part.planes.items() if p.event_shape]
    if vectors:
        return int(vectors[0])
    assert part.shape.hub is not None
    return part.shape.hub
