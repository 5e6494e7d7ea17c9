r"""Gaussian parts whose variables are picked by indices that are inputs: plates of effects, crossed effects.

What is known before the run is which plates there are. The largest of them in which no functional ties two variables
is eliminated first, variable by variable (a *block* each: an intercept, or an intercept with its slope, of a group);
what is left, the *border*, is one dense matrix. With D the blocks of the precision, B between blocks and border, C
within the border,

$$ G = D^{-1} B, \quad S = C - B^T G, \quad \mathrm{Cov}_{border} = S^{-1}, \quad \mathrm{Cov}_{block, border} =
-G S^{-1}, \quad \mathrm{Cov}_{block} = D^{-1} + G S^{-1} G^T. $$

The entries of all three are sums over rows, added at addresses that are computed from the indices, once a run.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian, MvGaussian
from ngmp_kernels.numerics.cholesky import cholesky, inverse, log_det, unwhiten
from ngmp_kernels.numerics.special import LOG_2PI

from ...graph.planes import Plane
from ...value import Value
from ..base import members
from .base import Draws, GaussianExecutor, Leaf, Solution, offset, potential, put
from .blocks import Blocks, arrange
from .joint import matrices
from .part import GaussianPart
from .pieces import Piece

LIMIT = 2048  # dimensions of the border


class _End(NamedTuple):
    """A link of a piece: whether it is in a block, the number (n,) of the block, or (1,) where all rows have one, and
    the first dimension in the block or the border."""

    inside: bool
    block: Any
    first: Any
    d: int


class _Tied(Value):
    """A piece with its links in the blocks and the border."""

    def __init__(self, piece: Piece, blocks: Blocks):
        self.piece = piece
        self.ends = [_end(link, blocks) for link in piece.links]

    def addresses(self, blocks: Blocks) -> list[tuple[int, int, Any]]:
        """Of all pairs of links, the addresses (n|1, d, e) of their products; of blocks and border, not the reverse."""
        out = []
        for i, one in enumerate(self.ends):
            for j, other in enumerate(self.ends):
                if (j < i and one.inside == other.inside) or (other.inside and not one.inside):
                    continue
                out.append((i, j, blocks.address(one, other)))
        return out


def _end(link: Any, blocks: Blocks) -> _End:
    block, first = blocks.block[link.plane], blocks.first[link.plane]
    d = link.plane.event_shape[0] if link.plane.event_shape else 1
    if link.given is None:
        at = link.positions[:1] if (link.positions == link.positions[0]).all() else link.positions
        return _End(bool(block[at[0]] >= 0), block[at], first[at], d)
    table, at = link.given.table, link.given.at
    inside = bool(block[table[0]] >= 0)
    one = bool((first[table] == first[table[0]]).all())
    own = at if np.array_equal(block[table], np.arange(len(table))) else jnp.asarray(block[table])[at]
    return _End(inside, own, first[table[:1]] if one else jnp.asarray(first[table])[at], d)


class Arrow(GaussianExecutor):
    """See the module docstring."""

    name = "arrow"
    indexed = True

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        if not part.given:
            return "it is for indices that are inputs of the model"
        border = arrange(part).border
        return None if border <= LIMIT else f"{border} dimensions beside its largest plate exceed {LIMIT}"

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        blocks = arrange(part)
        return float(blocks.count * blocks.size * (blocks.size + blocks.border) ** 2 + blocks.border**3)

    @classmethod
    def alike(cls, part: GaussianPart) -> Any:
        return part.number

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> "list[Arrow]":
        (part,) = parts
        core, blocks = part.core, arrange(part)
        inside = np.zeros(core.nodes.size, bool)
        for plane, block in blocks.block.items():
            inside[core.nodes.offset[plane] + np.flatnonzero(block >= 0)] = True

        def split(t: np.ndarray) -> np.ndarray:
            return (inside[t] << np.arange(len(t))[:, None]).sum(0)

        own = members(parts)
        return [cls(core.nodes.split(own), core.pieces(own, split), blocks)]

    def __init__(self, members: dict[Plane, np.ndarray], pieces: list[Piece], blocks: Blocks):
        self.members, self.pieces, self.blocks = members, pieces, blocks
        self.tied = [_Tied(p, blocks) for p in pieces]
        what = f"{blocks.count} blocks of {blocks.size}" if blocks.count else "no plate to eliminate first"
        self.why = f"indices are inputs of the model: {what} and a border of {blocks.border}"
        rows = sum(p.n for p in pieces)
        self.work = f"O({rows} + {blocks.count} x {blocks.size} x {blocks.border}^2 + {blocks.border}^3)"

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Any:
        """The sums over what does not move, and the addresses of all that does."""
        still = [leaves[t.piece.functional] is not None for t in self.tied]
        places = [t.addresses(self.blocks) for t in self.tied]
        sums = jnp.zeros(self.blocks.total, dtype), jnp.zeros(self.blocks.dimensions, dtype)
        rows = zip(self.tied, places, still, strict=True)
        return self._add(sums, [(t, p) for t, p, s in rows if s], leaves), places, still

    def _add(self, sums: tuple[Array, Array], tied: list[tuple[_Tied, Any]], leaves: Any) -> tuple[Array, Array]:
        matrix, linear = sums
        for t, places in tied:
            pot = potential(t.piece, leaves)
            lam, h = (pot.precision[:, None, None], pot.linear[:, None]) if t.piece.width is None else pot[:2]
            c = matrices(t.piece, linear.dtype)
            weighted = [lam * x if t.piece.width is None else lam @ x for x in c]
            for i, j, at in places:
                products = jnp.einsum("nmd,nme->nde", c[i], weighted[j])
                # Blocks and border are added to their transposes in the end: of what a link has with itself, half.
                matrix = _scatter(matrix, at, 0.5 * products if i == j else products)
            for end, x in zip(t.ends, c, strict=True):
                linear = _scatter(linear, self.blocks.dimension(end), jnp.einsum("nmd,nm->nd", x, h))
        return matrix, linear

    def _summed(self, prepared: Any, leaves: list[Leaf]) -> tuple[Array, Array]:
        sums, places, still = prepared
        return self._add(sums, [(t, p) for t, p, s in zip(self.tied, places, still, strict=True) if not s], leaves)

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        """The border from its factor, $L^{-T} e$, then every block given it."""
        f = self._factors(self._summed(prepared, leaves)[0])
        p, k, r = self.blocks.count, self.blocks.size, self.blocks.border
        one, other = jax.random.split(key)
        border = unwhiten(f.chol, jax.random.normal(one, (r, count), f.chol.dtype)) if r else jnp.zeros((0, count))
        inner = jnp.zeros((0, count), f.chol.dtype)
        if p * k:  # none where all variables are tied to each other: they are the border
            inner = unwhiten(f.roots, jax.random.normal(other, (p, k, count), f.chol.dtype)).reshape(p * k, count)
        flat = jnp.concatenate([inner - f.response @ border, border]).T
        out = {}
        for plane, positions in self.members.items():
            dims, _ = self.blocks.own(plane, positions, plane.event_shape[0] if plane.event_shape else 1)
            out[plane] = positions, flat[:, dims] if plane.event_shape else flat[:, dims[:, 0]]
        return out

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        places = prepared[1]
        matrix, linear = self._summed(prepared, leaves)
        found = self._solved(self._factors(matrix), linear)
        functionals: dict[int, Any] = {}
        for t, at in zip(self.tied, places, strict=True):
            if t.piece.functional in requested:
                m, v = self._moments(t, at, found)
                m, v = (m[:, 0], v[:, 0, 0]) if t.piece.width is None else (m, v)
                put(functionals, t.piece, m + offset(t.piece, leaves), v)
        marginals, means = {}, {}
        for plane, positions in self.members.items():
            d = plane.event_shape[0] if plane.event_shape else 1
            dims, own = self.blocks.own(plane, positions, d)
            m, v = found.mean[dims], found.covariance[own]
            make = MvGaussian.from_mean_covariance if plane.event_shape else Gaussian.from_mean_variance
            m, v = (m, v) if plane.event_shape else (m[:, 0], v[:, 0, 0])
            marginals[plane], means[plane] = (positions, make(m, v)), (positions, m)
        return Solution(found.log_volume, found.proper, marginals, functionals, means=means)

    def _factors(self, matrix: Array) -> "_Factors":
        p, k, r = self.blocks.count, self.blocks.size, self.blocks.border
        inner, across, corner = jnp.split(matrix, self.blocks.bounds)
        inner, across, corner = inner.reshape(p, k, k), across.reshape(p * k, r), corner.reshape(r, r)
        inner = inner + jnp.swapaxes(inner, -1, -2)
        roots = cholesky(inner) if k > 1 else jnp.sqrt(inner)
        inverses = inverse(roots) if k > 1 else 1 / inner
        response = jnp.einsum("pkl,plr->pkr", inverses, across.reshape(p, k, r)).reshape(p * k, r)
        chol = corner + corner.T - across.T @ response
        return _Factors(roots, inverses, response, cholesky(chol) if r else chol)

    def _solved(self, factors: "_Factors", linear: Array) -> "_Solved":
        p, k, r = self.blocks.count, self.blocks.size, self.blocks.border
        roots, inverses, response, chol = factors
        first, last = linear[: p * k].reshape(p, k), linear[p * k :]
        covariance = inverse(chol) if r else chol
        border = covariance @ (last - response.T @ first.reshape(-1))
        mean = jnp.einsum("pkl,pl->pk", inverses, first).reshape(-1) - response @ border
        between = -response @ covariance
        blocks = inverses - jnp.einsum("pkr,plr->pkl", between.reshape(p, k, r), response.reshape(p, k, r))
        log_volume = 0.5 * (self.blocks.dimensions * LOG_2PI - jnp.sum(log_det(roots)) - log_det(chol))
        pivots = [jnp.diagonal(x, axis1=-2, axis2=-1) for x in (roots, chol)]
        proper = jnp.all(pivots[0] > 0) & jnp.all(pivots[1] > 0)
        every = jnp.concatenate([blocks.reshape(-1), between.reshape(-1), covariance.reshape(-1)])
        return _Solved(jnp.concatenate([mean, border]), every, log_volume, proper)

    def _moments(self, t: _Tied, places: list[tuple[int, int, Any]], found: "_Solved") -> tuple[Array, Array]:
        """Means (n, m) and covariances (n, m, m) of the functionals of a piece, without their offset."""
        c = matrices(t.piece, found.mean.dtype)
        centre: Any = 0.0
        spread: Any = 0.0
        for end, x in zip(t.ends, c, strict=True):
            centre += jnp.einsum("nmd,nd->nm", x, _rows(found.mean[self.blocks.dimension(end)], t.piece.n))
        for i, j, at in places:
            part = jnp.einsum("nmd,nde,nle->nml", c[i], _rows(found.covariance[at], t.piece.n), c[j])
            spread += part if i == j else part + jnp.swapaxes(part, -1, -2)
        return centre, spread


class _Factors(NamedTuple):
    """Cholesky factors and inverses of the blocks, the response $G$ (dimensions of blocks, border), and the factor of
    the border given nothing of them."""

    roots: Float[Array, "p k k"]
    inverses: Float[Array, "p k k"]
    response: Float[Array, "pk r"]
    chol: Float[Array, "r r"]


class _Solved(NamedTuple):
    """Means of all dimensions, and covariances at the addresses of the precision."""

    mean: Float[Array, " dimensions"]
    covariance: Float[Array, " total"]
    log_volume: Float[Array, ""]
    proper: Any


def _rows(x: Array, n: int) -> Array:
    return jnp.broadcast_to(x, (n, *x.shape[1:]))


def _scatter(x: Array, at: Any, values: Array) -> Array:
    """Add values (n, ...) at addresses (n|1, ...); what goes to one address is summed first."""
    if at.shape[0] == 1 and values.shape[0] > 1:
        values = jnp.sum(values, 0, keepdims=True)
    return x.at[at].add(jnp.broadcast_to(values, at.shape))
