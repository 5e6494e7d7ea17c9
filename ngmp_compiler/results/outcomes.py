"""Outcomes of the factors of a group, drawn given values of all variables that they depend on.

With those put in, the arguments of a site are numbers. Its distribution draws from them itself (`Distribution.draw`),
or what it lowers to does: the message to a latent outcome is a member of a family, and any factor with a distribution
function can be inverted.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ngmp_kernels.numerics.inverse_cdf import INVERSE

from ..declare.variables import Variable
from ..emit.surrogate import Values
from ..errors import ModelError, Problem
from ..graph.groups import FactorGroup, Group
from ..graph.planes import Plane
from ..passes.lower import lower_group
from .evaluate import Rows, evaluate

SELECTOR = "selector"


def unit_rows(given: Group) -> np.ndarray:
    """The rows (classes, m) of the m outcomes of a group: a gate has one for every class of its selectors."""
    k = given.distribution.classes
    return np.moveaxis(np.arange(given.size).reshape(len(given.order) // k, k, -1), 1, 0).reshape(k, -1)


def outcomes(group: FactorGroup, values: Values, key: PRNGKeyArray, dtype: Any, units: Any = None) -> Array:
    """Draws (m, *event) of the outcomes of a group, or of some of them, given values of all that they depend on."""
    with jax.named_scope(f"draw_{group.name}"):
        return _outcomes(group.given, values, key, dtype, units)


def _outcomes(given: Group, values: Values, key: PRNGKeyArray, dtype: Any, units: Any) -> Array:
    if given.distribution.classes == 1:
        return _drawn(given, values, key, dtype, units)
    table = jnp.asarray(unit_rows(given))
    table = table if units is None else table[:, units]
    every = _drawn(given, values, key, dtype, table.reshape(-1))
    every = every.reshape(*table.shape, *every.shape[1:])
    own = evaluate(given.arguments[SELECTOR], values, table.reshape(-1)).reshape(table.shape)
    return every[jnp.argmax(own, 0), jnp.arange(table.shape[1])]


def _drawn(given: Group, values: Values, key: PRNGKeyArray, dtype: Any, rows: Rows) -> Array:
    distribution: Any = getattr(given.distribution, "base", given.distribution)
    distribution = distribution if given.distribution.classes > 1 else given.distribution
    size = given.size if rows is None else len(rows)
    arguments = _numbers(given, distribution, values, dtype, rows)
    event, like = _like(given, distribution, arguments, dtype, size, rows)
    found = distribution.draw(key, like, **arguments)
    if found is None:
        shape = {"size": size, "shape": (size,), "order": (0,), "inner": (size,)}
        plain = given._replace(distribution=distribution, mask=None, **shape)
        found = _by_family(plain, arguments, event, key, dtype)
        found = _by_inverse(plain, arguments, like, key, dtype) if found is None else found
    return jnp.broadcast_to(found, like.shape) if distribution.family is None else found


def _numbers(given: Group, distribution: Any, values: Values, dtype: Any, rows: Rows) -> dict[str, Array]:
    """The arguments of a site at values of its variables."""
    arguments = {k: evaluate(x, values, rows) for k, x in given.arguments.items() if k not in ("out", SELECTOR)}
    arguments = {k: x if x.dtype == bool else x.astype(dtype) for k, x in arguments.items()}
    return distribution.plain(**arguments)


def conditional(given: Group, values: Values, dtype: Any) -> tuple[Array, Array] | None:
    """Means and variances of scalar latent outcomes at values of all that they depend on; None where their
    distribution is then in no family."""
    arguments = _numbers(given, given.distribution, values, dtype, None)
    shape = {"size": given.size, "shape": (given.size,), "order": (0,), "inner": (given.size,)}
    found = _in_family(given._replace(mask=None, **shape), arguments, (), dtype)
    return None if found is None else (found[0].mean - (0.0 if found[1] is None else found[1]), found[0].variance)


def _like(given: Group, distribution: Any, arguments: dict, dtype: Any, size: int, rows: Rows) -> tuple[Any, Array]:
    """The event shape of the natural parameters of an outcome, and an array shaped as outcomes: the data, or zeros."""
    out = given.arguments["out"]
    if isinstance(out, Variable):
        event = () if out.plane.family.core == "categorical" else out.plane.event_shape
        return out.plane.event_shape, jnp.zeros((size, *event), dtype)
    ndim = distribution.event_ndims.get("out", 0) or 0
    if getattr(out, "is_expression", False):  # of a structured precision: numbers, one for every row
        return (), jnp.zeros(size, dtype)
    data = jnp.asarray(out)
    data = data if rows is None or data.shape[0] == 1 else data[rows]
    data = jnp.broadcast_to(data, (size, *data.shape[data.ndim - ndim :])).astype(dtype)
    classes = [x.shape[-1] for k, x in arguments.items() if k in ("probs", "logits") and x.ndim > 1]
    event = (classes[0],) if distribution.support == "classes" and classes else data.shape[1:]
    return event, jnp.where(jnp.isfinite(data), data, distribution.placeholder)


def _by_family(given: Group, arguments: dict, event: Any, key: PRNGKeyArray, dtype: Any) -> Array | None:
    found = _in_family(given, arguments, event, dtype)
    if found is None:
        return None
    q, offset = found
    return q.sample(key) - offset if given.distribution.family.core == "gaussian" else q.sample(key)


def _in_family(given: Group, arguments: dict, event: Any, dtype: Any) -> tuple[Any, Any] | None:
    """Of an outcome in a family, with the arguments at numbers its distribution, the message of the factor, and by what
    a Gaussian is off."""
    family = given.distribution.family
    if family is None:
        return None
    plane = Plane(family, event)
    out = Variable(None, plane, np.arange(given.size))
    given = given._replace(arguments={"out": out, **arguments}, observed=False)
    lowered = lower_group(given, {plane: given.size}, dtype)
    if isinstance(lowered, list) or not lowered.conjugate:
        return None
    edge: Any = lowered.edges[0]
    message: Any = lowered.factor.message()[0]  # type: ignore[attr-defined]
    shapes = jax.eval_shape(lambda: family.flat((given.size,), event, dtype))
    q = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), message, shapes)
    return q, (edge.offset if family.core == "gaussian" else None)


def _by_inverse(given: Group, arguments: dict, like: Array, key: PRNGKeyArray, dtype: Any) -> Array:
    """Outcomes with `F(y) = u`, u uniform."""
    zero = jnp.full_like(like, given.distribution.placeholder)
    lowered = lower_group(given._replace(arguments={"out": zero, **arguments}, observed=True), {}, dtype)
    factor: Any = None if isinstance(lowered, list) else lowered.factor
    if factor is None or factor.support is None or like.ndim > 1:
        works = "its distribution needs a method draw(key, like, **arguments)"
        raise ModelError(Problem(given.name, None, f"no outcome of {given.distribution.label} can be drawn", works))
    constants = [] if isinstance(lowered, list) else lowered.constants
    mean, variance = (jnp.broadcast_to(x, like.shape) for x in factor.moments(*constants))
    tiny = float(np.finfo(dtype).eps)
    u = jax.random.uniform(key, like.shape, dtype, tiny, 1 - tiny)
    mean = jnp.where(jnp.isfinite(mean), mean, 1.0)
    found = INVERSE[factor.support](lambda y: jax.vmap(lambda row: factor.cdf(row, *constants))(y), u[None], mean,
                                    jnp.sqrt(variance))  # fmt: skip
    return found[0]
