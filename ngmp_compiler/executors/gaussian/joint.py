"""Gaussian parts of any shape, loops included: one joint precision matrix, in blocks along a band, exact.

The variables of a part are flattened to a line of M dimensions, cut in K blocks of s, so that a functional ties
variables of one block or of two neighbours; variables tied to nearly all others stand at a border of k dimensions. One
block without a border is a dense matrix. Several parts run side by side in lanes of one shape, padded with dimensions
of precision one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian, MvGaussian
from ngmp_kernels.numerics.cholesky import WRITTEN_OUT, whiten_rows
from ngmp_kernels.numerics.special import LOG_2PI

from ...graph.planes import Plane
from ...linalg import banded_draws, banded_gaussian
from ...value import Value
from .base import Draws, GaussianExecutor, Leaf, Solution, fill, offset, potential
from .pieces import Piece
from .rows import Rows, flat, through

_SMALL = 64  # dimensions up to which a dense part keeps rows of its inverse factor for every functional


class Layout(NamedTuple):
    """Where the dimensions go: `start[plane]` is the number of the first one of every variable, by position.

    Dimension i of the line of a lane has the number `lane * blocks * size + i`; all those of lines come before those of
    borders, `lane * border + i`.
    """

    lanes: int
    blocks: int
    size: int
    border: int
    start: dict[Plane, np.ndarray]

    @property
    def line(self) -> int:
        """The number of dimensions of all lines, padding included."""
        return self.lanes * self.blocks * self.size

    @property
    def slots(self) -> tuple[int, int, int, int]:
        """Where blocks on the diagonal, those beside it, those at the border, and the corners end in one flat array."""
        square = self.line * self.size
        across = self.line * self.border
        return square, 2 * square, 2 * square + across, 2 * square + across + self.lanes * self.border**2

    def slot(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The place of an entry of the joint precision in the flat array; -1 where only its transpose has one."""
        s, k, line = self.size, max(self.border, 1), self.line
        block = row // s
        inside = np.where(column // s == block, 0, self.slots[0]) + (block * s + row % s) * s + column % s
        inside = np.where((column // s == block) | (column // s == block + 1), inside, -1)
        across = self.slots[1] + row * k + (column - line) % k
        corner = self.slots[2] + (row - line) * k + (column - line) % k
        at_border = np.where(row < line, across, corner)
        return np.where(column < line, np.where(row < line, inside, -1), at_border)

    def known(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The place of a covariance given the border; at the border itself it is zero, in the slot after the last."""
        last = self.slots[1]
        one, other = (
            np.where((x >= 0) & (x < last), x, last) for x in (self.slot(row, column), self.slot(column, row))
        )
        return np.where(one < last, one, other)


class _End(NamedTuple):
    """A link of a piece in the layout: the first dimensions (n,) and the number of dimensions of its variables."""

    start: np.ndarray
    d: int


class _Link(Value):
    """A link of a piece: which of the distinct variables each row sees, and the dimensions of those."""

    def __init__(self, end: _End, width: int):
        first, where = _distinct(end.start[:, None])
        self.dims = first + np.arange(end.d)  # (count, d)
        self.rows = Rows(np.repeat(where, width), len(first))


class _Pair(Value):
    """Two links of a piece: the distinct pairs of variables, and where their blocks of a joint matrix are."""

    def __init__(self, layout: Layout, one: _End, other: _End | None, width: int):
        first, where = _distinct(np.stack([one.start, (other or one).start], 1))
        self.rows = Rows(np.repeat(where, width), len(first))
        row, column = (x[:, None] + np.arange(e.d) for x, e in zip(first.T, (one, other or one), strict=True))
        at = row[:, :, None], column[:, None]
        slots = [layout.slot(*at)] + ([] if other is None else [layout.slot(*at[::-1])])
        self.sums = [(np.flatnonzero(x >= 0), x[x >= 0]) for x in slots]
        self.covariance = layout.known(*at)


def _distinct(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of (n, c) and which one each is; in the order given where all differ."""
    first, where = np.unique(codes, axis=0, return_inverse=True)
    return (codes, np.arange(len(codes))) if len(first) == len(codes) else (first, where.reshape(-1))


class _Tied(Value):
    """A piece with its links and pairs of links in the layout."""

    def __init__(self, piece: Piece, layout: Layout):
        self.piece, width = piece, piece.width or 1
        ends = [_End(layout.start[k.plane][k.positions], _size(k.plane)) for k in piece.links]
        self.links = [_Link(end, width) for end in ends]
        pairs = [(i, j) for i in range(len(ends)) for j in range(i, len(ends))]
        self.pairs = {(i, j): _Pair(layout, ends[i], None if i == j else ends[j], width) for i, j in pairs}


def matrices(piece: Piece, dtype: Any) -> list[Float[Array, "n m d"]]:
    """The coefficients of the links of a piece."""
    out, m, n = [], piece.width or 1, piece.n
    for link in piece.links:
        d, c = _size(link.plane), link.coefficient
        block = jnp.eye(m, d, dtype=dtype)[None] if link.op == "scale" else jnp.asarray(c).reshape(-1, m, d)
        if link.op == "scale" and c is not None:
            block = block * jnp.asarray(c)[:, None, None]
        out.append(fill(block.astype(dtype), n))
    return out


def _size(plane: Plane) -> int:
    return plane.event_shape[0] if plane.event_shape else 1


class JointGaussian(GaussianExecutor):
    """See the module docstring."""

    def __init__(self, members: dict[Plane, np.ndarray], pieces: list[Piece], layout: Layout, why: str):
        self.members, self.pieces, self.layout = members, pieces, layout
        self.tied = [_Tied(p, layout) for p in pieces]
        self.total = sum(len(x) * _size(p) for p, x in members.items())
        used = np.zeros(layout.line + layout.lanes * layout.border, bool)
        for plane, positions in members.items():
            used[(layout.start[plane][positions][:, None] + np.arange(_size(plane))).reshape(-1)] = True
        self.unused = np.flatnonzero(~used)
        self.why, self.alone = why, max(layout.size, layout.border) > WRITTEN_OUT
        border = f" + {layout.blocks} x {layout.size}^2 x {layout.border}" * bool(layout.border)
        one = f"{layout.size}^3" if layout.blocks == 1 else f"{layout.blocks} x {layout.size}^3"
        self.work = f"O({one}{border})" if layout.lanes == 1 else f"O({layout.lanes} x ({one}{border}))"

    def prepare(self, leaves: list[Leaf | None], dtype: Any) -> Any:
        """The sums over what does not move, and the pieces that do."""
        matrix = jnp.zeros(self.layout.slots[3], dtype).at[self.layout.slot(self.unused, self.unused)].set(1.0)
        linear = jnp.zeros(self.layout.line + self.layout.lanes * self.layout.border, dtype)
        still = [t for t in self.tied if leaves[t.piece.functional] is not None]
        moving = [t for t in self.tied if leaves[t.piece.functional] is None]
        return self._add((matrix, linear), still, leaves), moving

    def _add(self, sums: tuple[Array, Array], tied: list[_Tied], leaves: Any) -> tuple[Array, Array]:
        matrix, linear = sums
        entries: list[tuple[np.ndarray, Array]] = []  # of the matrix and of the linear coefficients: where, how much
        shifts: list[tuple[np.ndarray, Array]] = []
        for t in tied:
            pot = potential(t.piece, leaves)
            lam, h = (pot.precision[:, None, None], pot.linear[:, None]) if t.piece.width is None else pot[:2]
            c = matrices(t.piece, linear.dtype)
            weighted = [lam * x if t.piece.width is None else lam @ x for x in c]
            for (i, j), pair in t.pairs.items():
                left, right = (pair.rows.take(flat(x)) for x in (c[i], weighted[j]))
                blocks = [jnp.einsum("bnd,bne->bde", x, y) for x, y in zip(left, right, strict=True)]
                values = pair.rows.scatter(blocks).reshape(-1)
                entries += [(at, values if len(keep) == values.size else values[keep]) for keep, at in pair.sums]
            for link, x in zip(t.links, c, strict=True):
                parts = zip(link.rows.take(flat(x)), link.rows.take(h.reshape(-1)), strict=True)
                values = link.rows.scatter([jnp.einsum("bnd,bn->bd", x, y) for x, y in parts])
                shifts.append((link.dims.reshape(-1), values.reshape(-1)))
        return _scatter(matrix, entries), _scatter(linear, shifts)

    def _system(self, prepared: Any, leaves: list[Leaf]) -> tuple[tuple[Array, ...], Array]:
        """The blocks of the joint precision, lane by lane, and the linear coefficients."""
        sums, moving = prepared
        matrix, linear = self._add(sums, moving, leaves)
        lanes, blocks, s, k, _ = self.layout
        bounds = self.layout.slots
        diagonal, beside = (matrix[x:y].reshape(lanes, blocks, s, s) for x, y in ((0, bounds[0]), bounds[:2]))
        across, corner = matrix[bounds[1] : bounds[2]], matrix[bounds[2] :]
        return (diagonal, beside[:, :-1], across.reshape(lanes, blocks, s, k), corner.reshape(lanes, k, k)), linear

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        system, linear = self._system(prepared, leaves)
        lanes, blocks, s, k, _ = self.layout
        one, other = jax.random.split(key)
        noise = jax.random.normal(one, (lanes, blocks, s, count), linear.dtype)
        found = _each_lane(banded_draws, (*system, noise, jax.random.normal(other, (lanes, k, count), linear.dtype)))
        flat = jnp.concatenate([x.reshape(-1, count) for x in found]).T
        out = {}
        for plane, positions in self.members.items():
            dims = self.layout.start[plane][positions][:, None] + np.arange(_size(plane))
            out[plane] = positions, flat[:, dims] if plane.event_shape else flat[:, dims[:, 0]]
        return out

    def columns(self, prepared: Any, leaves: list[Leaf], plane: Plane, positions: np.ndarray) -> Draws:
        """Covariances of all variables with those at some positions of a plane, (n, *event, entries of these)."""
        system, linear = self._system(prepared, leaves)
        lanes, blocks, s, k, _ = self.layout
        dims = (self.layout.start[plane][positions][:, None] + np.arange(_size(plane))).reshape(-1)

        def column(i: Array) -> Array:
            unit = jnp.zeros_like(linear).at[i].set(1.0)
            line, tail = jnp.split(unit, [self.layout.line])
            found = _each_lane(banded_gaussian, (*system, line.reshape(lanes, blocks, s), tail.reshape(lanes, k)))
            return jnp.concatenate([found.mean.reshape(-1), found.border.reshape(-1)])

        whole = jax.vmap(column, out_axes=1)(jnp.asarray(dims))
        out = {}
        for p, at in self.members.items():
            own = self.layout.start[p][at][:, None] + np.arange(_size(p))
            out[p] = at, whole[own if p.event_shape else own[:, 0]]
        return out

    def solve(self, prepared: Any, leaves: list[Leaf], requested: frozenset[int]) -> Solution:
        system, linear = self._system(prepared, leaves)
        lanes, blocks, s, k, _ = self.layout
        line = self.layout.line
        args = (*system, linear[:line].reshape(lanes, blocks, s), linear[line:].reshape(lanes, k))
        found = _each_lane(banded_gaussian, args)
        after = jnp.pad(found.after, ((0, 0), (0, 1), (0, 0), (0, 0)))
        known = jnp.concatenate([found.covariance.reshape(-1), after.reshape(-1), jnp.zeros(1, linear.dtype)])
        # Rows R L^-T of all dimensions, those of the border included: what they add to covariances is a product of two.
        eye = jnp.broadcast_to(jnp.eye(k, dtype=linear.dtype), (lanes, k, k))
        response = jnp.concatenate([-found.response.reshape(line, k), eye.reshape(lanes * k, k)])
        if k:
            split = jnp.split(response, [line])
            split = [x.reshape(lanes, -1, k) for x in split]
            white = [whiten_rows(found.chol, x) for x in split]
            response = jnp.concatenate([x.reshape(-1, k) for x in white])
        if self.layout.blocks == 1 and not k and s <= _SMALL:
            # Of L^-T: a functional of it keeps the digits that a difference of large covariances would lose.
            known, response = None, jnp.swapaxes(found.white[:, 0], -1, -2).reshape(line, s)
        mean = jnp.concatenate([found.mean.reshape(-1), found.border.reshape(-1)])
        functionals = {}
        for t in self.tied:
            if t.piece.functional in requested:
                m, v = _moments(t, mean, known, response)
                m, v = (m[:, 0], v[:, 0, 0]) if t.piece.width is None else (m, v)
                functionals[t.piece.functional] = (t.piece.rows, m + offset(t.piece, leaves), v)
        log_volume = jnp.sum(found.log_volume) - 0.5 * len(self.unused) * LOG_2PI
        marginals, means = self._marginals(mean, known, response)
        jitter = jnp.max(found.jitter)
        return Solution(log_volume, jnp.all(found.proper), marginals, functionals, jitter=jitter, means=means)

    def _marginals(
        self, mean: Array, known: Array | None, response: Array
    ) -> tuple[dict[Plane, Any], dict[Plane, Any]]:
        """The marginals of all variables and, once more, their means."""
        out, means = {}, {}
        for plane, positions in self.members.items():
            dims = self.layout.start[plane][positions][:, None] + np.arange(_size(plane))
            own = response[dims]
            covariance = jnp.einsum("nik,njk->nij", own, own)
            if known is not None:
                covariance += known[self.layout.known(dims[:, :, None], dims[:, None])]
            make = MvGaussian.from_mean_covariance if plane.event_shape else Gaussian.from_mean_variance
            m, v = (mean[dims], covariance) if plane.event_shape else (mean[dims][:, 0], covariance[:, 0, 0])
            out[plane], means[plane] = (positions, make(m, v)), (positions, m)
        return out, means


def _scatter(x: Array, parts: list[tuple[np.ndarray, Array]]) -> Array:
    """Add all parts by one operation."""
    if not parts:
        return x
    return x.at[np.concatenate([at for at, _ in parts])].add(jnp.concatenate([values for _, values in parts]))


def _moments(t: _Tied, mean: Array, known: Array | None, response: Array) -> tuple[Array, Array]:
    """Means (n, m) and covariances (n, m, m) of the functionals of a piece, without their offset."""
    c = matrices(t.piece, mean.dtype)
    zero: Any = 0.0
    centre, spread, border = zero, zero, zero
    for link, x in zip(t.links, c, strict=True):
        centre += through(link.rows, x, mean[link.dims][..., None])[..., 0]
        if response.shape[-1]:
            border += through(link.rows, x, response[link.dims])
    for (i, j), pair in t.pairs.items() if known is not None else ():
        part = jnp.einsum("nmd,nkd->nmk", through(pair.rows, c[i], known[pair.covariance]), c[j])  # type: ignore[index]
        spread += part if i == j else part + jnp.swapaxes(part, -1, -2)
    if response.shape[-1]:
        spread += jnp.einsum("nmk,nlk->nml", border, border)
    return centre, spread


def _each_lane(function, arguments):
    if arguments[0].shape[0] == 1:
        return jax.tree.map(lambda x: x[None], function(*(x[0] for x in arguments)))
    return jax.vmap(function)(*arguments)
