"""Chains that run one after the other under `vmap`: the same answers, derivatives included, as without it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler.executors.gaussian import scalar_chain as chains
from ngmp_kernels.numerics.lanes import if_any, one_by_one

K = 300  # long enough to run alone
RNG = np.random.default_rng(5)
COUNTS = RNG.poisson(np.exp(1 + 0.1 * RNG.standard_normal(K).cumsum())).astype(float)
MASKS = RNG.random((3, K)) < 0.8


@pytest.fixture(scope="module")
def program():
    return ngmp.compile(ngmp_models.poisson_chain)


def scanned(jaxpr, length):
    """Whether some scan in a program has a number of steps."""
    inner = (x for e in jaxpr.eqns for v in e.params.values() for x in (v if isinstance(v, tuple | list) else (v,)))
    nested = any(scanned(getattr(x, "jaxpr", x), length) for x in inner if hasattr(getattr(x, "jaxpr", x), "eqns"))
    return nested or any(e.primitive.name == "scan" and e.params["length"] == length for e in jaxpr.eqns)


def test_lanes_are_those_of_single_runs_each_with_its_own_sweeps(program):
    batched = jax.vmap(lambda m: program(y=COUNTS, mask=m))
    assert scanned(jax.make_jaxpr(batched)(MASKS).jaxpr, len(MASKS))  # a loop over the lanes
    posts = jax.jit(batched)(MASKS)
    for i, mask in enumerate(MASKS):
        one = program(y=COUNTS, mask=mask)
        assert int(posts.sweeps[i]) == int(one.sweeps)
        np.testing.assert_allclose(posts.free_energy[i], one.free_energy, rtol=1e-12)
        np.testing.assert_allclose(posts["z"].mean[i], one["z"].mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(posts["z"].variance[i], one["z"].variance, rtol=1e-9)


def test_lanes_of_lanes(program):
    scales = jnp.array([0.05, 0.1])
    nested = jax.jit(jax.vmap(lambda s: jax.vmap(lambda m: program(y=COUNTS, mask=m, sigma2=s).free_energy)(MASKS)))
    expected = [[program(y=COUNTS, mask=m, sigma2=s).free_energy for m in MASKS] for s in scales]
    np.testing.assert_allclose(nested(scales), expected, rtol=1e-12)


def test_derivatives_pass_through_lanes(program):
    def loss(sigma2, mask):
        post = program(y=COUNTS, mask=mask, sigma2=sigma2)
        return post.free_energy + post["z"].mean[7]

    sigma2 = jnp.asarray(0.1)
    slopes = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(sigma2, MASKS)
    total = jax.jit(jax.grad(lambda s: jax.vmap(loss, (None, 0))(s, MASKS).sum()))(sigma2)
    step = 1e-4
    value = jax.jit(jax.vmap(loss, (None, 0)))
    ends = [value(sigma2 + d, MASKS) for d in (-step, step)]
    np.testing.assert_allclose(slopes, (ends[1] - ends[0]) / (2 * step), rtol=1e-4)
    np.testing.assert_allclose(total, slopes.sum(), rtol=1e-6)


def test_a_panel_of_chains_is_solved_chain_by_chain():
    def panel(y):
        z = ngmp.sample("z0", ngmp.Normal(jnp.zeros(y.shape[1]), variance=4.0))

        def step(z, y):
            z = ngmp.sample("z", ngmp.Normal(z, variance=0.1))
            ngmp.sample("y", ngmp.Poisson(ngmp.exp(z)), obs=y)
            return z, z

        ngmp.scan(step, z, y)

    y = RNG.poisson(3.0, (K, 2)).astype(float)
    both = ngmp.compile(panel)(y=y)
    for j in range(2):
        one = ngmp.compile(panel)(y=y[:, j : j + 1])
        np.testing.assert_allclose(both["z"].mean[:, j], one["z"].mean[:, 0], rtol=1e-6, atol=1e-8)


def test_halved_chains_give_the_same_posterior(program, monkeypatch):
    scanning = program(y=COUNTS)
    monkeypatch.setattr(chains, "halvings", lambda length: length.bit_length() - 4)  # as on an accelerator
    halved = ngmp.compile(ngmp_models.poisson_chain)(y=COUNTS)
    assert halved.converged
    np.testing.assert_allclose(halved["z"].mean, scanning["z"].mean, rtol=1e-8)
    np.testing.assert_allclose(halved.free_energy, scanning.free_energy, rtol=1e-12)


def test_too_many_lanes_run_together():
    doubled = one_by_one(lambda x, y: jnp.cumsum(x * y), most=4)
    x = jnp.arange(12.0).reshape(4, 3)
    batched = jax.vmap(doubled, (0, None))
    loops = [scanned(jax.make_jaxpr(batched)(rows, x[0]).jaxpr, len(rows)) for rows in (x, x[:1].repeat(5, 0))]
    assert loops == [True, False]
    np.testing.assert_allclose(batched(x, x[1]), jnp.cumsum(x * x[1], 1))


def _dear(x, y):
    return jnp.where(y > 1.0, jnp.sin(x) * y, x)


def test_a_branch_is_shared_by_all_lanes():
    """Under vmap there is still a branch, of all lanes together; values and derivatives are those of each alone."""
    def run(x, y):
        return if_any(y > 1.0, _dear, lambda x, y: x, x, y)

    x, y = jnp.linspace(0.0, 2.0, 4), jnp.array([0.5, 2.0, 0.1, 3.0])
    batched = jax.vmap(jax.vmap(run, (0, None)), (None, 0))
    assert str(jax.make_jaxpr(batched)(x, y)).count("cond[") == 1
    np.testing.assert_allclose(batched(x, y), _dear(x[None], y[:, None]))
    np.testing.assert_allclose(batched(x, y[:1]), x[None])
    for of in (0, 1):
        slope = jax.vmap(jax.grad(run, of))(x, y)
        np.testing.assert_allclose(slope, jax.vmap(jax.grad(_dear, of))(x, y))
    second = jax.vmap(jax.hessian(run))(x, y)
    np.testing.assert_allclose(second, jnp.where(y > 1.0, -jnp.sin(x) * y, 0.0))
