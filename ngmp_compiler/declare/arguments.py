"""What a site may be given: names, arguments, observations and masks, each checked where it is declared."""

from typing import Any

import numpy as np

from .compound import Product, Take
from .frame import Frame, is_open, refuse, report
from .functions import as_vector, scalars, sides, stack
from .inputs import Input, as_constant
from .smooth import Smooth, as_node, is_function
from .where import note


def site_name(frame: Frame, call: str, name: Any) -> str:
    if not isinstance(name, str):
        given = f"{call}: the name is of type {type(name).__name__}"
        refuse(repr(name), None, given, "the first argument is a string")
    note(frame.prefix + name)
    return frame.prefix + name


def batch_shape_of(value: Any, event_ndim: int | None) -> tuple[int, ...]:
    if type(value) is float:
        return ()
    if getattr(value, "is_expression", False):
        return value.batch_shape
    shape = value.shape if isinstance(value, Input) else np.shape(value)
    return () if event_ndim is None else shape[: max(len(shape) - event_ndim, 0)]


def event_shape_of(name: str, distribution: Any) -> tuple[int, ...]:
    """The event shape of an outcome, read off the arguments that carry an event axis."""
    axes = distribution.family.event_ndim if distribution.family is not None else distribution.event_ndims["out"]
    if axes == 0:
        return ()
    known = getattr(distribution, "event_shape", None)  # a deterministic node has that of its function
    if known is not None:
        return known
    for argument, value in distribution.arguments.items():
        if getattr(value, "is_expression", False):
            if value.eta_shape:
                return value.eta_shape
        elif distribution.event_ndims.get(argument) != 0 and np.ndim(value):
            return np.shape(value)[-axes:]
    vectors = [k for k, ndim in distribution.event_ndims.items() if ndim and k in distribution.arguments]
    given = f"no argument of {distribution.label} tells the length of the outcome"
    refuse(name, None, given, f"give {' or '.join(vectors)} as a vector")


def common_batch_shape(name: str, distribution: Any, arguments: dict[str, Any]) -> tuple[int, ...] | None:
    """The common batch shape of the arguments; None, with a report, if there is none."""
    shapes = {k: batch_shape_of(v, distribution.event_ndims.get(k, 0)) for k, v in arguments.items()}
    if not any(shapes.values()):  # by far the most common in loops
        return ()
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{'obs' if k == 'out' else k} {s}" for k, s in shapes.items() if s)
        works = "arguments and obs broadcast as in NumPy: trailing axes must be equal, or 1"
        report(name, f"shapes do not broadcast: {listed}", works)
        return None


def check_repeated(
    name: str, distribution: Any, arguments: dict[str, Any], obs: Any, batch: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """The batch shape, or None after reporting an array of observations that parameters would repeat.

    Observations may be more than the parameters, but each is made once: (n, 1) against (n,) would be n^2 of them. One
    number may be observed everywhere.
    """
    event = distribution.event_ndims.get("out") or 0
    own = batch_shape_of(obs, event)
    if batch is None or own in (batch, ()):
        return batch
    given = np.broadcast_shapes(*(batch_shape_of(v, distribution.event_ndims.get(k, 0)) for k, v in arguments.items()))
    tail = np.shape(obs)[len(own) :]
    if np.prod(own) == np.prod(given):
        works = f"there is one for each in obs.reshape({given + tail})"
    elif np.prod(own) == np.prod([n for n in given if n > 1]):
        works = f"give the parameters the shape {own}, one for each"
    else:
        works = f"if they are meant to be repeated, say so with jnp.broadcast_to(obs, {batch + tail})"
    what = f"obs of shape {own} against parameters of shape {given} would be repeated to {batch}"
    return report(name, what, works, "obs")


def checked_arguments(name: str, distribution: Any) -> dict[str, Any]:
    """The arguments of a distribution, checked to be numbers, arrays or expressions; lists become arrays."""
    arguments = distribution.arguments
    if any(type(value) is Product for value in arguments.values()):
        arguments = distribution.arguments = _without_products(name, distribution)
    for argument, value in arguments.items():
        if type(value) is float:
            continue
        try:
            constant = as_constant(_one_vector(value) if distribution.event_ndims.get(argument) == 1 else value)
        except TypeError as error:
            works = "give a number, an array, or an expression of random variables declared before"
            refuse(name, f"argument {argument}", f"{type(distribution).__name__} was given {error}", works)
        if getattr(constant, "is_expression", False):
            constant = _fitting(distribution, argument, constant)
        if constant is not value:
            arguments[argument] = constant
        for leaf in constant.leaves if getattr(constant, "is_expression", False) else ():
            own = getattr(leaf, "is_expression", False) and isinstance(leaf.frame, Frame)
            if own and not is_open(leaf.frame):
                given = f"a variable of another model, or of the body of an ngmp.scan that has ended: {leaf!r}"
                refuse(name, f"argument {argument}", given, "a scan returns its variables as carry and outputs")
        if isinstance(constant, Take) and not constant.random:
            axes, event = len(constant.indices), distribution.event_ndims.get(argument) or 0
            shape = np.shape(constant.table)
            if len(shape) != axes + event:
                rows = " x ".join(map(str, shape[:axes]))
                works = f"the table needs {rows} rows, each a value of {argument}"
                report(name, f"take from a table of shape {shape}", works, f"argument {argument}")
    return arguments


def _fitting(distribution: Any, argument: str, value: Any) -> Any:
    """An expression as the argument wants it: of numbers, the entries of a vector; of what has no kernel for exp(z),
    a variable that is exp(z)."""
    if "(mvgaussian)" in f"({value.kind})" and distribution.event_ndims.get(argument) == 0:
        value = scalars(value)
    if is_function(value):
        accepted = frozenset().union(*(s.arguments.get(argument, ()) for s in distribution.signatures))
        if "gaussian" in accepted and value.kind not in accepted or isinstance(value, Smooth):
            return as_node(value)
    if isinstance(value, Take) and value.random and any(isinstance(x, Smooth) for x in value.table):
        return Take(tuple(map(as_node, value.table)), *value.indices)
    return value


def _one_vector(value: Any) -> Any:
    """Where a vector is wanted: a list with random entries, or scalar expressions along the last axis, as one."""
    if isinstance(value, (list, tuple)) and any(getattr(x, "is_expression", False) for x in value):
        return stack(value)
    return as_vector(value.affine()) if getattr(value, "kind", None) == "gaussian" else value  # type: ignore[union-attr]


def _without_products(name: str, distribution: Any) -> dict[str, Any]:
    """The arguments with a mean `left * right + rest` in its three parts; of several products, sides are vectors."""
    out = {}
    for argument, value in distribution.arguments.items():
        if type(value) is not Product:
            out[argument] = value
        elif argument == "mean" and _takes_products(distribution, value):
            left, right = value.pairs[0]
            if len(value.pairs) == 1 and not left.event_shape:
                out |= {"mean": value.rest, "left": left, "right": right}
                continue
            lefts, rights = sides(value)
            out |= {"mean": value.rest, "lefts": lefts, "rights": rights}
        else:
            given = f"{type(distribution).__name__} was given a product of two random variables"
            works = "products may be (part of) the mean of a Normal, A @ x with a random A that of an MvNormal"
            refuse(name, f"argument {argument}", given, works)
    return out


def _takes_products(distribution: Any, value: Product) -> bool:
    """Whether a mean may be such products: numbers of scalar distributions, vectors of others."""
    some = any("lefts" in s.arguments for s in distribution.signatures)
    return some and (value.rows is not None) == (distribution.event_ndims["mean"] == 1)


def checked_mask(name: str, mask: Any, batch_shape: tuple[int, ...] | None, observed: bool) -> Any:
    """The mask, or None after reporting what is wrong with it."""
    if mask is None:
        return None
    if not observed:
        return report(name, "mask= was given without obs=", "only observed sites can be masked")
    works = "give booleans, True where the value was seen, one for every element of the site"
    try:
        mask = as_constant(mask)
    except TypeError as error:
        return report(name, f"mask is {error}", works)
    if getattr(mask, "is_expression", False):
        return report(name, f"mask is a random variable, {mask!r}", works)
    dtype = np.dtype(getattr(mask, "dtype", type(mask)))
    if dtype != np.dtype(bool):
        report(name, f"mask has dtype {dtype}", works)
    elif batch_shape is not None and np.shape(mask) not in (batch_shape, ()):
        report(name, f"mask has shape {np.shape(mask)} but the site has shape {batch_shape}", works)
    else:
        return mask
    return None


def checked_observation(name: str, distribution: Any, obs: Any) -> Any:
    """Observed values as an array or number."""
    if getattr(obs, "is_expression", False):
        refuse(name, "obs", f"it is a random expression, {obs!r}", "observe data; to tie two variables use a Normal")
    try:
        obs = as_constant(obs)
    except TypeError as error:
        refuse(name, "obs", f"it is {error}", "give numbers or an array")
    if distribution.event_ndims.get("out"):
        expected = event_shape_of(name, distribution)
        if np.shape(obs)[-1:] != expected:
            works = f"an outcome is a vector of length {expected[0]}, on the last axis"
            report(name, f"it has shape {np.shape(obs)}", works, "obs")
    return obs


def plated(root: Frame, name: str, batch: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """A batch shape with the axes of the plates that are open in the frame of the model."""
    if batch is None or not root.plates:
        return batch
    try:
        return root.in_plates(batch)
    except ValueError:
        works = "plates are axes of the parameters, counted from the right"
        refuse(name, None, f"parameters of shape {batch} in plates of sizes {root.plates} by axis", works)
