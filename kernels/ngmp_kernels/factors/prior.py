"""What densities of one number share: see `priors`."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ..distribution import CONSTANT, Distribution, Lowered, Signature, as_float
from .generic import ConstantFactor

_INFINITE = float("inf")


class AbstractPrior(Distribution):
    """A density of one number: `log_density(out, **arguments)`, its `support`, and its moments where they exist."""

    __slots__ = ()
    family = None
    placeholder = 0.5
    kernels: ClassVar[tuple[Signature, ...]] = ()
    """Signatures besides that of constants only."""
    converted: ClassVar[tuple[str, ...]] = ()
    """Keywords that are turned into others when they are given."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "signatures" in vars(cls):
            return
        names = (*cls._positional, *cls._keywords)
        cls.event_ndims = dict.fromkeys(("out", *names), 0)
        constants = Signature(dict.fromkeys(("out", *cls._constants(names)), CONSTANT), cls._lower, ConstantFactor)
        cls.signatures = (constants, *cls.kernels)

    @classmethod
    def _constants(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """The parameters that are kept, of those that may be given."""
        return tuple(k for k in names if k not in cls.converted)

    @classmethod
    def _lower(cls, out: Any, **arguments: Any) -> Lowered:
        out, arguments = as_float(out), {k: as_float(v) for k, v in arguments.items()}
        return Lowered(constant(out, cls.log_density(out, **arguments), cls, arguments), ())

    @staticmethod
    def log_density(out: Any, **arguments: Any) -> Array:
        """The logarithm of the density at a point of the support."""
        raise NotImplementedError

    @staticmethod
    def moments(**arguments: Any) -> tuple[Any, Any]:
        """Mean and variance; infinite where they do not exist."""
        return _INFINITE, _INFINITE

    @staticmethod
    def conditions(**arguments: Any) -> dict[str, Any]:
        """What parameters must obey, in words."""
        return {f"the {name} must be positive and finite": (x > 0) & jnp.isfinite(x)
                for name, x in arguments.items() if name in ("std", "scale", "rate")}  # fmt: skip


def constant(out: Any, value: Array, owner: Any, arguments: dict[str, Any]) -> ConstantFactor:
    """The factor of outcomes whose log-densities are `value`, with what must hold of them."""
    inside = {
        "real": jnp.isfinite(out),
        "positive": (out > 0) & jnp.isfinite(out),
        "unit": (out > 0) & (out < 1),
        "interval": (out > arguments["low"]) & (out < arguments["high"]) if "low" in arguments else True,
    }
    conditions = owner.conditions(**arguments) | {
        "the outcome must be in the support": jnp.broadcast_to(inside[owner.support], value.shape),
        "the log-density must be a number, and not infinite, in the support": jnp.isfinite(value),
    }
    mean, variance = (jnp.broadcast_to(jnp.asarray(m, value.dtype), value.shape) for m in owner.moments(**arguments))
    return ConstantFactor(jnp.where(jnp.isfinite(value), value, 0.0), mean, variance, conditions)
