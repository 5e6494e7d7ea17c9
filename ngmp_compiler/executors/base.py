"""What an executor is: exact inference on parts of the conjugate core that nothing ties together.

The executors of a core sit in one ordered tuple (`registry`). A part is given to the first of them that fits it
(`misfit`) and needs the fewest operations (`cost`); `executors={"x": name}` overrules that. Parts that are `alike`
share one `build`.
"""

import abc
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..value import Value

ASKED = "as asked with executors="
COUPLED = "it is coupled to other variables"
GIVEN = "which of its variables factors touch is an input of the model"
DEGENERATE = "a covariance of its noise is singular, and has no precision"


class AbstractPart:
    """Variables that are tied together (or, where they are `lone`, to nothing): what executors are chosen for."""

    nodes: np.ndarray
    lone: bool
    asked: bool = False  # whether its executor is what `executors=` asks for
    given: bool = False  # whether an index that is an input picks among its variables
    degenerate: bool = False  # whether some noise among its variables has a singular covariance

    def misfit(self, executor: "type[AbstractExecutor]") -> str | None:
        """`executor.misfit(self)`, asked once."""
        known: dict[Any, str | None] = self.__dict__.setdefault("_misfits", {})
        if executor not in known:
            known[executor] = self._unfit(executor) or executor.misfit(self)
        return known[executor]

    def _unfit(self, executor: "type[AbstractExecutor]") -> str | None:
        """What of a part only some executors can do, and this one cannot."""
        if self.given and not executor.indexed:
            return GIVEN
        return DEGENERATE if self.degenerate and not executor.degenerate else None


class AbstractExecutor(Value, abc.ABC):
    """Solves some parts of a core; its class knows which ones it can."""

    name: ClassVar[str]  # what `executors=` and `describe` call it
    why: str  # in words, what it solves and why it was chosen
    work: str  # of a sweep, "O(n)"
    pieces: list[Any]
    others: tuple[str, ...] = ()  # executors that would do too
    alone: bool = False  # whether it is faster alone than with the lanes of a `vmap`
    approximate: bool = False
    indexed: ClassVar[bool] = False  # whether it solves parts whose variables are picked by inputs
    degenerate: ClassVar[bool] = False  # whether it solves parts with noise of a singular covariance

    @classmethod
    @abc.abstractmethod
    def misfit(cls, part: Any) -> str | None:
        """Why it cannot solve a part, in words; None if it can."""

    @classmethod
    @abc.abstractmethod
    def cost(cls, part: Any) -> float:
        """Operations of a sweep over a part that fits; 0 where none needs fewer, inf where it has to be asked for."""

    @classmethod
    @abc.abstractmethod
    def build(cls, parts: list[Any]) -> "list[Any]":
        """The executors of some parts that are alike."""

    @classmethod
    def alike(cls, part: Any) -> Hashable:
        """What parts that can share one executor have in common; None if any can."""
        return None

    @classmethod
    def may_fit(cls, part: Any) -> bool:
        """Whether to say that it would do too; where `misfit` takes long, a guess."""
        return part.misfit(cls) is None

    @abc.abstractmethod
    def solve(self, *given: Any) -> Any:
        """The solution; see the base class of the core."""


def members(parts: list[Any]) -> np.ndarray:
    """The nodes of several parts, sorted."""
    return np.sort(np.concatenate([part.nodes for part in parts]))


def fitting(parts: list[Any], executors: Sequence[type[AbstractExecutor]]) -> list[type[AbstractExecutor]]:
    """Those that may solve all of some parts."""
    return [executor for executor in executors if all([executor.may_fit(part) for part in parts])]
