"""Pieces: the rows of functionals that an executor is given."""

from typing import Any, NamedTuple

import numpy as np

from ...graph.edges import Functional
from ...graph.index import GivenMap
from ...graph.planes import Plane


class PieceLink(NamedTuple):
    """A variable of a piece: `positions` (n,) in its plane, and the coefficient restricted to the piece. Where the
    positions are an input of the model, they are in `given`, and `positions` is an example of them."""

    plane: Plane
    positions: np.ndarray
    op: str
    coefficient: Any
    given: GivenMap | None = None


class Piece(NamedTuple):
    """The rows of one functional that belong to an executor (`rows` None: all of them)."""

    functional: int
    rows: np.ndarray | None
    n: int
    links: tuple[PieceLink, ...]
    offset: Any
    width: int | None


def restrict(number: int, functional: Functional, rows: np.ndarray | None) -> Piece:
    """The piece of a functional with the given rows."""

    def take(x: Any) -> Any:
        return x if x is None or rows is None or x.shape[0] == 1 else x[rows]

    maps = [k.index.rows(rows) if isinstance(k.index, GivenMap) else None for k in functional.links]
    links = tuple(
        PieceLink(k.plane, k.index.positions if rows is None else k.index.positions[rows], k.op, take(k.coefficient), g)
        for k, g in zip(functional.links, maps, strict=True)
    )
    n = functional.n if rows is None else len(rows)
    return Piece(number, rows, n, links, take(functional.offset), functional.width)
