"""Newton's method: fixed points that sweeps come to too slowly, or run away from."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp
from ngmp_compiler import options as _options
from ngmp_compiler.solve.newton import newton
from ngmp_compiler.solve.step import as_step
from ngmp_compiler.value import Value
from ngmp_kernels.families import Gaussian

Y = np.array([0, 3, 1, 6])


def counts(y):
    level = ngmp.sample("level", Normal(0.0, variance=4.0))
    z = ngmp.sample("z", Normal(level, variance=0.5 * np.ones(4)))
    ngmp.sample("y", Poisson(exp(z)), obs=y)


def test_it_is_a_rung_of_the_ladder(monkeypatch):
    """After a solver that is too slow, with the answer of the default one."""
    good = ngmp.compile(counts)(y=Y)
    monkeypatch.setattr(_options, "_LADDER", (as_step(optax.sgd(0.005)), *_options._LADDER[2:]))
    post = ngmp.compile(counts)(y=Y)
    assert bool(post.converged) and int(post.state.rung) == 1
    assert 500 < int(post.sweeps) < 600  # of the one before it, and its own
    np.testing.assert_allclose(post.free_energy, good.free_energy, atol=1e-9)
    np.testing.assert_allclose(post["z"].mean, good["z"].mean, atol=1e-7)


@dataclasses.dataclass
class Found:
    """What a map says of a point."""

    target: Any
    core: Any
    fine: Any


class Repelling(Value):
    """Targets -3 eta1 + eta2^2 and 5 eta2 + 2, of four rows: from (0.0625, -0.5) both coordinates lead away."""

    def __init__(self, settles=True):
        self.settles = settles

    def evaluate(self, leaves):
        assert not self.settles  # a map that is solved on its edges has other derivatives
        q = leaves["a"]
        target = {"a": Gaussian(-3 * q.eta1 + q.eta2**2, 5 * q.eta2 + 2)}
        return Found(target, SimpleNamespace(proper=jnp.asarray(True)), {"a": q.eta2 < 0})


@pytest.mark.parametrize("eta2", [-3.0, -0.6, -0.01])
def test_a_fixed_point_that_sweeps_lead_away_from(eta2):
    solver: Any = SimpleNamespace(map=Repelling(), max_sweeps=1000, tol=1e-8)
    leaves, count = newton(solver, {"a": Gaussian(jnp.linspace(-2.0, 3.0, 4), jnp.full(4, eta2))})
    eta1, eta2 = leaves["a"].natural
    np.testing.assert_allclose(eta1, 0.0625, rtol=1e-8)
    np.testing.assert_allclose(eta2, -0.5, rtol=1e-8)
    assert int(count) < 60


def test_a_map_without_a_fixed_point_is_given_up():
    """Targets eta + 1 + eta^2: the gap is least at zero, and not nothing."""

    class Fold(Repelling):
        def evaluate(self, leaves):
            q = leaves["a"]
            target = {"a": Gaussian(q.eta1 + 1 + q.eta1**2, q.eta2)}
            return Found(target, SimpleNamespace(proper=jnp.asarray(True)), {"a": q.eta2 < 0})

    solver: Any = SimpleNamespace(map=Fold(), max_sweeps=1000, tol=1e-8)
    leaves, count = newton(solver, {"a": Gaussian(jnp.full(2, 4.0), jnp.full(2, -1.0))})
    eta1, _ = leaves["a"].natural
    assert int(count) < 600 and np.isfinite(eta1).all() and abs(eta1).max() < 4.0
