"""Anderson acceleration: its step against least squares in numpy, its safeguards, and what it does on models."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_kernels.families import Gamma, Gaussian

RNG = np.random.default_rng(5)
COUNTS = np.array([0, 3, 1, 6, 2, 2, 9, 14])
SAMPLE = np.random.default_rng(4).normal(size=4)


def affine(scale: float):
    """A contraction of two leaves, six numbers, as a matrix; and a start that is off by `scale`."""
    goal = {"x": Gaussian(jnp.array([1.0, -2.0]), jnp.array([-1.5, -0.7])), "t": Gamma(jnp.array([2.0]), -jnp.ones(1))}
    flat, tree = jax.tree.flatten(goal)
    cuts = np.cumsum([x.size for x in flat])[:-1]
    matrix = np.eye(6) - np.diag(np.linspace(0.5, 0.95, 6)) + 0.02 * np.random.default_rng(0).normal(size=(6, 6))

    def unflat(v):
        return jax.tree.unflatten(tree, [jnp.asarray(x) for x in np.split(v, cuts)])

    def flat_of(t):
        return np.concatenate([np.asarray(x).ravel() for x in jax.tree.leaves(t)])

    centre = flat_of(goal)
    start = unflat(centre * (1 + scale * np.random.default_rng(1).normal(size=6)))
    return start, lambda params: unflat(matrix @ (flat_of(params) - centre)), flat_of


def iterate(transformation, params, gradient, sweeps):
    state, path, update = transformation.init(params), [], jax.jit(transformation.update)
    for _ in range(sweeps):
        g = gradient(params)
        step, after = update(g, state, params)
        path.append((params, g, step, state, after))
        params, state = jax.tree.map(jnp.add, params, step), after
    return path


def test_the_step_is_that_of_least_squares():
    """Weights by numpy's `lstsq` on the differences of the last points, every coordinate in units of its own size."""
    start, gradient, flat = affine(0.01)
    memory = 3
    path = iterate(ngmp.anderson(memory), start, gradient, 6)
    for t in range(2, 6):
        points, residuals = (np.array([flat(p[i]) for p in path[max(0, t - memory) : t + 1]]) for i in (0, 1))
        x, r = points[-1], residuals[-1]
        sizes = {k: sum(jnp.abs(v) for v in q.natural) for k, q in path[t][0].items()}  # of the elements
        floor = flat({k: jax.tree.map(lambda v, size=sizes[k]: size + 0 * v, q) for k, q in start.items()})
        moves, changes = np.diff(points, axis=0), np.diff(residuals, axis=0)
        scale = np.abs(x) + np.abs(r) + np.abs(changes).max(0) + 1e-4 * floor
        scaled = changes / scale
        ridge = np.diag(1e-5 * np.linalg.norm(scaled, axis=1))  # its square is 1e-10 of the diagonal
        mix = np.linalg.lstsq(np.vstack([scaled.T, ridge]), np.r_[r / scale, np.zeros(len(ridge))], rcond=None)[0]
        rate = path[t][4].rate
        alpha = flat({k: q * 0 + jax.tree.map(jnp.ones_like, q) * rate[k] for k, q in start.items()})
        expected = -mix @ moves - alpha * (r - mix @ changes)
        np.testing.assert_allclose(flat(path[t][2]), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_an_element_that_has_come_to_zero_does_not_swamp_the_weights():
    """Such as a leaf whose target is flat: it has no size left but that of its changes."""
    start, gradient, flat = affine(0.01)
    solver = ngmp.anderson(cautious=False)
    *_, (params, g, _, state, _) = iterate(solver, start, gradient, 4)
    params, g = ({**t, "x": t["x"] * jnp.array([1.0, 0.0])} for t in (params, g))
    assert np.isfinite(flat(solver.update(g, state, params)[0])).all()


def test_a_slow_affine_map_is_solved_in_about_as_many_steps_as_it_has_dimensions():
    start, gradient, flat = affine(0.01)
    size = {
        name: np.abs(flat(iterate(solver, start, gradient, 14)[-1][1])).max()
        for name, solver in {"adaptive": ngmp.adaptive(memory=0), "anderson": ngmp.anderson(6)}.items()
    }
    assert size["anderson"] < 1e-9 < 1e-5 < size["adaptive"]


def test_far_away_the_steps_are_those_of_the_default():
    """Nothing is mixed before the residual of every parameter is a tenth of it; a single one that is not, suffices."""
    start, gradient, flat = affine(0.0)
    start["x"] = start["x"] + Gaussian(jnp.array([3.0, 0.0]), jnp.zeros(2))
    ours, default = (iterate(s, start, gradient, 4) for s in (ngmp.anderson(), ngmp.adaptive()))
    for one, other in zip(ours, default, strict=True):
        np.testing.assert_allclose(flat(one[2]), flat(other[2]), rtol=1e-12)
        assert int(one[4].count) == 1


def test_a_residual_that_grows_drops_the_history():
    start, gradient, flat = affine(0.001)
    transformation = ngmp.anderson()
    *_, (params, g, _, _, state) = iterate(transformation, start, gradient, 4)
    assert int(state.count) == 4
    jumped = jax.tree.map(lambda x: 3 * x, g)
    step, after = transformation.update(jumped, state, params)
    assert int(after.count) == 1
    plain = {k: -(jumped[k] * after.rate[k]) for k in params}
    np.testing.assert_allclose(flat(step), flat(plain), rtol=1e-12)


@pytest.mark.core32
@pytest.mark.parametrize("dtype", [jnp.float32, float])
def test_dtypes_and_leaves_that_are_zero(dtype):
    """A masked leaf, zero with a zero target, stays zero and spoils nothing; single precision stays single."""
    zeros, one = jnp.zeros(3, dtype), jnp.asarray([1.0, 0.0, 2.0], dtype)
    goal = {"a": Gaussian(one, -one), "b": Gaussian(zeros, zeros)}
    start = jax.tree.map(lambda x: x * jnp.asarray(1.01, dtype), goal)
    *_, last = iterate(ngmp.anderson(), start, lambda p: jax.tree.map(lambda x, y: (x - y) / 4, p, goal), 8)
    assert {x.dtype for x in jax.tree.leaves((last[2], last[4].points, last[4].size))} == {one.dtype}
    np.testing.assert_allclose(last[0]["a"].eta1, one, atol=1e-6)
    np.testing.assert_array_equal(last[0]["b"].eta1, 0)


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [(0, ValueError, "memory=0.*at least 1.*adaptive"), (-2, ValueError, "memory=-2"), (2.5, TypeError, "memory=2.5"),
     (None, TypeError, "memory=None"), (True, TypeError, "memory=True"), ("5", TypeError, "whole number")],
)  # fmt: skip
def test_bad_arguments(memory, error, words):
    with pytest.raises(error, match=words):
        ngmp.anderson(memory)


def test_the_parameters_are_needed():
    transformation = ngmp.anderson()
    leaves = {"y.z": Gaussian(jnp.ones(1), -jnp.ones(1))}
    with pytest.raises(ValueError, match="natural parameters"):
        transformation.update(leaves, transformation.init(leaves))


# -- on models --------------------------------------------------------------------------------------------------------


def _hierarchy(n=16, d=3):
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, n)
    features = tuple(np.stack([np.sin((k + 1) * x), np.cos((k + 1) * x), np.ones(n)], 1)[:, :d] for k in range(3))
    y = np.sin(2 * x) + 0.3 * np.exp(0.5 * x) * rng.normal(size=n)
    return {"features": tuple(map(jnp.asarray, features)), "y": jnp.asarray(y), "w_variance": 0.16}


MODELS = {
    "poisson_chain": (ngmp_models.poisson_chain, {"y": COUNTS, "mask": COUNTS != 9}, {}),
    "mean_precision": (ngmp_models.mean_precision, {"y": SAMPLE}, {}),
    "mean field": (ngmp_models.mean_precision, {"y": SAMPLE}, {"method": ngmp.VMP()}),
    "hierarchy": (ngmp_models.precision_hierarchy, _hierarchy(), {}),
}


@pytest.mark.parametrize(
    "name",
    [
        "poisson_chain",
        "mean field",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("mean_precision", "hierarchy")),
    ],
)
def test_the_fixed_point_is_that_of_damping_in_no_more_sweeps(name):
    model, inputs, options = MODELS[name]
    expected = ngmp.compile(model, tol=1e-10, solver=ngmp.adaptive(memory=0), **options)(**inputs)
    post = ngmp.compile(model, tol=1e-10, solver=ngmp.anderson(), **options)(**inputs)
    assert expected.converged and post.converged
    assert post.sweeps <= expected.sweeps + 1
    if name == "mean field":  # a slow one: 9 sweeps against 24 were seen
        assert 2 * post.sweeps <= expected.sweeps
    np.testing.assert_allclose(post.free_energy, expected.free_energy, rtol=1e-8)
    for variable in expected.marginals:
        np.testing.assert_allclose(post[variable].mean, expected[variable].mean, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(post[variable].variance, expected[variable].variance, rtol=1e-7)


@pytest.fixture(scope="module")
def chain():
    return ngmp.compile(ngmp_models.poisson_chain, solver=ngmp.anderson())


@pytest.mark.core32
def test_members_of_a_batch_stop_on_their_own(chain):
    masks = np.random.default_rng(2).random((3, len(COUNTS))) < 0.8
    posts = jax.jit(jax.vmap(lambda m: chain(y=COUNTS, mask=m)))(masks)
    assert np.all(posts.converged)
    tolerance = 1e-6 if jax.config.jax_enable_x64 else 1e-3
    for i, mask in enumerate(masks):
        one = chain(y=COUNTS, mask=mask)
        assert abs(int(posts.sweeps[i]) - int(one.sweeps)) <= (0 if jax.config.jax_enable_x64 else 2)
        np.testing.assert_allclose(posts["z"].mean[i], one["z"].mean, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_a_refused_proposal_drops_the_history_and_halves_the_rates(chain):
    inputs = {"y": COUNTS, "mask": np.ones(len(COUNTS), bool)}
    state = chain.init(**inputs)
    for _ in range(8):
        state = chain.step(state, **inputs)
    (before,) = state.memory
    assert int(before.count) >= 2
    away = {k: Gaussian(jnp.zeros_like(q.eta1), jnp.full_like(q.eta2, 1e3)) for k, q in state.leaves.items()}
    refused = chain.step(eqx.tree_at(lambda s: s.step, state, away), **inputs)
    (after,) = refused.memory
    assert int(refused.shrinks) == 1 and int(after.count) == 0 and np.isinf(after.size)
    for key, rate in before.rate.items():
        np.testing.assert_allclose(after.rate[key], 0.5 * rate)
    post = chain.posterior(refused, **inputs)
    assert np.all(post["z"].variance > 0)


def test_one_block_of_a_schedule_mixes():
    program = ngmp.compile(
        ngmp_models.mean_precision, method=ngmp.VMP(), schedule=["y.tau", "y.r"], solver=ngmp.anderson()
    )
    assert [bool(m.mixes) for m in program.init(y=SAMPLE).memory] == [False, True]
    assert program(y=SAMPLE).converged


def test_a_conjugate_model_has_nothing_to_mix():
    assert ngmp.compile(ngmp_models.local_level, solver=ngmp.anderson())(y=RNG.normal(size=5)).converged
