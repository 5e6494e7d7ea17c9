"""What it means that a model is refused: the error's class, and the words its text must have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import (
    Gamma,
    ModelError,
    MvNormal,
    Normal,
    sample,
)

Y = np.array([1.0, 2.0, 3.0])
N01 = {"variance": 1.0}


def gaussian(name: str = "x", mean: Any = 0.0) -> Any:
    return sample(name, Normal(mean, **N01))


def vector(name: str = "w", d: int = 2) -> Any:
    return sample(name, MvNormal(np.zeros(d), covariance=1.0))


def gamma(name: str = "tau") -> Any:
    return sample(name, Gamma(2.0, rate=1.0))


def fails(error: type[Exception], model: Callable, *words: str, **inputs: Any) -> str:
    """Declaring, or running, the model raises this error, whose text has all these words."""
    with pytest.raises(error) as info:
        ngmp.compile(model)(**inputs)
    text = str(info.value)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"
    return text


def refused(*words: str, **inputs: Any) -> Callable:
    """Decorator: a model that must not compile, with words of its message; becomes a test."""

    def decorate(model: Callable) -> Callable:
        def test() -> None:
            fails(ModelError, model, *words, **inputs)

        test.__name__ = model.__name__
        return test

    return decorate
