"""Where declarations stand in the user's source, noted only while somebody asks: the compiler explorer does."""

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import CodeType

Lines = dict[str, dict[tuple[CodeType, int], None]]
"""By site: the functions, as code, with the lines in them that declared it, in order."""

_LINES: ContextVar[Lines | None] = ContextVar("lines", default=None)
_NOT_THE_USER = ("ngmp_compiler", "ngmp_kernels", "jax", "equinox", "numpyro", "contextlib", "functools")


@contextlib.contextmanager
def noting() -> Iterator[Lines]:
    """While it is open, every declaration is noted with the line of the innermost function that is the user's."""
    lines: Lines = {}
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)


def note(name: str) -> None:
    """A site of this name is being declared."""
    lines = _LINES.get()
    if lines is None:
        return
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] in _NOT_THE_USER:
        frame = frame.f_back
    if frame is not None:
        lines.setdefault(name, {})[frame.f_code, frame.f_lineno] = None
