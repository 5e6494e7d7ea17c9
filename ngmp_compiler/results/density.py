"""The joint density as it was declared: `log p(values, data)`, of factors and not of what stands for them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ngmp_kernels import ReportFactor

from ..emit.centre import term, value
from ..emit.core import masked
from ..emit.surrogate import Values
from ..errors import DataError, Problem, listed
from ..graph.groups import FactorGroup
from ..passes.roll import Collection
from ..pipeline import Front


def log_joint(front: Front, values: Values) -> Float[Array, ""]:
    """`log p(values, data)`: the sum of the log-densities of all declared factors.

    Args:
        front: the declared, rolled and typed model; its integrated sites are at their values.
        values: of all variables by plane; those of deterministic nodes are computed.
    """
    total = jnp.zeros((), front.dtype)
    values = computed(front.groups, values)
    for group in front.groups:
        if not group.factor.deterministic:
            with jax.named_scope(f"density_{group.name}"):
                total += jnp.sum(masked(group, jnp.asarray(log_density(group, values))))
    return total


def log_density(group: FactorGroup, values: Values) -> Float[Array, " #n"]:
    """The log-densities of the factors of a group."""
    factor: Any = group.factor
    if group.constant:
        return factor.log_density(*group.constants)
    first: Any = group.edges[0]
    if group.conjugate and first.plane is None and first.family.core == "categorical":  # a table
        logs, scale = factor.message()
        rows = 0 if logs.eta1.shape[0] == 1 else jnp.arange(group.n)
        return logs.eta1[(rows, *(side.index.take(values[side.plane]) for side in first.sides))] + scale
    at = [c if edge is None else at_edge(edge, values) for edge, c in zip(group.edges, group.constants, strict=True)]
    return factor.log_density(*at)


def at_edge(edge: Any, values: Values) -> Array:
    """What an edge is at values of its variables: a functional, a variable, or the cell of a table."""
    if edge.family.core == "gaussian":
        return value(edge, term(edge, None), values)
    if edge.plane is not None:
        return edge.index.take(values[edge.plane])
    cell: Any = 0
    for side, size in zip(edge.sides, edge.shape, strict=True):
        cell = cell * size + side.index.take(values[side.plane])
    return cell


def computed(groups: list[FactorGroup], values: Values) -> Values:
    """Values with those of deterministic nodes computed from their arguments, in order of declaration."""
    values = dict(values)
    for group in groups:
        if group.factor.deterministic:
            out, x = group.edges
            (link,) = out.links
            new = group.factor(at_edge(x, values))  # type: ignore[operator]
            values[link.plane] = values[link.plane].at[link.index.positions].set(new)
    return values


def determined(front: Front) -> dict[Any, np.ndarray]:
    """By plane, which variables are deterministic nodes."""
    out = {plane: np.zeros(n, bool) for plane, n in front.rolled.planes.items()}
    for group in front.groups:
        if group.factor.deterministic:
            (link,) = group.edges[0].links
            out[link.plane][link.index.positions] = True
    return out


def event_of(plane: Any) -> tuple[int, ...]:
    """The shape of one value: of classes none."""
    return () if plane.family.core == "categorical" else plane.event_shape


def by_logarithm(front: Front, given: dict[str, Any]) -> tuple[dict[str, Any], Array]:
    """Values with the logarithms of positive variables that stand by them, and the logarithm of the volume: a
    `HalfNormal` named x is `exp(log_x)`, and may be given as x."""
    out, volume = dict(given), jnp.zeros((), front.dtype)
    for group in front.groups:
        name = group.given.name
        head, _, tail = name.rpartition("/")
        log = f"{head}/log_{tail}" if head else f"log_{tail}"
        known = isinstance(group.factor, ReportFactor) and group.factor.link == "exp"
        if known and log in front.rolled.collections and name in out and log not in out:
            out[log] = jnp.log(jnp.asarray(out.pop(name), front.dtype))
            volume -= jnp.sum(out[log])
    return out, volume


def by_plane(front: Front, given: dict[str, Any], integrated: dict[str, Any]) -> tuple[Values, dict[str, Array]]:
    """Values by name as values by plane, and those of integrated sites; all that is missing or misshapen in one error.

    Many names that are stored together may be given together, as `post.sample` has them, or each by its own.
    """
    free, problems, out = determined(front), [], {}
    rest = dict(given)
    for plane, n in front.rolled.planes.items():
        dtype = int if plane.family.core == "categorical" else front.dtype
        out[plane] = jnp.zeros((n, *event_of(plane)), dtype)
    for key, collection in front.rolled.collections.items():
        plane, at, _ = collection
        found = _take(rest, key, collection)
        if found is None and free[plane][at].all():
            continue
        shape = (*at.shape, *event_of(plane))
        if found is None:
            problems.append(Problem(key, None, "no value is given", f"give an array of shape {shape}"))
        elif jnp.shape(found) != shape:
            problems.append(Problem(key, None, f"its value has shape {jnp.shape(found)}", f"give one of shape {shape}"))
        else:
            whole = jnp.asarray(found).astype(out[plane].dtype)
            out[plane] = out[plane].at[at.reshape(-1)].set(whole.reshape(-1, *event_of(plane)))
    sites = {}
    for name, site in integrated.items():
        found, shape = rest.pop(name, None), jnp.shape(site.value)
        if found is None or jnp.shape(found) != shape:
            given_ = "no value is given" if found is None else f"its value has shape {jnp.shape(found)}"
            problems.append(Problem(name, None, given_, f"give one of shape {shape}"))
        else:
            sites[name] = jnp.asarray(found)
    for group in front.groups:  # `post.sample` has those too; they are computed from others
        if isinstance(group.factor, ReportFactor):
            rest.pop(group.given.name, None)
    known = listed([*front.rolled.collections, *integrated])
    problems += [Problem(name, None, "no variable of the model", f"those are {known}") for name in rest]
    if problems:
        raise DataError("values of log_joint:\n" + "\n".join(f"  {p}" for p in problems))
    return out, sites


def _take(rest: dict[str, Any], key: str, collection: Collection) -> Any:
    """The value of a name, or those of many names that are stored together; they are taken out of `rest`."""
    if key in rest:
        return rest.pop(key)
    if len(collection.names) > 1 and all(name in rest for name in collection.names):
        return jnp.stack([jnp.asarray(rest.pop(name)) for name in collection.names])
    return None


def placed(sites: dict[str, Any], values: dict[str, Array], slots: int, dtype: Any) -> Float[Array, " slots"]:
    """The values of integrated sites in the places of their coordinates; of proportions all but the last."""
    v = jnp.zeros(slots, dtype)
    for name, site in sites.items():
        size = max(site.size, 1)
        v = jax.lax.dynamic_update_slice(v, values[name].reshape(-1)[:size].astype(dtype), (site.start,))
    return v
