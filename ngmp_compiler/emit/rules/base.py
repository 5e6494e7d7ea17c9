"""What a message rule is: `supports`, `target`, `evidence`; and what it is given, `Incoming`.

A rule of your own is a frozen Module derived from `AbstractRule`, `class Clipped(AbstractRule)`; an instance of it is
given to `method=` or `rules=`, and no list has to know it.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels import AbstractProjected
from ngmp_kernels.families import AbstractFamily
from ngmp_kernels.quadrature.projection import LogMessage

Families = tuple[AbstractFamily, ...]


def select(flags: Bool[Array, " n"], yes: AbstractFamily, no: AbstractFamily) -> AbstractFamily:
    """Choose family instances element by element."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(flags.reshape(flags.shape + (1,) * (a.ndim - flags.ndim)), a, b)

    return jax.tree.map(pick, yes, no)


class Incoming(NamedTuple):
    """What stands around the factors of a group: the marginals of their interfaces, and their own leaves there.

    `known` are the cavities `lambda - eta` that the core knows without a subtraction; None where it does not.
    """

    marginals: Families
    leaves: Families
    known: tuple[AbstractFamily | None, ...] | None = None

    def cavities(self, power: float = 1.0) -> Families:
        """`lambda - p eta` of every interface, proper or not.

        Where `lambda - eta` is known nothing is subtracted: a leaf that outweighs the rest would leave no digits.
        """
        return tuple(
            q - power * leaf if rest is None else rest if power == 1 else rest + (1 - power) * leaf
            for q, leaf, rest in zip(self.marginals, self.leaves, self.known or (None,) * len(self.leaves), strict=True)
        )

    def proper_cavities(self, power: float = 1.0) -> tuple[Families, list[Bool[Array, " n"]]]:
        """`lambda - p eta` of every interface; an improper one is replaced by the marginal, and flagged."""
        found = self.cavities(power)
        proper = [c.is_proper() for c in found]
        return tuple(select(ok, c, q) for ok, c, q in zip(proper, found, self.marginals, strict=True)), proper


class AbstractRule(eqx.Module):
    """A message rule; see the module docstring."""

    mean_field: ClassVar[bool] = False
    """Whether it assumes a product of clusters: what belongs to different ones is then taken apart."""
    borrows: ClassVar[bool] = False
    """Whether the targets of factors of several interfaces are those of mean field where its own do not exist."""

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
        del factor
        return False

    @property
    def settles(self) -> bool:
        """Whether the target of a unary factor may be what one projection after the other comes to on its edge."""
        return False

    @property
    def named(self) -> tuple[str, ...]:
        """The interfaces that it speaks of by name."""
        return ()

    def instead(self, factor: AbstractProjected) -> "AbstractRule":
        """The rule that takes its place on a factor; itself, unless its messages have no projection there."""
        del factor
        return self

    def apart(self) -> "AbstractRule | None":
        """The rule that takes its place between the clusters of `factorise=`; None if there is none."""
        return self if self.mean_field else None


def missing(rule: Any) -> list[str]:
    """The methods of a rule that something lacks, a class or an instance."""
    abstract = getattr(rule, "__abstractmethods__", ())
    names = sorted(AbstractRule.__abstractmethods__)  # type: ignore[attr-defined]
    return [name for name in names if name in abstract or not callable(getattr(rule, name, None))]
