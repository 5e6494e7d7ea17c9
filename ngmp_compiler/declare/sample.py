"""The first pass: run the model function and record what it declares.

`trace(model, arguments) -> Graph`. While the model runs, a `Frame` collects its sites; `ngmp.scan` opens a frame of
its own for the body of the loop and lifts what was recorded there by one axis.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ngmp_kernels import Deterministic, GenericDensity, VectorDeterministic

from ..errors import ContentsError, ModelError, Problem, listed
from ..graph.planes import Plane
from .arguments import (
    check_repeated,
    checked_arguments,
    checked_mask,
    checked_observation,
    common_batch_shape,
    event_shape_of,
    plated,
    site_name,
)
from .censoring import censor
from .expressions import kinds_of
from .failures import explain
from .frame import Frame as Frame
from .frame import Node, refuse
from .frame import Site as Site
from .frame import current_frame as current_frame
from .frame import recording as recording
from .gates import gates
from .inputs import unwrap
from .integrated import Coordinates, Integrated, integrate
from .redirect import redirected
from .renewed import NEW, declared_before, grown, only_predicted, touches_new, unseen
from .structured import declare as structured
from .structured import expand, is_structured
from .through import composed, through
from .variables import Variable


class Graph(NamedTuple):
    """The declared factor graph: sites in order of declaration and the named variables they touch."""

    sites: list[Site]
    nodes: dict[str, Node]
    sizes: dict[Plane, int]
    observed: dict[str, tuple[int, ...]]  # the shape of one declaration of every observed name
    integrated: dict[str, Integrated]  # the sites that stand as numbers
    notes: tuple[tuple[str, str, str], ...] = ()  # of a foreign model; see `Frame`


@contextlib.contextmanager
def scope(name: str):
    """Prefix the names declared inside with `name/`, so that a sub-model can be used more than once."""
    frame = current_frame("ngmp.scope")
    outer, frame.prefix = frame.prefix, f"{frame.prefix}{name}/"
    try:
        yield
    finally:
        frame.prefix = outer


@redirected
def sample(name: str, distribution: Any, obs: Any = None, mask: Any = None, censored: Any = None) -> Any:
    """Declare a random variable, or an observation of one.

    Args:
        name: the site's name; repeated names collect into one array, in order of declaration.
        distribution: e.g. `Normal(mean, variance=1.0)`; arguments broadcast like NumPy arrays (a plate).
        obs: observed values; with them the site is a likelihood and no variable is made.
        mask: booleans of the site's shape, True where the value was seen. A runtime array.
        censored: "right" (the outcome is above obs), "left", or "interval" (between the two entries of obs), or an
            array that says it of every element: 0 seen, 1 (or True) right, -1 left, 2 interval.

    Returns:
        A `Variable` to be used in later declarations, or `obs`.
    """
    frame = current_frame("ngmp.sample")
    root, again = frame.root, frame.root.fresh is not None
    name = site_name(frame, "ngmp.sample(name, distribution)", name)
    if not hasattr(distribution, "signatures"):
        refuse(name, None, f"{distribution!r} is not a distribution", "give e.g. Normal(0.0, variance=1.0)")
    if is_structured(distribution):
        return _structured(frame, name, distribution, obs)
    if censored is not None:
        distribution, obs = censor(name, distribution, obs, censored)
    if obs is not None or again and only_predicted(root, name, distribution):
        distribution = through(name, distribution)
    arguments = checked_arguments(name, distribution)
    if again or root.gaps:
        obs, mask = unseen(root, name, distribution, obs, mask)
    if again and (known := declared_before(root, name, distribution, arguments, obs)) is not None:
        return grown(name.removeprefix(frame.prefix), known, sample) if isinstance(known, tuple) else known
    if root.coordinates is not None:
        obs = _integrated(frame, name, distribution, obs)
    if obs is None and (name in root.logs or distribution.as_latent() is not distribution):
        return _lowered_prior(frame, name, distribution)
    every = gates(distribution, obs is None)  # one for each choice of a selector
    if every[0] is not distribution:
        distribution, arguments = every[0], checked_arguments(name, every[0])
    if obs is None:
        (out, batch), mask = _latent(frame, name, distribution, arguments, mask), None
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


def _structured(frame: Frame, name: str, distribution: Any, obs: Any) -> Any:
    """A vector with a structured precision; of a second run, that of the first."""
    from .report import deterministic

    own = name.removeprefix(frame.prefix)
    free = name.removeprefix(NEW) + ("" if distribution.constraint is None else "_free")
    if frame.root.fresh is not None and (node := frame.root.nodes.get(free)) is not None:
        x = Variable(frame.root, node.plane, node.rows[0])
        return x if distribution.constraint is None else expand(distribution, x)
    return structured(frame, own, name, distribution, obs, deterministic)


def _latent(frame: Frame, name: str, distribution: Any, arguments: dict[str, Any], mask: Any) -> tuple[Any, Any]:
    """The variables of a site that is not observed, and their batch shape."""
    checked_mask(name, mask, None, False)
    if distribution.family is None:
        given = f"{distribution.label} has no family for a latent outcome"
        works = f"observe it, with obs=, or integrate it: ngmp.compile(..., integrate=('{name}',))"
        refuse(name, None, given, works if distribution.support else "it can only be observed: give obs=")
    batch = plated(frame.root, name, common_batch_shape(name, distribution, arguments))
    plane = Plane(distribution.family, event_shape_of(name, distribution))
    if batch is None:
        refuse(name, *frame.problems.pop()[1:])  # type: ignore[union-attr]
    out = frame.variable(name, plane, batch, frame.allocate(plane, batch))
    return out, batch


def _integrated(frame: Frame, name: str, distribution: Any, obs: Any) -> Any:
    """What is observed, or the number that stands for a site that is integrated."""
    coordinates = frame.root.coordinates
    batch = plated(frame.root, name, common_batch_shape(name, distribution, distribution.arguments) or ()) or ()
    if not coordinates.wants(name, distribution, batch, obs is not None):
        return obs
    if obs is not None:
        refuse(name, "obs", "integrate= names an observed site", "only what is not known can be integrated")
    return integrate(coordinates, name, distribution, batch, frame is not frame.root)


def _lowered_prior(frame: Frame, name: str, distribution: Any) -> Any:
    """A latent variable whose distribution is another one in disguise: the logarithm of which is, where it says so."""
    if name in frame.root.logs:
        return _on_logarithm(frame, name, distribution)
    own, other = name.removeprefix(frame.prefix), distribution.as_latent()
    return _exp_of(own, other) if distribution.logarithm else sample(own, other)


def _on_logarithm(frame: Frame, name: str, distribution: Any) -> Any:
    """A positive variable by its logarithm, which is Gaussian: what `families={name: "log-gaussian"}` asks for."""
    frame.root.logs[name] = True
    other = distribution.log_form()
    if other is None:
        given = f"families= asks for a Gaussian logarithm of {distribution.label}"
        refuse(name, None, given, "that of a Gamma variable with constant parameters has a kernel")
    return _exp_of(name.removeprefix(frame.prefix), other)


def _exp_of(own: str, other: Any) -> Any:
    """`exp` of a variable `log_<name>`, reported under the name."""
    from .functions import exp
    from .report import deterministic

    head, _, tail = own.rpartition("/")
    return deterministic(own, exp(sample(f"{head}/log_{tail}" if head else f"log_{tail}", other)))


@redirected
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
    density = composed(GenericDensity(log_density, arguments))
    constant = all(kind == "constant" for kind in kinds_of(checked_arguments(name, density)).values())
    if constant and frame.root.coordinates is None:
        refuse(name, None, "the factor touches no random variable", "give it one to three, after the log-density")
    if frame.root.fresh is not None and not touches_new(frame.root, density.arguments):
        return
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


def trace(
    model: Callable, arguments: dict[str, Any], coordinates: Coordinates | None = None, logs: Iterable[str] = ()
) -> Graph:
    """Run `model(**arguments)` once and return the graph it declares, or raise all the problems found.

    With `coordinates`, the sites that they name stand as numbers; see `declare.integrated`. Those of `logs` are
    declared by their logarithms.
    """
    with recording(Frame()) as frame:
        frame.problems, frame.coordinates, frame.logs = [], coordinates, dict.fromkeys(logs, False)
        problems = frame.problems
        try:
            model(**arguments)
        except Exception as error:
            last = f"after site '{frame.sites[-1].name}'" if frame.sites else "before its first site"
            where = f"while declaring model '{getattr(model, '__name__', 'model')}', {last}"
            found = error.problems if isinstance(error, ModelError) else [explain(error)]
            # An error of the user's own code is not ours to dress up.
            if not problems and found[0].site is None and found[0].given.startswith(type(error).__name__):
                error.add_note(where)
                raise
            found = [*problems, *(p if p.site else p._replace(given=f"{p.given} ({where})") for p in found)]
            if isinstance(error, ContentsError):
                raise ContentsError(found, error.places) from error
            raise ModelError(found) from error
        for name in (k for k, seen in frame.logs.items() if not seen):
            works = f"the sites are {listed({site.name for site in frame.sites})}"
            problems.append(Problem(name, None, "families= names no latent variable", works))
        found = {} if coordinates is None else coordinates.found
        for name in () if coordinates is None else coordinates.names:
            if name not in found:
                works = f"the sites are {listed({site.name for site in frame.sites})}"
                problems.append(Problem(name, None, "integrate= names no site", works))
        if problems:
            raise ModelError(problems)
    return Graph(frame.sites, frame.nodes, frame.sizes, frame.observed, found, tuple(frame.notes))
