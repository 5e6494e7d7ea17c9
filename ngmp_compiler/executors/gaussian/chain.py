"""Chains: variables in a line, neighbours tied by one functional each. Forward elimination, backward substitution."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian, MvGaussian
from ngmp_kernels.numerics.lanes import one_by_one

from ...graph.index import IndexMap, index_map
from ...graph.planes import Plane
from ...linalg import ChainMarginals, Ties, chain_draws, chain_ties, information, normals, solve_chain, vector_chain
from .base import Draws, GaussianExecutor, Leaf, Solution, fill, offset, potential, put, scale
from .part import GaussianPart, only
from .pieces import Piece
from .ties import Tie, each, matrix, row_moments
from .vectors import Term, add_vectors, wide_moments


class Chain(GaussianExecutor):
    """Chains of equal length of variables of one plane."""

    name = "chain"
    subtracts = True

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        wide = part.core.wide[part.nodes]
        # Vector ties must all have one width; mixed ones are rare and solved jointly.
        mixed = part.has_vectors and wide.any() and not wide.all()
        if part.lone or part.knotted or part.shape.path is None or len(part.planes) > 1 or mixed:
            return "the variables are no path of equal ones, tied once each"
        return None

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0

    @classmethod
    def alike(cls, part: GaussianPart) -> Hashable:
        return only(part.planes)[0], len(part.nodes)

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[Chain]":
        core, plane = parts[0].core, only(parts[0].planes)[0]
        order = np.stack([part.shape.path for part in parts if part.shape.path is not None])
        local = np.full(core.nodes.size, -1)
        local[order.reshape(-1)] = np.arange(order.size)

        def backward(t: np.ndarray) -> np.ndarray:
            return local[t[0]] < local[t[-1]] if len(t) > 1 else np.zeros(t.shape[1], bool)

        make = VectorChain if plane.event_shape else ScalarChain
        pieces = core.pieces(order.reshape(-1), backward)
        return [make(plane, core.planes[plane], order - core.nodes.offset[plane], pieces)]

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[Piece]):
        self.plane, self.order, self.pieces = plane, order, pieces
        local = np.full(size, -1)
        local[order.reshape(-1)] = np.arange(order.size)
        self.unary: list[tuple[Piece, IndexMap]] = []
        self.ties: list[Tie] = []
        for piece in pieces:
            if len(piece.links) == 1:
                self.unary.append((piece, index_map(local[piece.links[0].positions], order.size)))
            else:
                self.ties.append(Tie(piece, local, order.shape))
        chains, length = order.shape
        self.why = f"{chains} chain{'s' * (chains > 1)} of {length} variables, neighbours tied once"
        self.work = f"O({chains} x {length}" + (f" x {plane.event_shape[0]}^3)" if plane.event_shape else ")")

    def _solution(self, result, mean, spread, cross, functionals) -> Solution:
        log_volume = jnp.sum(result.log_volume)
        at = self.order.reshape(-1)
        return Solution(
            log_volume, jnp.all(result.proper), {self.plane: (at, self._family(mean, spread))}, functionals,
            ((self.plane, self.order, cross),), means={self.plane: (at, mean)},
        )  # fmt: skip

    def _family(self, mean: Array, spread: Array) -> Gaussian | MvGaussian:
        if not self.plane.event_shape:
            return Gaussian.from_mean_variance(mean, spread)
        found = information(mean, spread)
        return MvGaussian.from_mean_covariance(mean, spread) if found is None else MvGaussian.from_information(*found)


_LONG = 256  # variables in a chain of scalars from which on it is faster alone
_FEW = 64  # chains that are solved one after the other: a scan over the vectors of more shares its calls among them


def halvings(length: int) -> int:
    """How often to halve a chain of scalars: a step of a scan is a few nanoseconds on a CPU, a launch elsewhere."""
    return 0 if jax.default_backend() == "cpu" else max(0, length.bit_length() - 7)


def _solve(unary: Array, linear: Array, ties: Ties) -> ChainMarginals:
    return solve_chain(unary, linear, ties, halvings(unary.shape[0]))


@jax.custom_jvp
def _solve_alone(unary: Array, linear: Array, ties: Ties) -> ChainMarginals:
    return one_by_one(_solve, _FEW)(unary, linear, ties)


@_solve_alone.defjvp
def _(primals: Any, tangents: Any) -> tuple[ChainMarginals, ChainMarginals]:
    return jax.jvp(_solve, primals, tangents)


class ScalarChain(Chain):
    """Chains of scalars tied by `r_k = a x_{k+1} - b x_k + c`."""

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[Piece]):
        super().__init__(plane, size, order, pieces)
        self.alone = order.shape[1] >= _LONG

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
        unary, linear = self._potentials(leaves)
        total, shift = (jnp.sum(x.reshape(self.order.shape), 1) for x in (unary, linear))
        found = jnp.where(total > 0, shift / jnp.where(total > 0, total, 1), 0)
        return self.plane, self.order.reshape(-1), jnp.repeat(found, self.order.shape[1])

    def _potentials(self, leaves: list[Leaf]) -> tuple[Array, Array]:
        """Own precisions and linear coefficients of the variables, chain after chain."""
        zero: Any = 0.0
        unary, linear = zero, zero
        own = [(*one, potential(one[0], leaves), scale(one[0].links[0].coefficient)) for one in self.unary]
        ties = [(tie, potential(tie.piece, leaves).linear) for tie in self.ties]
        ties = [(tie, h, *self._coefficients(tie, h.dtype)) for tie, h in ties]
        for piece, index, (lam, h), a in own:
            unary += index.add(jnp.broadcast_to(lam * a**2, (piece.n,)))
            linear += index.add(jnp.broadcast_to(h * a, (piece.n,)))
        for tie, h, a, b in ties:
            linear += tie.ends[0].add(h * b) + tie.ends[1].add(h * a)
        return jnp.broadcast_to(unary, linear.shape), linear

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        chains, length = self.order.shape
        unary, _ = self._potentials(leaves)
        ties = self._couplings(leaves) if prepared is None else prepared
        noise = normals(key, (chains, count, length))
        found = each(chain_draws, (unary.reshape(chains, length), ties, noise))
        return {self.plane: (self.order.reshape(-1), jnp.swapaxes(found, 0, 1).reshape(count, -1))}

    def solve(self, prepared: Ties | None, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        chains, length = self.order.shape
        unary, linear = self._potentials(leaves)
        ties = self._couplings(leaves) if prepared is None else prepared
        solve = _solve_alone if self.alone else _solve
        result = each(solve, (unary.reshape(chains, length), linear.reshape(chains, length), ties))
        mean, variance, covariance = (x.reshape(-1) for x in (result.mean, result.variance, result.covariance))
        functionals = {}
        for piece, index in self.unary:
            if piece.functional in requested:
                a = scale(piece.links[0].coefficient)
                m, v = a * index.take(mean) + offset(piece, leaves), a**2 * index.take(variance)
                functionals[piece.functional] = (piece.rows, m, v)
        for tie in self.ties:
            if tie.piece.functional in requested:
                a, b = self._coefficients(tie)
                (m0, m1), (v0, v1) = ([e.take(x) for e in tie.ends] for x in (mean, variance))
                m = a * m1 + b * m0 + offset(tie.piece, leaves)
                v = a**2 * v1 + b**2 * v0 + 2 * a * b * tie.index.take(covariance)
                put(functionals, tie.piece, m, v)
        return self._solution(result, mean, variance, result.covariance, functionals)


class _Potentials(NamedTuple):
    """Of all variables: precisions and linear coefficients."""

    unary: Float[Array, "n d d"]
    linear: Float[Array, "n d"]


class VectorChain(Chain):
    """Chains of vectors tied by `r_k = A x_{k+1} - B x_k + c`."""

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
