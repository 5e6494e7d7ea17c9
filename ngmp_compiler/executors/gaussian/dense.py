"""Gaussian parts that are solved jointly, dense or along a band: which of the two, in how many executors, and why."""

import numpy as np

from ...errors import Problem, listed
from ...graph.components import Nodes
from ...graph.planes import Plane
from ..base import ASKED, members
from . import bands
from .arrow import Arrow
from .bands import Arrangement, Parts, classes, layout
from .core import GaussianCore
from .joint import JointGaussian, Layout
from .part import GaussianPart
from .pieces import Piece

_LONE = "it is coupled to no other Gaussian variable"


def arrangements(core: GaussianCore) -> tuple[Parts, dict[str, Arrangement]]:
    """Dense and banded arrangements of all coupled parts, made when one of them first asks."""
    if "_arrangements" not in core.__dict__:
        nodes = core.nodes
        sizes = np.asarray([p.event_shape[0] if p.event_shape else 1 for p in nodes.planes])
        every = np.concatenate([part.nodes for part in core.parts])
        label = np.repeat(np.arange(len(core.parts)), [len(part.nodes) for part in core.parts])
        order = np.argsort(every)
        every, label = every[order], label[order]
        place = np.full(nodes.size, -1)
        place[every] = np.arange(len(every))
        ends = [place[t][:, (place[t] >= 0).all(0)] for t in core.touched if len(t)]
        parts = Parts(every, label, sizes[nodes.plane_of(every)], [e for e in ends if e.size])
        found = {"dense": bands.dense(parts), "banded": bands.banded(parts)}
        core.__dict__["_arrangements"] = parts, found
    return core.__dict__["_arrangements"]


class _Joint(JointGaussian):
    @classmethod
    def cost(cls, part: GaussianPart) -> float:
        return float(arrangements(part.core)[1][cls.name].cost[part.number])

    @classmethod
    def build(cls, parts: list[GaussianPart]) -> list[JointGaussian]:
        core = parts[0].core
        every, found = arrangements(core)
        out = []
        for some in classes(found[cls.name], np.asarray([part.number for part in parts])):
            made = layout(every, found[cls.name], some, core.nodes, core.planes)
            own = [core.parts[p] for p in some]
            inside = members(own)
            asked = any(part.asked for part in own)
            why = _why(cls.name, found, some, made) + f", {ASKED}" * asked
            out.append(cls(core.nodes.split(inside), core.pieces(inside), made, why))
        return out


class Dense(_Joint):
    """Parts of any shape as one matrix each."""

    name = "dense"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        if part.lone:
            return _LONE
        size = part.dimensions
        return None if size <= bands.DENSE_LIMIT else f"{size} dimensions exceed {bands.DENSE_LIMIT}"


class Banded(_Joint):
    """Parts of any shape along a band, with a border."""

    name = "banded"

    @classmethod
    def misfit(cls, part: GaussianPart) -> str | None:
        if part.lone:
            return _LONE
        found = arrangements(part.core)[1]["banded"]
        size = found.size[part.number]
        return None if found.fits[part.number] else f"its band of {size} exceeds {bands.BAND_LIMIT} numbers"

    @classmethod
    def may_fit(cls, part: GaussianPart) -> bool:
        return not part.lone and not part.given  # whether the band is too wide is only seen when it is asked for


def jointly(pieces: list[Piece]) -> JointGaussian:
    """What solves some pieces jointly, whatever their shape: all their variables along one band, with a border."""
    found: dict[Plane, list[np.ndarray]] = {}
    for piece in pieces:
        for link in piece.links:
            found.setdefault(link.plane, []).append(link.positions)
    own = {plane: np.unique(np.concatenate(x)) for plane, x in found.items()}
    sizes = {plane: int(x[-1]) + 1 for plane, x in own.items()}
    nodes = Nodes(sizes, list(own))
    every = np.concatenate([x + nodes.offset[plane] for plane, x in own.items()])
    dims = np.asarray([p.event_shape[0] if p.event_shape else 1 for p in nodes.planes])[nodes.plane_of(every)]
    ends = [np.stack([np.searchsorted(every, k.positions + nodes.offset[k.plane]) for k in p.links]) for p in pieces]
    parts = Parts(every, np.zeros(len(every), int), dims, ends)
    every_way = bands.dense(parts), bands.banded(parts)
    best = min(every_way, key=lambda x: (not x.fits[0], float(x.cost[0])))
    return Banded(own, pieces, layout(parts, best, np.zeros(1, int), nodes, sizes), "jointly")


def too_large(part: GaussianPart) -> Problem:
    """Why no executor solves a part."""
    if part.given:
        what = f"which of {part.dimensions} Gaussian dimensions they tie is an input, and {Arrow.misfit(part)}"
        works = "close over the index, or call the program outside of jit: it is then compiled for its contents"
        return Problem(listed(part.core.sites(part.nodes)), None, what, works)
    found = arrangements(part.core)[1]
    total, wide = part.dimensions, found["banded"].size[part.number] + found["banded"].border[part.number]
    what = f"they tie {total} Gaussian dimensions in loops, and a band of them is {wide} wide"
    works = (
        f"a joint solution takes {bands.DENSE_LIMIT} dimensions, or a band of {bands.BAND_LIMIT} numbers; tie "
        "variables to fewer others, declare states as vectors in a scan, or set them apart with factorise="
    )
    return Problem(listed(part.core.sites(part.nodes)), None, what, works)


def _why(name: str, found: dict[str, Arrangement], own: np.ndarray, made: Layout) -> str:
    costs = {k: float(x.cost[own].sum()) for k, x in found.items()}
    other = "banded" if name == "dense" else "dense"
    text = f"{found['dense'].size[own].sum()} Gaussian dimensions tied in cycles"
    text += f", {len(own)} parts side by side" if len(own) > 1 else ""
    if name == "banded":
        text += f", {made.blocks} blocks of {made.size} in reverse Cuthill-McKee order"
        text += f" and a border of {made.border}" if made.border else ""
    against = f"against {costs[other]:.1e} {other}" if found[other].fits[own].all() else f"too large for {other}"
    return f"{text}: {costs[name]:.1e} operations a sweep, {against}"
