r"""An energy of marginals: a term $J[q]$ of the free energy that is no expected log-density of values.

Its leaf on an interface is minus its gradient in the mean parameters of the marginals there,
$\eta^*_j = -\nabla_{\mu_j} J$, so that at a fixed point the free energy of the core plus J is stationary.
"""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..distribution import Distribution, Lowered, Signature, same_function
from ..factor import AbstractProjected, Cavities, Families, LogMessage
from ..families import FAMILIES, AbstractFamily
from ..quadrature.projection import AbstractQuadrature
from .captured import as_function, captured

_NOT_VALUES = "an energy of marginals (ngmp.functional) is no function of values: the model has no density with it"


class EnergyFactor(AbstractProjected):
    """`exp(-J[q])`: one factor of whole variables, every interface of as many rows as its variable has elements.

    Attributes:
        energy: of the natural parameters of all interfaces, block by block, and then of the constants.
        constants: arrays with a leading axis of one.
        families: the family of each variable.
        shapes: its batch shape, which the energy sees it in.
    """

    joins: ClassVar[str] = "asked"
    energy: Callable[..., Array] = eqx.field(converter=as_function)
    constants: tuple[Array, ...]
    families: Families = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(f"z{i + 1}" for i in range(len(self.families)))

    def value(self, marginals: Cavities) -> Float[Array, ""]:
        """`J[q]`."""
        blocks = []
        for q, shape in zip(marginals, self.shapes, strict=True):
            # Of a variable of one element that is shared there is one row.
            blocks += [x.reshape(*shape, *x.shape[1:]) for x in q.natural]
        return self.energy(*blocks, *(c[0] for c in self.constants))

    def mean_field_projection(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> AbstractFamily:
        """`-grad_mu J` toward interface j, all rows at once."""

        def minus(q: AbstractFamily) -> Array:
            return -self.value(tuple(q if i == j else other for i, other in enumerate(marginals)))

        return marginals[j].slope(minus)

    def expected_log_density(self, marginals: Cavities, quadrature: AbstractQuadrature) -> Float[Array, " 1"]:
        return -self.value(marginals)[None]

    def project(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> AbstractFamily:
        return self.mean_field_projection(j, (marginal,), quadrature)

    def expected_log_message(
        self, j: int, marginal: AbstractFamily, cavities: Cavities, quadrature: AbstractQuadrature
    ) -> Float[Array, " 1"]:
        return self.expected_log_density((marginal,), quadrature)

    def settle(self, marginal: Any, cavity: Any, leaf: Any, once: Any) -> Any:
        return once  # its rows are not independent of each other

    def mean_field_message(self, j: int, marginals: Cavities, quadrature: AbstractQuadrature) -> LogMessage:
        """Toward an interface that is a constant: nothing. Toward any other there is no function of values."""
        return lambda z: jnp.zeros_like(z)

    def has_projection(self) -> bool:
        return False  # of an exact log-message: there is none, and NGMP and EP take this factor by mean field

    def in_family(self) -> tuple[bool, ...]:
        return (True,) * len(self.families)

    def log_density(self, *z: Array) -> Array:
        raise ValueError(_NOT_VALUES)

    def checks(self) -> dict[str, Bool[Array, " #n"]]:
        return {}

    def moments(self, *z: Array) -> tuple[Array, Array]:
        raise ValueError(f"{_NOT_VALUES}, and no outcome to predict")


class EnergyOf(Distribution):
    """`ngmp.functional(name, energy, *arguments)`: what is declared of an energy of whole variables.

    Not in the registry, like `GenericDensity`: its one signature is made for the arguments at hand.
    """

    __slots__ = ("energy", "site")
    family = None
    placeholder = 0.0

    def __init__(self, site: str, energy: Callable[..., Array], arguments: tuple[Any, ...]):
        self.site, self.energy = site, energy
        self.arguments = {f"z{i + 1}": value for i, value in enumerate(arguments)}

    @property
    def event_ndims(self) -> dict[str, None]:  # type: ignore[override]
        """All axes of a constant are its own."""
        return dict.fromkeys(self.arguments)

    @property
    def label(self) -> str:
        return "ngmp.functional"

    @property
    def key(self) -> Hashable:
        return type(self), self.site, same_function(self.energy)

    @property
    def signatures(self) -> tuple[Signature, ...]:
        kinds = frozenset({"constant", *FAMILIES})
        return (Signature(dict.fromkeys(self.arguments, kinds), self._lower, EnergyFactor),)

    def _lower(self, **arguments: Any) -> Lowered:
        variables = [k for k, x in arguments.items() if not isinstance(x, (jax.Array, np.ndarray))]
        shapes = tuple(arguments[k].whole for k in variables)
        families = tuple(FAMILIES[arguments[k].kind] for k in variables)
        events = [arguments[k].eta_shape for k in variables]
        constants = tuple(jnp.asarray(x) for k, x in arguments.items() if k not in variables)
        dtype = jnp.result_type(float, *(c.dtype for c in constants if jnp.issubdtype(c.dtype, jnp.floating)))
        rows = [(family, shape, jax.eval_shape(lambda f=family, s=shape, e=event: f.flat(s, e, dtype).natural))
                for family, shape, event in zip(families, shapes, events, strict=True)]  # fmt: skip
        blocks = [block for _, _, natural in rows for block in natural]
        counts = [len(natural) for _, _, natural in rows]
        order = [variables.index(k) if k in variables else None for k in arguments]

        def flat(*arrays: Array) -> Array:
            parts, rest = iter(arrays), iter(arrays[len(blocks) :])
            marginals = [family(*(next(parts) for _ in range(n))) for family, n in zip(families, counts, strict=True)]
            return self.energy(*(next(rest) if i is None else marginals[i] for i in order))

        arrays = [*blocks, *(jax.ShapeDtypeStruct(c.shape[1:], c.dtype) for c in constants)]
        factor = EnergyFactor(self._tried(flat, arrays, len(blocks)), constants, families, shapes)  # pyright: ignore[reportCallIssue]
        return Lowered(factor, tuple(arguments[k] for k in variables))

    def _tried(self, flat: Callable[..., Array], arrays: list[Any], count: int) -> Any:
        """The energy, after it was called on abstract marginals, of `count` blocks, so that its mistakes are reported
        with the site."""
        name = getattr(self.energy, "__name__", "energy")
        works = "it is given the marginals of whole variables: use m.mean, m.variance, m.covariance, m.expect(f)"
        try:
            result = jax.eval_shape(flat, *arrays)
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"the energy {name} cannot be evaluated: {text}; {works}") from error
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape != () or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"the energy {name} must return one real number, in nats; it returns {result}; {works}")
        if _only_by_integers(flat, arrays, count):
            given = f"the energy {name} has no gradient in the marginals that it is given"
            raise ValueError(f"{given}: it depends on them only by way of integers (argmax, rounding); {works}")
        return captured(flat, *arrays)


_FLAT = ("round", "floor", "ceil", "sign")  # primitives without a slope


def _only_by_integers(function: Callable[..., Array], arrays: list[Any], count: int) -> bool:
    """Whether the value depends on some of the first `count` arrays, but by no path of numbers that are real and not
    rounded."""
    jaxpr = jax.make_jaxpr(function)(*arrays).jaxpr
    touched, reached = set(jaxpr.invars[:count]), set(jaxpr.invars[:count])
    for equation in jaxpr.eqns:
        inputs = {v for v in equation.invars if not hasattr(v, "val")}  # literals are none
        if inputs & touched:
            touched |= set(equation.outvars)
        if inputs & reached and equation.primitive.name not in _FLAT:
            reached |= {v for v in equation.outvars if jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    value = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    return bool(value & touched) and not value & reached
