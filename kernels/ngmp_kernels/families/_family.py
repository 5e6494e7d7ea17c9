"""The interface every exponential family obeys.

A family is the set of densities q(z) = exp(eta . T(z) - A(eta)) with base measure one. An instance stores a batch of
*natural* parameters eta and nothing else, so marginals, cavities and messages are all instances of the same class. A
message need not be a density: nothing here checks that eta lies in the domain, `is_proper` tells.
"""

import abc
import dataclasses
import functools
import operator
from typing import Any, ClassVar, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from ..numerics.inverse_cdf import check_probabilities
from ..quadrature.nodes import Nodes
from ..quadrature.regression import LogMessage, average
from ..quadrature.rules import AbstractQuadrature
from ._averages import Averages
from ._shown import Shown


def promote(*values: ArrayLike) -> tuple[Array, ...]:
    """Cast values to their common floating dtype; Python numbers follow the arrays, so float32 stays float32."""
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = jnp.result_type(float)
    return tuple(jnp.asarray(value, dtype) for value in values)


def broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    """`promote`, then broadcast to a common shape."""
    return tuple(jnp.broadcast_arrays(*promote(*values)))


class AbstractFamily(Averages, Shown, eqx.Module):
    r"""A batch of exponential-family natural parameters, $q(z) = \exp(\eta \cdot T(z) - A(\eta))$.

    Fields of a final class are the blocks of $\eta$, in the order of the blocks of $T$. Batch axes `*b` lead; the
    first field has shape `(*b, *event_shape)` with `len(event_shape) == event_ndim`. For a Categorical the event axis
    is the axis of classes, although an outcome z is one integer.
    """

    event_ndim: ClassVar[int]
    kind: ClassVar[str]
    """The kind of its variables as arguments of distributions; see `ngmp_kernels.Signature`."""
    support: ClassVar[str] = "real"  # or "positive", "unit", "simplex", "matrix" (positive definite), "classes"
    words: ClassVar[str]
    """One of its variables in messages; by default "a Gamma variable"."""
    symbol: ClassVar[str]
    """The name in drawings; by default that of the class."""
    core: ClassVar[str] = "product"
    """What solves for its variables: "gaussian" (affine functionals), "categorical" (tables of classes, so that an
    outcome is one integer) or "product" (each by itself: the sum of the messages)."""
    integrated: ClassVar[str] = "never"
    """Whether there are `nodes` of it: "always", for "short" vectors, or "never"."""
    closed: ClassVar[bool] = False
    """Whether mixtures of members are members: true of classes."""
    caution: ClassVar[str] = ""
    """What to look out for in single precision."""

    # -- layout -------------------------------------------------------------------------------------------------

    @property
    def natural(self) -> tuple[Array, ...]:
        """The blocks of eta, in field order."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shape = jnp.shape(self.natural[0])
        return shape[: len(shape) - self.event_ndim]

    @property
    def event_shape(self) -> tuple[int, ...]:
        return jnp.shape(self.natural[0])[len(self.batch_shape) :]

    @property
    def dtype(self) -> Any:
        return self.natural[0].dtype

    # -- arithmetic in natural coordinates ----------------------------------------------------------------------

    def dot(self, mu: tuple[Array, ...]) -> Float[Array, "*b"]:
        r"""$\eta \cdot \mu$, summed over event axes; `mu` has one block per field and may carry extra leading axes."""
        ndim = len(self.batch_shape)
        terms = []
        for eta, block in zip(self.natural, mu, strict=True):
            event_axes = tuple(range(ndim - eta.ndim, 0))
            terms.append(jnp.sum(eta * block, axis=event_axes))
        return sum(terms[1:], start=terms[0])

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*(x + y for x, y in zip(self.natural, other.natural, strict=True)))

    def __sub__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*(x - y for x, y in zip(self.natural, other.natural, strict=True)))

    def __mul__(self, scale: ArrayLike) -> Self:
        """Scale eta by a number or by one number per batch element; the dtype of eta is kept."""
        if isinstance(scale, AbstractFamily):
            return NotImplemented
        ndim = len(self.batch_shape)

        def scaled(eta):
            factor = jnp.asarray(scale, eta.dtype)
            event_axes = (1,) * (eta.ndim - ndim) if factor.ndim else ()
            return eta * factor.reshape(factor.shape + event_axes)

        return type(self)(*(scaled(eta) for eta in self.natural))

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return type(self)(*(-eta for eta in self.natural))

    # -- what a final class provides ----------------------------------------------------------------------------

    @classmethod
    def flat(cls, batch_shape: tuple[int, ...], event_shape: tuple[int, ...] = (), dtype: Any = float) -> Self:
        """Zero natural parameters: the message that says nothing. By default all blocks have the event shape."""
        check_event(cls, event_shape)
        return cls(*[jnp.zeros((*batch_shape, *event_shape), dtype) for _ in dataclasses.fields(cls)])

    @classmethod
    @abc.abstractmethod
    def from_mean(cls, *mu: ArrayLike) -> Self:
        """The member whose mean parameters E[T] are `mu`; inverse of `to_mean`."""

    @abc.abstractmethod
    def statistics(self, z: Array) -> tuple[Array, ...]:
        """T(z), one block per field; z has shape `(..., *b, *event)`."""

    @abc.abstractmethod
    def log_partition(self) -> Float[Array, "*b"]:
        r"""$A(\eta) = \log \int \exp(\eta \cdot T(z)) dz$ (a sum for discrete z)."""

    @abc.abstractmethod
    def to_mean(self) -> tuple[Array, ...]:
        r"""Mean parameters $\mu = E_q[T] = \nabla A(\eta)$, one block per field."""

    @abc.abstractmethod
    def log_density(self, z: Array) -> Float[Array, "*b"]:
        r"""$\eta \cdot T(z) - A(\eta)$, arranged so that large terms do not cancel."""

    def entropy(self) -> Float[Array, "*b"]:
        r"""$-E_q[\log q] = A(\eta) - \eta \cdot \mu$ in nats, arranged otherwise where these cancel."""
        return self.log_partition() - self.dot(self.to_mean())

    def kl(self, other: Self) -> Float[Array, "*b"]:
        r"""$KL[q_{self} \| q_{other}]$ in nats."""
        return other.log_partition() - self.log_partition() - (other - self).dot(self.to_mean())

    def is_proper(self) -> Bool[Array, "*b"]:
        """Whether eta is finite and in the domain, by default where `slack` is positive, so that q is a density."""
        ndim = len(self.batch_shape)
        flags = [*map(jnp.isfinite, self.natural), *[x > 0 for x in self.slack()]]
        rows = [x if x.ndim == ndim else jnp.all(x, tuple(range(ndim, x.ndim))) for x in flags]
        return functools.reduce(operator.and_, rows)

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Array:
        """Independent draws of shape `(*shape, *b, *event)`."""

    def location_scale(self) -> tuple[Array, Array]:
        """What convergence is measured by: a location, (*b, *event), and the square of its scale. By default mean and
        variance; a family whose variance may vanish or be infinite says what stands for them."""
        return self.mean, self.variance

    def mended(self) -> Self:
        """Where rounding alone has left q improper, a proper member a few units away; by default itself."""
        return self

    def slack(self) -> tuple[Array, ...]:
        """Affine functions of eta, (*b, ...), that are positive where q is proper: how far it is from improper."""
        return ()

    def remainder(self, other: Self) -> Float[Array, "*b"]:
        """The smallest part of the slack of self that other has: one at most, none or less where it is improper."""
        ndim, one = len(other.batch_shape), jnp.ones(other.batch_shape, other.dtype)
        parts = (left / own for own, left in zip(self.slack(), other.slack(), strict=True))
        return functools.reduce(jnp.minimum, [jnp.min(x, tuple(range(ndim, x.ndim))) for x in parts], one)

    # -- projections ----------------------------------------------------------------------------------------------

    def nodes(self, quadrature: AbstractQuadrature) -> Nodes:
        """Nodes (Q, *b) of a quadrature and their normalised log-weights; see `quadrature.rules`."""
        raise TypeError(f"No quadrature on {type(self).__name__} edges: messages toward them must be conjugate.")

    def regress(self, z: Array, w: Array, values: Array, centred: bool = False) -> Self:
        """The member nearest to the values of a log-message at nodes z of weights w, all (Q, *b): least squares.

        By default the slopes of the regression on (1, T), T scalar: what a family with large means does better.
        """
        w = jnp.broadcast_to(w, values.shape)
        columns = [t - average(w, t) for t in (jnp.broadcast_to(t, values.shape) for t in self.statistics(z))]
        scales = [jnp.sqrt(average(w, t * t)) for t in columns]
        x = jnp.stack([t / s for t, s in zip(columns, scales, strict=True)], -1)
        y = values - average(w, values)
        gram = jnp.einsum("q...,q...i,q...j->...ij", w, x, x)
        right = jnp.stack([average(w, x[..., i] * y) for i in range(len(columns))], -1)
        slopes = jnp.linalg.solve(gram, right[..., None])[..., 0]
        return type(self)(*(slopes[..., i] / s for i, s in enumerate(scales)))

    def shortcut(self, quadrature: AbstractQuadrature, log_message: LogMessage) -> Self | None:
        """The projection of a log-message by a quadrature that is no regression at nodes; None where it is one."""

    def kick(self, key: PRNGKeyArray, spread: Float[Array, ""]) -> Self | None:
        """A random message that moves q to about one of its draws, for restarts; None: it follows its neighbours."""

    # -- summaries ------------------------------------------------------------------------------------------------

    def to_numpyro(self) -> Any:
        """The same as a NumPyro distribution (optional extra `numpyro`)."""
        try:
            import numpyro.distributions as dist  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError("to_numpyro needs NumPyro: pip install 'ngmp-compiler[numpyro]', or numpyro") from error
        return self.counterpart(dist)

    def counterpart(self, dist: Any) -> Any:
        """`to_numpyro`, given the module `numpyro.distributions`."""
        raise NotImplementedError(f"{type(self).__name__} has no counterpart in {dist.__name__}")

    @property
    def std(self) -> Array:
        """The square root of `variance`."""
        return jnp.sqrt(self.variance)

    def quantile(self, p: ArrayLike) -> Array:
        """The z with `P(z' <= z) = p`, of every entry of a vector by itself; of classes the smallest that reaches p.

        p is strictly between 0 and 1, or an array of such. The shape is `(*p.shape, *b, *event)`; of a Categorical
        without event axis.
        """
        check_probabilities(p)
        p = jnp.asarray(p, self.dtype)
        return self.inverse_cdf(p.reshape(p.shape + (1,) * len(self.batch_shape)))

    def cdf(self, z: Array) -> Array:
        """`P(z' <= z)`, of every entry of a vector by itself; z has shape `(..., *b, *event)`."""
        raise NotImplementedError(f"{type(self).__name__} has no distribution function")

    def inverse_cdf(self, p: Float[Array, "..."]) -> Array:
        """`quantile`, for probabilities that broadcast against the batch."""
        raise NotImplementedError(f"{type(self).__name__} has no quantiles")

    @property
    @abc.abstractmethod
    def mean(self) -> Array:
        """E[z]."""

    @property
    @abc.abstractmethod
    def variance(self) -> Array:
        """Var[z], elementwise over event axes."""


def check_event(family: type[AbstractFamily], event_shape: tuple[int, ...]) -> None:
    """Refuse an event shape of other than `event_ndim` axes."""
    if len(event_shape) != family.event_ndim:
        axes = ("is a scalar family", "has one event axis", "has two event axes")[family.event_ndim]
        raise ValueError(f"{family.__name__} {axes}: got event_shape={event_shape}.")


_Family = TypeVar("_Family", bound=AbstractFamily)
FAMILIES: dict[str, type[AbstractFamily]] = {}
"""Every family by its kind; see `register`."""
_CORES = ("gaussian", "categorical", "product")


def register(cls: type[_Family]) -> type[_Family]:
    """Class decorator: make a family known to the compiler; one that lacks a part of the protocol is refused."""
    name = cls.__name__
    lacking = sorted(getattr(cls, "__abstractmethods__", ()))
    lacking += [k for k in ("event_ndim", "kind") if not hasattr(cls, k)]
    if cls.integrated != "never" and cls.nodes is AbstractFamily.nodes:
        lacking.append("nodes")
    if lacking:
        raise TypeError(f"the family {name} lacks {', '.join(lacking)}; see ngmp_kernels.families.AbstractFamily")
    if cls.core not in _CORES:
        raise ValueError(f"the family {name} has core = {cls.core!r}; there are {', '.join(map(repr, _CORES))}")
    for other in FAMILIES.values():
        if other.__name__ == name or other.kind == cls.kind:
            given = f"a family called {other.__name__}, of kind {other.kind!r}, is registered already"
            raise ValueError(f"{given}; give {name} another name and kind")
    if not hasattr(cls, "words"):
        cls.words = f"{'an' if name[0] in 'AEIOU' else 'a'} {name} variable"
    if not hasattr(cls, "symbol"):
        cls.symbol = name
    FAMILIES[cls.kind] = cls
    return cls
