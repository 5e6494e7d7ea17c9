"""Many problems at once: a thousand masks in bounded memory, ragged ones by padding, and members that stop early."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Normal, Poisson, exp
from ngmp_models import poisson_chain, sunspots

pytestmark = pytest.mark.skipif(not jax.config.jax_enable_x64, reason="tolerances are those of float64")
RNG = np.random.default_rng(0)
COUNTS = np.array([0, 3, 1, 6, 2, 2])


def shared(y, mask=None):
    z = ngmp.sample("z", Normal(0.0, variance=1.0))
    ngmp.sample("y", Poisson(exp(z)), obs=y, mask=mask)


PROGRAM = ngmp.compile(shared)


def score(mask):
    post = PROGRAM(y=COUNTS, mask=mask)
    return post.free_energy, post["z"].mean, post.sweeps


def test_batches_of_a_map_are_the_whole_vmap():
    masks = RNG.random((1000, 6)) < 0.7
    whole = jax.jit(jax.vmap(score))(masks)
    batched = jax.jit(lambda masks: jax.lax.map(score, masks, batch_size=64))(masks)
    for a, b in zip(whole, batched, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_members_stop_on_their_own():
    masks = np.array([[False] * 6, [True] * 6])
    energies, means, sweeps = jax.jit(jax.vmap(score))(masks)
    assert sweeps[0] < sweeps[1]
    alone = [jax.jit(score)(mask) for mask in masks]
    assert [int(s) for _, _, s in alone] == sweeps.tolist()
    np.testing.assert_array_equal(means[0], alone[0][1])  # not a bit of it has moved since
    np.testing.assert_allclose(energies, [e for e, _, _ in alone], rtol=1e-12)


def test_ragged_problems_by_padding():
    problems = [{"y": RNG.poisson(4.0, n)} for n in (3, 8, 5)]
    padded = [ngmp.pad(p, 8) for p in problems]
    stacked = {name: jnp.stack([p[name] for p in padded]) for name in ("y", "mask")}
    means = jax.jit(jax.vmap(lambda given: PROGRAM(**given)["z"].mean))(stacked)
    np.testing.assert_allclose(means, [PROGRAM(**p)["z"].mean for p in problems], rtol=1e-7)


@pytest.mark.slow
def test_a_thousand_masks_of_the_sunspot_chain_in_bounded_memory(data_dir):
    del data_dir
    counts, program = sunspots(), ngmp.compile(poisson_chain, tol=1e-4)

    def run(mask):
        post = program(y=counts, mask=mask)
        return post.free_energy, post.converged

    masks = RNG.random((1000, counts.size)) < 0.9
    compiled = {
        size: jax.jit(lambda m, size=size: jax.lax.map(run, m, batch_size=size)).lower(masks).compile()
        for size in (8, 50)
    }
    memory = {size: c.memory_analysis().temp_size_in_bytes for size, c in compiled.items()}
    # What is not kept for all masks grows with the size of a batch, and is far below that of all at once.
    assert memory[50] < 10 * memory[8] and memory[50] < 1000 * counts.size * 8 * 10
    energies, converged = compiled[50](masks)
    assert converged.all()
    np.testing.assert_allclose(energies[-1], program(y=counts, mask=masks[-1]).free_energy, rtol=1e-6)
