"""A layer of neurons declared as loops: the interpreter's marginals, every message sent, one size of program."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler.declare.sample import trace
from ngmp_compiler.schedule import gaussian as _schedule_gaussian
from tests.inside import equations
from tests.oracle.interpreter import Interpreter, rolled_leaves

NEURONS, SEEN, DAMPING, UPDATES = 5, 3, 0.5, 8  # more than four neurons are rolled into one group
INTERFACES = {"neuron*/x": "r tau", "neuron*/h": "out x", "neuron*/u": "r a b tau", "mu": "r tau"}


def data(n: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(1)
    features = np.c_[rng.uniform(-1.0, 1.0, n), np.ones(n)]
    y = np.sin(3.0 * features[:, 0]) + 0.1 * rng.standard_normal(n)
    weights, gains = rng.standard_normal((NEURONS, 2)), rng.standard_normal(NEURONS)
    return {k: jnp.asarray(v) for k, v in {"features": features, "y": y, "weights": weights, "gains": gains}.items()}


@pytest.fixture(scope="module")
def program():
    """Compiled as at full size: with more variables than a dense solution takes, sums are integrated out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_schedule_gaussian, "DENSE_LIMIT", 8)
        yield ngmp.compile(ngmp_models.neurons, rules=ngmp_models.NEURON_RULES, solver=optax.sgd(DAMPING))


@pytest.fixture(scope="module")
def states(program):
    """The state after every sweep; the first sweep only prepares the first update."""
    inputs, found = data(SEEN), []
    state = program.init(**inputs)
    for _ in range(UPDATES + 2):
        state = program.step(state, **inputs)
        assert int(state.shrinks) == 0
        found.append(state)
    return found


def test_executors(program):
    text = program.lower(**data(SEEN)).describe()
    assert "5 hubs, 15 scalars" in text and "sums: 18 scalars" in text and "dense:" not in text and "gather" not in text


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_marginals_are_the_interpreters(program, states):
    """Eight damped updates of every message, from the same start, factor by factor on grids."""
    inputs = data(SEEN)
    graph = trace(ngmp_models.neurons, inputs)
    interpreter = Interpreter(graph, points=101, mean_field=lambda name: name.endswith(("x", "u")))
    groups = program._build(*program._split((), inputs)).map.projected
    leaves = rolled_leaves(groups, states[0].leaves, interpreter)
    for _ in range(UPDATES):
        targets = interpreter.targets(leaves)
        leaves = {k: eta + DAMPING * (targets[k] - eta) for k, eta in leaves.items()}
    post = program.posterior(states[UPDATES], **inputs)
    for name, properties in interpreter.summary(interpreter.core(leaves)).items():
        for k, expected in properties.items():
            found = getattr(post[name], k)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10, err_msg=f"{name}.{k}")


def test_every_projected_interface_is_updated_once_in_every_sweep(states):
    """What y says of a neuron's gain reaches its input x in the fourth update: until then x.r is at its target. Then
    all messages move, every time."""
    sizes = {"mu": SEEN}
    expected = {f"{g}.{j}": sizes.get(g, SEEN * NEURONS) for g, names in INTERFACES.items() for j in names.split()}
    for before, after in zip(states[3:-1], states[4:], strict=True):
        moved = {}
        for key, old in before.leaves.items():
            pairs = zip(old.natural, after.leaves[key].natural, strict=True)
            moved[key] = int(np.sum(np.any([np.asarray(a) != np.asarray(b) for a, b in pairs], axis=0)))
        assert moved == expected


def test_program_size_does_not_depend_on_the_data(program, states):
    def size(n: int) -> int:
        return equations(jax.make_jaxpr(lambda i: program.step(program.init(**i), **i))(data(n)).jaxpr)

    # Short leaves are stacked, and which go together depends a little on how long they are.
    assert size(6) > 100 and size(24) == pytest.approx(size(6), rel=0.01)
