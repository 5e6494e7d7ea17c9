"""Fits of weight vectors under `vmap`: those of single runs, on any number of cores, with no environment variable."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ngmp_compiler as ngmp
import ngmp_models

ROOT = Path(__file__).parent.parent.parent
LANES, N, D = 3, 24, 10  # more weights than are written out


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    phi, psi = rng.normal(size=(2, LANES, N, D)) / np.sqrt(D)
    y = phi.sum(-1) + np.exp(-0.5 * psi[..., 0]) * rng.normal(size=(LANES, N))
    return jnp.asarray(phi), jnp.asarray(psi), jnp.asarray(y)


def check_lanes(loss, data):
    """`loss` with its derivative in the first argument, of all lanes at once and of each alone."""
    one = jax.jit(jax.value_and_grad(loss, has_aux=True))
    both = jax.jit(jax.vmap(jax.value_and_grad(loss, has_aux=True), (None, *[0] * len(data))))
    found = both(1.0, *data)
    for i in range(LANES):
        alone = one(1.0, *(x[i] for x in data))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("space", ["weight", pytest.param("function", marks=pytest.mark.slow)])
def test_fits_and_their_derivatives_are_those_of_single_runs(space):
    program = ngmp.compile(ngmp_models.logistic_regression, tol=1e-12, executors={"w": space})

    def loss(t, features, y):
        post = program(features=features, y=y, prior_variance=jnp.exp(t))
        return post.free_energy + post["w"].mean[0], (post["w"].mean, post["w"].variance, post.sweeps)

    phi, _, y = inputs()
    check_lanes(loss, (phi, y > 0))


@pytest.mark.slow
@pytest.mark.parametrize("space", ["weight", "function"])
def test_two_weight_vectors(space):
    program = ngmp.compile(ngmp_models.heteroscedastic, tol=1e-12, executors={"v": space})

    def loss(t, phi, psi, y):
        post = program(phi=phi, psi=psi, y=y, v_variance=jnp.exp(t))
        return post.free_energy + post["v"].mean[0], (post["v"].mean, post["w"].variance, post.sweeps)

    check_lanes(loss, inputs())


def calls(jaxpr):
    """Shapes of what goes to LAPACK in a program: its name and those of its operands."""
    for e in jaxpr.eqns:
        if e.primitive.name in ("cholesky", "triangular_solve", "lu", "eigh"):
            yield e.primitive.name, [v.aval.shape for v in e.invars]
        for x in (x for v in e.params.values() for x in (v if isinstance(v, tuple | list) else (v,))):
            if hasattr(getattr(x, "jaxpr", x), "eqns"):
                yield from calls(getattr(x, "jaxpr", x))


@pytest.mark.parametrize("devices", [1, 2])
def test_lapack_is_called_for_one_matrix_at_a_time_and_below_the_sizes_that_it_shares_among_threads(
    devices, monkeypatch
):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    program = ngmp.compile(ngmp_models.heteroscedastic)

    def predicted(phi, psi, y):
        post = program(phi=phi, psi=psi, y=y)
        return post.free_energy, program.predict(post, "y", phi=phi, psi=psi, y=y).log_density

    phi = jnp.ones((LANES, 300, 150))
    found = list(calls(jax.make_jaxpr(jax.vmap(predicted))(phi, phi, phi[..., 0]).jaxpr))
    assert found or devices > 1
    for name, (matrix, *right) in found:
        assert len(matrix) == 2, (name, matrix)
        assert name in ("cholesky", "triangular_solve")
        assert matrix[0] < 120 if name == "cholesky" else right[0][1] < 8


SCRIPT = """
import jax, numpy as np
import ngmp_compiler as ngmp, ngmp_models
rng = np.random.default_rng(0)
phi = rng.normal(size=(16, 60, 40)) / 6
y = phi.sum(-1) + rng.normal(size=(16, 60)) > 0
program = ngmp.compile(ngmp_models.logistic_regression)
posts = jax.jit(jax.vmap(lambda phi, y: program(features=phi, y=y)))(phi, y)
assert posts.converged.all()
print(*posts.free_energy)
"""


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
@pytest.mark.parametrize(("cores", "devices"), [(1, 1), (2, 2)])
def test_no_thread_is_waited_for(cores, devices):
    variables = "OPENBLAS_NUM_THREADS", "PJRT_NPROC", "XLA_FLAGS"
    environment = {k: v for k, v in os.environ.items() if k not in variables} | {
        "PYTHONPATH": os.pathsep.join(str(ROOT / p) for p in (".", "kernels", "models")),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1",
    }  # fmt: skip
    where = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
    command = ["taskset", "-c", where, sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split()) == 16
