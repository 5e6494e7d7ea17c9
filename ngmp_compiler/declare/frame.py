"""Frames: what a model function has declared so far.

While a model runs, the innermost frame collects its sites and named variables. `ngmp.scan` opens a frame of its own
for the body of the loop. Problems go to one list, so that a run of the model reports all of them.
"""

import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import ModelError, Problem
from ..graph.planes import Plane
from .variables import Variable

_REPEATED = "repeated names collect into one array, so they must declare the same thing; or use ngmp.scope"


class Site(NamedTuple):
    """One call of `sample` or `factor`: a distribution with its arguments, over a batch of elements."""

    name: str
    distribution: Any
    arguments: dict[str, Any]  # includes "out", the outcome: data or a Variable; absent for `factor`
    event_ndims: Mapping[str, int | None]  # of the distribution; what that leaves open is fixed by a scan
    mask: Any
    batch_shape: tuple[int, ...]
    observed: bool


class Node:
    """A named collection of variables: repeated names collect into one array, in order."""

    __slots__ = ("collected", "name", "plane", "rows", "shape")

    def __init__(self, name: str, plane: Plane, shape: tuple[int, ...]):
        self.name = name
        self.plane = plane
        self.shape = shape  # of one declaration
        self.rows: list[np.ndarray] = []  # positions in the plane, each (*shape) or (repeats, *shape)
        self.collected = False  # declared by a scan: the leading axis is there even for one step

    def positions(self) -> np.ndarray:
        """Positions in the plane, (repeats, *shape), or (*shape) for a name declared once."""
        if len(self.rows) == 1 and not self.collected:
            return self.rows[0]
        return np.concatenate([r.reshape(-1, *self.shape) for r in self.rows])


class Frame:
    """What has been declared so far: sites, named nodes, and the number of variables in every plane."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self.nodes: dict[str, Node] = {}
        self.observed: dict[str, tuple[int, ...]] = {}
        self.sizes: dict[Plane, int] = {}
        self.prefix = ""
        self.aliases: list[tuple[np.ndarray, Variable]] = []  # positions that stand for variables of outer frames
        self.problems: list[Problem] | None = None  # found so far; None: use those of the enclosing frame
        self.logs: dict[str, bool] = {}  # names to be declared by their logarithms, and whether that was done
        self.coordinates: Any = None  # of the sites that are integrated: see `declare.integrated`
        self.fresh: frozenset[str] | None = None  # in a second run: see `declare.renewed`
        self.notes: list[tuple[str, str, str]] = []  # of a foreign model: site, line of its source, what was recognised
        self.root = self  # the frame of the model itself, whatever loops are open inside of it
        self.gaps = False  # whether observations that are not finite are missing ones
        self.plates: dict[int, int] = {}  # sizes of the open plates by axis, -1, -2, ...; those of the outermost count

    def in_plates(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """A batch shape with the axes of the plates that are open."""
        sizes = tuple(self.plates.get(-k, 1) for k in range(max(map(abs, self.plates), default=0), 0, -1))
        return np.broadcast_shapes(batch, sizes)

    def allocate(self, plane: Plane, shape: tuple[int, ...]) -> np.ndarray:
        start = self.sizes.get(plane, 0)
        count = int(np.prod(shape)) if shape else 1
        self.sizes[plane] = start + count
        return np.asarray(start) if not shape else start + np.arange(count).reshape(shape)

    def variable(self, name: str, plane: Plane, shape: tuple[int, ...], index: np.ndarray) -> Variable:
        """Register positions `index` of a plane, (*shape) or (repeats, *shape), under a name."""
        node = self.nodes.get(name)
        if node is None:
            if name in self.observed:
                report(name, "it was declared with obs= and again without", "use mask= for values that are missing")
            node = self.nodes[name] = Node(name, plane, shape)
        elif node.plane != plane or node.shape != shape:
            first, again = f"{node.plane} of batch shape {node.shape}", f"{plane} of batch shape {shape}"
            report(name, f"the name is used for {first} and for {again}", _REPEATED)
            return Variable(self, plane, index)
        node.rows.append(index)
        node.collected |= index.shape != shape
        return Variable(self, plane, index)

    def adopt(self, v: Variable) -> np.ndarray:
        """Positions of this frame that stand for a variable, which may belong to an outer one."""
        if v.frame is self:
            return v.index
        index = self.allocate(v.plane, v.index.shape)
        self.aliases.append((index, v))
        return index

    def observe(self, name: str, shape: tuple[int, ...]) -> None:
        if name in self.nodes:
            report(name, "it was declared without obs= and again with it", "use mask= for values that are missing")
        if self.observed.setdefault(name, shape) != shape:
            first = self.observed[name]
            report(name, f"observed with shape {first} and with {shape}", _REPEATED)


# The innermost last. Every thread (and every task of asyncio) has its own.
_frames: ContextVar[tuple[Frame, ...]] = ContextVar("frames", default=())


def is_open(frame: Frame) -> bool:
    """Whether declarations are being recorded in a frame, or in one that was opened inside of it."""
    return frame in _frames.get()


def refuse(site: str, interface: str | None, given: str, works: str) -> NoReturn:
    """Stop: nothing can be declared in place of this."""
    raise ModelError(Problem(site, interface, given, works))


def report(site: str, given: str, works: str, interface: str | None = None) -> None:
    """Note a problem and go on, so that the others are found as well."""
    problems = _frames.get()[-1].problems
    assert problems is not None
    problems.append(Problem(site, interface, given, works))


def current_frame(what: str) -> Frame:
    frames = _frames.get()
    if not frames:
        raise RuntimeError(f"{what} may only be called inside a model function that is being compiled")
    return frames[-1]


def outermost() -> Frame:
    """The frame of the model itself, whatever loops are open inside of it."""
    return _frames.get()[0]


@contextlib.contextmanager
def attempt():
    """Take back what is declared in here, if it fails."""
    frame = current_frame("declare.attempt")
    sites, aliases = len(frame.sites), len(frame.aliases)
    rows = {name: len(node.rows) for name, node in frame.nodes.items()}
    sizes, observed = dict(frame.sizes), dict(frame.observed)
    try:
        yield
    except Exception:
        del frame.sites[sites:], frame.aliases[aliases:]
        frame.nodes = {name: node for name, node in frame.nodes.items() if name in rows}
        for name, node in frame.nodes.items():
            del node.rows[rows[name] :]
        frame.sizes, frame.observed = sizes, observed
        raise


@contextlib.contextmanager
def recording(frame: Frame):
    """Record declarations in `frame`."""
    frames = _frames.get()
    frame.root = (*frames, frame)[0]
    if frame.problems is None:
        frame.problems = frames[-1].problems if frames else []
    token = _frames.set((*frames, frame))
    try:
        yield frame
    finally:
        _frames.reset(token)
