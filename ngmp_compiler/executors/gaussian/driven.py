"""Chains of vectors that are driven by noise of any rank: the noise is eliminated, not the states (`driven_chain`).

Every tie says that the later variable is a function of the earlier one and noise, `x_{k+1} = A x_k + b + L w`; the
first variable may have a singular covariance as well. All else that is said of single variables may be anything.
"""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ngmp_kernels.families import Gaussian, MvGaussian
from ngmp_kernels.numerics.cholesky import cholesky, inverse_factor
from ngmp_kernels.numerics.special import LOG_2PI

from ...errors import Problem
from ...graph.planes import Plane
from ...linalg import Driven, driven_chain, driven_draws, normals, regular
from .base import Draws, Leaf, Solution, fill, offset, potential
from .chain import Chain
from .part import GaussianPart, only
from .pieces import Piece
from .ties import Tie, each
from .vector_chain import VectorChain


class DrivenChain(VectorChain):
    """Chains of vectors `x_{k+1} = A x_k + b + L w`."""

    name = "driven"
    degenerate = True

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        why = Chain.misfit(part)
        if why is not None:
            return why
        return None if outward(part) is not None else "its factors are not all `x' = A x + noise`, along the chain"

    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return 0.0 if part.degenerate else float("inf")

    @classmethod
    def alike(cls, part: GaussianPart) -> Hashable:
        path = outward(part)
        return only(part.planes)[0], len(part.nodes), bool(path is not None and _started(part, path[0]))

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> list[Chain]:
        core, plane = parts[0].core, only(parts[0].planes)[0]
        order = np.stack([path for path in map(outward, parts) if path is not None])
        pieces = core.pieces(order.reshape(-1))
        factors: Any = {p.functional: core.groups[core.functionals[p.functional][0]].factor for p in pieces}
        roots = {f: factor.root for f, factor in factors.items() if factor.degenerate}
        return [cls(plane, core.planes[plane], order - core.nodes.offset[plane], pieces, roots)]

    def __init__(self, plane: Plane, size: int, order: np.ndarray, pieces: list[Piece], roots: dict[int, Any]):
        super().__init__(plane, size, order, pieces)
        self.first = [own for own in self.unary if own[0].functional in roots]
        self.unary = [own for own in self.unary if own[0].functional not in roots]
        self.roots = roots
        self.why += ", driven by noise of a singular covariance" if roots else ""

    @staticmethod
    def chain(unary: Array, linear: Array, start: Any, A: Array, shift: Array, root: Array, log_volume: Array) -> Any:
        found = driven_chain(unary, linear, Driven(start, A, shift, root))
        return found._replace(log_volume=found.log_volume + log_volume)

    def _pulled(self, linear: Array, leaves: list[Any], among: set[int], shared: bool) -> Array:
        return linear  # ties are what drives the chain

    def _couplings(self, leaves: list[Any]) -> list[Any]:
        """The first variable, A, b and L (see `Driven`), by chain; and the volume of the noise."""
        chains, length = self.order.shape
        d = self.plane.event_shape[0]
        ties = [self._tie(tie, leaves) for tie in self.ties]
        width = max(root.shape[-1] for _, _, root in ties)
        ties = [(A, b, jnp.pad(root, ((0, 0), (0, 0), (0, width - root.shape[-1])))) for A, b, root in ties]
        dtype = ties[0][1].dtype
        shift: Any = sum(tie.index.add(fill(b, tie.piece.n)) for tie, (_, b, _) in zip(self.ties, ties, strict=True))
        out = []
        for j in (0, 2):
            x = ties[0][j]
            if len(ties) == 1 and (x.shape[0] == 1 or self.ties[0].piece.n == 1):
                out.append(jnp.broadcast_to(x[:1], (chains, 1, *x.shape[1:])))
            else:
                both = zip(self.ties, ties, strict=True)
                stacked: Any = sum(tie.index.add(fill(t[j], tie.piece.n)) for tie, t in both)
                out.append(stacked.reshape(chains, length - 1, *x.shape[1:]))
        start, log_volume = self._start(leaves, dtype), jnp.zeros((chains, length), dtype)
        for piece, index in [(t.piece, t.ends[1]) for t in self.ties] + self.first:
            volume = jnp.broadcast_to(self._volume(piece, leaves), (piece.n,))
            log_volume = log_volume + index.add(volume).reshape(chains, length)
        return [start, out[0], shift.reshape(chains, length - 1, d), out[1], jnp.sum(log_volume, -1)]

    def _tie(self, tie: Tie, leaves: list[Any]) -> tuple[Array, Array, Array]:
        """`A`, `b` and L of a tie, (n|1, ...)."""
        root = self._root(tie.piece, leaves)
        return -self._matrices(tie, root.dtype)[0], self._mean(tie.piece, root, leaves), root

    def _root(self, piece: Piece, leaves: list[Any]) -> Float[Array, "#n d k"]:
        """L of the noise of a piece; of a regular one, that of its precision `C C^T` is `C^{-T}`."""
        leaf: Any = leaves[piece.functional]
        if piece.functional not in self.roots:
            return jnp.swapaxes(inverse_factor(cholesky(potential(piece, leaves, shared=True).precision)), -1, -2)
        root = jnp.asarray(self.roots[piece.functional], leaf.dtype)
        return root if piece.rows is None or root.shape[0] == 1 else root[piece.rows]

    def _mean(self, piece: Piece, root: Array, leaves: list[Any]) -> Float[Array, "#n d"]:
        """Of `r + c` with a leaf `xi r - r^T Q^+ r / 2`: `Q xi - c`."""
        eta1 = leaves[piece.functional].eta1
        eta1 = eta1 if piece.rows is None or eta1.shape[0] == 1 else eta1[piece.rows]
        pulled = jnp.einsum("ndk,nk->nd", root, jnp.einsum("ndk,nd->nk", root, eta1))
        return pulled - offset(piece, leaves)

    def _volume(self, piece: Piece, leaves: list[Any]) -> Float[Array, " #n"]:
        """`log |2 pi L^T L| / 2`."""
        root = self._root(piece, leaves)
        gram = cholesky(jnp.swapaxes(root, -1, -2) @ root)
        return jnp.sum(0.5 * LOG_2PI + jnp.log(jnp.diagonal(gram, axis1=-2, axis2=-1)), -1)

    def _start(self, leaves: list[Any], dtype: Any) -> tuple[Array, Array] | None:
        """Mean and root of the first variable of every chain, where it is given by a singular covariance."""
        if not self.first:
            return None
        roots = [self._root(piece, leaves) for piece, _ in self.first]
        (chains, length), d = self.order.shape, self.plane.event_shape[0]
        mean = jnp.zeros((chains, d), dtype)
        wide = jnp.zeros((chains, d, max(root.shape[-1] for root in roots)), dtype)
        for (piece, index), root in zip(self.first, roots, strict=True):
            at = index.positions // length
            mean = mean.at[at].set(fill(self._mean(piece, root, leaves), piece.n))
            wide = wide.at[at, :, : root.shape[-1]].set(fill(root, piece.n))
        return mean, wide

    def _family(self, mean: Array, spread: Array) -> Gaussian | MvGaussian:
        return super()._family(mean, regular(spread))

    def draw(self, prepared: Any, leaves: list[Leaf], solved: Solution, key: PRNGKeyArray, count: int) -> Draws:
        (chains, length), d = self.order.shape, self.plane.event_shape[0]
        known, still, _ = prepared
        unary = self._add(known, leaves, set(range(len(leaves))) - still).unary
        start, A, shift, root, _ = self._couplings(leaves)
        first, rest = jax.random.split(key)
        noise = normals(rest, (chains, length - 1, count, root.shape[-1])).astype(unary.dtype)
        begin = normals(first, (chains, count, d if start is None else start[1].shape[-1])).astype(unary.dtype)

        def chain(unary: Array, start: Any, A: Array, shift: Array, root: Array, begin: Array, noise: Array) -> Array:
            return driven_draws(unary, Driven(start, A, shift, root), begin, noise)

        found = each(chain, (unary.reshape(chains, length, d, d), start, A, shift, root, begin, noise))
        return {self.plane: (self.order.reshape(-1), jnp.swapaxes(found, 0, 1).reshape(count, -1, d))}


def outward(part: GaussianPart) -> np.ndarray | None:
    """The variables of a path in the order in which noise drives them; None if there is no such order."""
    core, path = part.core, part.shape.path
    if path is None:
        return None
    at = np.full(core.nodes.size, -1)
    at[path] = np.arange(len(path))
    ways: set[int] = set()
    ends = set()
    for (g, _, f), t in zip(core.functionals, core.touched, strict=True):
        own = at[t[0]] >= 0
        if not own.any() or (len(t) == 1 and not core.groups[g].factor.degenerate):
            continue
        outs = [i for i, link in enumerate(f.links) if link.op == "scale" and link.coefficient is None]
        if f.width is None or len(outs) != 1 or core.groups[g].mask is not None:
            return None
        if len(t) == 1:
            ends |= set(at[t[0][own]].tolist())
        else:
            ways |= set((at[t[outs[0]]] - at[t[1 - outs[0]]])[own].tolist())
    if len(ways) != 1:
        return None
    first = 0 if ways == {1} else len(path) - 1
    return None if ends - {first} else path if first == 0 else path[::-1]


def _started(part: GaussianPart, first: int) -> bool:
    """Whether the first variable has a singular covariance."""
    core = part.core
    return any(core.groups[g].factor.degenerate and len(t) == 1 and (t[0] == first).any()
               for (g, _, _), t in zip(core.functionals, core.touched, strict=True))  # fmt: skip


def refused(part: GaussianPart) -> Problem:
    """Why no executor solves a part with noise of a singular covariance."""
    core = part.core
    own = [g for (g, _, _), t in zip(core.functionals, core.touched, strict=True) if np.isin(t, part.nodes).any()]
    groups = [core.groups[g] for g in own if core.groups[g].factor.degenerate]
    names = ", ".join(dict.fromkeys(group.given.name for group in groups))
    if any(group.observed for group in groups):
        what = "an observed vector whose covariance is singular: in some directions it would be known exactly"
        return Problem(names, None, what, "observe the entries that have noise of their own")
    works = (
        "such vectors stand in a chain, z ~ MvNormal(A @ before, covariance=Q) in a scan, seen through what touches "
        "one of them at a time (a constant may be part of the state); elsewhere declare w ~ MvNormal(zeros(k), "
        "covariance=1) and use L @ w, where Q = L @ L.T"
    )
    return Problem(names, None, f"its covariance is singular, and {DrivenChain.misfit(part)}", works)
