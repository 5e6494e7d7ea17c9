"""Any density of one number, as a prior of hyperparameters."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..distribution import CONSTANT, Lowered, Signature, as_float, same_function
from .generic import ConstantFactor
from .priors import AbstractPrior, Uniform, constant


class Density(AbstractPrior):
    """`Density(log_density, support)`: any density of one number, not necessarily normalised.

    Args:
        log_density: a function of a number, written with `jax.numpy`.
        support: "real", "positive", "unit", or the two ends of an interval.
    """

    __slots__ = ("function", "support")
    event_ndims: ClassVar = {"out": 0, "low": 0, "high": 0}

    def __init__(self, log_density: Callable[[Any], Any], support: Any = "real"):
        if not callable(log_density):
            raise TypeError(f"Density was given {log_density!r}, which cannot be called; give a function of a number")
        ends = () if isinstance(support, str) else tuple(np.asarray(support, float).reshape(-1))
        if not (support in ("real", "positive", "unit") if isinstance(support, str) else len(ends) == 2):
            works = "give 'real', 'positive', 'unit', or the two ends of an interval, (0.0, 2.0)"
            raise ValueError(f"Density was given the support {support!r}; {works}")
        self.function, self.support = log_density, "interval" if ends else support
        self.arguments = {"low": ends[0], "high": ends[1]} if ends else {}

    @property
    def key(self) -> Hashable:
        return Density, same_function(self.function), self.support

    @property
    def signatures(self) -> tuple[Signature, ...]:  # type: ignore[override]
        return (Signature(dict.fromkeys(("out", *self.arguments), CONSTANT), self._apply, ConstantFactor),)

    def _apply(self, out: Any, **arguments: Any) -> Lowered:
        out, arguments = jnp.asarray(as_float(out)), {k: as_float(v) for k, v in arguments.items()}
        value = jax.vmap(self.function)(out.reshape(-1)).reshape(out.shape)
        return Lowered(constant(out, value, self, arguments), ())

    @staticmethod
    def conditions(**arguments: Any) -> dict[str, Any]:
        return Uniform.conditions(**arguments) if arguments else {}

    @staticmethod
    def moments(**arguments: Any) -> tuple[Any, Any]:
        return Uniform.moments(**arguments) if arguments else (float("inf"), float("inf"))
