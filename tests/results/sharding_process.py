"""Run by test_sharding.py in processes of its own: sharded programs against the same ones on a single device.

`python sharding_process.py rows` and `... panel` on 8 virtual devices; `... I PORT` as process I of two, on one each.
"""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

import ngmp_compiler as ngmp
import ngmp_models

RNG = np.random.default_rng(0)
N = 1024  # longer than what the solver stacks
READINGS = 1.0 + RNG.normal(size=N)
REGRESSION = {"features": RNG.normal(size=(N, 3)), "y": RNG.integers(0, 2, N)}
PANEL = RNG.poisson(3.0, size=(16, 12))  # 16 chains


def same(a, b, what, tol=1e-10):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tol, atol=tol, err_msg=what)
    print(what, "agrees")


def results(post):
    return post.marginals, post.free_energy, post.sweeps


def sent(compiled):
    """What a compiled function sends between devices, with the shapes."""
    found = re.findall(r"= ([^=\n]+?) (all-reduce|all-gather|all-to-all|collective-permute)\(", compiled.as_text())
    return {(kind, shape) for shape, kind in found}


def shared_variables(mesh):
    """Every reading touches the same two variables."""
    program = ngmp.compile(ngmp_models.mean_precision)
    sharded = ngmp.shard({"y": READINGS}, mesh)
    run = jax.jit(lambda y: program(y=y)).lower(sharded["y"]).compile()
    post = run(sharded["y"])
    same(results(post), results(program(y=READINGS)), "mean and precision")
    return run, post


def rows():
    mesh = jax.make_mesh((8,), ("rows",))
    run, post = shared_variables(mesh)
    assert len(post.state.leaves["y.tau"].natural[0].sharding.device_set) == 8
    assert {kind for kind, _ in sent(run)} == {"all-reduce"}, sent(run)
    tables = (re.search(r"[[,](?![2-5][],])\d", shape) for _, shape in sent(run))
    assert not any(tables), sent(run)  # numbers, and tables of the solver's memory: nothing of the length of the data

    program = ngmp.compile(ngmp_models.logistic_regression, tol=1e-12)

    def f(inputs, v):
        post = program(**inputs, prior_variance=v)
        return post.free_energy + jnp.sum(post["w"].mean), results(post)

    with_slope = jax.jit(jax.value_and_grad(f, argnums=1, has_aux=True))
    sharded = ngmp.shard(REGRESSION, mesh)
    run = with_slope.lower(sharded, 4.0).compile()
    same(run(sharded, 4.0), with_slope(REGRESSION, 4.0), "logistic regression and its gradient")
    assert {kind for kind, _ in sent(run)} == {"all-reduce"}, sent(run)


def panel():
    mesh = jax.make_mesh((8,), ("rows",))
    program = ngmp.compile(ngmp_models.poisson_chain)
    chains = jax.jit(jax.vmap(lambda y: results(program(y=y))))
    sharded = ngmp.shard({"y": PANEL}, mesh)["y"]
    run = chains.lower(sharded).compile()
    found = run(sharded)
    assert len(found[1].sharding.device_set) == 8
    same(found, chains(PANEL), "a panel of chains")
    assert {kind for kind, _ in sent(run)} <= {"all-reduce"}, sent(run)  # of a flag: whether all chains are done


def process(index, port):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=index)
    assert jax.device_count() == 2 and len(jax.local_devices()) == 1
    _, post = shared_variables(jax.make_mesh((2,), ("rows",)))
    assert not post.state.leaves["y.tau"].natural[0].is_fully_addressable
    jax.distributed.shutdown()


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if sys.argv[1] in ("rows", "panel"):
        {"rows": rows, "panel": panel}[sys.argv[1]]()
    else:
        process(int(sys.argv[1]), sys.argv[2])
    print("done")
