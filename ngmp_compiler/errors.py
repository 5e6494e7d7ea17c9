"""Errors and warnings of the compiler: a pass collects every problem it finds and raises once."""

import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with a declared model, in the words a user needs to mend it."""

    site: str | None  # None: not at a site; `given` says where
    interface: str | None
    given: str
    works: str

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.site and f"site '{self.site}'", self.interface) if part)
        given, works = self.given.rstrip(". "), self.works.rstrip(". ")
        works = f" {works[0].upper()}{works[1:]}{'' if works.endswith('?') else '.'}" if works else ""
        return (f"{where}: " if where else "") + f"{given}.{works}"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names in order, for a message; of very many, the first."""
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return f"{ordered[:most]}{more}"


class ModelError(ValueError):
    """A declared model that cannot be compiled; lists every problem of the pass that failed."""

    def __init__(self, problems: Sequence[Problem] | Problem):
        listed = [problems] if isinstance(problems, Problem) else problems
        self.problems = list(dict.fromkeys(listed))  # a loop repeats its problems
        lines = [f"  {i + 1}. {problem}" for i, problem in enumerate(self.problems)]
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        super().__init__(f"the model cannot be compiled, {count}:\n" + "\n".join(lines))


class ContentsError(ModelError):
    """A structure that depends on the contents of arrays; `places` are theirs among the leaves of the inputs."""

    def __init__(self, problems: Sequence[Problem] | Problem, places: Iterable[int | None]):
        super().__init__(problems)
        self.places = frozenset(places)


class DataError(ValueError):
    """Values given at call time that no posterior can be computed from."""


class FileError(ValueError):
    """A file that is damaged, or holds something else than was asked for."""


class ConvergenceWarning(UserWarning):
    """A run that ended before it converged; the result says so too, `post.converged`, and why, `post.reason`."""


class CompilationWarning(UserWarning):
    """A program that compiles again and again for values that it could have been given as arrays."""


_PACKAGE = str(Path(__file__).parent)


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the line outside this package that called into it, however deep in it we are."""
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth)
