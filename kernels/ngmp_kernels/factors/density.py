"""Any density of one number: a prior of hyperparameters, or, with parameters, a likelihood."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..distribution import CONSTANT, Lowered, Signature, as_float, same_function
from ..numerics.supports import from_real, log_slope
from .generic import ConstantFactor, GenericDensity, GenericFactor
from .prior import AbstractPrior, constant
from .priors import Uniform

_TABLE = 8193


class Density(AbstractPrior):
    """`Density(log_density, support)`: any density of one number, not necessarily normalised; and
    `Density(log_density, f, s, ...)`: a likelihood, `log_density(y, f, s, ...)` of an observation y.

    Args:
        log_density: a function of a number, and of the parameters, written with `jax.numpy`.
        parameters: constants, variables, or scalar affine expressions of Gaussian ones.
        support: "real", "positive", "unit", or the two ends of an interval; also as the only other argument.
    """

    __slots__ = ("function", "support")
    event_ndims: ClassVar = {"out": 0, "low": 0, "high": 0}

    def __init__(self, log_density: Callable[..., Any], *parameters: Any, support: Any = "real"):
        if len(parameters) == 1 and _is_support(parameters[0]):
            parameters, support = (), parameters[0]
        if not callable(log_density):
            raise TypeError(f"Density was given {log_density!r}, which cannot be called; give a function of a number")
        ends = () if isinstance(support, str) else tuple(np.asarray(support, float).reshape(-1))
        if not (support in ("real", "positive", "unit") if isinstance(support, str) else len(ends) == 2):
            works = "give 'real', 'positive', 'unit', or the two ends of an interval, (0.0, 2.0)"
            raise ValueError(f"Density was given the support {support!r}; {works}")
        self.function, self.support = log_density, "interval" if ends else support
        self.arguments = {"low": ends[0], "high": ends[1]} if ends else {}
        if parameters:
            self.arguments = {f"z{i + 1}": value for i, value in enumerate(parameters)}
            self.support = None

    @property
    def key(self) -> Hashable:
        return Density, same_function(self.function), self.support

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        if any(name.startswith("z") for name in self.arguments):
            (own,) = GenericDensity(self.function, (None, *self.arguments)).signatures
            kinds = next(iter(own.arguments.values()))
            return (Signature({"out": CONSTANT, **dict.fromkeys(self.arguments, kinds)}, self._observe, GenericFactor),)
        return (Signature(dict.fromkeys(("out", *self.arguments), CONSTANT), self._apply, ConstantFactor),)

    def _observe(self, out: Any, **parameters: Any) -> Lowered:
        return GenericDensity(self.function, ()).at(out, *parameters.values())

    def _apply(self, out: Any, **arguments: Any) -> Lowered:
        out, arguments = jnp.asarray(as_float(out)), {k: as_float(v) for k, v in arguments.items()}
        value = jax.vmap(self.function)(out.reshape(-1)).reshape(out.shape)
        return Lowered(constant(out, value, self, arguments), ())

    def draw(self, key: Any, like: Any, **arguments: Any) -> Any:
        """By the inverse of the distribution function, tabulated on the real line: `t -> sinh t` reaches far tails."""
        ends = tuple(x.reshape(-1)[0] for x in arguments.values()) or (0.0, 1.0)
        reach = float(jnp.arcsinh(30.0 if self.support != "real" else 1e6))
        u = jnp.sinh(jnp.linspace(-reach, reach, _TABLE, dtype=like.dtype))
        x = from_real(self.support, u, ends)  # type: ignore[arg-type]
        log = jax.vmap(self.function)(x) + log_slope(self.support, u, ends)  # type: ignore[arg-type]
        log = jnp.where(jnp.isfinite(log), log, -jnp.inf)
        density = jnp.exp(log - jnp.max(log))
        mass = jnp.cumsum(0.5 * (density[1:] + density[:-1]) * jnp.diff(u))
        cdf = jnp.concatenate([jnp.zeros_like(mass[:1]), mass]) / mass[-1]
        at = jnp.interp(jax.random.uniform(key, like.shape, like.dtype), cdf, u)
        return from_real(self.support, at, ends)  # type: ignore[arg-type]

    @staticmethod
    def conditions(**arguments: Any) -> dict[str, Any]:
        return Uniform.conditions(**arguments) if arguments else {}

    @staticmethod
    def moments(**arguments: Any) -> tuple[Any, Any]:
        return Uniform.moments(**arguments) if arguments else (float("inf"), float("inf"))


def _is_support(given: Any) -> bool:
    """Whether an argument is a support and no parameter: a word, or two numbers."""
    return isinstance(given, (str, tuple, list))
