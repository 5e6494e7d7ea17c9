"""Chains of scalars; with what both sides of every variable say of it, where cavities or differences are asked for."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian
from ngmp_kernels.numerics.lanes import one_by_one

from ...graph.planes import Plane
from ...linalg import ChainMarginals, ChainMessages, Ties, chain_draws, chain_messages, chain_ties, normals, solve_chain
from .base import Draws, Leaf, Potential, Solution, offset, potential, put, scale
from .chain import Chain
from .core import Roles
from .leave_out import at_variables, between, placed
from .pieces import Piece
from .rows import Rows
from .ties import Tie, each

_LONG = 256  # variables in a chain of scalars from which on it is faster alone
_FEW = 64  # chains that are solved one after the other: a scan over the vectors of more shares its calls among them


def halvings(length: int) -> int:
    """How often to halve a chain of scalars: a step of a scan is a few nanoseconds on a CPU, a launch elsewhere."""
    return 0 if jax.default_backend() == "cpu" else max(0, length.bit_length() - 7)


class _System(NamedTuple):
    """Chains side by side: own precisions and linear coefficients (chains, T), and what ties pull their later and their
    earlier ends by, (chains, T-1)."""

    unary: Float[Array, "chains T"]
    linear: Float[Array, "chains T"]
    later: Float[Array, "chains T-1"]
    earlier: Float[Array, "chains T-1"]

    @property
    def pulled(self) -> Float[Array, "chains T"]:
        """Linear coefficients with what ties pull by."""
        return self.linear + jnp.pad(self.later, ((0, 0), (1, 0))) + jnp.pad(self.earlier, ((0, 0), (0, 1)))


_Found = tuple[ChainMarginals, ChainMessages | None]


def _solve(sides: bool, system: _System, pulled: Array, ties: Ties) -> _Found:
    """The moments of a chain and, where they are asked for, the messages from both sides of its variables."""
    found = solve_chain(system.unary, pulled, ties, halvings(pulled.shape[0]))
    return found, chain_messages(*system[:2], ties, *system[2:]) if sides else None


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve_alone(sides: bool, system: _System, pulled: Array, ties: Ties) -> _Found:
    return one_by_one(functools.partial(_solve, sides), _FEW)(system, pulled, ties)


@_solve_alone.defjvp
def _(sides: bool, primals: Any, tangents: Any) -> tuple[_Found, _Found]:
    return jax.jvp(functools.partial(_solve, sides), primals, tangents)


class ScalarChain(Chain):
    """Chains of scalars tied by `r_k = a x_{k+1} - b x_k + c`."""

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[Piece], roles: Roles):
        super().__init__(plane, size, order, pieces)
        self.alone = order.shape[1] >= _LONG
        self.halved = halvings(order.shape[1]) > 0
        self.subtracts = self.halved
        self.wanted = frozenset() if self.halved else roles.cavities.intersection(p.functional for p in pieces)
        self.frontier = None
        if any(piece.functional in self.wanted for piece, _ in self.unary):
            where = [index.positions for _, index in self.unary]
            self.frontier = Rows(np.concatenate([*where, np.arange(order.size)]), order.size)

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Ties | None:
        """The ties, where none of them moves."""
        if any(leaves[tie.piece.functional] is None for tie in self.ties):
            return None
        return self._couplings(leaves)

    def _couplings(self, leaves: list[Any]) -> Ties:
        """Ties (chains, T-1), or (chains, 1) where one functional ties all neighbours alike."""
        if self._alike(leaves):
            (tie,) = self.ties
            lam = potential(tie.piece, leaves, shared=True).precision
            one, earlier = self._coefficients(tie)
            shared = (jnp.broadcast_to(x, (self.order.shape[0], 1)).astype(lam.dtype) for x in (lam, one, -earlier))
            return chain_ties(*shared)
        zero: Any = 0.0
        coupling, later, earlier = zero, zero, zero
        for tie in self.ties:
            lam = potential(tie.piece, leaves).precision
            a, b = self._coefficients(tie, lam.dtype)
            sums = zip((coupling, later, earlier), (lam, a, -b), strict=True)
            coupling, later, earlier = (total + tie.index.add(x) for total, x in sums)
        shape = (self.order.shape[0], self.order.shape[1] - 1)
        return each(chain_ties, tuple(x.reshape(shape) for x in (coupling, later, earlier)))

    def _alike(self, leaves: list[Any]) -> bool:
        first, *others = self.ties
        one, earlier = (first.piece.links[j].coefficient for j in (first.later, 1 - first.later))
        rows = leaves[first.piece.functional].eta2.shape[0]
        return not others and first.index.kind == "all" and one is None and jnp.size(scale(earlier)) == rows == 1

    def _coefficients(self, tie: Tie, dtype: Any = None) -> list[Any]:
        """Of the later and of the earlier variable; with a type, one for every row."""
        given = [scale(tie.piece.links[j].coefficient) for j in (tie.later, 1 - tie.later)]
        return given if dtype is None else [jnp.broadcast_to(x, (tie.piece.n,)).astype(dtype) for x in given]

    def level(self, leaves: list[Leaf]) -> tuple[Plane, np.ndarray, Array]:
        """Every chain as flat as can be: the mean that it would have as one variable."""
        system, _ = self._system(leaves)
        total, shift = jnp.sum(system.unary, 1), jnp.sum(system.pulled, 1)
        found = jnp.where(total > 0, shift / jnp.where(total > 0, total, 1), 0)
        return self.plane, self.order.reshape(-1), jnp.repeat(found, self.order.shape[1])

    def _system(self, leaves: list[Leaf]) -> tuple[_System, list[Potential]]:
        """The chains without their ties, and what functionals of one variable tell it, row by row."""
        zero: Any = 0.0
        told, unary, linear, later, earlier = [], zero, zero, zero, zero
        for piece, index in self.unary:
            (lam, h), a = potential(piece, leaves), scale(piece.links[0].coefficient)
            rows = (jnp.broadcast_to(x, (piece.n,)) for x in (lam * a**2, h * a))
            told.append(Potential(*rows))
            unary, linear = (x + index.add(y) for x, y in zip((unary, linear), told[-1], strict=True))
        for tie in self.ties:
            h = potential(tie.piece, leaves).linear
            a, b = self._coefficients(tie, h.dtype)
            later, earlier = later + tie.index.add(h * a), earlier + tie.index.add(h * b)
        chains, length = self.order.shape
        own = (jnp.broadcast_to(x, (self.order.size,)).reshape(chains, length) for x in (unary, linear))
        return _System(*own, *(x.reshape(chains, length - 1) for x in (later, earlier))), told

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        system, _ = self._system(leaves)
        ties = self._couplings(leaves) if prepared is None else prepared
        chains, length = self.order.shape
        noise = normals(key, (chains, count, length))
        found = each(chain_draws, (system.unary, ties, noise))
        return {self.plane: (self.order.reshape(-1), jnp.swapaxes(found, 0, 1).reshape(count, -1))}

    def solve(self, prepared: Ties | None, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        system, told = self._system(leaves)
        ties = self._couplings(leaves) if prepared is None else prepared
        tied = [tie for tie in self.ties if tie.piece.functional in requested]
        sides = not self.halved and bool(tied or self.wanted & requested)
        solve = functools.partial(_solve_alone if self.alone else _solve, sides)
        result, messages = each(solve, (system, system.pulled, ties))
        mean, variance, covariance = (x.reshape(-1) for x in (result.mean, result.variance, result.covariance))
        functionals: dict[int, Any] = {}
        for piece, index in self.unary:
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(mean) + offset(piece, leaves), a**2 * index.take(variance)
                functionals[piece.functional] = (piece.rows, m, v)
        if messages is None:
            for tie in tied:
                put(functionals, tie.piece, *self._by_moments(tie, leaves, mean, variance, covariance))
            return self._solution(result, mean, variance, result.covariance, functionals)
        cavities = self._cavities(told, messages, leaves, requested)
        for tie in tied:
            rest = self._left_out(tie, system, messages)
            lam, e = potential(tie.piece, leaves)
            v = 1 / (rest.precision + lam)  # no difference of large variances
            put(functionals, tie.piece, v * (rest.linear + e) + offset(tie.piece, leaves), v)
            cavity = placed(rest, offset(tie.piece, leaves))
            put(cavities, tie.piece, cavity.eta1, cavity.eta2)
        found = {f: (rows, Gaussian(*eta)) for f, (rows, *eta) in cavities.items()}
        return self._solution(result, mean, variance, result.covariance, functionals, found)

    def _cavities(
        self, told: list[Potential], messages: ChainMessages, leaves: list[Leaf], requested: frozenset[int]
    ) -> dict[int, Any]:
        """Rows and natural parameters of the cavities of functionals of one variable."""
        if self.frontier is None:
            return {}
        sides = Potential(*(jnp.sum(x, 1).reshape(-1) for x in messages))
        every = at_variables(self.frontier, [piece for piece, _ in self.unary], [*told, sides], leaves)
        return {f: (rows, q.eta1, q.eta2) for f, (rows, q) in every.items() if f in requested}

    def _left_out(self, tie: Tie, system: _System, messages: ChainMessages) -> Potential:
        """What the two ends of a tie say of it: each what it has of its own, and hears from its other side."""
        own = list(zip(messages, system[:2], strict=True))
        sides = [[(x[:, side] + y).reshape(-1) for x, y in own] for side in (0, 1)]
        earlier, later = (Potential(*map(e.take, x)) for e, x in zip(tie.ends, sides, strict=True))
        a, b = self._coefficients(tie)
        return between(later, earlier, a, b)

    def _by_moments(self, tie: Tie, leaves: list[Leaf], *moments: Array) -> tuple[Array, Array]:
        """Mean and variance of a difference, of those of its ends."""
        a, b = self._coefficients(tie)
        mean, variance, covariance = moments
        (m0, m1), (v0, v1) = ([e.take(x) for e in tie.ends] for x in (mean, variance))
        m = a * m1 + b * m0 + offset(tie.piece, leaves)
        return m, a**2 * v1 + b**2 * v0 + 2 * a * b * tie.index.take(covariance)
