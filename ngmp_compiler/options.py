"""Options of a program. What they say of a model is read by the passes: see `passes.rules`."""

from typing import Any, NamedTuple

import optax

from .passes.join import Asked
from .solve.anderson import adaptive, anderson
from .solve.step import AbstractStep, Optax

LOG_GAUSSIAN = "log-gaussian"


class Effort(NamedTuple):
    """What is spent on an integral: more nodes, a grid for every mode, draws in place of nodes."""

    finer: bool = False
    modes: bool = False
    draws: bool = False


class Options(NamedTuple):
    """What `ngmp.compile` was given."""

    method: Any  # None: by kind, see `passes.rules`
    rules: dict[str, Any]
    families: dict[str, Any]
    factorise: list[tuple[str, ...]]
    schedule: list[tuple[str, ...]] | None
    executors: dict[str, str]
    carry: dict[str, str]
    solver: AbstractStep | None  # None: the ladder
    max_sweeps: int | None
    tol: float | None
    max_specialisations: int
    joint: Asked = None
    integrate: tuple[str, ...] = ()  # sites that are integrated numerically
    rung: int = 0  # of the ladder
    effort: Effort = Effort()  # for an integral
    direct: bool = False  # integrated sites are given as values, not as coordinates

    @property
    def rungs(self) -> tuple[AbstractStep, ...]:
        """What is tried, in order, as long as nothing has converged."""
        if self.solver is not None:
            return (self.solver,)
        return _LADDER if self.max_sweeps is None else _LADDER[:1]

    @property
    def descends(self) -> bool:
        """Whether this is the last rung: free energies that are made to fall, see `Solver`."""
        return self.solver is None and 0 < self.rung == len(self.rungs) - 1

    @property
    def newton(self) -> bool:
        """Whether this rung begins with Newton's method."""
        return self.solver is None and self.rungs[self.rung] is _NEWTON

    @property
    def halves(self) -> bool:
        """Whether this rung hears half of every factor at a time."""
        return self.solver is None and self.rungs[self.rung] is _HALVES

    @property
    def sweeps(self) -> int:
        """At most so many; a descent is slow and sure."""
        return MAX_SWEEPS * (4 if self.descends else 1) if self.max_sweeps is None else self.max_sweeps

    @property
    def logs(self) -> tuple[str, ...]:
        """The variables that stand by their logarithms."""
        return tuple(name for name, family in self.families.items() if family == LOG_GAUSSIAN)

    @property
    def settles(self) -> bool:
        """Whether unary factors are solved on their edges: the default solver does, until it descends."""
        return self.solver is None and not self.descends


_BOLD = anderson(8, cautious=False)
_NEWTON = anderson(8, cautious=False)  # what goes on where Newton's method has ended
_SMALL: Any = optax.chain(adaptive(grow=1.05, memory=0), optax.scale(0.1))  # type: ignore[arg-type]
_HALVES = adaptive()  # for rules of half the power, see `Options.halves`
_LADDER = adaptive(), _BOLD, _NEWTON, Optax(_SMALL), _HALVES, _BOLD
MAX_SWEEPS = 500  # by default
