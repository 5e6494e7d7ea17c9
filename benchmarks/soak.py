"""Long use of one process: `python benchmarks/soak.py [--quick]`

Four threads call one program 100,000 times with data that change; 1,000 shapes, each of which compiles; a stream of
10^6 updates of one observation each, inside `lax.scan` and, fewer, one call after the other. Every answer is compared:
with that of one thread before the others started, bit for bit, or with a closed form. Memory is that of the process
(RSS), read after the warm-up and at the end. Latencies are those of single calls, until the result is there; other jobs
on the machine lengthen them, most of all the rare ones (the load is kept with the figures).
"""

import argparse
import gc
import os
import threading
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler import Bernoulli, Gamma, Normal, Poisson  # noqa: E402
from ngmp_models import poisson_chain  # noqa: E402

THREADS = 4


def memory() -> float:
    """Of this process, in MB."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def counted(y, rate=1.0):
    """Conjugate: lam ~ Gamma(2, rate), y_k ~ Poisson(lam)."""
    lam = ngmp.sample("lam", Gamma(2.0, rate=rate))
    ngmp.sample("y", Poisson(lam), obs=y)


def level(y):
    """Conjugate: m ~ N(0, 1), y ~ N(m, 1)."""
    m = ngmp.sample("m", Normal(0.0, variance=1.0))
    ngmp.sample("y", Normal(m, variance=1.0), obs=y)


def coin(y):
    """Projected: logit ~ N(0, 1), y ~ Bernoulli."""
    z = ngmp.sample("z", Normal(0.0, variance=1.0))
    ngmp.sample("y", Bernoulli(logits=z), obs=y)


def threads(calls: int, warm: int) -> list[list]:
    """Calls from four threads, data changing and shapes not."""
    programs = {"Poisson chain of 50": (poisson_chain, "z"), "Gamma-Poisson": (counted, "lam")}
    rows = []
    for name, (model, variable) in programs.items():
        rows += hammered(name, ngmp.compile(model), variable, calls // 2 // THREADS, warm // THREADS)
    return rows


def hammered(name: str, program: ngmp.Program, variable: str, each: int, warm: int) -> list[list]:
    """`each` calls of one program from every thread, then calls from this one alone."""
    sets = [np.random.default_rng(i).poisson(4.0, 50) for i in range(64)]

    def answer(y) -> bytes:
        post = program(y=y)
        return b"".join(np.asarray(x).tobytes() for x in (post[variable].mean, post.free_energy, post.sweeps))

    expected = [answer(y) for y in sets]
    latency, wrong, sizes = np.zeros((THREADS, each)), np.zeros(THREADS, int), []
    gate = threading.Barrier(THREADS)

    def work(t: int) -> None:
        order = np.random.default_rng(t).integers(len(sets), size=each)
        gate.wait()
        for k, i in enumerate(order):
            start = time.perf_counter()
            found = answer(sets[i])
            latency[t, k] = time.perf_counter() - start
            wrong[t] += found != expected[i]
            if t == 0 and k == warm:
                sizes.append(memory())

    start = time.perf_counter()
    workers = [threading.Thread(target=work, args=(t,)) for t in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rate = THREADS * each / (time.perf_counter() - start)
    alone = np.zeros(2000)
    for k in range(len(alone)):
        start = time.perf_counter()
        answer(sets[k % 64])
        alone[k] = time.perf_counter() - start
    rows = [[f"calls from {THREADS} threads", THREADS * each, ""], ["wrong answers", int(wrong.sum()), "0"]]
    rows.append(["calls a second", rate, ""])
    for who, times in ((f"{THREADS} threads", latency), ("alone", alone)):
        median, last = np.quantile(times, [0.5, 0.99]) * 1e6
        rows.append([f"median latency, us ({who})", median, ""])
        rows.append([f"p99 over median ({who})", last / median, "3, quiet machine"])
    rows.append(["memory after warm-up, MB", sizes[0], ""])
    rows.append(["memory at the end, MB", memory(), "as after warm-up"])
    return [[f"{name}: {what}", *values] for what, *values in rows]


def shapes(count: int, warm: int, most: int) -> list[list]:
    """Every call has a new shape and compiles; `most` specialisations are kept."""
    program = ngmp.compile(counted, max_specialisations=most)
    wrong, sizes = 0, []
    for n in range(1, count + 1):
        y = np.random.default_rng(n).poisson(4.0, n)
        found = program(y=y)["lam"]
        wrong += abs(float(found.mean) - (2 + y.sum()) / (1 + n)) > 1e-9
        if n >= warm and (n - warm) % max((count - warm) // 10, 1) == 0:
            sizes.append(memory())
    slope = 1e3 * (sizes[-1] - sizes[0]) / (count - warm)
    return [
        ["changes of shape", count, ""],
        ["changes of shape: wrong answers", wrong, "0"],
        [f"changes of shape: memory after {warm}, MB", sizes[0], ""],
        ["changes of shape: memory at the end, MB", sizes[-1], "as after warm-up"],
        ["changes of shape: growth, kB a shape", slope, "0"],
        ["changes of shape: specialisations kept", len(program._compiled), str(most)],
    ]


def one_by_one(program, eager: int, rng: np.random.Generator) -> list[list]:
    """`eager` updates, one call each."""
    carry, added, sizes = program.start(y=0.0), 0.0, []
    for k in range(eager):
        y = float(rng.standard_normal())
        carry, _ = program.update(carry, {"y": y})
        added += y
        if k in (eager // 5, eager - 1):
            sizes.append(memory())
    return [
        ["stream, one call each: updates", eager, ""],
        ["stream, one call each: error", abs(float(carry["m"].mean) - added / (1 + eager)), "1e-12"],
        ["stream, one call each: memory after 20 %, MB", sizes[0], ""],
        ["stream, one call each: memory at the end, MB", sizes[-1], "as after warm-up"],
    ]


def stream(count: int, eager: int) -> list[list]:
    """One observation at a time: `count` updates in `lax.scan`, a hundredth of them at once, and `eager` calls."""
    rows, chunk = [], count // 100
    for name, model in (("conjugate", level), ("projected", coin)):
        program = ngmp.compile(model, carry=("m" if model is level else "z",))
        total = count if model is level else count // 10

        @jax.jit
        def run(carry, y, program=program):
            def step(carry, y):
                carry, post = program.update(carry, {"y": y})
                return carry, post.converged

            carry, converged = jax.lax.scan(step, carry, y)
            return carry, jnp.all(converged)

        rng, carry, added, fine, sizes = np.random.default_rng(0), program.start(y=0.0), 0.0, True, []
        start = time.perf_counter()
        for k in range(total // chunk):
            y = rng.standard_normal(chunk) if model is level else (rng.random(chunk) < 0.7).astype(float)
            carry, converged = run(carry, y)
            fine, added = fine and bool(converged), added + y.sum()
            if k in (1, total // chunk - 1):
                sizes.append(memory())
        seconds = time.perf_counter() - start
        (q,) = carry.values()
        expected = added / (1 + total) if model is level else np.log(0.7 / 0.3)
        off = abs(float(q.mean) - expected) / float(np.sqrt(q.variance))
        rows += [
            [f"stream, {name}: updates in lax.scan", total, ""],
            [f"stream, {name}: us an update", 1e6 * seconds / total, ""],
            [f"stream, {name}: all converged", fine, "True"],
            [f"stream, {name}: error, sd", off, "1e-6" if model is level else "4 (of the rate drawn from)"],
            [f"stream, {name}: memory after 2 %, MB", sizes[0], ""],
            [f"stream, {name}: memory at the end, MB", sizes[-1], "as after warm-up"],
        ]
        if model is level:
            rows += one_by_one(program, eager, rng)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part of it, in less than a minute; nothing is kept")
    parser.add_argument("--only", choices=["threads", "shapes", "stream"], help="one of the three")
    given = parser.parse_args()
    quick = given.quick
    parts = {
        "threads": lambda: threads(2_000 if quick else 100_000, 400 if quick else 10_000),
        # jax keeps the last 2048 traces of its own functions; they are full after some 200 of these shapes.
        "shapes": lambda: shapes(20, 5, 4) if quick else shapes(1_000, 300, 32),
        "stream": lambda: stream(10_000 if quick else 1_000_000, 200 if quick else 20_000),
    }
    rows = []
    for name, part in parts.items():
        if given.only in (None, name):
            found = part()
            rows += found
            print(table(name, ["what", "value", "bar"], found), flush=True)
    if not quick:
        print("saved", save("soak" if given.only is None else f"soak_{given.only}", {
            "load": os.getloadavg()[1], "cores": os.cpu_count(), "header": ["what", "value", "bar"], "rows": rows,
        }))  # fmt: skip


if __name__ == "__main__":
    main()
