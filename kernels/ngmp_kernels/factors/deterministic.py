r"""Deterministic nodes: `out = g(x)` for a smooth scalar function g, `ngmp.apply(g, x)`.

The node is the factor $\delta(out - g(x))$. Toward x its exact log-message is the cavity of `out` read at $g(x)$,
projected at the marginal of x like any other. Toward `out` it is the density of $g(x)$ under the cavity of x; that is
matched in its first two moments, since a tangent projection of it has negative precisions wherever g folds.
A `ClosedForm` function brings the moments it takes along; of any other they are sums over quadrature nodes.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..distribution import CONSTANT, GAUSSIAN, Distribution, Lowered, Signature, same_function
from ..factor import AbstractProjected, AbstractQuadrature, Cavities, Families, LogMessage
from ..families import AbstractFamily, Gaussian
from ..quadrature.predictive import tilted_log_density
from ..quadrature.projection import Quadrature, expectation, nodes, tangent_projection
from .captured import as_function, captured
from .closed_form import ClosedForm, expected_log_density

_RULE = Quadrature()


class AbstractNode(AbstractProjected):
    """What nodes `f(out, x) = delta(out - g(x, *constants))` of scalars and of vectors share."""

    interfaces: ClassVar[tuple[str, ...]] = ("out", "x")
    deterministic: ClassVar[bool] = True
    constants: eqx.AbstractVar[tuple[Float[Array, " #n"], ...]]

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        if not self.constants:
            return {}
        finite = [jnp.isfinite(c) for c in self.constants]
        return {"constants of the function must be finite": functools.reduce(jnp.logical_and, finite)}

    def moments(self, out: Array, x: Array) -> tuple[Array, Array]:
        raise ValueError("a deterministic node has no outcome to predict")


class DeterministicNode(AbstractNode):
    """`f(out, x) = delta(out - g(x, *constants))`, with g a function of scalars."""

    families: ClassVar[Families] = (Gaussian, Gaussian)
    function: Callable[..., Array] = eqx.field(converter=as_function)
    constants: tuple[Float[Array, " #n"], ...]

    def __call__(self, x: Float[Array, "*q n"]) -> Float[Array, "*q n"]:
        """`g(x)`, elementwise."""
        arguments = jnp.broadcast_arrays(x, *self.constants)
        value = jax.vmap(self.function)(*(a.reshape(-1) for a in arguments))
        return value.reshape(x.shape)

    def log_density(self, out: Array, x: Array) -> Array:
        # A density on the line out = g(x) only; no quadrature integrates it.
        return jnp.where(out == self(x), 0.0, -jnp.inf)

    def forward(self, x: Gaussian, quadrature: AbstractQuadrature) -> Gaussian:
        """The Gaussian with the mean and variance of `g(x)`."""
        if isinstance(self.function, ClosedForm):
            mean, variance = self.function.moments(x.mean, x.variance, *self.constants)
        else:
            z, log_weights = nodes(quadrature, x)
            weights, values = jnp.exp(log_weights), self(z)
            mean = jnp.sum(weights * values, axis=0)
            variance = jnp.sum(weights * (values - mean) ** 2, axis=0)
        # Where g is flat its value is known, up to rounding.
        least = jnp.finfo(variance.dtype).eps * (1e-6 + mean**2)
        return Gaussian.from_mean_variance(mean, jnp.maximum(variance, least))

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
        if isinstance(self.function, ClosedForm):
            return self.function.project(marginal, cavities[0], self.constants)  # pyright: ignore[reportArgumentType]
        return tangent_projection(marginal, self.log_message(1, cavities), quadrature)

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Array:
        if not isinstance(self.function, ClosedForm):
            return expectation(marginal, self.log_message(j, cavities), quadrature)
        if j == 0:
            q: Any = marginal
            return expected_log_density(self.forward(cavities[1], quadrature), q.mean, q.variance)
        forward = self.forward(marginal, quadrature)  # pyright: ignore[reportArgumentType]
        return expected_log_density(cavities[0], forward.mean, forward.variance)

    def log_evidence(self, cavities: Cavities, quadrature: AbstractQuadrature) -> Array:
        # A narrow cavity of `out` needs nodes where it is, not where x is.
        return tilted_log_density(cavities[1], self.log_message(1, cavities), None)

    def initial(self) -> tuple[Gaussian, None]:
        # `out` is known through x only: it starts at g of a guess of x, since flat it would be improper.
        return Gaussian.from_mean_variance(jnp.zeros(1), jnp.ones(1)), None


class Deterministic(Distribution):
    """`ngmp.apply(g, x, *constants)`: the variable `g(x)`. Not in the registry: it is no density."""

    __slots__ = ("function",)
    family = Gaussian
    event_ndims: ClassVar = {}
    placeholder = 0.0

    def __init__(self, function: Callable[..., Array], x: Any, constants: tuple[Any, ...]):
        self.function = function
        self.arguments = {"x": x, **{f"c{i + 1}": c for i, c in enumerate(constants)}}

    @property
    def key(self) -> Hashable:
        return type(self), same_function(self.function)

    @property
    def signatures(self) -> tuple[Signature, ...]:
        constants = {k: CONSTANT for k in self.arguments if k != "x"}
        return (Signature({"out": GAUSSIAN, "x": GAUSSIAN, **constants}, self._lower, DeterministicNode),)

    def _lower(self, out: Any, x: Any, **constants: Any) -> Lowered:
        values = tuple(jnp.asarray(c) for c in constants.values())
        scalars = [jax.ShapeDtypeStruct((), jnp.result_type(float))] * (1 + len(values))
        name = getattr(self.function, "__name__", "function")
        try:
            result = jax.eval_shape(self.function, *scalars)
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"{name} cannot be evaluated on {len(scalars)} scalar(s): {text}") from error
        if getattr(result, "shape", None) != ():
            raise ValueError(f"{name} must return a scalar; it returns {result}")
        function = captured(self.function, *scalars)
        return Lowered(DeterministicNode(function=function, constants=values), (out, x))  # pyright: ignore[reportCallIssue]
