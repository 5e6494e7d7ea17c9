"""Functionals put together: coefficients of a variable that stands twice are added up, functionals are stacked.

`merge(terms)`, `stacked(functionals)`, `shortest(factor, edges)`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ngmp_kernels import AbstractProjected

from ..declare.affine import TAIL
from ..graph.edges import Functional, Link
from ..graph.index import index_map
from ..graph.planes import Plane

_Part = tuple[Plane, Any, str, Any]  # plane, positions (n,) or a map that is given, op, coefficient


def merge(terms: list[_Part], n: int, dtype: Any) -> list[_Part]:
    """Add up the coefficients of a variable that a functional names twice, as in `x + x` or `w[0] + w[1]`.

    Where only some of the n functionals do, the second term keeps its place there with a coefficient of zero.
    """
    if not _repeated(terms):
        return terms
    out: list[_Part] = []
    for plane, at, op, c in terms:
        for i, (other, where, first_op, first) in enumerate(out):
            # What is given is never taken for the same: its executor adds up what comes together.
            known = other == plane and isinstance(at, np.ndarray) and isinstance(where, np.ndarray)
            same = at == where if known else np.zeros(n, bool)
            if not same.any():
                continue
            if op != first_op:  # a scaled vector and a matrix times it
                first, c = (_explicit(*x, plane, dtype, "matmul") for x in ((first_op, first), (op, c)))
                op = first_op = "matmul"
            first, c = (_explicit(op, x, plane, dtype, op) for x in (first, c))
            flags = same.reshape(-1, *(1,) * TAIL[op])
            out[i] = (other, where, first_op, jnp.where(flags, first + c, first) if not same.all() else first + c)
            c = jnp.where(flags, 0, c)
            if same.all():
                break
        else:
            out.append((plane, at, op, c))
    return out


def _repeated(terms: list[_Part]) -> bool:
    """Whether any functional names a variable twice. Sums of thousands are asked once, not pair by pair."""
    places: dict[Plane, list[np.ndarray]] = {}
    for plane, at, _, _ in terms:
        if isinstance(at, np.ndarray):  # what is given is never taken for the same
            places.setdefault(plane, []).append(at)
    return any((np.diff(np.sort(np.stack(at), 0), axis=0) == 0).any() for at in places.values())


def _explicit(op: str, c: Any, plane: Plane, dtype: Any, wanted: str) -> Any:
    """A coefficient as an array for the operation `wanted`."""
    c = np.ones(1, dtype) if c is None else c
    return c[:, None, None] * np.eye(plane.event_shape[0], dtype=dtype) if op == "scale" != wanted else c


def stacked(functionals: list[Any], n: int, dtype: Any) -> Functional:
    """Functionals, scalars or vectors, one below the other, as one of vectors: links that meet a variable twice are
    merged."""
    widths = [f.width or 1 for f in functionals]
    k, starts = sum(widths), np.cumsum([0, *widths])
    known = all(isinstance(f.offset, np.ndarray) for f in functionals)
    xp, terms, sizes = np if known else jnp, [], {}
    parts = [f.offset if f.width else f.offset[:, None] for f in functionals]
    rows = max(len(x) for x in parts)
    offset = xp.concatenate([xp.broadcast_to(x, (rows, x.shape[1])) for x in parts], -1)
    for start, f in zip(starts, functionals, strict=False):
        for link in f.links:
            sizes[link.plane] = link.index.size
            terms.append((link.plane, link.index.where, "matmul", _placed(link, f.width, int(start), k, dtype)))
    links = (Link(plane, index_map(at, sizes[plane]), op, c) for plane, at, op, c in merge(terms, n, dtype))
    return Functional(links=tuple(links), offset=offset, n=n, width=k)


def _placed(link: Link, width: int | None, start: int, k: int, dtype: Any) -> Any:
    """The coefficient of a functional as rows of a matrix, (n|1, k, D), from row `start` on."""
    if width is None:
        c = np.ones(1, dtype) if link.coefficient is None else link.coefficient
        c = (c[:, None] if link.op == "scale" else c)[:, None, :]  # (n|1, 1, D)
    else:
        c = _explicit(link.op, link.coefficient, link.plane, dtype, "matmul")
    place = np.zeros((k, width or 1), dtype)
    place[start : start + (width or 1)] = np.eye(width or 1)
    return place @ c if width else c * place


def shortest(factor: Any, edges: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A vector interface of more entries than its variables have has no density: the factor is given these instead."""
    if len(edges) != 1 or not isinstance(edges[0], Functional) or edges[0].width is None:
        return factor, edges
    (edge,) = edges
    sizes = [link.plane.event_shape[0] if link.plane.event_shape else 1 for link in edge.links]
    if sum(sizes) >= edge.width or not isinstance(factor, AbstractProjected):
        return factor, edges
    dtype = edge.offset.dtype
    ops = [_explicit(link.op, link.coefficient, link.plane, dtype, "matmul") for link in edge.links]
    n = max(c.shape[0] for c in ops)
    xp = np if all(isinstance(c, np.ndarray) for c in ops) else jnp  # what is known as such is looked at by the factor
    rows: Any = xp.concatenate([xp.broadcast_to(c, (n, *c.shape[1:])) for c in ops], -1)
    found = factor.through(rows, jnp.asarray(edge.offset))
    if found is None:
        return factor, edges
    eye, ends = np.eye(sum(sizes), dtype=dtype)[None], np.cumsum([0, *sizes])
    links = tuple(link._replace(op="matmul", coefficient=eye[..., ends[i] : ends[i + 1]])
                  for i, link in enumerate(edge.links))  # fmt: skip
    zero = np.zeros((1, sum(sizes)), dtype)
    return found, (Functional(links=links, offset=zero, n=edge.n, width=sum(sizes)),)
