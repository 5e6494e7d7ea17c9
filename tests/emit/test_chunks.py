"""Large groups in chunks give what they give as a whole, with less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models
from ngmp_compiler.emit import chunks as _chunks

RNG = np.random.default_rng(0)
PRIME = 1531  # no number of chunks divides it


def mean_precision(n):
    return ngmp_models.mean_precision, {"y": RNG.normal(1.0, 0.5, n)}


def logistic(n):
    features = RNG.standard_normal((n, 3))
    return ngmp_models.logistic_regression, {"features": features, "y": (features[:, 0] > 0).astype(float)}


def whole_and_in_chunks(monkeypatch, model, inputs, run):
    found = []
    for most in (1 << 40, 1 << 12):
        monkeypatch.setattr(_chunks, "MOST", most)
        found.append(run(ngmp.compile(model, max_sweeps=5), inputs))
    return found


@pytest.mark.filterwarnings("ignore:.*has not converged")
@pytest.mark.parametrize("make", [mean_precision, logistic])
@pytest.mark.parametrize("n", [PRIME, 1536])
def test_same_posterior(monkeypatch, make, n):
    model, inputs = make(n)
    whole, chunks = whole_and_in_chunks(monkeypatch, model, inputs, lambda program, given: program(**given))
    np.testing.assert_allclose(whole.free_energy, chunks.free_energy, rtol=1e-10)
    for a, b in zip(jax.tree.leaves(whole.marginals), jax.tree.leaves(chunks.marginals), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_less_memory(monkeypatch):
    def temporary(program, given):
        static, dynamic = program._split((), given)
        run = program._jitted(program._run_impl, static, dynamic).lower(dynamic, None, None)
        return run.compile().memory_analysis().temp_size_in_bytes

    whole, chunks = whole_and_in_chunks(monkeypatch, *logistic(PRIME), temporary)
    assert chunks < 0.5 * whole


def test_shared_rows_derivatives_and_batches():
    scale, x = jnp.full((1, 1), 2.0), jnp.linspace(0.0, 1.0, 3001)

    def wide(scale, x):
        return jnp.sum(jnp.sin(scale * x[:, None] + jnp.arange(64.0)), 1), scale[:, 0]

    def chunked(scale, x):
        return _chunks.by_chunks(wide, 3001, scale, x)

    assert "scan" in str(jax.make_jaxpr(chunked)(scale, x))
    for f, g in zip(chunked(scale, x), wide(scale, x), strict=True):
        np.testing.assert_allclose(f, jnp.broadcast_to(g, f.shape), rtol=1e-12)
    gradients = [jax.grad(lambda s, f=f: jnp.sum(f(s, x)[0]))(scale) for f in (chunked, wide)]
    np.testing.assert_allclose(*gradients, rtol=1e-10)
    batch = jnp.stack([x, 2 * x])
    found = jax.vmap(chunked, (None, 0))(scale, batch)[0]
    np.testing.assert_allclose(found[1], wide(scale, 2 * x)[0], rtol=1e-12)


def test_closed_forms_are_left_whole():
    jaxpr = jax.make_jaxpr(lambda x: _chunks.by_chunks(lambda x: (jnp.exp(x),), 100_000, x))(jnp.zeros(100_000))
    assert "scan" not in str(jaxpr)
