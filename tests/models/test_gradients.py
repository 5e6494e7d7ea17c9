"""Gradients through every model of the gallery: implicit, in both modes, against unrolled sweeps and differences."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="finite differences need float64")

RNG = np.random.default_rng(0)
N = 8
COUNTS = np.array([0, 3, 1, 6, 2, 2, 9, 4])
SEEN = np.array([True, True, False, True, True, True, False, True])
Y = RNG.normal(size=N)
X = np.c_[np.ones(N), RNG.normal(size=N)]
TWO = np.array([-1.0, 1.5])
TABLE = RNG.dirichlet(np.ones(2), size=2)


class Case(NamedTuple):
    """A model, the inputs to differentiate in (all floats), the others, and a damping at which sweeps contract."""

    model: Any
    inputs: dict[str, Any]
    rest: dict[str, Any]
    rate: float = 0.5


CASES = {
    "logistic regression": Case(ngmp_models.logistic_regression, {"features": X, "prior_variance": 4.0}, {"y": Y > 0}),
    "local level": Case(
        ngmp_models.local_level,
        {"y": Y, "level_variance": 0.1, "noise_variance": 1.0, "prior_variance": 10.0},
        {"mask": SEEN},
    ),
    "skills": Case(ngmp_models.skills, {"score": np.array([0.8, 0.7, 0.9])}, {}),
}
SLOW = {
    "poisson chain": Case(ngmp_models.poisson_chain, {"sigma2": 0.1}, {"y": COUNTS, "mask": SEEN}),
    "poisson chain, as a loop": Case(ngmp_models.poisson_chain_loop, {"sigma2": 0.1}, {"y": COUNTS, "mask": SEEN}),
    "mean and precision": Case(ngmp_models.mean_precision, {"y": Y}, {"mask": SEEN}),
    "stochastic volatility": Case(ngmp_models.stochastic_volatility, {"r": Y, "sigma2": 0.05}, {"mask": SEEN}),
    "heteroscedastic": Case(
        ngmp_models.heteroscedastic, {"phi": X, "psi": X, "y": Y, "c_top": 25.0, "v_variance": 4.0, "w_mean": 0.5}, {}
    ),
    "hierarchy": Case(
        ngmp_models.precision_hierarchy, {"features": (X, X[:, :1], X[:, :1]), "y": Y, "w_variance": 1.0}, {}
    ),
    "hmm": Case(
        lambda y, **logits: ngmp_models.hmm(y, **{k: jax.nn.softmax(x) for k, x in logits.items()}),
        {"initial": TABLE[0], "transition": TABLE, "emission": TABLE[::-1]}, {"y": COUNTS % 2},
    ),
    "learned hmm": Case(
        ngmp_models.learned_hmm, {"transition": 1 + TABLE, "emission": np.array([[3.0, 1.0], [1.0, 2.0]])},
        {"y": COUNTS % 2}, 0.7,
    ),
    "mixture": Case(
        ngmp_models.gaussian_mixture, {"y": 2 * Y, "centres": TWO, "variance": 10.0, "shape": 2.0, "rate": 1.0}, {}
    ),
    "vector mixture": Case(
        ngmp_models.vector_mixture,
        {"y": np.c_[Y, 2 * Y], "centres": np.c_[TWO, TWO], "variance": 10.0, "scale": 1.0}, {},
    ),
}  # fmt: skip


def summary(post: ngmp.Posterior) -> jax.Array:
    """The free energy, and something nonlinear in every marginal."""
    moments = [jnp.sum(jnp.sin(x)) for q in post.marginals.values() for x in q.to_mean()]
    return jnp.stack([post.free_energy, sum(moments[1:], moments[0])])


def unrolled(program: ngmp.Program, inputs: dict[str, Any], sweeps: int) -> jax.Array:
    state, _ = jax.lax.scan(lambda s, _: (program.step(s, **inputs), None), program.init(**inputs), length=sweeps)
    return summary(program.posterior(state, **inputs))


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_model_of_the_gallery(name, rng):
    model, inputs, rest, rate = (CASES | SLOW)[name]
    inputs = jax.tree.map(lambda x: jnp.asarray(x, float), inputs)
    program = ngmp.compile(model, solver=optax.sgd(rate), tol=1e-13, max_sweeps=3000)
    direction = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape), inputs)

    @jax.jit
    def f(x):
        post = program(**x, **rest)
        return summary(post), post.converged

    moved = [jax.tree.map(lambda x, d, h=h: x + h * d, inputs, direction) for h in (-1e-4, 1e-4)]
    (low, _), (high, ok) = f(moved[0]), f(moved[1])
    assert ok
    differences = (high - low) / 2e-4
    slopes = jax.jit(jax.jacrev(lambda x: f(x)[0]))(inputs)
    reverse = sum(
        jnp.einsum("o...,...->o", s, d)
        for s, d in zip(jax.tree.leaves(slopes), jax.tree.leaves(direction), strict=True)
    )
    forward = jax.jit(lambda x, d: jax.jvp(lambda x: f(x)[0], (x,), (d,))[1])(inputs, direction)
    sweeps = int(1.2 * program(**inputs, **rest).sweeps) + 5
    loop = jax.jit(lambda x, d: jax.jvp(lambda x: unrolled(program, {**x, **rest}, sweeps), (x,), (d,))[1])
    scale = np.abs(differences).max()
    np.testing.assert_allclose(reverse, differences, rtol=1e-5, atol=1e-6 * scale)
    np.testing.assert_allclose(reverse, forward, rtol=1e-8, atol=1e-9 * scale)
    np.testing.assert_allclose(reverse, loop(inputs, direction), rtol=1e-6, atol=1e-7 * scale)
