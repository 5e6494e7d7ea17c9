r"""The log-integral of the Gaussian core from residuals at its mean, so that data far from zero cost no digits.

The integral of $\exp\{\sum_f g_f(r_f)\}$, with $g(r) = \xi r - \tfrac12 \Lambda r^2$ on affine functionals r of x, is

$$ \log Z = \sum_f g_f(\hat r_f) + \tfrac12 \log\det(2\pi C), $$

with $\hat r$ at the mean $\hat x$: a sum of squared residuals where the textbook has a difference of quadratic forms as
large as the square of the data. A mean that is off by a rounding error changes it to second order only. Since $\hat x$
is where the exponent is largest, its own derivative does not matter for that of $\log Z$, and is left out.

In single precision the executors of chains solve for deviations d from a level, $x = \bar x + d$ and
$r = \bar r + \delta$, under leaves on $\delta$, $(\xi - \Lambda\bar r)\,\delta - \tfrac12 \Lambda\delta^2$.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..executors import Centred
from ..graph.edges import Functional
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
    """The functional at values of the variables."""
    total: Any = given.offset
    for (plane, index, op, _), c in zip(functional.links, given.coefficients, strict=True):
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
    event = () if functional.width is None else (functional.width,)
    return jnp.broadcast_to(total, (functional.n, *event))


def at_mean(functionals: list[Functional], terms: list[Term], means: dict[Plane, Array]) -> Float[Array, ""]:
    """`sum_f g_f(r_f)` at the mean, which maximises it: derivatives are those at a fixed mean, to every order."""
    planes = list(means)

    def total(point: list[Array], terms: list[Term]) -> Array:
        at = dict(zip(planes, point, strict=True))
        each = [jnp.sum(exponent(t.leaf, value(f, t, at))) for f, t in zip(functionals, terms, strict=True)]
        return sum(each, jnp.zeros(()).astype(point[0].dtype))

    @jax.custom_jvp
    def largest(point: list[Array], terms: list[Term]) -> Array:
        return total(point, terms)

    @largest.defjvp
    def largest_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        point, terms = primals
        _, tangent = jax.jvp(lambda t: total(point, t), (terms,), (tangents[1],))
        return largest(point, terms), tangent

    return largest([means[plane] for plane in planes], terms)


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
