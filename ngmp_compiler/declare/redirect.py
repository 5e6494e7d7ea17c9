"""Declarations that go elsewhere: to a recorder, while a model runs in which random variables are arrays of jax."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from .where import note

RECORDER: ContextVar[Any] = ContextVar("recorder", default=None)
_Declaration = TypeVar("_Declaration", bound=Callable[..., Any])


def redirected(declaration: _Declaration) -> _Declaration:
    """Have a declaration go to the recorder, if there is one."""

    @functools.wraps(declaration)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = RECORDER.get()
        if recorder is None:
            return declaration(*args, **kwargs)
        note(str(args[0]) if args else "")
        return getattr(recorder, declaration.__name__)(*args, **kwargs)

    return cast(_Declaration, call)
