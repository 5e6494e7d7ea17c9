"""What a declaration costs before it runs: `python benchmarks/compile_time.py [--first] [--gallery] [--before]`

First, what the first call of twelve ordinary models costs (`compile_cases.py`; with `--gallery` of all models of the
gallery): fused kernels, and processor seconds of tracing, lowering and compiling. What was measured with `--before` is
kept, and stands beside later figures. With `--first` nothing else is measured. Then:

The Poisson chain as a scan and as a Python loop of 3288 steps (trace + compile, interleaved, medians of three fresh
programs each), every model of the gallery once, a loop of 100,000 factors, a random tree of 10,000 scalars and a
lattice of 100 x 100. Processor time stands beside wall time, which other jobs on the machine lengthen (the load is kept
with the figures). Tracing alone is the median of three; equations are those of the whole program, inner ones included.
"""

import argparse
import json
import os
import re
import statistics
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from compile_cases import cases  # noqa: E402
from report import RESULTS, save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler.declare.inputs import wrap  # noqa: E402
from ngmp_compiler.declare.sample import trace  # noqa: E402

RNG = np.random.default_rng(0)


FIRST = ["fusions", "trace, s", "lower, s", "compile, s", "first call, s"]


def first_call(model, inputs, options) -> list[float]:
    """Fused kernels, and processor seconds of tracing, lowering, compiling and all three, of a fresh program."""
    program = ngmp.compile(model, **options)
    fixed = {k: x for k, x in inputs.items() if isinstance(x, int | str | bool)}
    free = {k: x for k, x in inputs.items() if k not in fixed}
    call = jax.jit(lambda given: jax.tree.leaves(program(**given, **fixed)))
    times = [time.process_time()]
    stage = call.trace(free)
    times.append(time.process_time())
    stage = stage.lower()
    times.append(time.process_time())
    stage = stage.compile()
    times.append(time.process_time())
    took = [b - a for a, b in zip(times, times[1:], strict=False)]
    return [len(re.findall(r" fusion\(", stage.as_text())), *took, sum(took)]


def first_calls(gallery: bool, before: bool) -> dict:
    """The twelve models, and those of the gallery if asked for, beside what was kept of them; printed as they come."""
    found = [(case.name, case.model, case.inputs, {}) for case in cases()]
    if gallery:
        from gallery import cases as models

        found += [(f"gallery: {case.name}", case.model, case.inputs, case.options) for _, case in models()]
    path = RESULTS / "first_call.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    rows = kept.get("before" if before else "after", {})
    for name, *case in found:
        rows[name] = first_call(*case)
        print(name, *(f"{x:.4g}" for x in rows[name]), flush=True)
    content = {k: kept.get(k, {}) for k in ("before", "after")} | {"before" if before else "after": rows}
    load = {"load": os.getloadavg()[1], "header": FIRST}
    print("saved", save("first_call", load | content))
    old = content["before"]
    both = [[name, *(x for pair in zip(old.get(name, [""] * 5), row, strict=True) for x in pair)]
            for name, row in content["after"].items()]  # fmt: skip
    header = ["model", *(f"{name} {when}" for name in FIRST for when in ("before", "now"))]
    print(table("First call, one processor", header, both))
    return content


def seconds(model, **inputs) -> tuple[float, float]:
    """Trace and compile a fresh program: the first call less a second, warm one; wall and processor time."""
    program = ngmp.compile(model)
    times = []
    for _ in range(2):
        start = time.perf_counter(), time.process_time()
        jax.block_until_ready(program(**inputs))
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return times[0][0] - times[1][0], times[0][1] - times[1][1]


def level(y):
    """Two factors a step, declared as a loop."""
    z = ngmp.sample("z0", ngmp.Normal(0.0, variance=10.0))
    for k in range(y.shape[0]):
        z = ngmp.sample("z", ngmp.Normal(z, variance=0.1))
        ngmp.sample("y", ngmp.Normal(z, variance=0.5), obs=y[k])


def tree(y):
    """Every scalar hangs on one declared before it."""
    parents, x = np.random.default_rng(1).random(len(y)), []
    for i in range(len(y)):
        mean = 0.8 * x[int(parents[i] * i)] if i else 0.0
        x.append(ngmp.sample("x", ngmp.Normal(mean, variance=0.5)))
        ngmp.sample("y", ngmp.Normal(x[i], variance=0.5), obs=y[i])


def lattice(y):
    """Every scalar tied to its four neighbours: solved along a band."""
    x = ngmp.sample("x", ngmp.Normal(jnp.zeros(y.shape), variance=4.0))
    ngmp.sample("down", ngmp.Normal(x[1:] - x[:-1], variance=0.5), obs=jnp.zeros_like(y[1:]))
    ngmp.sample("right", ngmp.Normal(x[:, 1:] - x[:, :-1], variance=0.5), obs=jnp.zeros_like(y[:, 1:]))
    ngmp.sample("y", ngmp.Normal(x, variance=0.7), obs=y)


def tracing(model, nodes: int, **inputs) -> float:
    """Microseconds of processor time for each declared variable and factor."""
    times = []
    for _ in range(3):
        start = time.process_time()
        trace(model, {k: wrap(jnp.asarray(v)) for k, v in inputs.items()})
        times.append(time.process_time() - start)
    return 1e6 * statistics.median(times) / nodes


def equations(jaxpr) -> int:
    """The number of equations, inner ones included."""
    inner = (x for e in jaxpr.eqns for v in e.params.values() for x in (v if isinstance(v, (tuple, list)) else (v,)))
    inner = (getattr(x, "jaxpr", x) for x in inner)
    return len(jaxpr.eqns) + sum(equations(x) for x in inner if hasattr(x, "eqns"))


def program_size(model, **inputs) -> int:
    program = ngmp.compile(model)
    return equations(jax.make_jaxpr(lambda kwargs: program(**kwargs).free_energy)(inputs).jaxpr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--first", "--gallery", "--before"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    first_calls(given.gallery, given.before)
    if not given.first:
        others()


def others() -> None:
    """Chains, loops, trees and lattices of many factors."""
    counts = RNG.poisson(5.0, 3288)
    forms = {"scan": ngmp_models.poisson_chain, "loop": ngmp_models.poisson_chain_loop}
    seconds(forms["scan"], y=counts[:10])  # jax's own first-use costs
    measured = {name: [] for name in forms}
    for _ in range(3):
        for name, model in forms.items():
            measured[name].append(seconds(model, y=counts))
    medians = {name: [statistics.median(x) for x in zip(*t, strict=True)] for name, t in measured.items()}
    rows = [[f"Poisson chain, 3288 steps, {name}", *t, t[0] / medians["scan"][0]] for name, t in medians.items()]
    features = RNG.standard_normal((400, 33))
    readings = RNG.standard_normal(400)
    gallery = {
        "mean_precision": {"y": readings},
        "heteroscedastic": {"phi": features, "psi": features[:, :9], "y": readings},
        "logistic_regression": {"features": features, "y": (readings > 0).astype(float)},
    }
    for name, inputs in gallery.items():
        rows.append([f"{name}, N = 400", *seconds(getattr(ngmp_models, name), **inputs), ""])
    steps = RNG.standard_normal(50_000)
    rows.append(["loop of 100,000 factors", *seconds(level, y=steps), ""])
    rows.append(["random tree of 10,000 scalars, loop", *seconds(tree, y=steps[:10_000]), ""])
    rows.append(["lattice of 100 x 100, arrays", *seconds(lattice, y=steps[:10_000].reshape(100, 100)), ""])
    header = ["model", "trace + compile, s", "processor, s", "against the scan"]
    print(table("Trace and compile time", header, rows))
    sizes = [
        ["tracing, us a node (bar 30)", tracing(level, 2 * len(steps) + 1, y=steps)],
        ["equations, 1,000 factors", program_size(level, y=steps[:500])],
        ["equations, 100,000 factors", program_size(level, y=steps)],
    ]
    print(table("Size", ["what", "value"], sizes))
    content = {"load": os.getloadavg()[1], "header": header, "rows": rows, "sizes": sizes}
    print("saved", save("compile_time", content))


if __name__ == "__main__":
    main()
