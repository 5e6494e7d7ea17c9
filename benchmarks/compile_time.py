"""What a declaration costs before it runs: `python benchmarks/compile_time.py`

The Poisson chain as a scan and as a Python loop of 3288 steps (trace + compile, interleaved, medians of three fresh
programs each), and every model of the gallery once.
"""

import statistics
import time

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402

RNG = np.random.default_rng(0)


def seconds(model, **inputs) -> float:
    """Trace and compile a fresh program: the first call less a second, warm one."""
    program = ngmp.compile(model)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready(program(**inputs))
        times.append(time.perf_counter() - start)
    return times[0] - times[1]


def main() -> None:
    counts = RNG.poisson(5.0, 3288)
    forms = {"scan": ngmp_models.poisson_chain, "loop": ngmp_models.poisson_chain_loop}
    seconds(forms["scan"], y=counts[:10])  # jax's own first-use costs
    measured = {name: [] for name in forms}
    for _ in range(3):
        for name, model in forms.items():
            measured[name].append(seconds(model, y=counts))
    medians = {name: statistics.median(x) for name, x in measured.items()}
    rows = [[f"Poisson chain, 3288 steps, {name}", t, t / medians["scan"]] for name, t in medians.items()]
    features = RNG.standard_normal((400, 33))
    readings = RNG.standard_normal(400)
    gallery = {
        "mean_precision": {"y": readings},
        "heteroscedastic": {"phi": features, "psi": features[:, :9], "y": readings},
        "logistic_regression": {"features": features, "y": (readings > 0).astype(float)},
    }
    for name, inputs in gallery.items():
        rows.append([f"{name}, N = 400", seconds(getattr(ngmp_models, name), **inputs), ""])
    header = ["model", "trace + compile, s", "against the scan"]
    print(table("Trace and compile time", header, rows))
    print("saved", save("compile_time", {"header": header, "rows": rows}))


if __name__ == "__main__":
    main()
