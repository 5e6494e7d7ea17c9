"""Compare what a program returns with a reference."""

from collections.abc import Callable
from typing import Any

import numpy as np

import ngmp_compiler as ngmp

from .interpreter import Interpretation, interpret


def assert_marginals(post: Any, marginals: dict[str, dict[str, np.ndarray]], tol: float) -> None:
    """Every property of every named marginal agrees, relative to its own scale."""
    assert set(post.marginals) == set(marginals)
    for name, properties in marginals.items():
        for attribute, expected in properties.items():
            actual = np.asarray(getattr(post[name], attribute))
            assert actual.shape == expected.shape, (
                f"{name}.{attribute}: shape {actual.shape}, expected {expected.shape}"
            )
            scale = 1.0 + np.abs(expected).max()
            error = np.abs(actual - expected).max() / scale
            assert error <= tol, f"{name}.{attribute} is off by {error:.3e}: {actual} against {expected}"


def assert_interpreted(
    model: Callable, tol: float, points: int = 201, options: dict[str, Any] | None = None,
    joint: frozenset[str] = frozenset(), **inputs: Any
) -> tuple[Any, Interpretation]:  # fmt: skip
    """The compiled model and the interpreted one, both by NGMP, agree in every marginal and in the free energy.

    Gaussian interfaces of the `joint` sites are one edge.
    """
    expected = interpret(model, points, joint, **inputs)
    assert expected.residual <= 1e-10, f"the interpreter did not converge: {expected.residual:.2e}"
    post = ngmp.compile(model, **{"method": ngmp.NGMP(), **(options or {})})(**inputs)
    assert post.converged, post.reason
    assert_marginals(post, expected.marginals, tol)
    error = abs(float(post.free_energy) - expected.free_energy) / (1.0 + abs(expected.free_energy))
    assert error <= tol, f"free energy {float(post.free_energy)!r} against {expected.free_energy!r}"
    return post, expected
