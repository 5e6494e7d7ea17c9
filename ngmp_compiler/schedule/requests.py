"""The executors that `executors=` asks for Gaussian variables, by node; what does not fit is reported at once."""

import numpy as np

from ..declare.expressions import Plane
from ..errors import ModelError, Problem
from .components import Nodes

KINDS = ("sums", "chain", "star", "tree", "dense", "banded", "weight", "function")
SPACES = ("weight", "function")

Names = dict[str, tuple[Plane, np.ndarray]]


class Wishes:
    """`executors=` by node; everything that does not fit is reported at once."""

    def __init__(self, nodes: Nodes, names: Names, asked: dict[str, str]):
        self.problems: list[Problem] = []
        self.names = [n for n in asked if names[n][0] in nodes.offset]
        self.kinds = [asked[n] for n in self.names]
        self.of = np.full(nodes.size, -1)  # which name asks for a node
        for i, name in enumerate(self.names):
            plane, positions = names[name]
            self.of[positions.reshape(-1) + nodes.offset[plane]] = i
            if self.kinds[i] not in KINDS:
                self.refuse(i, "", f"the executors of Gaussian variables are {', '.join(KINDS)}")
        self.raise_all()

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

    def private(self) -> np.ndarray:
        """Nodes that may be integrated out of sums: all but those that something else is asked for."""
        free = np.asarray([kind == "sums" for kind in self.kinds] + [True])
        return free[self.of]

    def check_sums(self, private: np.ndarray) -> None:
        for i in self.among(np.arange(len(private))):
            if self.kinds[i] == "sums" and not private[self.of == i].all():
                works = "leave it to the rule; sums take scalars that one functional of three or more variables ties"
                self.refuse(i, "another functional ties it, or it has no fixed prior of its own", works)
        self.raise_all()

    def choose(self, at: np.ndarray, fit: tuple[str, ...], misfits: dict[str, str]) -> str | None:
        """The executor asked for by any of the nodes, None if by none."""
        own = [i for i in self.among(at) if self.kinds[i] != "sums"]
        for i in own:
            kind = self.kinds[i]
            if kind != self.kinds[own[0]]:
                why = f"'{self.names[own[0]]}' asks for '{self.kinds[own[0]]}' for the same variables"
                self.refuse(i, why, "ask for one of them")
            elif kind not in fit:
                works = f"here {', '.join(fit)} would do; {fit[0]} is the default" if fit else "nothing fits"
                self.refuse(i, misfits.get(kind, "it does not fit"), works)
        return self.kinds[own[0]] if own else None

    def check_space(self, at: np.ndarray, function: bool) -> None:
        """Report nodes that function space is asked for if it is not what they have."""
        for i in self.among(at):
            if self.kinds[i] == "function" and not function:
                works = "here weight would do; it is the default"
                self.refuse(i, "function space needs a fixed prior of every vector, and rows that move", works)
