"""Distributions are declarations: a name, keyword arguments, and a table of what they can be lowered to.

A distribution holds its arguments untouched, whether numbers, arrays or expressions of random variables, so declaring
one costs microseconds. The compiler finds the *kind* of every argument, picks the first `Signature` that fits, and
calls its `lower`, which returns a factor and the expressions its interfaces stand on. This layer knows nothing of the
expression classes: it only applies `+`, `-`, `*` and reads `.shape`.
"""

import copy
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax.numpy as jnp
import numpy as np

from .factor import AbstractFactor, Values
from .families import AbstractFamily
from .words import refusal

# Kinds of arguments.
CONSTANT = frozenset({"constant"})  # a number or an array, traced or not
GAUSSIAN = frozenset({"gaussian"})  # affine in Gaussian variables, scalar-valued
MV_GAUSSIAN = frozenset({"mvgaussian"})  # the same, vector-valued
EXP_GAUSSIAN = frozenset({"exp(gaussian)"})  # exp of a scalar-valued affine expression
SIGMOID_GAUSSIAN = frozenset({"sigmoid(gaussian)"})  # other links of the same: sigmoid, Phi, 1 - exp(-exp z)
PHI_GAUSSIAN = frozenset({"phi(gaussian)"})
CLOGLOG_GAUSSIAN = frozenset({"cloglog(gaussian)"})
GAMMA = frozenset({"gamma"})
MULTIPLE_GAMMA = frozenset({"multiple(gamma)"})  # a constant times a Gamma variable
INVERSE_GAMMA = frozenset({"inversegamma"})
WISHART = frozenset({"wishart"})
BETA = frozenset({"beta"})
DIRICHLET = frozenset({"dirichlet"})
BERNOULLI = frozenset({"bernoulli"})
CATEGORICAL = frozenset({"categorical"})
TAKE = frozenset({"take(categorical)"})  # the row of a constant table picked by a categorical variable
TAKE_DIRICHLET = frozenset({"take(dirichlet)"})  # one of several Dirichlet variables, picked in the same way


class Lowered(NamedTuple):
    """A factor and one expression per interface (a constant array where no variable is left)."""

    factor: AbstractFactor
    interfaces: tuple[Any, ...]


@dataclass(frozen=True)
class Signature:
    """One way to use a distribution.

    Attributes:
        arguments: the accepted kinds of every argument, the outcome `"out"` included.
        lower: called with the arguments by name. Constants are arrays with a leading axis n or 1; Gaussian ones are
            affine expressions; `exp(gaussian)` comes as the inner expression; `take(categorical)` as an object with
            `.table` (n|1, K, K') and `.indices` (and `.index`, if there is one); other variables as they are.
        factor: the class of the factor that `lower` returns.
    """

    arguments: Mapping[str, frozenset[str]]
    lower: Callable[..., Lowered]
    factor: type[AbstractFactor]


class Distribution:
    """A declared distribution; see the subclasses."""

    __slots__ = ("arguments", "said")

    family: ClassVar[type[AbstractFamily] | None]
    """The family of a latent outcome; None where the outcome must be observed."""
    event_ndims: ClassVar[Mapping[str, int | None]]
    """The number of event axes of each argument when it is a constant; None: every axis is an event axis."""
    placeholder: ClassVar[float | int]
    """A valid outcome, put where data are masked."""
    signatures: ClassVar[tuple[Signature, ...]]
    also_called: ClassVar[Mapping[str, str]] = {}
    """Other words for parameters, which errors answer with the one that is used here."""
    classes: int = 1
    """How many sites, one for every choice of a selector, declare one outcome."""
    support: str | None = None
    """What is drawn from it: numbers that are "real", "positive", "unit", "above" or "below" one of its `ends` or of an
    "interval" between them, a "simplex" (proportions) or "classes" (an integer); None: it cannot be integrated."""
    several: ClassVar[bool] = False
    """Whether the kernels for `take(table, z)` take tables of several indices too."""

    arguments: dict[str, Any]
    said: str
    """What the user wrote, where this stands for a part of it."""
    _positional: ClassVar[tuple[str, ...]]
    _keywords: ClassVar[tuple[str, ...]]
    _most: ClassVar[int]  # positional arguments

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        parameters = [p for p in inspect.signature(cls.__init__).parameters.values()][1:]
        cls._positional = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        cls._most = 10**6 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(cls._positional)
        cls._keywords = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Python's own words for `Normal(0.0, 1.0)` do not say that scales go by keyword, nor which there are.
        wrong = refusal(cls.__name__, cls._positional, cls._keywords, cls._most, cls.also_called, args, kwargs)
        if wrong:
            raise TypeError(wrong)
        out = super().__new__(cls)
        out.said = ""
        return out

    @staticmethod
    def standard(**arguments: Any) -> tuple[Any, Any]:
        """Of a distribution with a `support` of numbers: about the centre and the spread of a draw, once the support is
        mapped to the real line by log or logit. Where an integral over it begins to look; nothing depends on it."""
        return 0.0, 1.0

    def ends(self, **arguments: Any) -> tuple[Any, Any]:
        """Of a support that has ends: which, at its arguments."""
        return arguments["low"], arguments["high"]

    def draw(self, key: Any, like: Any, **arguments: Any) -> Any:
        """Draws of the outcome, shaped as `like`, given its arguments as arrays with a leading axis n or 1. None: they
        are made by the family or the distribution function of what the arguments lower to."""
        return None

    @staticmethod
    def plain(**arguments: Any) -> dict[str, Any]:
        """Arguments, all of them arrays, as a user gives them: a mean in several parts is put together."""
        return arguments

    logarithm: ClassVar[bool] = False
    """Whether `as_latent` is the distribution of the logarithm of a latent outcome."""

    def as_latent(self) -> "Distribution":
        """What declares a latent outcome: this, or another distribution that is the same one."""
        return self

    def log_form(self) -> "Distribution | None":
        """Of a positive outcome: the distribution of its logarithm, a Gaussian variable's; None if there is none."""

    @property
    def label(self) -> str:
        """The name in messages and drawings."""
        return self.said or type(self).__name__

    @property
    def key(self) -> Hashable:
        """What two declarations must share, besides the kinds of their arguments, to be factors of one group."""
        return type(self)

    def blank(self) -> "Distribution":
        """The same without its arguments, of which only the names are left: what a group of sites shares."""
        out = copy.copy(self)
        out.arguments = dict.fromkeys(self.arguments)
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({inside})"


REGISTRY: dict[str, type[Distribution]] = {}
"""Every distribution by name; see `register`."""


_Declared = TypeVar("_Declared", bound=type[Distribution])


def register(cls: _Declared) -> _Declared:
    """Class decorator: make a distribution known to the compiler and to the tests of kernels."""
    if cls.__name__ in REGISTRY:
        raise ValueError(f"a distribution called {cls.__name__} is registered already")
    REGISTRY[cls.__name__] = cls
    return cls


def exactly_one(owner: str, **given: Any) -> dict[str, Any]:
    """The one keyword that is not None, as a dictionary; TypeError, naming the choices, otherwise."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        names = [f"{name}=" for name in given]
        got = " and ".join(f"{name}=" for name in chosen) or "none of them"
        raise TypeError(f"{owner} takes exactly one of {', '.join(names[:-1])} or {names[-1]}; got {got}")
    return chosen


def as_float(x: Any) -> Values:
    """An array of floating dtype; integers and booleans take the default. Numpy, known while compiling, stays numpy."""
    x = x if isinstance(x, np.ndarray) else jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def log_gamma_moments(a: Values) -> tuple[Values, Values]:
    """Mean and standard deviation of the logarithm of a Gamma(a, rate=1) variable, to a few percent."""
    return jnp.log(a + 0.5) - 1 / a, jnp.sqrt((a + 1) / a**2)


def reciprocal(x: Values) -> Values:
    """`1/x`; zero gives infinity without a warning, as in jax, and is reported by the factor's checks."""
    with np.errstate(divide="ignore"):
        return 1.0 / x


def on(factor: Callable[..., AbstractFactor], **kinds: frozenset[str]) -> Signature:
    """The plain signature: constants are the parameters of the factor, other arguments its interfaces, in order."""

    def lower(**given: Any) -> Lowered:
        constants = [as_float(given[k]) for k, kind in kinds.items() if kind == CONSTANT]
        return Lowered(factor(*constants), tuple(given[k] for k, kind in kinds.items() if kind != CONSTANT))

    return Signature(kinds, lower, factor)  # type: ignore[arg-type]


def same_function(f: Callable) -> Hashable:
    """What tells functions apart. A lambda in a loop is a new object each time; capturing nothing, it is its code."""
    pure = isinstance(f, FunctionType) and not (f.__closure__ or f.__defaults__ or f.__kwdefaults__)
    return f.__code__ if pure else f
