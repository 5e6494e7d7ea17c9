"""What `executors=` asks for, by node; what does not fit is reported at once."""

import numpy as np

from ..errors import ModelError, Problem
from ..executors.base import AbstractExecutor, AbstractPart
from ..graph.components import Nodes
from ..graph.planes import Plane
from .select import Executors, default

Names = dict[str, tuple[Plane, np.ndarray]]


class Wishes:
    """`executors=` by node, for the variables of one core."""

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
