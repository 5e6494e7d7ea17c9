"""The first pass: run the model function and record what it declares.

`trace(model, arguments) -> Graph`. While the model runs, a `Frame` collects its sites; `ngmp.scan` opens a frame of
its own for the body of the loop and lifts what was recorded there by one axis.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from ngmp_kernels import GenericDensity
from ngmp_kernels.families import Categorical, MvGaussian

from ._errors import ModelError, Problem
from ._expressions import Affine, Exp, Plane, Take, Variable
from ._inputs import Input


class Site(NamedTuple):
    """One call of `sample` or `factor`: a distribution with its arguments, over a batch of elements."""

    name: str
    distribution: Any
    arguments: dict[str, Any]  # includes "out", the outcome: data or a Variable; absent for `factor`
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
                _refuse(name, "it was declared with obs= and again without", "use mask= for values that are missing")
            node = self.nodes[name] = Node(name, plane, shape)
        elif node.plane != plane or node.shape != shape:
            first, again = f"{node.plane} of batch shape {node.shape}", f"{plane} of batch shape {shape}"
            _refuse(
                name, f"the name is used for {first} and for {again}", "repeated names must declare the same thing"
            )
        node.rows.append(index)
        node.collected |= index.shape != shape
        return Variable(self, plane, index)

    def observe(self, name: str, shape: tuple[int, ...]) -> None:
        if name in self.nodes:
            _refuse(name, "it was declared without obs= and again with it", "use mask= for values that are missing")
        if self.observed.setdefault(name, shape) != shape:
            first = self.observed[name]
            _refuse(name, f"observed with shape {first} and with {shape}", "repeated names must declare the same thing")


class Graph(NamedTuple):
    """The declared factor graph: sites in order of declaration and the named variables they touch."""

    sites: list[Site]
    nodes: dict[str, Node]
    sizes: dict[Plane, int]


_frames: list[Frame] = []


def _refuse(site: str, given: str, works: str) -> None:
    raise ModelError(Problem(site, None, given, works))


def current_frame(what: str) -> Frame:
    if not _frames:
        raise RuntimeError(f"{what} may only be called inside a model function that is being compiled")
    return _frames[-1]


@contextlib.contextmanager
def recording(frame: Frame):
    """Record declarations in `frame`."""
    _frames.append(frame)
    try:
        yield frame
    finally:
        _frames.pop()


@contextlib.contextmanager
def scope(name: str):
    """Prefix the names declared inside with `name/`, so that a sub-model can be used more than once."""
    frame = current_frame("ngmp.scope")
    outer, frame.prefix = frame.prefix, f"{frame.prefix}{name}/"
    try:
        yield
    finally:
        frame.prefix = outer


def batch_shape_of(value: Any, event_ndim: int | None) -> tuple[int, ...]:
    if isinstance(value, (Variable, Affine)):
        return value.batch_shape
    if isinstance(value, Exp):
        return value.inner.batch_shape
    if isinstance(value, Take):
        return value.index.batch_shape
    shape = value.shape if isinstance(value, Input) else np.shape(value)
    return () if event_ndim is None else shape[: max(len(shape) - event_ndim, 0)]


def _event_shape(distribution: Any) -> tuple[int, ...]:
    """The event shape of a latent outcome, read off the arguments that carry an event axis."""
    if distribution.family.event_ndim == 0 and distribution.family is not Categorical:
        return ()
    for name, value in distribution.arguments.items():
        if isinstance(value, Take):
            return (np.shape(value.table)[-1],)
        if isinstance(value, (Variable, Affine)):
            plane_shape = value.plane.event_shape if isinstance(value, Variable) else value.event_shape
            if plane_shape:
                return plane_shape
        elif distribution.event_ndims.get(name) != 0 and np.ndim(value):
            return (np.shape(value)[-1],)
    raise ValueError("no argument tells the length of the outcome; give the mean (or probabilities) as a vector")


def _batch_shape(name: str, distribution: Any, arguments: dict[str, Any]) -> tuple[int, ...]:
    shapes = {k: batch_shape_of(v, distribution.event_ndims.get(k, 0)) for k, v in arguments.items()}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{k} {s}" for k, s in shapes.items() if s)
        raise ModelError(Problem(name, None, f"shapes do not broadcast: {listed}", "plates follow NumPy")) from None


def _check_mask(name: str, mask: Any, batch_shape: tuple[int, ...], observed: bool) -> None:
    dtype = getattr(mask, "dtype", type(mask))
    if np.dtype(dtype) != np.dtype(bool):
        _refuse(name, f"mask has dtype {np.dtype(dtype)}", "give booleans, True where the value was seen")
    shape = np.shape(mask)
    if shape not in (batch_shape, ()):
        _refuse(name, f"mask has shape {shape} but the site has shape {batch_shape}", "give one flag per element")
    if not observed:
        _refuse(name, "mask= was given without obs=", "only observed sites can be masked")


def sample(name: str, distribution: Any, obs: Any = None, mask: Any = None) -> Any:
    """Declare a random variable, or an observation of one.

    Args:
        name: the site's name; repeated names collect into one array, in order of declaration.
        distribution: e.g. `Normal(mean, variance=1.0)`; arguments broadcast like NumPy arrays (a plate).
        obs: observed values; with them the site is a likelihood and no variable is made.
        mask: booleans of the site's shape, True where the value was seen. A runtime array.

    Returns:
        A `Variable` to be used in later declarations, or `obs`.
    """
    frame = current_frame("ngmp.sample")
    name = frame.prefix + name
    if not hasattr(distribution, "signatures"):
        _refuse(name, f"{distribution!r} is not a distribution", "give e.g. Normal(0.0, variance=1.0)")
    if obs is None:
        if mask is not None:
            _check_mask(name, mask, (), False)
        if distribution.family is None:
            what = type(distribution).__name__
            _refuse(name, f"{what} has no family for a latent outcome", "it can only be observed: give obs=")
        batch = _batch_shape(name, distribution, distribution.arguments)
        plane = Plane(distribution.family, _event_shape(distribution))
        out = frame.variable(name, plane, batch, frame.allocate(plane, batch))
    else:
        out = obs
        if isinstance(obs, (Variable, Affine)):
            _refuse(name, "obs= is a random variable", "observe data; to tie two variables use a Normal")
        batch = _batch_shape(name, distribution, {**distribution.arguments, "out": obs})
        frame.observe(name, batch)
        if mask is not None:
            _check_mask(name, mask, batch, True)
        if distribution.family is MvGaussian:
            _check_length(name, distribution, obs)
    arguments = {"out": out, **distribution.arguments}
    frame.sites.append(Site(name, distribution, arguments, mask, batch, obs is not None))
    return out


def _check_length(name: str, distribution: Any, obs: Any) -> None:
    try:
        expected = _event_shape(distribution)
    except ValueError:
        return
    if np.shape(obs)[-1:] != expected:
        _refuse(name, f"obs has last axis {np.shape(obs)[-1:]}", f"the outcome is a vector of shape {expected}")


def factor(name: str, log_density: Callable, *arguments: Any) -> None:
    """Declare any log-density as a factor over one to three scalar variables.

    Args:
        name: the site's name.
        log_density: a function of scalars, one for every argument, in the same order; written with `jax.numpy`.
        arguments: variables, scalar affine expressions of Gaussian variables, or constants. Data belong here rather
            than in a closure, so that loops and scans can be rolled.
    """
    frame = current_frame("ngmp.factor")
    name = frame.prefix + name
    density = GenericDensity(log_density, arguments)
    batch = _batch_shape(name, density, density.arguments)
    frame.sites.append(Site(name, density, dict(density.arguments), None, batch, False))


_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def trace(model: Callable, arguments: dict[str, Any]) -> Graph:
    """Run `model(**arguments)` once and return the graph it declares."""
    with recording(Frame()) as frame:
        try:
            model(**arguments)
        except _TRACED as error:
            last = frame.sites[-1].name if frame.sites else None
            where = f"after site '{last}'" if last else "before its first site"
            raise ModelError(
                Problem(
                    getattr(model, "__name__", "model"),
                    None,
                    f"its structure depends on the value of a traced input ({where}): {str(error).splitlines()[0]}",
                    "structure may depend on shapes and static arguments only; use mask=, or pass the value as an int",
                )
            ) from error
    return Graph(frame.sites, frame.nodes, frame.sizes)
