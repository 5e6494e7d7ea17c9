"""Vector-transport momentum against the recurrence written out in numpy; and what happens at improper cavities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler import Gamma, Normal, exp
from ngmp_compiler.solve.anderson import AndersonState
from ngmp_kernels.families import Gamma as GammaFamily
from ngmp_kernels.families import Gaussian, MvGaussian

RNG = np.random.default_rng(3)
COUNTS = np.array([0, 3, 1, 6, 2, 2, 9, 14])


def metric(eta):
    """G of one site (xi, -Lambda/2), from the paper's words."""
    precision = -2 * eta[1]
    if precision > 1e-6:
        variance = 1 / precision
        mean = eta[0] * variance
        return np.maximum([variance, 2 * variance**2 + 4 * mean**2 * variance], 1e-6)
    return np.maximum(np.abs(eta), 1e-6)


def recurrence(eta, targets, step, momentum, max_norm):
    """The path of one Gaussian site through a sequence of targets."""
    u, before, path = np.zeros(2), metric(eta), [eta]
    for target in targets:
        now = metric(eta)
        u = momentum * u * np.sqrt(before / now) + step * (target - eta)
        before = now
        if np.linalg.norm(u) > max_norm:
            u = u * max_norm / np.linalg.norm(u)
        eta = eta + u
        path.append(eta)
    return np.array(path)


def iterate(transformation, params, targets):
    state, path = transformation.init(params), [params]
    for target in targets:
        gradient = jax.tree.map(jnp.subtract, params, target)
        steps, state = transformation.update(gradient, state, params)
        params = jax.tree.map(jnp.add, params, steps)
        path.append(params)
    return path, state


@pytest.mark.parametrize(
    "settings", [(0.6, 0.8, 0.5), (0.6, 0.0, 0.5), (1.0, 0.3, np.inf), (0.1, 0.9, 3.0)], ids=lambda s: str(s)
)
def test_the_recurrence(settings):
    """Random targets, proper and improper sites, a start that is not zero."""
    sites, sweeps = 7, 25
    start = np.stack([RNG.normal(size=sites), RNG.normal(size=sites) - 0.3], -1)
    start[0] = 0.0
    targets = np.stack([2 * RNG.normal(size=(sweeps, sites)), RNG.normal(size=(sweeps, sites)) - 0.5], -1)
    families = [{"y.z": Gaussian(*map(jnp.asarray, t.T))} for t in targets]
    path, _ = iterate(ngmp.vector_transport(*settings), {"y.z": Gaussian(*map(jnp.asarray, start.T))}, families)
    found = np.array([np.stack(p["y.z"].natural, -1) for p in path])
    for i in range(sites):
        expected = recurrence(start[i], targets[:, i], *settings)
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-9, atol=1e-12)


def test_the_cap_and_what_is_kept():
    """A far target moves a site by exactly the cap, and the capped vector is the momentum."""
    start = {"a": Gaussian(jnp.zeros(2), jnp.full(2, -0.5))}
    target = {"a": Gaussian(jnp.array([100.0, 0.01]), jnp.full(2, -0.5))}
    path, state = iterate(ngmp.vector_transport(), start, [target])
    moved = np.stack((path[1]["a"] - path[0]["a"]).natural, -1)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=-1), [0.5, 0.006], rtol=1e-12)
    np.testing.assert_allclose(np.stack(state.momentum["a"].natural, -1), moved)


def test_gamma_and_vector_sites_are_damped_only():
    """No momentum on Gamma edges (a rate could turn negative); the norm of a vector site is over all of it."""
    start = {"tau": GammaFamily(jnp.zeros(3), jnp.zeros(3)), "v": MvGaussian.flat((2,), (3,), float)}
    steady = {
        "tau": GammaFamily(jnp.array([0.1, 0.2, 50.0]), -jnp.array([0.1, 0.3, 1.0])),
        "v": MvGaussian(jnp.array([[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]), -jnp.stack([0.1 * jnp.eye(3)] * 2)),
    }
    path, state = iterate(ngmp.vector_transport(0.5, 0.9, 1.0), start, [steady] * 3)
    for name in start:
        flat = [np.concatenate([np.reshape(x, (len(x), -1)) for x in p[name].natural], -1) for p in path]
        goal = np.concatenate([np.reshape(x, (len(x), -1)) for x in steady[name].natural], -1)
        for before, after in zip(flat, flat[1:], strict=False):
            step = 0.5 * (goal - before)
            norm = np.linalg.norm(step, axis=-1, keepdims=True)
            np.testing.assert_allclose(after, before + step * np.minimum(1, 1 / norm), rtol=1e-12)
        assert state.momentum[name] is None


def test_transforms_and_dtypes():
    """Under jit and vmap, as arguments too; single precision stays single."""
    start, goal = Gaussian(jnp.ones(4), -jnp.ones(4)), Gaussian(2 * jnp.ones(4), -3 * jnp.ones(4))

    def run(step, momentum):
        return iterate(ngmp.vector_transport(step, momentum), start, [goal] * 5)[0][-1].eta1

    steps, momenta = jnp.array([0.3, 0.6]), jnp.array([0.0, 0.8])
    together = jax.jit(jax.vmap(run))(steps, momenta)
    for i in range(2):
        np.testing.assert_allclose(together[i], run(float(steps[i]), float(momenta[i])), rtol=1e-12)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (start, goal))
    path, state = iterate(ngmp.vector_transport(), single[0], [single[1]])
    assert {x.dtype for x in jax.tree.leaves((path[-1], state))} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"step": 0.0}, ValueError, r"step=0.0.*\(0, 1\]"),
        ({"step": 1.5}, ValueError, "step=1.5"),
        ({"step": float("nan")}, ValueError, "step=nan"),
        ({"momentum": 1.0}, ValueError, r"momentum=1.0.*\[0, 1\)"),
        ({"momentum": -0.1}, ValueError, "momentum=-0.1"),
        ({"max_norm": 0.0}, ValueError, "max_norm=0.0.*positive"),
        ({"max_norm": None}, TypeError, "max_norm=None"),
        ({"step": "fast"}, TypeError, "step='fast'"),
    ],
)
def test_bad_arguments(given, error, words):
    with pytest.raises(error, match=words):
        ngmp.vector_transport(**given)


def test_the_parameters_are_needed():
    transformation = ngmp.vector_transport()
    q = Gaussian(jnp.ones(1), -jnp.ones(1))
    with pytest.raises(ValueError, match="natural parameters"):
        transformation.update(q, transformation.init(q))


# -- on models --------------------------------------------------------------------------------------------------------


def _regression(n=120):
    # With few data momentum cycles; sites of nearly zero precision, whose metric is huge, may be why.
    rng = np.random.default_rng(1)
    phi, psi = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    noise = np.exp(-0.5 * psi @ np.array([0.8, -0.5])) * rng.normal(size=n)
    return {"phi": phi, "psi": psi, "y": phi @ np.array([1.0, -2.0, 0.5]) + noise}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (ngmp_models.heteroscedastic, _regression()),
        (ngmp_models.poisson_chain, {"y": COUNTS}),
        (ngmp_models.mean_precision, {"y": RNG.normal(size=12)}),  # Gamma sites beside Gaussian ones
    ],
    ids=["heteroscedastic", "poisson_chain", "mean_precision"],
)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.0}], ids=["momentum", "damping"])
def test_the_fixed_point_is_that_of_the_default(model, inputs, settings):
    options = {"tol": 1e-10, "max_sweeps": 3000}
    expected = ngmp.compile(model, **options)(**inputs)
    post = ngmp.compile(model, solver=ngmp.vector_transport(**settings), **options)(**inputs)
    assert expected.converged and post.converged
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=1e-8)
    for name in expected.marginals:
        np.testing.assert_allclose(post[name].mean, expected[name].mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(post[name].variance, expected[name].variance, rtol=1e-6)


def test_a_program_under_jit_and_vmap():
    program = ngmp.compile(ngmp_models.poisson_chain, solver=ngmp.vector_transport())
    masks = RNG.random((3, len(COUNTS))) < 0.8
    together = jax.jit(jax.vmap(lambda m: program(y=COUNTS, mask=m)["z"].mean))(masks)
    for row, mask in zip(together, masks, strict=True):
        np.testing.assert_allclose(row, program(y=COUNTS, mask=mask)["z"].mean, rtol=1e-6)


# -- improper cavities ------------------------------------------------------------------------------------------------


def _shared_noise(y):
    """Two data that share a log-precision: the cavity of one is the prior and the site of the other."""
    x = ngmp.sample("x", Normal(np.zeros(2), variance=4.0))
    s = ngmp.sample("s", Normal(0.0, variance=1.0))
    ngmp.sample("y", Normal(x, precision=exp(s)), obs=y)


def _toward_s(m, v, mean, variance):
    """The target on s by brute force: Bonnet and Price with `l(s) = log N(0; m, v + e^{-s})`, derivatives by hand."""
    s = mean + np.linspace(-10, 10, 20001) * np.sqrt(variance)
    weight = np.exp(-0.5 * (s - mean) ** 2 / variance)
    weight /= weight.sum()
    e = np.exp(-s)
    first = 0.5 * e / (v + e) - 0.5 * m**2 * e / (v + e) ** 2
    second = 0.5 * (e**2 / (v + e) ** 2 - e / (v + e)) + 0.5 * m**2 * (e / (v + e) ** 2 - 2 * e**2 / (v + e) ** 3)
    d1, d2 = (weight * first).sum(), (weight * second).sum()
    return d1 - mean * d2, 0.5 * d2


def _toward_r(m, v, mean, variance):
    """The target on r by brute force: `l(r) = log ∫ N(r; 0, e^{-s}) N(s; m, v) ds`, second differences for l''."""
    s = m + np.linspace(-9, 9, 4001) * np.sqrt(v)
    r = mean + np.linspace(-8, 8, 801) * np.sqrt(variance)

    def message(r):
        return np.log(np.exp(0.5 * s - 0.5 * r[:, None] ** 2 * np.exp(s) - 0.5 * (s - m) ** 2 / v).sum(1))

    weight, h = np.exp(-0.5 * (r - mean) ** 2 / variance), 1e-3
    weight /= weight.sum()
    left, here, right = message(r - h), message(r), message(r + h)
    first, second = (right - left) / (2 * h), (right - 2 * here + left) / h**2
    d1, d2 = (weight * first).sum(), (weight * second).sum()
    return np.array([d1 - mean * d2, 0.5 * d2])


def test_an_improper_cavity_is_heard_by_mean_field_in_part_and_nothing_is_clipped():
    y = np.array([0.3, -0.4])
    program = ngmp.compile(_shared_noise, solver=optax.sgd(1.0))  # the step is then target minus leaf
    state = program.init(y=y)
    # Precisions of s: prior 1, sites 1 and -1.8. The marginal has 0.2, the cavity of the first datum -0.8.
    leaves = {
        "y.r": Gaussian(jnp.array([0.1, 0.2]), jnp.array([-0.5, -0.5])),
        "y.s": Gaussian(jnp.array([0.3, -0.2]), jnp.array([-0.5, 0.9])),
    }
    assert set(state.leaves) == set(leaves)
    state = eqx.tree_at(lambda s: (s.leaves, s.step), state, (leaves, jax.tree.map(jnp.zeros_like, leaves)))
    after = program.step(state, y=y)
    assert int(after.shrinks) == 0  # the point itself is sound: every marginal is proper
    for key, leaf in leaves.items():  # the sites are as they were, the negative precision included
        np.testing.assert_array_equal(np.stack(after.leaves[key].natural), np.stack(leaf.natural))
    target = {key: leaves[key] + after.step[key] for key in leaves}
    # Of the first datum, a fifth of the site on s can be left out: its square is, and the rest is E[e^s] of mean field.
    precision, linear = 0.2 - 0.2**2 * 1.0, 0.1 - 0.2**2 * 0.3
    q = 0.04 * _toward_r(linear / precision, 1 / precision, (0.3 / 4 + 0.1) / 1.25, 1 / 1.25)
    expected = q + 0.96 * np.array([0.0, -0.5 * np.exp(0.5 + 2.5)])
    # Hermite nodes see the narrow peak of such a broad mixture to a fifth, of four hundredths.
    np.testing.assert_allclose(np.stack(target["y.r"].natural)[:, 0], expected, rtol=1e-3, atol=3e-3)
    assert int(after.borrowed) == 1
    assert target["y.r"].precision[1] > 0.01
    # Toward s the cavities are those of the residuals, which are proper: targets as ever. Of the step toward them a row
    # takes the part that leaves a quarter of the precision of s.
    mean, variance = (0.3 - 0.2) / 0.2, 1 / 0.2
    for i in range(2):
        whole = np.array(_toward_s(y[i], 4.0, mean, variance)) - np.stack(leaves["y.s"].natural)[:, i]
        lost = 2 * whole[1]
        part = min(1.0, 0.75 * 0.2 / lost) if lost > 0 else 1.0
        np.testing.assert_allclose(np.stack(after.step["y.s"].natural)[:, i], part * whole, rtol=2e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_refused_proposals_drop_the_momentum():
    """Few data and no cap: momentum overshoots, proposals are refused, and no state is ever improper."""
    inputs = _regression(4)
    program = ngmp.compile(ngmp_models.heteroscedastic, solver=ngmp.vector_transport(1.0, 0.9, np.inf))
    state, refused = program.init(**inputs), 0
    for _ in range(40):
        state = program.step(state, **inputs)
        if state.shrinks > 0:
            refused += 1
            assert all(bool(jnp.all(x == 0)) for x in jax.tree.leaves(state.memory[0].momentum))
        post = program.posterior(state, **inputs)
        assert all(bool(jnp.all(q.is_proper())) for q in post.marginals.values())
    assert refused > 0


def test_refused_proposals_halve_the_rates():
    """From a rate of one, a step that is refused would be tried again as soon as a shorter one was accepted."""
    solver = ngmp.adaptive()
    eta = {"x": Gaussian(jnp.ones(3), -jnp.ones(3))}
    state = solver.init(eta)
    assert isinstance(state, AndersonState)
    blamed = {"x": jnp.array([True, False, True])}  # the others keep theirs
    np.testing.assert_allclose(state.refused(blamed, state).refused(blamed, state).rate["x"], [0.25, 1.0, 0.25])
    step, _ = solver.update(eta, state.refused(blamed, state), eta)
    np.testing.assert_allclose(step["x"].eta1, [-0.5, -1.0, -0.5])


@pytest.mark.slow
def test_a_volatile_chain_converges_although_steps_are_refused():
    def model(y):
        z0, x0 = ngmp.sample("z0", Normal(0.0, variance=1.0)), ngmp.sample("x0", Normal(0.0, variance=1.0))

        def step(carry, y_t):
            z, x = carry
            z = ngmp.sample("z", Normal(z, variance=0.04))
            x = ngmp.sample("x", Normal(x, variance=exp(z)))
            ngmp.sample("y", Normal(x, variance=0.01), obs=y_t)
            return (z, x), None

        ngmp.scan(step, (z0, x0), y)

    rng = np.random.default_rng(3)
    z = np.cumsum(0.2 * rng.standard_normal(1000))
    x = np.cumsum(np.exp(0.5 * z) * rng.standard_normal(1000))
    post = ngmp.compile(model)(y=x + 0.1 * rng.standard_normal(1000))
    assert post.converged and post.sweeps < 200
    assert np.mean((post["z"].mean - z) ** 2) < 0.2


def test_gamma_edges_in_a_model_stay_proper():
    def model(y):
        tau = ngmp.sample("tau", Gamma(1.0, rate=0.1))
        x = ngmp.sample("x", Normal(0.0, variance=100.0))
        ngmp.sample("y", Normal(x, precision=tau), obs=y)

    y = RNG.normal(size=5) * 0.01 + 3
    program = ngmp.compile(model, solver=ngmp.vector_transport(), max_sweeps=3000)
    state = program.init(y=y)
    for _ in range(20):
        state = program.step(state, y=y)
    assert jnp.all(state.leaves["y.tau"].eta2 <= 0)  # every site keeps a rate that is not negative
    assert program(y=y).converged
