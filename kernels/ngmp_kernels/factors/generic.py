"""Factors that belong to no distribution: any log-density, and factors with no random variable left."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import Distribution, Lowered, Signature, same_function
from ..factor import (
    AbstractConjugate,
    AbstractFactor,
    AbstractProjected,
    Cavities,
    Families,
    LogMessage,
)
from ..families import FAMILIES, AbstractFamily, Gaussian
from ..families.mv_gaussian import MOST_DIMENSIONS
from ..nested import nested_quadrature
from ..quadrature.projection import Quadrature
from ..quadrature.start import peak
from .captured import as_function, captured


class ConstantFactor(AbstractConjugate):
    """A factor whose arguments are all constants: it adds `value` to the log-evidence, and predicts its outcome.

    `conditional` is a factor whose outcome at `values` of its interfaces has the same distribution, or None.
    """

    interfaces: ClassVar[tuple[str, ...]] = ()
    families: ClassVar[Families] = ()
    value: Float[Array, " #n"]
    mean: Float[Array, "#n *event"]
    variance: Float[Array, "#n *event"]
    conditions: dict[str, Bool[Array, " #n"]]
    conditional: AbstractFactor | None = None
    values: tuple[Array, ...] = ()

    @property
    def support(self) -> str | None:
        return None if self.conditional is None else self.conditional.support

    def log_density(self) -> Array:
        return self.value

    def message(self) -> tuple[None, Array]:
        return None, self.value

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return self.conditions

    def moments(self) -> tuple[Array, Array]:
        return self.mean, self.variance

    def cdf(self, out: Array) -> Array:
        assert self.conditional is not None
        return self.conditional.cdf(out, *self.values)


class GenericFactor(AbstractProjected):
    """Any log-density of scalar variables: of up to three by nested quadrature, of up to six Gaussian ones jointly.

    Attributes:
        log_density_fn: `(z_1, ..., z_d, *constants) -> scalar` for *one* factor; it is vectorised here.
        constants: arrays with a leading axis n or 1, followed by any event axes.
        families: the family of each variable.
        order: the position of every argument of `log_density_fn` in `(z_1, ..., z_d, *constants)`; None: as they come.
    """

    hard: ClassVar[bool] = True  # nothing is known of it
    log_density_fn: Callable[..., Array] = eqx.field(converter=as_function)
    constants: tuple[Array, ...]
    families: Families = eqx.field(static=True)
    order: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        others = sum(f is not Gaussian for f in self.families)
        if not 1 <= len(self.families) <= MOST_DIMENSIONS or len(self.families) > 3 and others > 1:
            works = "one to three variables, or up to six of which all but one are Gaussian"
            raise ValueError(f"a generic factor joins {works}; got {len(self.families)}, {others} of them not Gaussian")
        vectors = [f.__name__ for f in self.families if f.integrated != "always"]
        if vectors:
            raise ValueError(f"a generic factor joins scalar variables; {', '.join(vectors)} ones are not")

    @property
    def joins(self) -> str:  # type: ignore[override]
        """Nested one in the other, more than three integrals are too many."""
        return "always" if len(self.families) > 3 else "shared"

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(f"z{i + 1}" for i in range(len(self.families)))

    def _single(self, *values: Array) -> Array:
        return self.log_density_fn(*(values if self.order is None else (values[i] for i in self.order)))

    def log_density(self, *z: Array) -> Array:
        return self.each(self._single, *z)

    def each(self, function: Callable[..., Array], *z: Array) -> Array:
        """`function(z_1, ..., z_d, *constants)`, of one factor, for all of them."""
        n = max(x.shape[-1] for x in z)
        n = max([n, *(c.shape[0] for c in self.constants)])
        shape = (*jnp.broadcast_shapes(*(x.shape[:-1] for x in z)), n)
        # What is the same for all n stays without their axis, and so does what is computed of it.
        one = [n > 1 == x.shape[-1] for x in z]
        flat = [jnp.broadcast_to(x[..., 0], shape[:-1]).reshape(-1) if alone
                else jnp.broadcast_to(x, shape).reshape(-1, n) for x, alone in zip(z, one, strict=True)]  # fmt: skip
        axes = [0 if c.shape[0] == n else None for c in self.constants]
        constants = [jnp.asarray(c if axis == 0 else c[0]) for c, axis in zip(self.constants, axes, strict=True)]
        over_n = jax.vmap(function, in_axes=(*(None if alone else 0 for alone in one), *axes))
        value = jax.vmap(over_n, in_axes=(*(0 for _ in z), *(None for _ in axes)))(*flat, *constants)
        if jnp.ndim(value) != 2:
            raise ValueError(f"the log-density of one factor must be a scalar; got shape {value.shape[2:]}")
        return value.reshape(shape)

    def log_message(self, j: int, cavities: Cavities) -> LogMessage:
        if len(self.families) == 1:
            return self.log_density
        return nested_quadrature(self, j, cavities, Quadrature())

    def initial(self) -> tuple[AbstractFamily | None, ...]:
        # Of several interfaces, each may have its peak where another is at its end: they start flat.
        if self.families != (Gaussian,):
            return super().initial()
        n = max([1, *(c.shape[0] for c in self.constants)])
        floats = [c.dtype for c in self.constants if jnp.issubdtype(c.dtype, jnp.floating)]
        return (peak(self.log_density, n, jnp.result_type(*(floats or [float]))),)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        raise ValueError("a factor given by its log-density has no outcome to predict")


class GenericDensity(Distribution):
    """`ngmp.factor(name, log_density, *arguments)`: any log-density of scalars, one for every argument, in order.

    Not in the registry: its one signature is made for the arguments at hand.
    """

    __slots__ = ("log_density",)
    family = None
    event_ndims: ClassVar = {}  # every argument is a scalar
    placeholder = 0.0

    def __init__(self, log_density: Callable[..., Array], arguments: tuple[Any, ...]):
        self.log_density = log_density
        self.arguments = {f"z{i + 1}": value for i, value in enumerate(arguments)}

    @property
    def label(self) -> str:
        return self.said or "ngmp.factor"

    @property
    def key(self) -> Hashable:
        return type(self), same_function(self.log_density)

    @property
    def signatures(self) -> tuple[Signature, ...]:
        kinds = frozenset({"constant", *(kind for kind, f in FAMILIES.items() if f.integrated == "always")})
        return (Signature(dict.fromkeys(self.arguments, kinds), self._lower, GenericFactor),)

    def _lower(self, **arguments: Any) -> Lowered:
        return self.at(*arguments.values())

    def at(self, *values: Any) -> Lowered:
        """The factor of these arguments, constants as arrays."""
        constant = [isinstance(v, (jax.Array, np.ndarray)) for v in values]
        if all(constant):
            return self._numbers(values)
        sequence = sorted(range(len(values)), key=lambda i: constant[i])  # variables first; stable
        order = tuple(sequence.index(i) for i in range(len(values)))
        variables = tuple(values[i] for i in sequence if not constant[i])
        constants = tuple(values[i] for i in sequence if constant[i])
        kinds = tuple(FAMILIES[v.kind] for v in variables)
        function = self._try(kinds, constants, order)
        factor = GenericFactor(function, constants, kinds, order=order)  # pyright: ignore[reportCallIssue]
        return Lowered(factor, variables)

    def _numbers(self, constants: Sequence[Array]) -> Lowered:
        """Of numbers only, where hyperparameters are integrated."""
        n = max(c.shape[0] for c in constants)
        value = jax.vmap(self.log_density)(*(jnp.broadcast_to(c, (n, *c.shape[1:])) for c in constants))
        finite = {"the log-density must be finite": jnp.isfinite(value)}
        return Lowered(ConstantFactor(value, jnp.zeros_like(value), jnp.zeros_like(value), finite), ())

    def _try(self, kinds: Families, constants: tuple[Any, ...], order: tuple[int, ...]) -> Any:
        """The log-density, after it was called on abstract scalars, so that its mistakes are reported with the site."""
        dtypes = [jnp.result_type(int if k.core == "categorical" else float) for k in kinds]
        scalars = [jax.ShapeDtypeStruct((), dtype) for dtype in dtypes]
        values = [*scalars, *(jax.ShapeDtypeStruct(c.shape[1:], c.dtype) for c in constants)]
        name, count = getattr(self.log_density, "__name__", "log_density"), len(order)
        try:
            result = jax.eval_shape(self.log_density, *(values[i] for i in order))
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(
                f"the log-density {name} cannot be evaluated on {count} scalar(s), one for every argument: {text}"
            ) from error
        if getattr(result, "shape", None) != ():
            raise ValueError(f"the log-density {name} must return a scalar; it returns {result}")
        return captured(self.log_density, *(values[i] for i in order))
