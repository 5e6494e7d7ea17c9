"""Values: the model function runs once, and what was made of it can be compared, passed on, pickled and copied."""

import copy
import pickle
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Normal, Poisson, exp
from ngmp_compiler.value import Value, distinct

Y = np.arange(6.0) % 4


def counted():
    """A chain of counts, and the shapes its function has run for."""
    calls = []

    def chain(y, scale=1.0):
        calls.append(np.shape(y))
        z0 = ngmp.sample("z0", Normal(0.0, variance=2.0))

        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=scale))
            ngmp.sample("y", Poisson(exp(z)), obs=y_k)
            return z, None

        ngmp.scan(step, z0, y)

    return chain, calls


def test_the_model_function_runs_once():
    model, calls = counted()
    program = ngmp.compile(model, carry={"z0": "z"})
    post = program(y=Y)

    def energy(scale):
        return program(y=Y, scale=scale).free_energy

    def means(scale):
        return program(y=Y, scale=scale)["z"].mean

    value, slope = jax.value_and_grad(energy)(1.0)
    np.testing.assert_allclose(value, post.free_energy)
    np.testing.assert_allclose(jax.jacfwd(means)(1.0), jax.jacrev(means)(1.0), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(slope, (energy(1 + 1e-4) - energy(1 - 1e-4)) / 2e-4, rtol=1e-4)
    jax.vmap(lambda y: program(y=y).free_energy)(np.stack([Y, Y + 1]))
    jax.jit(lambda y: program(y=y).free_energy)(Y)
    program.predict(post, "y", y=Y)
    program.posterior(post.state, y=Y)
    program.step(program.init(y=Y), y=Y)
    program.update(program.start(y=Y), {"y": Y})
    program.lower(y=Y).describe()
    program.specialise(y=Y)
    with pytest.raises(ngmp.DataError, match="NaN"):
        program(y=np.where(Y > 2, np.nan, Y))
    ngmp.restarts(program, jax.random.key(0), 2, y=Y)
    assert len(calls) == 1
    program(y=Y[:5])  # a new shape
    assert len(calls) == 2
    program.clear()
    program.lower(y=Y)
    assert len(calls) == 3


def test_a_specialisation_is_a_value():
    program = ngmp.compile(counted()[0])
    found = program.specialise(y=Y)
    leaves = program(y=Y).state.leaves
    assert found == program.specialise(y=Y) and hash(found) == hash(program.specialise(y=Y))
    assert found != program.specialise(y=Y + 1) and found != program.specialise(y=Y[:4])
    energy = jax.jit(lambda program, leaves: program.map.energy(leaves))
    np.testing.assert_allclose(energy(found, leaves), found.map.energy(leaves))
    twice = jax.vmap(energy, (0, None))(jax.tree.map(lambda x: jnp.stack([x, x]), found), leaves)
    np.testing.assert_allclose(twice, [energy(found, leaves)] * 2)
    for part in (found, found.plan, found.map, found.map.core, found.solver):
        assert isinstance(part, Value) and type(part).__name__ in repr(part)
        assert jax.tree.structure(part) == jax.tree.structure(jax.tree.map(jnp.zeros_like, part))
    assert list(found.plan.names) == ["z0", "z"]  # in order of declaration, through every transformation


def test_derivatives_with_respect_to_a_plan():
    """The gradient of the free energy in the arrays of the map is that in the data behind them."""
    program = ngmp.compile(ngmp_models.local_level)
    y = np.asarray([0.3, 1.0, -0.5])
    inputs = {"y": y, "level_variance": 0.5, "noise_variance": 1.0}
    found = program.specialise(**inputs)
    slope = jax.grad(lambda plan: plan.map.energy({}))(found)
    arrays, _ = distinct(found)
    assert arrays and all(np.isfinite(x).all() for x in jax.tree.leaves(slope) if x.dtype != jax.dtypes.float0)


def test_copies_and_pickles_are_programs_of_their_own():
    program = ngmp.compile(ngmp_models.mean_precision, tol=1e-9)
    expected = program(y=Y).free_energy
    for other in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program), copy.copy(program)):
        assert other is not program and other.model is program.model
        np.testing.assert_array_equal(other(y=Y).free_energy, expected)


def test_specialisations_and_descriptions_can_be_copied_and_pickled():
    found = ngmp.compile(ngmp_models.poisson_chain).specialise(y=Y)
    described = ngmp.compile(ngmp_models.poisson_chain).lower(y=Y)
    for copied in (lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy):
        assert copied(found) == found and hash(copied(found)) == hash(found)
        assert copied(described).plan == described.plan and "chain" in copied(described).describe()
    leaves = ngmp.compile(ngmp_models.poisson_chain)(y=Y).state.leaves
    energy = jax.jit(lambda program: program.map.energy(leaves))
    np.testing.assert_allclose(energy(pickle.loads(pickle.dumps(found))), energy(found))


def test_what_cannot_be_pickled_says_why():
    with pytest.raises(pickle.PicklingError, match="its model .*top level of a module"):
        pickle.dumps(ngmp.compile(counted()[0]))
    with pytest.raises(pickle.PicklingError, match="solver= .*compile it again"):
        pickle.dumps(ngmp.compile(ngmp_models.mean_precision, solver=optax.sgd(0.5)))


def test_a_program_is_used_after_fork():
    """Before jax has started its threads, that is: what they were doing is lost in the child."""
    script = """
        import os
        import numpy as np
        import ngmp_compiler as ngmp, ngmp_models
        program = ngmp.compile(ngmp_models.mean_precision)
        child = os.fork()
        energy = float(program(y=np.arange(4.0)).free_energy)
        print(energy, flush=True)
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    one, other = printed(script).split()
    assert one == other


def printed(script: str) -> str:
    """What a process of its own prints."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_program_that_was_used_before_fork_says_so():
    """Any operation of jax would hang there."""
    script = """
        import os
        import numpy as np
        import ngmp_compiler as ngmp, ngmp_models
        program = ngmp.compile(ngmp_models.mean_precision)
        program(y=np.arange(4.0))
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == 0
        else:
            try:
                program(y=np.arange(4.0))
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
    """
    said = printed(script)
    assert "used before os.fork()" in said and "'spawn'" in said
