"""Variables that no functional couples to another: every one is solved alone, all of them at once."""

from collections.abc import Hashable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ..base import COUPLED, members
from .base import Draws, GaussianExecutor, Leaf, Potential, Solution, offset, potential, scale
from .core import Roles
from .leave_out import at_variables
from .part import GaussianPart, only
from .pieces import Piece
from .rows import Rows
from .vectors import Prepared, Term, Vectors, add_vectors, wide_moments


def local_index(positions: np.ndarray, size: int, piece: Piece, link: int = 0) -> IndexMap:
    """Index map of a link into variables stored in the order of `positions`."""
    where = piece.links[link].positions
    if len(positions) == positions[-1] + 1 and positions[0] == 0:  # a whole plane from zero: numbers are positions
        return index_map(where, len(positions))
    table = np.full(size, -1)
    table[positions] = np.arange(len(positions))
    return index_map(table[where], len(positions))


class Independent(GaussianExecutor):
    """Variables of one plane, each on its own."""

    name = "independent"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        return None if part.lone else COUPLED

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: GaussianPart) -> Hashable:
        return only(part.planes)[0], part.space

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[Independent]":
        core, own = parts[0].core, members(parts)
        plane, positions = only(core.nodes.split(own))
        given = plane, core.planes[plane], positions, core.pieces(own), core.roles
        return [IndependentVectors(*given, parts[0].space) if plane.event_shape else IndependentScalars(*given)]

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        return {plane: (at, deviations(q, key, count)) for plane, (at, q) in solved.marginals.items()}


def deviations(q: Any, key: PRNGKeyArray, count: int) -> Float[Array, "draws n *event"]:
    """Independent draws from marginals, less their means."""
    return type(q)(jnp.zeros_like(q.eta1), q.eta2).sample(key, (count,))


class IndependentScalars(Independent):
    """`v_i = 1 / sum a^2 Lambda`, `m_i = v_i sum a (xi - Lambda c)`: one segment sum per functional."""

    def __init__(self, plane: Plane, size: int, positions: np.ndarray, pieces: list[Piece], roles: Roles):
        self.plane, self.positions, self.pieces = plane, positions, pieces
        self.index = [local_index(positions, size, p) for p in pieces]
        self.frontier = None
        if any(p.functional in roles.cavities for p in pieces):
            self.frontier = Rows(np.concatenate([i.positions for i in self.index]), len(positions))
        self.why = "scalars coupled to no other Gaussian variable"
        self.work = f"O({sum(p.n for p in pieces)})"

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        zero: Any = 0.0
        precision, linear = zero, zero
        each: list[Potential] = []
        for piece, index in zip(self.pieces, self.index, strict=True):
            lam, h = potential(piece, leaves)
            a = scale(piece.links[0].coefficient)
            each.append(Potential(jnp.broadcast_to(lam * a**2, (piece.n,)), jnp.broadcast_to(h * a, (piece.n,))))
            precision += index.add(each[-1].precision)
            linear += index.add(each[-1].linear)
        precision, linear = jnp.asarray(precision), jnp.asarray(linear)
        proper = jnp.all(precision > 0) & jnp.all(jnp.isfinite(linear))
        variance = 1 / precision
        mean = variance * linear
        log_volume = -0.5 * jnp.sum(jnp.log(precision / (2 * jnp.pi)))
        functionals = {}
        for piece, index in zip(self.pieces, self.index, strict=True):
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(mean) + offset(piece, leaves), a**2 * index.take(variance)
                functionals[piece.functional] = (piece.rows, m, v)
        marginals = {self.plane: (self.positions, Gaussian.from_information(linear, precision))}
        cavities = {} if self.frontier is None else at_variables(self.frontier, self.pieces, each, leaves)
        means = {self.plane: (self.positions, mean)}
        return Solution(log_volume, proper, marginals, functionals, cavities=cavities, means=means)


class IndependentVectors(Independent):
    """Vectors seen through linear functionals, solved in weight or in function space (see `vectors`)."""

    def __init__(
        self,
        plane: Plane,
        size: int,
        positions: np.ndarray,
        pieces: list[Piece],
        roles: Roles,
        space: str | None = None,
    ):
        self.plane, self.positions, self.pieces = plane, positions, pieces
        terms = [Term(p, 0, local_index(positions, size, p)) for p in pieces]
        fixed = [t for t in terms if t.piece.functional in roles.fixed]
        moving = [t for t in terms if t.piece.functional not in roles.fixed and t.piece.width is None]
        # Vector-valued ones that move (noise of unknown precision matrix) are added in weight space.
        self.wide = [t for t in terms if t.piece.functional not in roles.fixed and t.piece.width is not None]
        anchored = anchors(terms, roles, len(positions)) and not self.wide
        self.vectors = Vectors(plane.event_shape[0], len(positions), fixed, moving, anchored, space=space)
        self.why = f"coupled to no other Gaussian variable: {self.vectors.why}"
        self.work, self.alone, self.space = self.vectors.work, self.vectors.alone, self.vectors.name

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Prepared:
        return self.vectors.prepare([potential(t.piece, leaves) for t in self.vectors.fixed], dtype)

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        fixed = prepared
        for term in self.wide:
            pot = potential(term.piece, leaves)
            square, shift = add_vectors(term, pot)
            fixed = fixed._replace(precision=fixed.precision + square, linear=fixed.linear + shift)
        potentials = [potential(t.piece, leaves) for t in self.vectors.moving]
        solved = self.vectors.solve(fixed, potentials)
        functionals = {}
        for term in self.wide:
            if term.piece.functional in requested:
                m, v = wide_moments(term, solved.marginal.mean, solved.marginal.covariance)
                functionals[term.piece.functional] = (term.piece.rows, m + offset(term.piece, leaves), v)
        found = list(zip(self.vectors.moving, solved.moments, strict=True))
        for term in self.vectors.fixed:
            if term.piece.functional in requested and term.is_row:
                found.append((term, self.vectors.fixed_moments(solved, term)))
        for (piece, _, _), (m, v) in found:
            if piece.functional in requested:
                functionals[piece.functional] = (piece.rows, m + offset(piece, leaves), v)
        marginals = {self.plane: (self.positions, solved.marginal)}
        means = {self.plane: (self.positions, solved.mean)}
        return Solution(solved.log_volume, solved.proper, marginals, functionals, jitter=solved.jitter, means=means)


def anchors(terms: list[Term], roles: Roles, count: int) -> bool:
    """Whether every one of `count` vectors has a prior of its own among the terms."""
    priors = [t.index.positions for t in terms if t.piece.functional in roles.priors]
    return bool(priors) and len(np.unique(np.concatenate(priors))) == count
