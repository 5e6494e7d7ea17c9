r"""Deterministic nodes of small vectors: `out = g(x)` for a smooth g from $R^D$ to $R^M$ or to numbers.

The messages are those of the scalar node (`deterministic`): toward x the cavity of `out` read at $g(x)$, projected at
the marginal of x; toward `out` a Gaussian with the mean and covariance of $g(x)$ under the cavity of x. Both are taken
on the nodes of `quadrature` for vectors, which are products of Gauss-Hermite rules.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..distribution import CONSTANT, GAUSSIAN, MV_GAUSSIAN, Distribution, Lowered, Signature, same_function
from ..factor import AbstractQuadrature, Cavities, Families, LogMessage
from ..families import AbstractFamily, Gaussian, MvGaussian
from ..families.mv_gaussian import MOST_DIMENSIONS
from ..quadrature.projection import Quadrature, nodes, tangent_projection
from ..quadrature.tilted import tilted_evidence
from .captured import as_function, captured
from .deterministic import AbstractNode

_RULE = Quadrature()
_REFINEMENTS = 4


class VectorNode(AbstractNode):
    """`f(out, x) = delta(out - g(x, *constants))`; `width` is M, or None where g is a number."""

    families: Families = eqx.field(static=True)
    function: Callable[..., Array] = eqx.field(converter=as_function)
    width: int | None = eqx.field(static=True)
    constants: tuple[Float[Array, " #n"], ...]

    def __call__(self, x: Float[Array, "*q n D"]) -> Float[Array, "..."]:
        """`g(x)` of every vector."""
        batch = x.shape[:-1]
        constants = (jnp.broadcast_to(c, batch).reshape(-1) for c in self.constants)
        value = jax.vmap(self.function)(x.reshape(-1, x.shape[-1]), *constants)
        return value.reshape(*batch, *value.shape[1:])

    def log_density(self, out: Array, x: Array) -> Array:
        # A density on the surface out = g(x) only; no quadrature integrates it.
        same = out == self(x)
        return jnp.where(same if self.width is None else jnp.all(same, -1), 0.0, -jnp.inf)

    def forward(self, x: MvGaussian, quadrature: AbstractQuadrature) -> AbstractFamily:
        """The Gaussian with the mean and covariance of `g(x)`."""
        z, log_weights = nodes(quadrature, x)
        values, weights = self(z), jnp.exp(log_weights)
        if self.width is None:
            mean = jnp.sum(weights * values, axis=0)
            variance = jnp.sum(weights * (values - mean) ** 2, axis=0)
            least = jnp.finfo(variance.dtype).eps * (1e-6 + mean**2)  # where g is flat its value is known
            return Gaussian.from_mean_variance(mean, jnp.maximum(variance, least))
        mean = jnp.sum(weights[..., None] * values, axis=0)
        d = values - mean
        covariance = jnp.einsum("q...,q...i,q...j->...ij", weights, d, d)
        # Values on a surface of fewer dimensions are known across it, up to rounding.
        eps = float(jnp.finfo(covariance.dtype).eps)
        scale = jnp.trace(covariance, axis1=-2, axis2=-1) / self.width
        least = 1e-3 * eps**0.5 * scale + eps * (1e-6 + jnp.max(mean**2, -1))
        eye = jnp.eye(self.width, dtype=covariance.dtype)
        return MvGaussian.from_mean_covariance(mean, covariance + least[..., None, None] * eye)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        out, x = cavities
        if j == 0:
            return self.forward(x, _RULE).log_density
        return lambda z: out.log_density(self(z))

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        if j == 0:
            return self.forward(cavities[1], quadrature)
        return tangent_projection(marginal, self.log_message(1, cavities), quadrature)

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        if j == 0:  # between Gaussians, in closed form
            return -marginal.kl(self.forward(cavities[1], quadrature)) - marginal.entropy()
        z, log_weights = nodes(quadrature, marginal)
        return jnp.sum(jnp.exp(log_weights) * self.log_message(1, cavities)(z), axis=0)

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        """Nodes where the product of cavity and message is, found by projecting the message a few times.

        A narrow cavity of `out` needs nodes where it is, not where x is.
        """
        x, message = cavities[1], self.log_message(1, cavities)
        fixed = jax.lax.stop_gradient(x)
        about = fixed
        for _ in range(_REFINEMENTS):
            moved = fixed + tangent_projection(about, lambda z: jax.lax.stop_gradient(message(z)), _RULE)
            keep = moved.is_proper()
            about = jax.tree.map(lambda a, b, k=keep: jnp.where(k.reshape(*k.shape, *(1,) * (a.ndim - k.ndim)), a, b),
                                 moved, about)  # fmt: skip
        return tilted_evidence(jax.lax.stop_gradient(about), x, message, _RULE)

    def initial(self) -> tuple[AbstractFamily, None]:
        # `out` is known through x only: it starts at g of a guess of x, since flat it would be improper.
        if self.width is None:
            return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None
        eye = jnp.eye(self.width)[None]
        return MvGaussian.from_information(jnp.zeros_like(eye[..., 0]), eye), None


class VectorDeterministic(Distribution):
    """`ngmp.apply(g, x, *constants)` of a vector x: the variable `g(x)`. Not in the registry: it is no density."""

    __slots__ = ("event_shape", "family", "function")
    event_ndims: ClassVar = {"x": 1}
    placeholder = 0.0

    def __init__(self, function: Callable[..., Array], x: Any, *constants: Any):
        (d,) = x.event_shape
        if d > MOST_DIMENSIONS:
            raise ValueError(f"x is a vector of {d} entries; nodes are integrated over at most {MOST_DIMENSIONS}")
        self.function = function
        self.arguments = {"x": x, **{f"c{i + 1}": c for i, c in enumerate(constants)}}
        self.event_shape = _outcome(_Call(function, d, len(constants)))
        self.family = MvGaussian if self.event_shape else Gaussian  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def key(self) -> Hashable:
        return type(self), same_function(self.function), self.event_shape

    @property
    def signatures(self) -> tuple[Signature, ...]:
        constants = {k: CONSTANT for k in self.arguments if k != "x"}
        out = MV_GAUSSIAN if self.event_shape else GAUSSIAN
        return (Signature({"out": out, "x": MV_GAUSSIAN, **constants}, self._lower, VectorNode),)

    def _lower(self, out: Any, x: Any, **constants: Any) -> Lowered:
        values = tuple(jnp.asarray(c) for c in constants.values())
        width = self.event_shape[0] if self.event_shape else None
        families = (self.family, MvGaussian)
        scalar = jax.ShapeDtypeStruct((), jnp.result_type(float))
        vector = jax.ShapeDtypeStruct(x.event_shape, scalar.dtype)
        function = captured(self.function, vector, *(scalar,) * len(values))
        return Lowered(VectorNode(families, function, width, values), (out, x))  # pyright: ignore


class _Call:
    """A function and the sizes of its arguments; equal for lambdas of one place in a loop."""

    def __init__(self, function: Callable, d: int, constants: int):
        self.function, self.sizes = function, (d, constants)
        self.key = same_function(function), self.sizes

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.key == other.key


@functools.lru_cache(maxsize=256)
def _outcome(call: _Call) -> tuple[int, ...]:
    """The event shape of `g(x, *constants)`."""
    d, constants = call.sizes
    name = getattr(call.function, "__name__", "function")
    shapes = [jax.ShapeDtypeStruct(s, jnp.result_type(float)) for s in ((d,), *((),) * constants)]
    try:
        result = jax.eval_shape(call.function, *shapes)
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{name} cannot be evaluated on a vector of {d} and {constants} scalar(s): {text}") from error
    shape = getattr(result, "shape", None)
    if shape is None or len(shape) > 1:
        raise ValueError(f"{name} must return a scalar or a vector; it returns {result}")
    return shape
