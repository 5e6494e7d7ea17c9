"""Effects whose scale may vanish beside offsets that differ from row to row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, gammaln

import ngmp_compiler as ngmp
from ngmp_compiler import Binomial, HalfNormal, Normal
from ngmp_compiler.results.infer import iterated
from ngmp_compiler.solve.solver import CONVERGED

Y, X = np.array([1.0, 2.0, 3.0, 0.0, 4.0, 2.0]), np.linspace(-1.0, 1.0, 6)


def effects(y, x):
    sd = ngmp.sample("sd", HalfNormal(std=1.0))
    u = ngmp.sample("u", Normal(np.zeros(6), std=sd))
    ngmp.sample("y", Binomial(5, logits=u + x), obs=y)


def test_a_scale_that_may_vanish():
    """At a scale of 1e-42 leaves were of 1e83, and where all later nodes began."""
    post = ngmp.compile(effects, integrate=("sd",))(y=Y, x=X)
    sd = np.linspace(1e-6, 6.0, 600)
    u, w = np.polynomial.hermite_e.hermegauss(60)
    p = expit(sd[:, None, None] * u[:, None] + X)
    rows = np.exp(gammaln(6) - gammaln(Y + 1) - gammaln(6 - Y)) * p**Y * (1 - p) ** (5 - Y)
    log = np.log(np.einsum("q,sqn->sn", w / w.sum(), rows)).sum(-1) - 0.5 * sd**2 + 0.5 * np.log(2 / np.pi)
    mass = np.exp(log) * (sd[1] - sd[0])
    mass[0] /= 2
    mean = (mass @ sd) / mass.sum()
    spread = np.sqrt(mass @ (sd - mean) ** 2 / mass.sum())
    assert bool(post.converged) and not int(post.nodes.failed)
    assert float(post.free_energy) == pytest.approx(-np.log(mass.sum()), abs=0.03)
    assert abs(float(post["sd"].mean) - mean) < 0.05 * spread
    assert float(post["sd"].std) == pytest.approx(spread, rel=0.05)


def test_a_start_of_no_use():
    """A run that begins where marginals are improper begins anew."""

    def plain(y):
        u = ngmp.sample("u", Normal(np.zeros(6), std=1.0))
        ngmp.sample("y", Binomial(5, logits=u), obs=y)

    solver = ngmp.compile(plain).specialise(y=Y).solver
    start = solver.map.initial()
    improper = jax.tree.map(lambda x: jnp.full_like(x, 5.0), start)
    run = jax.jit(lambda *starts: iterated(solver, *starts)[0])
    alone, again = run(improper), run(improper, start)
    assert solver.status(alone) != CONVERGED and solver.status(again) == CONVERGED
