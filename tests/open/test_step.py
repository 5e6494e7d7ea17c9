"""A step from outside: one file, nothing of the package is edited."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models

Y = np.array([2.0, 0.0, 3.0, 5.0, 1.0, 4.0])


class HeavyBall(ngmp.AbstractStep):
    """`u <- momentum u - rate (eta - eta*)`; after a refusal the momentum is gone."""

    rate: float = 0.5
    momentum: float = 0.2

    def init(self, params):
        return jax.tree.map(jnp.zeros_like, params)

    def update(self, updates, state, params=None):
        u = jax.tree.map(lambda u, g: self.momentum * u - self.rate * g, state, updates)
        return u, u


class Plain:
    """No Module of ours: two functions with optax's names."""

    def init(self, params):
        return ()

    def update(self, updates, state, params=None):
        return jax.tree.map(lambda g: -0.5 * g, updates), state


class Cautious(HeavyBall):
    """Remembers how often it was refused."""

    def init(self, params):
        return super().init(params), jnp.asarray(0)

    def update(self, updates, state, params=None):
        step, u = super().update(updates, state[0], params)
        return step, (u, state[1])

    def refused(self, state, fresh, written, blamed):
        return fresh[0], state[1] + 1


@pytest.fixture(scope="module")
def expected():
    return ngmp.compile(ngmp_models.poisson_chain)(y=Y)


@pytest.mark.parametrize("step", [HeavyBall(), Plain(), Cautious()], ids=lambda s: type(s).__name__)
def test_any_step_comes_to_the_same_fixed_point(step, expected):
    post = ngmp.compile(ngmp_models.poisson_chain, solver=step)(y=Y)
    assert post.converged
    for name, q in expected.marginals.items():
        np.testing.assert_allclose(post[name].mean, q.mean, rtol=1e-6, atol=1e-7)


def test_describe_names_it():
    text = ngmp.compile(ngmp_models.poisson_chain, solver=HeavyBall(0.4)).lower(y=Y).describe()
    assert "by HeavyBall(" in text
    assert "by adaptive(memory=4)" in ngmp.compile(ngmp_models.poisson_chain).lower(y=Y).describe()
    text = ngmp.compile(ngmp_models.poisson_chain, solver=optax.sgd(0.5)).lower(y=Y).describe()
    assert "by optax" in text


def test_a_step_says_what_a_refusal_means():
    """Far too long steps are refused, and counted by the step's own memory."""
    inputs = {"y": np.array([0.3, -1.2, 4.0])}
    program = ngmp.compile(ngmp_models.mean_precision, solver=Cautious(rate=4.0, momentum=0.9))
    state, refused = program.init(**inputs), 0
    for _ in range(15):
        state = program.step(state, **inputs)
        refused += int(state.shrinks > 0)
    assert refused > 0 and state.memory[0][1] == refused


def test_memories_that_know_refusals_are_found_inside_of_optax_chains():
    step = ngmp.compile(ngmp_models.poisson_chain, solver=optax.chain(ngmp.adaptive(), optax.scale(0.5)))
    state = step.init(y=Y)
    assert hasattr(state.memory[0][0], "rate")
    assert step(y=Y).converged


@pytest.mark.parametrize("given, lacks", [
    (0.5, "lacks init and update"), (type("Half", (), {"init": lambda self, p: ()})(), "lacks update"),
    (Plain, "it is a class: give an instance"),
])  # fmt: skip
def test_what_is_no_step_is_refused(given, lacks):
    with pytest.raises(TypeError, match=lacks):
        ngmp.compile(ngmp_models.poisson_chain, solver=given)


def test_a_module_that_lacks_a_method_says_which():
    class Half(ngmp.AbstractStep):
        def init(self, params):
            return ()

    with pytest.raises(TypeError, match="update"):
        Half()


@pytest.mark.parametrize("solver", [ngmp.adaptive(), ngmp.adaptive(memory=0), ngmp.anderson(3), HeavyBall(),
                                    ngmp.vector_transport(0.5)], ids=str)  # fmt: skip
def test_programs_with_steps_are_pickled(solver, expected):
    program = pickle.loads(pickle.dumps(ngmp.compile(ngmp_models.poisson_chain, solver=solver)))
    assert eqx.tree_equal(program._options.solver, solver)
    post = program(y=Y)
    for name, q in expected.marginals.items():
        np.testing.assert_allclose(post[name].mean, q.mean, rtol=1e-6, atol=1e-6)
