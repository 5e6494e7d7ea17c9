"""Coupled chains of categorical variables: rolled over time, exact, against enumeration and naive product states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, Dirichlet, Normal, Poisson, take
from ngmp_compiler.executors.discrete.layers import slices
from tests.inside import core_line, equations, tables_of


def forward_backward(first, moves, likelihood):
    """Marginals (T, S) and log-evidence of a plain chain over S product states."""
    steps = len(likelihood)
    alpha, log_z = [first * likelihood[0]], 0.0
    for t in range(steps):
        if t:
            alpha.append((alpha[-1] @ moves) * likelihood[t])
        log_z += np.log(alpha[-1].sum())
        alpha[-1] = alpha[-1] / alpha[-1].sum()
    beta, out = np.ones_like(first), []
    for t in reversed(range(steps)):
        out.append(alpha[t] * beta / (alpha[t] * beta).sum())
        beta = moves @ (likelihood[t] * beta)
        beta = beta / beta.max()
    return np.array(out[::-1]), log_z


# -- factorial hidden Markov models -----------------------------------------------------------------------------------


def factorial(y, A, E, mask=None):
    k = np.shape(A)[-1]
    z = [ngmp.sample(f"z{i}", Categorical(probs=np.full(k, 1 / k))) for i in range(3)]
    ngmp.sample("y", Categorical(probs=take(E, *z)), obs=y[0], mask=None if mask is None else mask[0])

    def step(z, x):
        y_k, seen = x
        z = tuple(ngmp.sample(f"z{i}", Categorical(probs=take(A[i], z[i]))) for i in range(3))
        ngmp.sample("y", Categorical(probs=take(E, *z)), obs=y_k, mask=seen)
        return z, None

    ngmp.scan(step, tuple(z), (y[1:], None if mask is None else mask[1:]))


def factorial_data(seed, steps, k=4):
    rng = np.random.default_rng(seed)
    A, E = rng.dirichlet(np.ones(k), (3, k)), rng.dirichlet(np.full(5, 0.3), (k, k, k))
    return {"y": rng.integers(0, 5, steps), "A": A, "E": E}


def factorial_reference(y, A, E, mask=None):
    k = A.shape[-1]
    moves = np.einsum("ai,bj,ck->abcijk", *A).reshape(k**3, k**3)
    likelihood = np.moveaxis(E, -1, 0).reshape(E.shape[-1], -1)[y]
    likelihood = likelihood if mask is None else np.where(mask[:, None], likelihood, 1.0)
    found, log_z = forward_backward(np.full(k**3, k**-3.0), moves, likelihood)
    found = found.reshape(-1, k, k, k)
    return [found.sum((2, 3)), found.sum((1, 3)), found.sum((1, 2))], log_z


@pytest.mark.core32
def test_factorial_hmm_is_exact(x64):
    data = factorial_data(0, 60)
    mask = np.random.default_rng(1).random(60) < 0.7
    program = ngmp.compile(factorial)
    post = program(**data, mask=mask)
    marginals, log_z = factorial_reference(**data, mask=mask)
    tol = 1e-10 if x64 else 2e-4
    for i in range(3):
        np.testing.assert_allclose(post[f"z{i}"].probs, marginals[i], atol=tol)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-12 if x64 else 1e-5)
    assert bool(post.converged) and post.approximate == ()
    line = core_line(program, **data, mask=mask)
    assert "slices: " in line and "64 joint states of 3" in line and "at most 262144" in line


def test_program_size_does_not_depend_on_the_length():
    def size(steps):
        data = factorial_data(0, steps, k=2)
        return equations(
            jax.make_jaxpr(lambda y: ngmp.compile(factorial)(**{**data, "y": y}).free_energy)(data["y"]).jaxpr
        )

    assert size(40) == size(400)


def test_vmap_and_derivatives():
    data = factorial_data(2, 12, k=2)
    program = ngmp.compile(factorial)

    def value(theta, y):
        post = program(y=y, A=jax.nn.softmax(theta, -1), E=data["E"])
        return post.free_energy + jnp.sum(jnp.sin(3 * post["z1"].probs[4]))

    theta = jnp.log(jnp.asarray(data["A"]))
    slope = jax.grad(value)(theta, data["y"])
    for at in ((0, 0, 1), (2, 1, 0)):
        step = jnp.zeros_like(theta).at[at].set(1e-5)
        numeric = (value(theta + step, data["y"]) - value(theta - step, data["y"])) / 2e-5
        np.testing.assert_allclose(slope[at], numeric, rtol=1e-6, atol=1e-8)
    other = np.random.default_rng(3).integers(0, 5, (3, 12))
    found = jax.vmap(lambda y: value(theta, y))(jnp.asarray(other))
    np.testing.assert_allclose(found, [value(theta, y) for y in other], rtol=1e-10)


# -- other couplings --------------------------------------------------------------------------------------------------


def random_network(seed):
    """Two or three chains; a variable looks at some of the step before and of its own, outcomes at some of a step."""
    rng = np.random.default_rng(seed)
    chains, steps = int(rng.integers(2, 4)), int(rng.integers(8, 12))
    sizes = [int(k) for k in rng.integers(2, 4, chains)]
    before = [sorted({i, int(rng.integers(chains))}) for i in range(chains)]
    beside = [[int(rng.integers(i))] if i and rng.random() < 0.5 else [] for i in range(chains)]
    seen = [sorted({int(x) for x in rng.integers(0, chains, 2)}) for _ in range(2)] + [[0, chains - 1]]
    A = [rng.dirichlet(np.ones(sizes[i]), [sizes[j] for j in before[i] + beside[i]]) for i in range(chains)]
    E = [rng.dirichlet(np.ones(3), [sizes[j] for j in own]) for own in seen]
    y = rng.integers(0, 3, (steps, len(seen)))

    def model(y, A, E):
        z = [ngmp.sample(f"z{i}_0", Categorical(probs=np.full(k, 1 / k))) for i, k in enumerate(sizes)]
        for t in range(steps):
            new = []
            for i in range(chains):
                parents = [z[j] for j in before[i]] + [new[j] for j in beside[i]]
                new.append(ngmp.sample(f"z{i}", Categorical(probs=take(A[i], *parents))))
            z = new
            for k, own in enumerate(seen):
                ngmp.sample(f"y{k}", Categorical(probs=take(E[k], *(z[j] for j in own))), obs=y[t, k])

    names = [f"z{i}{end}" for i in range(chains) for end in ("", "_0")]
    return model, {"y": y, "A": A, "E": E}, names


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 5, 8))])
def test_random_couplings_equal_elimination(seed):
    """Marginals of variables and of all tables, and the evidence."""
    model, data, names = random_network(seed)
    rolled, unrolled = (ngmp.compile(model, executors={"z0": kind}) for kind in ("slices", "elimination"))
    found, exact = rolled(**data), unrolled(**data)
    for name in names:
        np.testing.assert_allclose(found[name].probs, exact[name].probs, atol=1e-12)
    np.testing.assert_allclose(found.free_energy, exact.free_energy, rtol=1e-12)
    tables, others = tables_of(rolled, **data), tables_of(unrolled, **data)
    assert tables.keys() == others.keys() and all(tables[g].keys() == others[g].keys() for g in tables)
    for g, rows in tables.items():
        for row, table in rows.items():
            np.testing.assert_allclose(table, others[g][row], atol=1e-12)


def semi_markov(y, enter, length, rate):
    """`s` keeps its value until `d` has run down; then both are drawn anew."""
    states, longest = np.shape(length)
    running = (np.arange(longest) > 0)[None, :, None]
    keep = jnp.where(running, np.eye(states)[:, None, :], enter[:, None, :])
    down = np.eye(longest)[np.maximum(np.arange(longest) - 1, 0)]
    count = jnp.where(running, down[None], length[:, None, :])  # state, before, after
    state = ngmp.sample("s0", Categorical(probs=np.full(states, 1 / states)))
    left = ngmp.sample("d0", Categorical(probs=take(length, state)))

    def step(carry, y_k):
        state, left = carry
        state = ngmp.sample("s", Categorical(probs=take(keep, state, left)))
        left = ngmp.sample("d", Categorical(probs=take(count, state, left)))
        ngmp.sample("y", Poisson(take(rate, state)), obs=y_k)
        return (state, left), None

    ngmp.scan(step, (state, left), y)


def test_semi_markov():
    rng = np.random.default_rng(4)
    states, longest, steps = 3, 5, 80
    enter = rng.dirichlet(np.ones(states), states) * (1 - np.eye(states))
    enter /= enter.sum(1, keepdims=True)
    length, rate = rng.dirichlet(np.ones(longest), states), np.array([1.0, 4.0, 9.0])
    y = rng.poisson(4.0, steps)
    program = ngmp.compile(semi_markov)
    post = program(y=y, enter=enter, length=length, rate=rate)
    moves = np.zeros((states, longest, states, longest))
    for s, d in itertools.product(range(states), range(longest)):
        for after in range(states):
            if d:
                moves[s, d, s, d - 1] = 1.0
            else:
                moves[s, 0, after] = enter[s, after] * length[after]
    moves = moves.reshape(states * longest, -1)
    likelihood = np.exp(-rate) * rate ** y[:, None] / np.array([np.prod(np.arange(1.0, k + 1)) for k in y])[:, None]
    likelihood = np.concatenate([np.ones((1, states)), likelihood])
    likelihood = np.repeat(likelihood, longest, 1)
    found, log_z = forward_backward((length / states).reshape(-1), moves, likelihood)
    found = found.reshape(-1, states, longest)
    np.testing.assert_allclose(post["s"].probs, found[1:].sum(2), atol=1e-10)
    np.testing.assert_allclose(post["d"].probs, found[1:].sum(1), atol=1e-10)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-11)
    assert post.approximate == () and "slices: " in core_line(program, y=y, enter=enter, length=length, rate=rate)


def test_a_class_of_the_whole_sequence_and_a_second_order_chain():
    """A variable tied to all others is carried along; a chain that looks two steps back has two variables a slice."""
    rng = np.random.default_rng(5)
    steps, k, kinds = 90, 3, 2
    A, E = rng.dirichlet(np.ones(k), (kinds, k)), rng.dirichlet(np.ones(4), k)
    twice, y = rng.dirichlet(np.ones(k), (k, k)), rng.integers(0, 4, steps)

    def sorts(y):
        c = ngmp.sample("c", Categorical(probs=np.array([0.3, 0.7])))
        z = ngmp.sample("z", Categorical(probs=np.full(k, 1 / k)))
        ngmp.sample("y", Categorical(probs=take(E, z)), obs=y[0])
        for t in range(1, steps):
            z = ngmp.sample("z", Categorical(probs=take(A, c, z)))
            ngmp.sample("y", Categorical(probs=take(E, z)), obs=y[t])

    program = ngmp.compile(sorts)
    post = program(y=y)
    each = [forward_backward(np.full(k, 1 / k), A[c], E[:, y].T) for c in range(kinds)]
    joint = np.log([0.3, 0.7]) + np.array([log_z for _, log_z in each])
    weights = np.exp(joint - logsumexp(joint))
    np.testing.assert_allclose(post["c"].probs, weights, atol=1e-10)
    np.testing.assert_allclose(
        post["z"].probs, sum(w * found for w, (found, _) in zip(weights, each, strict=True)), atol=1e-10
    )
    np.testing.assert_allclose(-post.free_energy, logsumexp(joint), rtol=1e-12)
    assert "slices: " in core_line(program, y=y)

    def second(y):
        z = [ngmp.sample("z", Categorical(probs=np.full(k, 1 / k))) for _ in range(2)]
        for _ in range(2, steps):
            z.append(ngmp.sample("z", Categorical(probs=take(twice, z[-2], z[-1]))))
        for t in range(steps):
            ngmp.sample("y", Categorical(probs=take(E, z[t])), obs=y[t])

    post = ngmp.compile(second)(y=y)
    moves = np.einsum("abc,bd->abdc", twice, np.eye(k)).reshape(k * k, k * k)
    first = np.einsum("a,b->ab", E[:, y[0]], E[:, y[1]]).reshape(-1) / k**2
    likelihood = np.concatenate([np.ones((1, k * k)), np.tile(E[:, y[2:]].T, (1, k))])
    found, log_z = forward_backward(first, moves, likelihood)
    np.testing.assert_allclose(post["z"].probs[1:], found.reshape(-1, k, k).sum(1), atol=1e-10)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-12)
    assert post.approximate == ()


def test_several_sequences_share_one_executor():
    data = factorial_data(6, 10, k=2)
    y = np.random.default_rng(7).integers(0, 5, (10, 4))

    def panel(y, A, E):
        z = tuple(ngmp.sample(f"z{i}", Categorical(probs=np.full((4, 2), 0.5))) for i in range(3))

        def step(z, y_k):
            z = tuple(ngmp.sample(f"x{i}", Categorical(probs=take(A[i], z[i]))) for i in range(3))
            ngmp.sample("y", Categorical(probs=take(E, *z)), obs=y_k)
            return z, None

        ngmp.scan(step, z, y)

    program = ngmp.compile(panel)
    post = program(y=y, A=data["A"], E=data["E"])
    total = 0.0
    for s in range(4):
        marginals, log_z = factorial_reference(np.concatenate([[0], y[:, s]]), data["A"], data["E"], np.arange(11) > 0)
        np.testing.assert_allclose(post["x1"].probs[:, s], marginals[1][1:], atol=1e-10)
        total += log_z
    np.testing.assert_allclose(-post.free_energy, total, rtol=1e-12)
    assert "4 networks of" in core_line(program, y=y, A=data["A"], E=data["E"])


# -- several selectors, learned tables --------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["table", "sum", "two arguments"])
def test_several_selectors_in_one_emission(spelling):
    rng = np.random.default_rng(8)
    steps, k = 30, 3
    A, means, scales = rng.dirichlet(np.ones(k), (2, k)), rng.normal(size=(2, k)) * 2, np.array([0.3, 1.0, 2.0])
    y = rng.normal(size=steps)
    table = means[0][:, None] + means[1]

    def model(y):
        z = tuple(ngmp.sample(f"z{i}_0", Categorical(probs=np.full(k, 1 / k))) for i in range(2))

        def step(z, y_k):
            a, b = (ngmp.sample(f"z{i}", Categorical(probs=take(A[i], z[i]))) for i in range(2))
            mean, variance = take(table, a, b), 1.0
            if spelling == "sum":
                mean = take(means[0], a) + take(means[1], b)
            if spelling == "two arguments":
                mean, variance = take(means[0], a), take(scales, b)
            ngmp.sample("y", Normal(mean, variance=variance), obs=y_k)
            return (a, b), None

        ngmp.scan(step, z, y)

    program = ngmp.compile(model)
    post = program(y=y)
    centre = np.broadcast_to(means[0][:, None], (k, k)) if spelling == "two arguments" else table
    variance = np.broadcast_to(scales, (k, k)) if spelling == "two arguments" else np.ones((k, k))
    likelihood = np.exp(-0.5 * (y[:, None, None] - centre) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
    likelihood = np.concatenate([np.ones((1, k * k)), likelihood.reshape(steps, -1)])
    moves = np.einsum("ai,bj->abij", *A).reshape(k * k, -1)
    found, log_z = forward_backward(np.full(k * k, 1 / k**2), moves, likelihood)
    found = found.reshape(-1, k, k)
    np.testing.assert_allclose(post["z0"].probs, found[1:].sum(2), atol=1e-10)
    np.testing.assert_allclose(post["z1"].probs, found[1:].sum(1), atol=1e-10)
    np.testing.assert_allclose(-post.free_energy, log_z, rtol=1e-11)
    assert post.approximate == ()


def test_learned_rows_of_coupled_chains_equal_elimination():
    """Two chains that drive each other, with Dirichlet rows: the same fixed point from either executor."""
    rng = np.random.default_rng(9)
    y = rng.integers(0, 3, 6)
    E, prior = rng.dirichlet(np.ones(3), (2, 2)), rng.uniform(1, 3, (2, 2, 2))

    def model(y):
        A, B = ngmp.sample("A", Dirichlet(prior)), ngmp.sample("B", Dirichlet(prior[::-1]))
        z = tuple(ngmp.sample(f"{n}0", Categorical(probs=np.full(2, 0.5))) for n in "ab")

        def step(z, y_k):
            a = ngmp.sample("a", Categorical(probs=take(A, *z)))
            b = ngmp.sample("b", Categorical(probs=take(B, *z)))
            ngmp.sample("y", Categorical(probs=take(E, a, b)), obs=y_k)
            return (a, b), None

        ngmp.scan(step, z, y)

    rolled, unrolled = (
        ngmp.compile(model, executors={"a": kind}, tol=1e-12)(y=y) for kind in ("slices", "elimination")
    )
    assert bool(rolled.converged)
    for name in ("a", "b"):
        np.testing.assert_allclose(rolled[name].probs, unrolled[name].probs, atol=1e-9)
    np.testing.assert_allclose(rolled["A"].concentration, unrolled["A"].concentration, rtol=1e-8)
    np.testing.assert_allclose(rolled.free_energy, unrolled.free_energy, rtol=1e-10)


# -- beyond the size --------------------------------------------------------------------------------------------------


def test_beyond_the_stated_size_flooding_says_so():
    rng = np.random.default_rng(10)
    chains, steps = 8, 12
    A = rng.dirichlet(np.ones(6), (chains, 6))
    pair = rng.dirichlet(np.ones(2), (6, 6))

    def model(y):
        z = [ngmp.sample(f"z{i}", Categorical(probs=np.full(6, 1 / 6))) for i in range(chains)]
        for t in range(steps):
            z = [ngmp.sample(f"z{i}", Categorical(probs=take(A[i], z[i]))) for i in range(chains)]
            for i, j in itertools.combinations(range(chains), 2):
                ngmp.sample(f"y{i}{j}", Categorical(probs=take(pair, z[i], z[j])), obs=y[t])

    program = ngmp.compile(model)
    y = np.zeros(steps, int)
    line = core_line(program, y=y)
    assert "flooding: approximate" in line and "joint states of a slice needs" in line and "over 262144" in line


def test_what_does_not_repeat_has_no_slices():
    rng = np.random.default_rng(11)
    assert slices(np.zeros(40, int), [rng.integers(0, 40, (80, 2))]) == []
    path = np.stack([np.arange(39), np.arange(1, 40)], 1)
    found = slices(np.zeros(40, int), [path])[0]
    blocks = [b for b in found if b is not None]
    assert found.steps.own.shape[1] == 1 and sum(b.own.size for b in blocks) == 40
