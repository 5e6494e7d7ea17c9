"""The first pass: run the model function and record what it declares.

`trace(model, arguments) -> Graph`. While the model runs, a `Frame` collects its sites; `ngmp.scan` opens a frame of
its own for the body of the loop and lifts what was recorded there by one axis.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ngmp_kernels import Deterministic, GenericDensity, VectorDeterministic

from ..errors import ModelError, Problem, listed
from ..graph.planes import Plane
from .arguments import (
    check_repeated,
    checked_arguments,
    checked_mask,
    checked_observation,
    common_batch_shape,
    event_shape_of,
    site_name,
)
from .expressions import kinds_of
from .frame import Frame as Frame
from .frame import Node, outermost, refuse
from .frame import Site as Site
from .frame import current_frame as current_frame
from .frame import recording as recording
from .gates import gates
from .inputs import unwrap
from .integrated import Coordinates, Integrated, integrate


class Graph(NamedTuple):
    """The declared factor graph: sites in order of declaration and the named variables they touch."""

    sites: list[Site]
    nodes: dict[str, Node]
    sizes: dict[Plane, int]
    observed: dict[str, tuple[int, ...]]  # the shape of one declaration of every observed name
    integrated: dict[str, Integrated]  # the sites that stand as numbers


@contextlib.contextmanager
def scope(name: str):
    """Prefix the names declared inside with `name/`, so that a sub-model can be used more than once."""
    frame = current_frame("ngmp.scope")
    outer, frame.prefix = frame.prefix, f"{frame.prefix}{name}/"
    try:
        yield
    finally:
        frame.prefix = outer


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
    name = site_name(frame, "ngmp.sample(name, distribution)", name)
    if not hasattr(distribution, "signatures"):
        refuse(name, None, f"{distribution!r} is not a distribution", "give e.g. Normal(0.0, variance=1.0)")
    arguments = checked_arguments(name, distribution)
    coordinates = outermost().coordinates
    if coordinates is not None:
        batch = common_batch_shape(name, distribution, distribution.arguments) or ()
        if coordinates.wants(name, distribution, batch, obs is not None):
            if obs is not None:
                refuse(name, "obs", "integrate= names an observed site", "only what is not known can be integrated")
            obs = integrate(coordinates, name, distribution, batch, frame is not outermost())
    every = gates(distribution, obs is None)  # one for each choice of a selector
    if every[0] is not distribution:
        distribution, arguments = every[0], checked_arguments(name, every[0])
    if obs is None:
        checked_mask(name, mask, None, False)
        if distribution.family is None:
            given = f"{distribution.label} has no family for a latent outcome"
            works = f"observe it, with obs=, or integrate it: ngmp.compile(..., integrate=('{name}',))"
            refuse(name, None, given, works if distribution.support else "it can only be observed: give obs=")
        batch = common_batch_shape(name, distribution, arguments)
        plane = Plane(distribution.family, event_shape_of(name, distribution))
        if batch is None:
            refuse(name, *frame.problems.pop()[1:])  # type: ignore[union-attr]
        out = frame.variable(name, plane, batch, frame.allocate(plane, batch))
        mask = None
    else:
        out = obs = checked_observation(name, distribution, obs)
        batch = common_batch_shape(name, distribution, {**arguments, "out": obs})
        batch = check_repeated(name, distribution, arguments, obs, batch)
        mask = checked_mask(name, mask, batch, True)
        if batch is None:
            return obs
        frame.observe(name, batch)
    shared = mask, batch, obs is not None
    frame.sites.extend([Site(name, d, {"out": out, **d.arguments}, d.event_ndims, *shared) for d in every])
    return out


def factor(name: str, log_density: Callable[..., Any], *arguments: Any) -> None:
    """Declare any log-density as a factor over one to three scalar variables.

    Args:
        name: the site's name.
        log_density: a function of scalars, one for every argument, in the same order; written with `jax.numpy`.
        arguments: variables, scalar affine expressions of Gaussian variables, or constants. Data belong here rather
            than in a closure, so that loops and scans can be rolled.
    """
    frame = current_frame("ngmp.factor")
    name = site_name(frame, "ngmp.factor(name, log_density, *variables)", name)
    if not callable(log_density):
        refuse(name, "log_density", f"{log_density!r} cannot be called", "give a function of scalars")
    density = GenericDensity(log_density, arguments)
    constant = all(kind == "constant" for kind in kinds_of(checked_arguments(name, density)).values())
    if constant and outermost().coordinates is None:
        refuse(name, None, "the factor touches no random variable", "give it one to three, after the log-density")
    every = gates(density, True)
    batch = common_batch_shape(name, every[0], every[0].arguments)
    if batch is not None:
        frame.sites.extend([Site(name, d, dict(d.arguments), d.event_ndims, None, batch, False) for d in every])


def apply(function: Callable[..., Any], x: Any, *constants: Any, name: str | None = None) -> Any:
    """The variable `function(x)`: a deterministic node.

    Args:
        function: a smooth function of scalars, or of a vector and scalars, written with `jax.numpy`. Of a vector it may
            return a number or a vector. As an `ngmp.ClosedForm`, with its moments under a scalar Gaussian, it needs no
            quadrature (`ngmp.residual_sine` is one).
        x: a Gaussian variable or affine expression, of any batch shape: scalars, or vectors of at most six entries
            (an MvNormal variable, `A @ x`, `ngmp.stack` of scalars).
        constants: further arguments of the function. Data belong here rather than in a closure, so that loops and
            scans can be rolled.
        name: of the new variable; by default the name of the function.
    """
    if not getattr(x, "is_expression", False):
        return function(unwrap(x), *map(unwrap, constants))
    frame = current_frame("ngmp.apply")
    if not callable(function):
        refuse(name or "ngmp.apply", "function", f"{function!r} cannot be called", "give a function of scalars")
    node = _node(function, x, constants, name)
    if name is not None:
        return sample(name, node)
    name = str(getattr(function, "__name__", "apply")).strip("<>")
    batch = common_batch_shape(name, node, checked_arguments(name, node))
    # The same function may be used on plates of several shapes; names must not be.
    while (used := frame.nodes.get(frame.prefix + name)) is not None and used.shape != batch:
        name += "'"
    return sample(name, node)


def _node(function: Callable, x: Any, constants: tuple[Any, ...], name: str | None) -> Any:
    if not getattr(x, "event_shape", ()):
        return Deterministic(function, x, constants)
    try:
        return VectorDeterministic(function, x, *constants)
    except ValueError as error:
        works = "give a function of one vector, of at most six entries, and of numbers that are constant"
        return refuse(name or "ngmp.apply", "function", str(error), works)


_TRACED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def _explain(error: Exception) -> Problem:
    """An exception of the model function as a problem."""
    text = str(error).splitlines()[0] if str(error) else ""
    if isinstance(error, _TRACED):
        works = "structure may depend on shapes and static arguments only; use mask=, or pass the value as an int"
        return Problem(None, None, f"the structure depends on the value of a traced input: {text}", works)
    if isinstance(error, TypeError) and ("ngmp_compiler.declare." in text or "does not support ufuncs" in text):
        works = "use ngmp.exp, dot, take, A @ x, sums, and products with constants; ngmp.factor for anything else"
        return Problem(None, None, "a numpy or jax function was applied to a random variable", works)
    return Problem(None, None, f"{type(error).__name__}: {error}", "")


def trace(model: Callable, arguments: dict[str, Any], coordinates: Coordinates | None = None) -> Graph:
    """Run `model(**arguments)` once and return the graph it declares, or raise all the problems found.

    With `coordinates`, the sites that they name stand as numbers; see `declare.integrated`.
    """
    with recording(Frame()) as frame:
        frame.problems, frame.coordinates = [], coordinates
        problems = frame.problems
        try:
            model(**arguments)
        except Exception as error:
            last = f"after site '{frame.sites[-1].name}'" if frame.sites else "before its first site"
            where = f"while declaring model '{getattr(model, '__name__', 'model')}', {last}"
            found = error.problems if isinstance(error, ModelError) else [_explain(error)]
            # An error of the user's own code is not ours to dress up.
            if not problems and found[0].site is None and found[0].given.startswith(type(error).__name__):
                error.add_note(where)
                raise
            found = [p if p.site else p._replace(given=f"{p.given} ({where})") for p in found]
            raise ModelError([*problems, *found]) from error
        found = {} if coordinates is None else coordinates.found
        for name in () if coordinates is None else coordinates.names:
            if name not in found:
                works = f"the sites are {listed({site.name for site in frame.sites})}"
                problems.append(Problem(name, None, "integrate= names no site", works))
        if problems:
            raise ModelError(problems)
    return Graph(frame.sites, frame.nodes, frame.sizes, frame.observed, found)
