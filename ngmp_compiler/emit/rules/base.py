"""What a message rule is: `supports`, `target`, `evidence`; and what it is given, `Incoming`.

A rule of your own is a frozen Module derived from `AbstractRule`, `class Clipped(AbstractRule)`; an instance of it is
given to `method=` or `rules=`, and no list has to know it.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels import AbstractProjected
from ngmp_kernels.families import AbstractFamily, Gaussian
from ngmp_kernels.quadrature.projection import LogMessage

from ..chunks import by_chunks

Families = tuple[AbstractFamily, ...]
Leaf = TypeVar("Leaf")  # a family, or arrays of its shape
Power = float | Float[Array, " n"]
_ROUNDING, _VOID = 4.0, 1e-20  # rounding units, or part, of a marginal's precision that are none of its cavity
_FLAT = 1e-16  # of that precision, which such a cavity has instead


def select(flags: Bool[Array, " n"], yes: Leaf, no: Leaf) -> Leaf:
    """Choose family instances element by element."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(flags.reshape(flags.shape + (1,) * (a.ndim - flags.ndim)), a, b)

    return jax.tree.map(pick, yes, no)


def _or(marginals: Families, proper: Sequence[Array], cavities: Sequence[AbstractFamily]) -> Families:
    """The cavities, or the marginals where those are improper."""
    return tuple(select(ok, c, q) for ok, c, q in zip(proper, cavities, marginals, strict=True))


class Incoming(NamedTuple):
    """What stands around the factors of a group: the marginals of their interfaces, and their own leaves there.

    `known` are the cavities `lambda - eta` that the core knows without a subtraction; None where it does not.
    """

    marginals: Families
    leaves: Families
    known: tuple[AbstractFamily | None, ...] | None = None

    def cavities(self, power: Power = 1.0) -> Families:
        """`lambda - p eta` of every interface, proper or not; p is a number, or one for every factor.

        Where `lambda - eta` is known nothing is subtracted: a leaf that outweighs the rest would leave no digits.
        """
        whole = isinstance(power, float) and power == 1.0
        return tuple(
            q - leaf * power if rest is None else rest if whole else rest + leaf * (1.0 - power)
            for q, leaf, rest in zip(self.marginals, self.leaves, self.known or (None,) * len(self.leaves), strict=True)
        )

    def proper_cavities(self, power: float = 1.0) -> tuple[Families, list[Bool[Array, " n"]]]:
        """`lambda - p eta` of every interface; an improper one is replaced by the marginal, and flagged."""
        found = self.cavities(power)
        proper = [c.is_proper() for c in found]
        return _or(self.marginals, proper, found), proper

    def shared(
        self, power: float = 1.0, but: int | None = None
    ) -> tuple[Families, list[Bool[Array, " n"]], Float[Array, " n"]]:
        r"""`proper_cavities` of `lambda - r p eta`, with a share $r \le 1$ for every factor, as a rule all; and r.

        With $\hat r$ the largest at which all cavities, that of interface `but` apart, are proper,
        $r = \min(1, \hat r)^2$: the square keeps them off the edge of their domain. It is a function of the marginals
        and leaves alone, and nothing jumps where a cavity turns improper.

        A Gaussian cavity that is nothing but rounding, as on a group without data, is flat, and not improper; one that
        is known without a subtraction may be as small as it likes.
        """
        left, flat = jnp.ones((), self.marginals[0].dtype), {}
        known = self.known or (None,) * len(self.marginals)
        for i, (q, cavity) in enumerate(zip(self.marginals, self.cavities(power), strict=True)):
            rest = q.remainder(cavity)
            if isinstance(q, Gaussian):
                noise = _ROUNDING * jnp.finfo(rest.dtype).eps if known[i] is None else _VOID
                flat[i] = jnp.abs(rest) < noise
                rest = jnp.where(flat[i], 1, rest)
            left = left if i == but else jnp.minimum(left, rest)
        share = 1 / (1 - jnp.minimum(left, 0)) ** 2
        found = list(self.cavities(power * share))
        for i, rows in flat.items():
            found[i] = select(rows, self.marginals[i] * _FLAT, found[i])
        proper = [c.is_proper() for c in found]
        return _or(self.marginals, proper, found), proper, share


class AbstractRule(eqx.Module):
    """A message rule; see the module docstring."""

    mean_field: ClassVar[bool] = False
    """Whether it assumes a product of clusters: what belongs to different ones is then taken apart."""
    joins: ClassVar[bool] = False
    """Whether it has messages toward several interfaces at once: see `passes.join`."""

    @abc.abstractmethod
    def supports(self, factor: AbstractProjected, j: int) -> str | None:
        """Why there is no message toward interface j of a factor that is not conjugate; None if there is one."""

    @abc.abstractmethod
    def target(self, factor: AbstractProjected, j: int, incoming: Incoming) -> tuple[Any, Bool[Array, " n"]]:
        """The target of the leaf on interface j, and a flag (n,) that is False where it does not exist."""

    @abc.abstractmethod
    def evidence(self, factor: AbstractProjected, incoming: Incoming) -> Float[Array, " n"]:
        """The factor's share of the log-evidence, beyond the partition function of the core less `sum eta . mu`."""

    def message(self, factor: AbstractProjected, j: int, incoming: Incoming) -> LogMessage:
        """The log-message toward interface j, for interfaces that are a constant; by default the exact one."""
        return factor.log_message(j, incoming.proper_cavities()[0])

    def stationary(self, factor: AbstractProjected) -> bool:
        """Whether a fixed point is a stationary point of the free energy in the leaves of the factor."""
        return False

    def variational(self, factor: AbstractProjected) -> "AbstractRule":
        """The rule that takes its place where a free energy is to fall along small steps to its targets."""
        return self

    @property
    def settles(self) -> bool:
        """Whether the target of a unary factor may be what one projection after the other comes to on its edge."""
        return False

    @property
    def named(self) -> tuple[str, ...]:
        """The interfaces that it speaks of by name."""
        return ()

    def divides(self, factor: AbstractProjected) -> bool:
        """Whether its targets are, in part, those of mean field where a cavity is improper: see `Incoming.shared`."""
        return False

    def instead(self, factor: AbstractProjected) -> "AbstractRule":
        """The rule that takes its place on a factor; itself, unless its messages have no projection there."""
        return self

    def apart(self) -> "AbstractRule | None":
        """The rule that takes its place between the clusters of `factorise=`; None if there is none."""
        return self if self.mean_field else None


def missing(rule: Any) -> list[str]:
    """The methods of a rule that something lacks, a class or an instance."""
    abstract = getattr(rule, "__abstractmethods__", ())
    names = sorted(AbstractRule.__abstractmethods__)  # type: ignore[attr-defined]
    return [name for name in names if name in abstract or not callable(getattr(rule, name, None))]


def settled(rule: AbstractRule, factor: AbstractProjected, once: AbstractFamily, incoming: Incoming) -> AbstractFamily:
    """One projection, `once`; or what it comes to on the edge of a unary factor that knows it, the cavity held fixed.

    The fixed points are the same, and so are their derivatives: those of `once` stand for both.
    """
    if len(incoming.marginals) != 1 or not rule.settles:
        return once

    def settle(factor: AbstractProjected, marginal: Any, leaf: Any, once: Any) -> Any:
        cavity = marginal - leaf
        proper = cavity.is_proper()
        return select(proper, factor.settle(marginal, select(proper, cavity, marginal), leaf, once), once)

    n = jax.tree.leaves(once)[0].shape[0]
    fixed = jax.lax.stop_gradient((incoming.marginals[0], incoming.leaves[0], once))
    return _instead(by_chunks(settle, n, factor, *fixed), once)


@jax.custom_jvp
def _instead(value: Any, once: Any) -> Any:
    """A value, with the derivatives of another; that one is not computed where no derivatives are."""
    return value


@_instead.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]
