"""The choice of executors, the same for every core: what is asked for, or the first that fits at the lowest cost."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError, Problem
from ..executors.base import AbstractExecutor, AbstractPart, fitting
from ..graph.components import Nodes
from ..graph.planes import Plane

FEW = 4  # executors of one kind that differ in size only

Names = dict[str, tuple[Plane, np.ndarray]]
Executors = tuple[type[AbstractExecutor], ...]
Chosen = list[tuple[Any, type[AbstractExecutor]]]  # parts and what solves them


def default(part: AbstractPart, executors: Sequence[type[AbstractExecutor]]) -> type[AbstractExecutor] | None:
    """The first executor that fits a part at the lowest cost; None if none does."""
    best, least = None, float("inf")
    for executor in executors:
        if part.misfit(executor) is None:
            cost = executor.cost(part)
            if cost < least:
                best, least = executor, cost
            if cost == 0:
                break
    return best


def fewer(chosen: Chosen, executors: Executors) -> Chosen:
    """Where parts of a kind are of many sizes, they move to an executor that any parts can share: programs stay small.

    What has half of their variables or more keeps its own executor, and so does what was asked for.
    """
    out = []
    minor = {e: _minor([p for p, own in chosen if own is e], e) for e in {e for _, e in chosen}}
    for part, executor in chosen:
        if id(part) in minor[executor]:
            fit = (e for e in executors if e is not executor and part.misfit(e) is None)
            shared = [e for e in fit if e.alike(part) is None]
            executor = default(part, shared) or executor
        out.append((part, executor))
    return out


def _minor(parts: list[Any], executor: type[AbstractExecutor]) -> set[int]:
    alike = _grouped(parts, executor.alike)
    sizes = [sum(len(part.nodes) for part in own) for own in alike]
    if len(alike) <= FEW:
        return set()
    pairs = zip(alike, sizes, strict=True)
    return {id(part) for own, size in pairs if 2 * size < sum(sizes) for part in own if not part.asked}


def build(chosen: Chosen, executors: Executors) -> list[tuple[Any, list[Any]]]:
    """The executors in their order, each with the parts that it was built with others for."""
    out = []
    for executor in executors:
        for parts in _grouped([part for part, own in chosen if own is executor], executor.alike):
            fit = fitting(parts, executors)
            for built in executor.build(parts):
                built.others = tuple(e.name for e in fit if e is not executor)
                out.append((built, parts))
    return out


def _grouped(parts: list[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    out: dict[Hashable, list[Any]] = {}
    for part in parts:
        out.setdefault((key(part), part.asked), []).append(part)
    return list(out.values())


class Wishes:
    """What `executors=` asks for, by node, for the variables of one core; what does not fit is reported at once."""

    def __init__(
        self, nodes: Nodes, names: Names, asked: dict[str, str], executors: Executors, core: str, more: tuple[str, ...]
    ):
        self.problems: list[Problem] = []
        self.executors = {e.name: e for e in executors}
        self.names = [n for n in asked if names[n][0] in nodes.offset]
        self.kinds = [asked[n] for n in self.names]
        self.of = np.full(nodes.size, -1)  # which name asks for a node
        known = (*self.executors, *more)
        for i, name in enumerate(self.names):
            plane, positions = names[name]
            self.of[positions.reshape(-1) + nodes.offset[plane]] = i
            if self.kinds[i] not in known:
                self.refuse(i, "", f"the executors of {core} variables are {', '.join(known)}")

    def refuse(self, name: int, why: str, works: str) -> None:
        given = f"executors= asks for '{self.kinds[name]}'" + (f": {why}" if why else "")
        problem = Problem(self.names[name], None, given, works)
        self.problems += [problem] if problem not in self.problems else []

    def raise_all(self) -> None:
        if self.problems:
            raise ModelError(self.problems)

    def among(self, at: np.ndarray) -> list[int]:
        """The names that ask for something for any of the nodes."""
        if not self.names:
            return []
        own = np.unique(self.of[at])
        return own[own >= 0].tolist()

    def nothing(self, lone: np.ndarray, but: tuple[str, ...] = ()) -> None:
        """Refuse whatever is asked for variables that nothing ties, unless others of that name are tied."""
        for i in self.among(lone):
            if self.kinds[i] not in but and np.isin(np.flatnonzero(self.of == i), lone).all():
                works = f"here {', '.join(but)} would do" if len(but) > 1 else "there is nothing to choose"
                self.refuse(i, "it is coupled to no other variable of its core", works)

    def choose(
        self, part: AbstractPart, more: dict[str, str | None], skip: tuple[str, ...] = ()
    ) -> type[AbstractExecutor] | str | None:
        """What is asked for by any of the nodes of a part, None if nothing is.

        Args:
            part: the part.
            more: what can be asked for that is no executor, and why it does not fit; None if it does.
            skip: what is not for parts.
        """
        known = {*more, *self.executors} - {*skip}  # any other name was refused before
        own = [i for i in self.among(part.nodes) if self.kinds[i] in known]
        for i in own:
            kind, first = self.kinds[i], self.kinds[own[0]]
            if kind != first:
                self.refuse(
                    i, f"'{self.names[own[0]]}' asks for '{first}' for the same variables", "ask for one of them"
                )
            elif (why := more[kind] if kind in more else part.misfit(self.executors[kind])) is not None:
                self.refuse(i, why, self._fitting(part, more))
        if not own or self.problems:
            return None
        return self.executors.get(self.kinds[own[0]], self.kinds[own[0]])

    def _fitting(self, part: AbstractPart, more: dict[str, str | None]) -> str:
        fit = [name for name, e in self.executors.items() if part.misfit(e) is None]
        fit += [name for name, why in more.items() if why is None]
        best = default(part, tuple(self.executors.values()))
        return f"here {', '.join(fit)} would do; {best.name} is the default" if best else "nothing fits"
