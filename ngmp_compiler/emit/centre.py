r"""The log-integral of the Gaussian core from residuals at its mean, so that data far from zero cost no digits.

The integral of $\exp\{\sum_f g_f(r_f)\}$, with $g(r) = \xi r - \tfrac12 \Lambda r^2$ on affine functionals r of x, is

$$ \log Z = \sum_f g_f(\hat r_f) + \tfrac12 \log\det(2\pi C), $$

with $\hat r$ at the mean $\hat x$: a sum of squared residuals where the textbook has a difference of quadratic forms as
large as the square of the data. A mean that is off by a rounding error changes it to second order only. Since $\hat x$
is where the exponent is largest, its own derivative does not matter for that of $\log Z$, and is left out.

In single precision the executors of chains solve for deviations d from a level, $x = \bar x + d$ and
$r = \bar r + \delta$, under leaves on $\delta$, $(\xi - \Lambda\bar r)\,\delta - \tfrac12 \Lambda\delta^2$.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..executors import Centred
from ..graph.edges import Functional, Link
from ..graph.index import GivenMap, index_map
from ..graph.planes import Plane


class Term(NamedTuple):
    """A leaf on a functional and the numbers of the functional: its offset and coefficients."""

    leaf: Any
    offset: Float[Array, "#n *width"]
    coefficients: tuple[Any, ...]


def term(functional: Functional, leaf: Any, offset: Any = None) -> Term:
    """A term of a functional, with another offset if one is given."""
    return Term(leaf, functional.offset if offset is None else offset, tuple(k.coefficient for k in functional.links))


def value(functional: Functional, given: Term, means: dict[Plane, Array]) -> Float[Array, "n *width"]:
    """The functional at values of the variables. Scalars of a plane are one term, however many they are."""
    total: Any = given.offset
    scalars: dict[Plane, list[tuple[np.ndarray, Any]]] = {}
    for (plane, index, op, _), c in zip(functional.links, given.coefficients, strict=True):
        if op == "scale" and functional.width is None and not isinstance(index, GivenMap):
            scalars.setdefault(plane, []).append((index.positions, c))
            continue
        if op == "dot" and index.kind == "one":
            total = total + c @ means[plane][index.start]
            continue
        x = index.take(means[plane])
        if op == "scale":
            total = total + (x if c is None else jnp.asarray(c).reshape(-1, *(1,) * (x.ndim - 1)) * x)
        elif op == "dot":
            total = total + jnp.sum(c * x, -1)
        else:
            x = x if plane.event_shape else x[..., None]
            total = total + (x @ c[0].T if c.shape[0] == 1 else jnp.sum(c * x[..., None, :], -1))
    for plane, terms in scalars.items():
        total = total + _summed(terms, means[plane])
    event = () if functional.width is None else (functional.width,)
    return jnp.broadcast_to(total, (functional.n, *event))


def _summed(terms: list[tuple[np.ndarray, Any]], x: Float[Array, " size"]) -> Float[Array, " n"]:
    """The sum of scalars, each (positions, coefficient), of one plane."""
    each = index_map(np.concatenate([at for at, _ in terms]), len(x)).take(x).reshape(len(terms), -1)
    if any(c is not None for _, c in terms):
        each *= jnp.stack(jnp.broadcast_arrays(*(jnp.ones(1, x.dtype) if c is None else c for _, c in terms)))
    return each.sum(0)


def at_mean(functionals: list[Functional], terms: list[Term], means: dict[Plane, Array]) -> Float[Array, ""]:
    """`sum_f g_f(r_f)` at the mean, which maximises it: derivatives are those at a fixed mean, to every order."""
    planes = list(means)
    traced, fixed = eqx.partition(functionals, eqx.is_array)  # indices may be inputs: nothing traced is closed over

    def total(point: list[Array], terms: list[Term], traced: Any) -> Array:
        at = dict(zip(planes, point, strict=True))
        pairs = zip(eqx.combine(traced, fixed), terms, strict=True)
        each = [jnp.sum(exponent(t.leaf, value(f, t, at))) for f, t in pairs]
        return sum(each, jnp.zeros(()).astype(point[0].dtype))

    @jax.custom_jvp
    def largest(point: list[Array], terms: list[Term], traced: Any) -> Array:
        return total(point, terms, traced)

    @largest.defjvp
    def largest_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        point, terms, traced = primals
        _, tangent = jax.jvp(lambda t: total(point, t, traced), (terms,), (tangents[1],))
        return largest(point, terms, traced), tangent

    return largest([means[plane] for plane in planes], terms, traced)


def _times(matrix: Float[Array, "#n d d"], vector: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Products with symmetric matrices; with one matrix for all rows they are a single one."""
    return vector @ matrix[0] if matrix.shape[0] == 1 else jnp.sum(matrix * vector[..., None, :], -1)


def centre(leaf: Any, value: Float[Array, "n *width"]) -> Centred:
    """A leaf on the deviation from a value."""
    if value.ndim == 1:
        return Centred(leaf.eta1 + 2 * leaf.eta2 * value, leaf.eta2)
    return Centred(leaf.eta1 + 2 * _times(leaf.eta2, value), leaf.eta2)


def exponent(leaf: Any, mean: Float[Array, "n *width"], spread: Any = 0.0) -> Float[Array, " n"]:
    """`xi . m - tr Lambda (m m^T + V) / 2`: the expected exponent of a leaf."""
    if mean.ndim == 1:
        return leaf.eta1 * mean + leaf.eta2 * (mean**2 + spread)
    found = jnp.sum((leaf.eta1 + _times(leaf.eta2, mean)) * mean, -1)
    return found if jnp.ndim(spread) == 0 else found + jnp.sum(leaf.eta2 * spread, (-2, -1))


# -- functionals that are constants -----------------------------------------------------------------------------------
#
# Rows of zero coefficients, known when the program runs or not before. The marginal of such an interface is a point
# mass. In place of its variance, zero, it gets one that is small against those of its neighbours, of their geometric
# mean eps^{3/4} and no more than a part of 10^10: large enough that the nodes of a quadrature stay apart, and so small
# that no factor can tell, which multiplies it by as much as the square of its curvature. Its leaf acts on nothing, so
# its cavity is its marginal; the leaf itself is the limit of the projection at a point, the message with the same two
# derivatives there.

_NARROW = 1e-10
_APART = 64.0  # rounding units of its mean: the least standard deviation of a point


def may_vanish(functional: Functional) -> bool:
    """Whether a row of a functional can be a constant: not if a coefficient is one, or known not to be zero, of a
    variable that indices which are inputs cannot pick twice."""
    links = functional.links
    picked = [k for k in links if isinstance(k.index, GivenMap)]  # of two that meet, one is

    def alone(link: Link) -> bool:
        others = links if isinstance(link.index, GivenMap) else picked
        return not any(_may_meet(link, o) for o in others if o is not link)

    sure = [_nonzero(k.coefficient, k.op) for k in links if alone(k)]
    return not np.all(functools.reduce(np.logical_or, sure, np.asarray(False)))


def _may_meet(one: Link, other: Link) -> bool:
    """Whether two links may turn out to be of one variable when the program runs."""
    maps = one.index, other.index
    if one.plane != other.plane or not any(isinstance(x, GivenMap) for x in maps):
        return False
    tables = [x.table if isinstance(x, GivenMap) else x.positions for x in maps]
    return bool(np.isin(tables[0], tables[1]).any())


def _nonzero(c: Any, op: str) -> Any:
    """Where a coefficient, or a row of one, is known not to be zero."""
    if c is None:
        return np.asarray(True)
    if not isinstance(c, np.ndarray):
        return np.asarray(False)
    return c != 0 if op == "scale" else np.any(c, -1)


def widen(
    mean: Float[Array, "n *width"], spread: Float[Array, "n *width width"], several: bool
) -> tuple[Float[Array, "n *width width"], Bool[Array, " n"]]:
    """Variances (or covariances) with those that are zero, to rounding, replaced; and which rows are points.

    Of several variables, which may cancel, that is a matter of rounding; of one, the coefficients are zero.
    """
    variance = spread if mean.ndim == 1 else jnp.diagonal(spread, axis1=-2, axis2=-1)
    fixed, centre = jax.lax.stop_gradient((variance, mean))
    unit, typical = float(jnp.finfo(variance.dtype).eps), _typical(fixed, centre)
    # Not if it is negative by more: that is improper. A datum may be known 10^7 times better than its neighbours.
    flat = jnp.abs(fixed) <= jnp.where(several | (fixed <= 0), unit**0.75, unit**2) * typical
    floor = jnp.maximum(min(unit**0.75, _NARROW) * typical, (_APART * unit * centre) ** 2)
    if mean.ndim == 1:
        return jnp.where(flat, jnp.maximum(variance, floor), variance), flat
    missing = jnp.where(flat, jnp.maximum(floor - fixed, 0), 0)
    return spread + missing[..., None] * jnp.eye(missing.shape[-1], dtype=missing.dtype), jnp.all(flat, -1)


def _typical(variance: Array, mean: Array) -> Float[Array, ""]:
    """The geometric mean of the positive variances, the mean square of the values if there are none, or else one."""
    positive = variance > 0
    count = jnp.sum(positive)
    logs = jnp.sum(jnp.log(jnp.where(positive, variance, 1)))
    square = jnp.mean(mean**2)
    return jnp.where(count > 0, jnp.exp(logs / jnp.maximum(count, 1)), jnp.where(square > 0, square, 1))
