"""What a declaration costs before it runs: `python benchmarks/compile_time.py`

The Poisson chain as a scan and as a Python loop of 3288 steps (trace + compile, interleaved, medians of three fresh
programs each), every model of the gallery once, a loop of 100,000 factors, a random tree of 10,000 scalars and a
lattice of 100 x 100. Processor time stands beside wall time, which other jobs on the machine lengthen (the load is kept
with the figures). Tracing alone is the median of three; equations are those of the whole program, inner ones included.
"""

import os
import statistics
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler.declare.inputs import wrap  # noqa: E402
from ngmp_compiler.declare.sample import trace  # noqa: E402

RNG = np.random.default_rng(0)


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
