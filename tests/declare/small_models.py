"""Small models and data of the front end's tests, and what it means that two of them are the same."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import ngmp_compiler as ngmp

RNG = np.random.default_rng(7)
Y = RNG.normal(size=6)
COUNTS = np.array([1, 0, 3, 2, 5, 4])


def start(model: Callable, **inputs: Any) -> ngmp.Posterior:
    """The posterior at the automatic start: the whole map without the iteration, in half the time to compile."""
    program = ngmp.compile(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ngmp.ConvergenceWarning)  # nor has it
        return program.posterior(program.init(**inputs), **inputs)


def run(model: Callable, **inputs: Any) -> ngmp.Posterior:
    post = ngmp.compile(model)(**inputs)
    assert post.converged
    return post


def assert_same(
    first: Callable, second: Callable, tol: float = 1e-10, to: Callable = run, **inputs: Any
) -> ngmp.Posterior:
    """Two ways to write a model give the same free energy and marginals, converged or at the start."""
    a, b = to(first, **inputs), to(second, **inputs)
    np.testing.assert_allclose(a.free_energy, b.free_energy, rtol=tol, atol=tol)
    assert set(a.marginals) == set(b.marginals)
    for name in a.marginals:
        for x, y in zip(jax.tree.leaves(a[name]), jax.tree.leaves(b[name]), strict=True):
            np.testing.assert_allclose(np.ravel(x), np.ravel(y), rtol=tol, atol=tol, err_msg=name)
    return a


def plan_rows(model: Callable, **inputs: Any) -> list[str]:
    """The groups of a model's plan, in words and in a canonical order."""
    text = ngmp.compile(model).lower(**inputs).describe()
    body = text.split("factors\n")[1].split("\ninitialisation")[0]
    return sorted(line for line in body.splitlines() if line)
