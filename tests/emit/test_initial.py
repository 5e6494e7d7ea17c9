"""Initial values by name, pattern and scope: where an iteration starts, and which fixed point it finds."""

import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Gamma, ModelError, MvNormal, Normal
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian, MvGaussian

Y = np.concatenate([np.random.default_rng(0).normal(m, 0.5, 12) for m in (-2.0, 3.0)])


def layer(y):
    """A mixture of two; used twice under different names."""
    m = ngmp.sample("m", Normal(jnp.zeros(2), variance=25.0))
    z = ngmp.sample("z", Categorical(probs=jnp.full((len(y), 2), 0.5)))
    ngmp.sample("y", Normal(ngmp.take(m, z), variance=0.25), obs=y)


def twice(y):
    for k in range(2):
        with ngmp.scope(f"layer{k}"):
            layer(y)


@pytest.fixture(scope="module")
def program():
    return ngmp.compile(twice)


def centred(*means):
    return Gaussian.from_mean_variance(jnp.asarray(means), jnp.full(len(means), 0.1))


def test_patterns_reach_into_scopes_and_names_come_before_them(program):
    """A mixture has one fixed point for each order of its components: the start says which."""
    start = {"layer*/m": centred(-1.0, 1.0), "layer1/m": centred(1.0, -1.0)}
    post = program(y=jnp.asarray(Y), init=start)
    low, high = Y[:12].mean(), Y[12:].mean()
    np.testing.assert_allclose(post["layer0/m"].mean, [low, high], atol=0.05)
    np.testing.assert_allclose(post["layer1/m"].mean, [high, low], atol=0.05)
    state = program.init(y=jnp.asarray(Y), init=start)
    again = program(y=jnp.asarray(Y), init=state)
    np.testing.assert_allclose(again["layer1/m"].mean, post["layer1/m"].mean, rtol=1e-12)


def test_what_does_not_fit_is_listed_at_once(program):
    bad = {"nobody": centred(0.0), "layer0/m": GammaFamily.from_concentration_rate(1.0, 1.0), "layer1/m": centred(1.0)}
    with pytest.raises(ModelError) as error:
        program(y=jnp.asarray(Y), init=bad)
    text = str(error.value)
    assert "3 problems" in text and "init= names no variable" in text and "holds Gamma" in text
    assert "holds batch shape (1,)" in text and "batch shape (2,) or ()" in text


@pytest.mark.slow
def test_the_start_does_not_move_a_unique_fixed_point():
    """Leaves on functionals of several given variables, of vectors too; one value for a whole variable."""

    def model(y, phi):
        w = ngmp.sample("w", MvNormal(jnp.zeros(2), covariance=1.0))
        b = ngmp.sample("b", Normal(0.0, variance=1.0))
        tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
        ngmp.sample("y", Normal(ngmp.dot(phi, w) + b, precision=tau), obs=y)

    rng = np.random.default_rng(1)
    inputs = {"y": jnp.asarray(rng.normal(size=9)), "phi": jnp.asarray(rng.normal(size=(9, 2)))}
    program = ngmp.compile(model, tol=1e-10)
    plain = program(**inputs)
    start = {"w": MvGaussian.from_mean_covariance(jnp.ones(2), 0.1 * jnp.eye(2)), "b": plain["b"],
             "tau": GammaFamily.from_concentration_rate(20.0, 1.0)}  # fmt: skip
    first = program.init(**inputs, init=start).leaves
    assert not np.allclose(first["y.tau"].eta2, program.init(**inputs).leaves["y.tau"].eta2)
    post = program(**inputs, init=start)
    assert post.converged
    for name in ("w", "b", "tau"):
        np.testing.assert_allclose(post[name].mean, plain[name].mean, rtol=1e-8, atol=1e-9)
