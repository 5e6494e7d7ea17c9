"""Schedule: an executor for every connected part of the conjugate core, chosen by shape.

`schedule(rolled, groups) -> Plan`; the rules are those of `schedule.gaussian` and `schedule.discrete`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError, Problem, listed
from ..executors import DiscreteExecutor, GaussianExecutor, Sums
from ..graph.edges import Functional
from ..graph.groups import FactorGroup
from ..graph.planes import Plane
from ..passes.roll import Collection, Rolled
from ..value import Value
from .discrete import schedule_discrete
from .gaussian import schedule_gaussian


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Value):
    """A scheduled model: everything `emit` needs to write the fixed-point map."""

    planes: dict[Plane, int]
    names: dict[str, tuple[Plane, np.ndarray]]
    collections: dict[str, Collection]  # the same names, as they are stored
    groups: list[FactorGroup]
    functionals: list[tuple[int, int, Functional]]  # (group, interface, functional)
    sums: Sums | None
    gaussian: list[GaussianExecutor]
    discrete: list[DiscreteExecutor]
    dtype: Any


def schedule(rolled: Rolled, groups: list[FactorGroup], dtype: Any, executors: dict[str, str]) -> Plan:
    """Choose the executors, or the ones asked for by the name of a variable; see the module docstring."""
    _check_names(executors, rolled.names)
    edges = [(g, j, edge) for g, group in enumerate(groups) for j, edge in enumerate(group.edges) if edge is not None]
    functionals: Any = [each for each in edges if each[2].family.core == "gaussian"]
    sums, gaussian = schedule_gaussian(rolled.planes, groups, functionals, rolled.names, executors)
    discrete = schedule_discrete(rolled.planes, groups, rolled.names, executors)
    return Plan(rolled.planes, rolled.names, rolled.collections, groups, functionals, sums, gaussian, discrete, dtype)


def _check_names(executors: dict[str, str], names: dict[str, tuple[Plane, np.ndarray]]) -> None:
    problems = []
    for name in executors:
        if name not in names:
            problems.append(Problem(name, None, "executors= names no variable", f"there are {listed(names)}"))
        elif names[name][0].family.core == "product":
            given = f"executors= names it, a {names[name][0].family.__name__} variable"
            works = "the executors of Gaussian and categorical variables can be chosen; this is a sum of messages"
            problems.append(Problem(name, None, given, works))
    if problems:
        raise ModelError(problems)
