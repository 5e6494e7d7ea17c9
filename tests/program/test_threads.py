"""Threads: models declared, compiled and run at once do not meet; a program may be shared, and forgets what is old."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import ngmp_compiler as ngmp
from ngmp_compiler import Gamma, Normal, Poisson, exp
from ngmp_compiler import specialise as _specialise
from ngmp_compiler.declare.sample import trace

THREADS, MODELS, PROGRAMS = 8, 20, 20


def model(number, pause=False):
    """One of many models: kinds, names, sizes and nesting differ by number."""

    def declared(y):
        with ngmp.scope(f"part{number}"):
            x = ngmp.sample(f"x{number}", Normal(np.full(1 + number % 3, 0.1 * number), variance=1.0))
            if pause:
                time.sleep(1e-3)  # another thread's turn, in the midst of it
            for k in range(number % 4):
                ngmp.sample(f"y{number}", Normal(x[0] + k, variance=2.0), obs=y[k])
        if number % 2:
            ngmp.sample("count", Poisson(2.0), obs=y[0])

        def step(z, y_k):
            z = ngmp.sample("z", Normal(z, variance=0.5))
            if pause:
                time.sleep(1e-3)
            ngmp.sample("seen", Normal(z, variance=1.0), obs=y_k)
            return z, None

        ngmp.scan(step, x[0], y)

    return declared


def sites(declared):
    graph = trace(declared, {"y": np.arange(4.0)})
    return [s.name for s in graph.sites], {n: node.positions().tolist() for n, node in graph.nodes.items()}


def test_models_declared_at_once_do_not_mix():
    expected = [sites(model(i)) for i in range(MODELS)]
    barrier = threading.Barrier(THREADS)

    def work(seed):
        barrier.wait()
        order = np.random.default_rng(seed).permutation(MODELS)
        return [(i, sites(model(int(i), pause=True))) for i in order]

    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, range(THREADS)):
            assert all(got == expected[i] for i, got in found)


def test_problems_belong_to_the_model_that_has_them():
    def wrong(y):
        time.sleep(1e-3)
        ngmp.sample("bad", Normal(np.zeros(3), variance=1.0), obs=np.zeros(2))
        time.sleep(1e-3)
        ngmp.sample("z", Normal(0.0, variance=1.0))

    def attempt(i):
        try:
            return sites(wrong if i % 2 else model(0, pause=True)) is not None
        except ngmp.ModelError as error:
            return len(error.problems)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(attempt, range(40))) == [True, 1] * 20


def test_nothing_can_be_declared_in_a_thread_without_a_model():
    def outer(y):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ngmp.sample, "x", Normal(0.0, variance=1.0)).result()

    with pytest.raises(RuntimeError, match="inside a model function"):
        trace(outer, {"y": 0.0})


def gamma_poisson(y, rate=1.0):
    lam = ngmp.sample("lam", Gamma(2.0, rate=rate))
    ngmp.sample("y", Poisson(lam), obs=y)


def normal(y, rate=1.0):
    lam = ngmp.sample("lam", Normal(2.0, precision=rate))
    ngmp.sample("y", Normal(lam, variance=1.0), obs=y)


def test_different_programs_compile_and_run_at_once():
    """Twenty programs, each compiled and called by several of 8 threads, against their closed forms."""
    data = [np.random.default_rng(i).poisson(3.0, 3 + i % 4).astype(float) for i in range(PROGRAMS)]
    programs = [ngmp.compile(normal if i % 2 else gamma_poisson) for i in range(PROGRAMS)]

    def work(k):
        y = data[k % PROGRAMS]
        return programs[k % PROGRAMS](y)["lam"].mean, (2 + y.sum()) / (1 + y.size)

    with ThreadPoolExecutor(THREADS) as pool:
        for found, expected in pool.map(work, range(3 * PROGRAMS)):
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def chain(y, sigma2=0.5):
    z = ngmp.sample("z", Normal(0.0, variance=4.0))
    for k in range(y.shape[0]):
        z = ngmp.sample("z", Normal(z, variance=sigma2))
        ngmp.sample("y", Poisson(exp(z)), obs=y[k])


def test_iterated_programs_at_once():
    """Two that iterate, compiled and run by four threads, bit for bit as in one."""
    y, options = np.array([3.0, 1.0, 4.0]), [{}, {"method": ngmp.EP()}]
    expected = [np.asarray(ngmp.compile(chain, **o)(y)["z"].mean) for o in options]
    programs = [ngmp.compile(chain, **o) for o in options]
    with ThreadPoolExecutor(4) as pool:
        for k, post in enumerate(pool.map(lambda k: programs[k % 2](y), range(8))):
            np.testing.assert_array_equal(post["z"].mean, expected[k % 2])


def test_one_program_many_shapes_in_many_threads(monkeypatch):
    """More shapes than are kept, so that functions are dropped while others use them, and jax's traces too."""
    monkeypatch.setattr(_specialise, "_MANY", 2)
    program = ngmp.compile(gamma_poisson, max_specialisations=3)

    def work(k):
        y = np.full(1 + k % 5, float(k))
        return float(program(y)["lam"].mean[()]), (2 + y.sum()) / (1 + y.size)

    with ThreadPoolExecutor(4) as pool:
        for found, expected in pool.map(work, range(15)):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(program._compiled) == 3


def test_dropped_specialisations_are_freed():
    program = ngmp.compile(gamma_poisson, max_specialisations=2)
    program(np.ones(1))
    functions = program._compiled._functions
    first = weakref.ref(next(iter(functions.values())))
    program(np.ones(2))
    program(np.ones(1))  # used again: the other one is older
    program(np.ones(3))
    assert first() is not None and len(functions) == 2
    program.clear()
    gc.collect()
    assert first() is None and not functions
    assert program(np.ones(1)).converged
    with pytest.raises(ValueError, match="max_specialisations must be an integer"):
        ngmp.compile(gamma_poisson, max_specialisations=0)


def test_transformations_share_a_specialisation():
    program = ngmp.compile(gamma_poisson)
    y = np.ones(3)
    program(y)
    jax.jit(program)(y)
    jax.vmap(program)(np.stack([y, y]))
    jax.grad(lambda rate: program(y, rate).free_energy)(1.0)
    assert len(program._compiled) == 1
