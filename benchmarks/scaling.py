"""What grows with N and what does not: `python benchmarks/scaling.py [--quick] [--only WORD]`

1. Trace and compile every model of the gallery, N small, each time a fresh program (bar: 3 s); on one processor and, in
   a process of its own, on all of them.
2. Compile time at N = 10^6 over that at N = 10^3, in turn (bar: 1.3).
3. Processor time of a run per item and sweep at N = 10^4, 10^5, 10^6, in turn (bar: within 1.5 of each other); three
   sweeps of plain damping whatever the residual, one where the model is conjugate. Runs that would take more than half
   of the memory that is free are left out. Twice: with the C library's memory as it is, which is taken from the kernel
   page by page in every call that needs more than 32 MB, and with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`, in huge
   pages.
4. Memory of a run at N = 10^6, by XLA's own account: temporary arrays, and with inputs and outputs. A unit is an array
   of N numbers in double precision; the state is the natural parameters of all leaves (two of a Gaussian or Gamma), or
   the marginals of a conjugate model (bar: 12 arrays of the size of the state).
5. Dispatch: a call of a tiny program (N = 8) on the wall, less that of the same executable called without Python
   (bar: 100 microseconds).

All in one thread unless it says otherwise, in double precision; data are arguments of the programs. Medians, in
processor time where it is said: other jobs on the machine lengthen time on the wall.
"""

import os
import sys

from speed import ONE_THREAD, one_processor

if "--all-processors" not in sys.argv:
    os.environ["XLA_FLAGS"] = ONE_THREAD
    one_processor()
elif hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, range(os.cpu_count() or 1))

import argparse  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import save, table  # noqa: E402
from scaling_models import GALLERY, SCALABLE, Entry  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

SWEEPS = 3
Models = dict[str, Entry]
Table = tuple[list[str], list[list[Any]]]


def shapes(inputs: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), inputs)


def aot(entry: Entry, inputs: dict[str, Any], **options: Any) -> tuple[Any, dict[str, float]]:
    """A fresh program compiled for such inputs (arrays or shapes), and the seconds to trace and to compile."""
    program = ngmp.compile(entry.model, **entry.options, **options)
    marks = [(time.perf_counter(), time.process_time())]
    lowered = jax.jit(lambda x: program(**x)).lower(inputs)
    marks.append((time.perf_counter(), time.process_time()))
    compiled = lowered.compile()
    marks.append((time.perf_counter(), time.process_time()))
    (t0, c0), (t1, c1), (t2, c2) = marks
    return compiled, {"trace": c1 - c0, "compile": c2 - c1, "processor": c2 - c0, "wall": t2 - t0}


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(f[key] for f in found) for key in found[0]}


def gallery(models: Models, repeats: int) -> Table:
    """Trace and compile, N small."""
    rows = []
    for name, entry in models.items():
        inputs = shapes(entry.inputs(100))
        found = medians([aot(entry, inputs)[1] for _ in range(repeats)])
        rows.append([name, found["trace"], found["compile"], found["processor"], found["wall"]])
    return ["model", "trace, processor s", "compile, processor s", "both, processor s (bar 3)", "both, wall s"], rows


def compile_growth(models: Models, repeats: int) -> Table:
    """Compile time at a thousand and at a million items, in turn."""
    rows = []
    for name, entry in models.items():
        small, large = shapes(entry.inputs(1000)), shapes(entry.inputs(1_000_000))
        found = [[aot(entry, x)[1]["processor"] for x in (small, large)] for _ in range(repeats)]
        a, b = (statistics.median(x) for x in zip(*found, strict=True))
        rows.append([name, a, b, b / a])
    return ["model", "N = 10^3, processor s", "N = 10^6, processor s", "ratio (bar 1.3)"], rows


def run_time(models: Models, sizes: tuple[int, ...], seconds: float) -> Table:
    """Nanoseconds of processor time per item and sweep; short runs several to a turn, so that caches are warm."""
    rows = []
    for name, entry in models.items():
        runs, times, sweeps = {}, {n: [] for n in sizes}, 1
        for n in sizes:
            inputs = jax.tree.map(jax.numpy.asarray, entry.inputs(n))
            compiled, _ = aot(entry, inputs, solver=optax.sgd(0.5), max_sweeps=SWEEPS, tol=1e-30)
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if compiled.memory_analysis().temp_size_in_bytes < 0.5 * free:
                sweeps = int(compiled(inputs).sweeps)
                runs[n] = (compiled, inputs, max(1, round(0.05 / _turn(compiled, inputs, 1))))
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[sizes[0]]) < 3:
            for n, run in runs.items():
                _turn(*run[:2], 1)  # the run of another size has emptied the caches
                times[n].append(_turn(*run) / (n * sweeps))
        ns = [1e9 * statistics.median(times[n]) if n in runs else "too large" for n in sizes]
        seen = [x for x in ns if isinstance(x, float)]
        rows.append([name, sweeps, *ns, max(seen) / min(seen)])
    return ["model", "sweeps", *(f"N = {n}, ns" for n in sizes), "largest over smallest (bar 1.5)"], rows


def elsewhere(name: str, arguments: list[str], **variables: str) -> Table:
    """A table from a process of its own: processors and kind of memory must be chosen before it starts."""
    command = [sys.executable, __file__, "--table", name, *arguments]
    env = {**os.environ, "XLA_FLAGS": "", **variables}
    found = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    header, rows = json.loads(found.splitlines()[-1])
    return header, rows


def _turn(compiled: Any, inputs: dict[str, Any], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        jax.block_until_ready(compiled(inputs))
    return (time.process_time() - start) / calls


def memory(models: Models, n: int) -> Table:
    """What a run to convergence needs besides code, in arrays of N numbers and in states."""
    rows = []
    for name, entry in models.items():
        inputs = shapes(entry.inputs(n))
        compiled, _ = aot(entry, inputs)
        posterior: Any = ngmp.compile(entry.model, **entry.options).like("Posterior", **inputs)
        leaves = jax.tree.leaves(posterior.state.leaves) or jax.tree.leaves(posterior.marginals)
        found, state = compiled.memory_analysis(), sum(x.size * x.dtype.itemsize for x in leaves)
        parts = [found.argument_size_in_bytes, found.output_size_in_bytes, found.temp_size_in_bytes]
        total = sum(parts) - found.alias_size_in_bytes
        rows.append([name, *(x / (8 * n) for x in (state, *parts, total)), parts[2] / state, total / state])
    units = ["state", "inputs", "outputs", "temporary", "peak"]
    return ["model", *(f"{u}, arrays" for u in units), "temporary, states", "peak, states (bar 12)"], rows


def dispatch(models: Models, batches: int) -> Table:
    """Microseconds on the wall of a call of a program of eight items, and of its bare executable."""
    rows = []
    for name, entry in models.items():
        inputs = jax.tree.map(jax.numpy.asarray, entry.inputs(8))
        program, (compiled, _) = ngmp.compile(entry.model, **entry.options), aot(entry, inputs)
        bare, buffers = compiled.runtime_executable(), jax.tree.leaves(inputs)
        calls = {
            "program": lambda program=program, inputs=inputs: program(**inputs),
            "bare": lambda bare=bare, buffers=buffers: bare.execute(buffers),
        }
        best = {name: float("inf") for name in calls}
        for _ in range(batches):  # the best of several medians: a job that disturbs does so for a while
            for kind, call in calls.items():
                best[kind] = min(best[kind], _median_call(call))
        rows.append([name, 1e6 * best["program"], 1e6 * best["bare"], 1e6 * (best["program"] - best["bare"])])
    return ["model, N = 8", "call, us", "bare executable, us", "difference, us (bar 100)"], rows


def _median_call(call: Callable[[], Any], repeats: int = 1000) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times[repeats // 10 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few models, sizes to 10^5, one repeat")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--table", default="", help="print this table only, as JSON")
    parser.add_argument("--all-processors", action="store_true", help="do not stay on one processor")
    args = parser.parse_args()
    chosen, every = ({k: v for k, v in models.items() if args.only in k} for models in (SCALABLE, GALLERY))
    if args.quick:
        chosen = {k: v for k, v in chosen.items() if k in ("poisson_chain", "mean_precision", "local_level")}
    repeats, sizes = (1, (10_000, 100_000)) if args.quick else (3, (10_000, 100_000, 1_000_000))
    tiny = {k: chosen[k] for k in ("mean_precision", "poisson_chain") if k in chosen}
    compile_all = partial(gallery, chosen if args.quick else every, repeats)
    run_all = partial(run_time, chosen, sizes, 1.0 if args.quick else 5.0)
    huge = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    parts = {
        "Trace and compile, N = 100": compile_all,
        "Trace and compile, N = 100, all processors": lambda: elsewhere(
            "Trace and compile, N = 100", [*sys.argv[1:], "--all-processors"]
        ),
        "Compile time": lambda: compile_growth(chosen, repeats),
        "Run time per item and sweep": run_all,
        "Run time per item and sweep, memory in huge pages": lambda: elsewhere(
            "Run time per item and sweep", sys.argv[1:], **huge
        ),
        "Memory, N = 10^6": lambda: memory(chosen, 1_000_000),
        "Dispatch": lambda: dispatch(tiny, 3 if args.quick else 10),
    }
    aot(GALLERY["skills"], shapes(GALLERY["skills"].inputs(1)))  # jax's own first-use costs
    if args.table:
        print(json.dumps(parts[args.table]()))
        return
    content = {}
    for title, measure in parts.items():
        header, rows = measure()
        print(table(title, header, rows), flush=True)
        content[title] = {"header": header, "rows": rows}
    print("saved", save("scaling" + ("_quick" if args.quick else ""), {"load": os.getloadavg()[1], **content}))


if __name__ == "__main__":
    main()
