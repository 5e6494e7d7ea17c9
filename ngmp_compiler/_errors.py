"""Errors of the compiler: a pass collects every problem it finds and raises once."""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with a declared model, in the words a user needs to mend it."""

    site: str
    interface: str | None
    given: str
    works: str

    def __str__(self) -> str:
        where = f"site '{self.site}'" + (f", {self.interface}" if self.interface else "")
        return f"{where}: {self.given}. {self.works}"


class ModelError(ValueError):
    """A declared model that cannot be compiled; lists every problem of the pass that failed."""

    def __init__(self, problems: Sequence[Problem] | Problem):
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        lines = [f"  {i + 1}. {problem}" for i, problem in enumerate(self.problems)]
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        super().__init__(f"the model cannot be compiled, {count}:\n" + "\n".join(lines))


class DataError(ValueError):
    """Values given at call time that no posterior can be computed from."""
