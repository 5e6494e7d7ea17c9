"""The executors of every core in the order in which they are tried; `register` adds one from outside."""

import inspect
from typing import TypeVar

from .base import AbstractExecutor
from .discrete.base import DiscreteExecutor
from .discrete.chain import DiscreteChain
from .discrete.elimination import Elimination, Enumeration
from .discrete.flooding import Flooding
from .discrete.independent import DiscreteIndependent
from .discrete.slices import SliceChain
from .discrete.tree import DiscreteTree
from .gaussian.arrow import Arrow
from .gaussian.base import GaussianExecutor
from .gaussian.chain import Chain
from .gaussian.dense import Banded, Dense
from .gaussian.driven import DrivenChain
from .gaussian.independent import Independent
from .gaussian.star import Star
from .gaussian.tree import ScalarTree

_TAKEN = ("sums", "weight", "function")  # what `executors=` means by these is no executor
_order: dict[type[AbstractExecutor], tuple[type[AbstractExecutor], ...]] = {
    GaussianExecutor: (Independent, Chain, DrivenChain, Star, ScalarTree, Dense, Banded, Arrow),
    DiscreteExecutor: (
        DiscreteIndependent, DiscreteChain, DiscreteTree, SliceChain, Elimination, Enumeration, Flooding,
    ),
}  # fmt: skip

_Class = TypeVar("_Class", bound=type[AbstractExecutor])


def gaussian() -> tuple[type[AbstractExecutor], ...]:
    """The executors of Gaussian variables, in order."""
    return _order[GaussianExecutor]


def discrete() -> tuple[type[AbstractExecutor], ...]:
    """The executors of categorical variables, in order."""
    return _order[DiscreteExecutor]


def register(cls: _Class, before: str | None = None) -> _Class:
    """Add an executor of your own, for all programs compiled from now on; also a class decorator.

    Args:
        cls: derived from `GaussianExecutor` or `DiscreteExecutor`, with `name`, `misfit(part)`, `cost(part)`,
            `build(parts)` and `solve`.
        before: the name of the executor of that core to stand before; first of all by default.
    """
    core = next((c for c in _order if inspect.isclass(cls) and issubclass(cls, c)), None)
    if core is None:
        raise TypeError(f"{cls!r} is no executor: derive it from executors.GaussianExecutor or DiscreteExecutor")
    missing = [name for name in ("misfit", "cost", "build", "solve") if name in cls.__abstractmethods__]
    missing = ["name"] * (not isinstance(getattr(cls, "name", None), str)) + missing
    missing += sorted(cls.__abstractmethods__ - set(missing))
    if missing:
        raise TypeError(f"executor {cls.__name__} lacks {', '.join(missing)}")
    names = [e.name for e in _order[core]]
    if cls.name in (*names, *_TAKEN):
        raise ValueError(f"there is an executor named '{cls.name}' already; the names are {', '.join(names)}")
    if before is not None and before not in names:
        raise ValueError(f"before='{before}' names no executor; they are {', '.join(names)}")
    at = 0 if before is None else names.index(before)
    _order[core] = (*_order[core][:at], cls, *_order[core][at:])
    return cls


def unregister(cls: type[AbstractExecutor]) -> None:
    """Take an executor out again."""
    for core, known in _order.items():
        _order[core] = tuple(e for e in known if e is not cls)
