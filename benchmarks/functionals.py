"""Vectors seen through N linear functionals, in weight and in function space: `python benchmarks/functionals.py`

Time of one sweep of the core (rows that move, marginals of every functional out) in either space, interleaved, medians
of `REPEATS`, next to what the compiler chooses; and the peak memory of whole runs at N = 10 000, D = 1000, each in
a process of its own.
"""

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
import ngmp_models  # noqa: E402
from ngmp_compiler import Gamma, MvNormal, Normal, dot  # noqa: E402
from ngmp_compiler.executors.gaussian.base import Potential  # noqa: E402
from ngmp_compiler.executors.gaussian.pieces import Piece, PieceLink  # noqa: E402
from ngmp_compiler.executors.gaussian.vectors import Term, Vectors  # noqa: E402
from ngmp_compiler.graph.index import index_map  # noqa: E402
from ngmp_compiler.graph.planes import Plane  # noqa: E402
from ngmp_kernels.families import MvGaussian  # noqa: E402

SIZES = [(100, 1000), (500, 1000), (1000, 1010), (1250, 1000), (2000, 1000), (400, 33), (10_000, 1000)]
REPEATS = 5
LARGE = 10_000, 1000
SWEEPS = 5


def _sweep(n: int, d: int, function: bool):
    """A jitted sweep, its arguments, and whether the compiler would have chosen this space."""
    rng = np.random.default_rng(0)
    phi = jnp.asarray(rng.normal(size=(n, d)) / np.sqrt(d))
    plane = Plane(MvGaussian, (d,))

    def term(rows: int, op: str, coefficient, width) -> Term:
        where = np.zeros(rows, int)
        piece = Piece(0, None, rows, (PieceLink(plane, where, op, coefficient),), jnp.zeros(1), width)
        return Term(piece, 0, index_map(where, 1))

    vectors = Vectors(d, 1, [term(1, "scale", None, d)], [term(n, "dot", phi, None)], True)
    chosen = vectors.in_function_space
    vectors.in_function_space = function
    prior = Potential(jnp.eye(d)[None], jnp.zeros((1, d)))
    prepared = jax.jit(lambda: vectors.prepare([prior], phi.dtype))()

    def sweep(prepared, lam, h):
        solved = vectors.solve(prepared, [Potential(lam, h)])
        return solved.moments, solved.log_volume, solved.proper

    arguments = prepared, jnp.asarray(rng.uniform(0.5, 2.0, n)), jnp.asarray(rng.normal(size=n))
    return jax.jit(sweep), arguments, chosen


def times() -> list[list]:
    rows = []
    for n, d in SIZES:
        spaces = [False, True] if n <= 2 * d or n < 1000 else [False]  # N x N matrices of 10 000: 800 MB each
        runs = {space: _sweep(n, d, space) for space in spaces}
        seconds: dict[bool, list[float]] = {space: [] for space in spaces}
        for repeat in range(REPEATS + 1):
            for space, (sweep, arguments, _) in runs.items():
                start = time.perf_counter()
                jax.block_until_ready(sweep(*arguments))
                seconds[space] += [time.perf_counter() - start] if repeat else []
        each = [1e3 * statistics.median(seconds[s]) if s in seconds else "-" for s in (False, True)]
        rows.append([n, d, *each, "function" if runs[False][2] else "weight"])
    return rows


def unknown_noise(phi, y):
    v = ngmp.sample("v", MvNormal(jnp.zeros(phi.shape[-1], phi.dtype), covariance=4.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(dot(phi, v), precision=tau), obs=y)


def _high_water() -> float:
    """Peak resident memory of this process so far in MB. (getrusage would count that of the parent before exec.)"""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def peak(name: str) -> None:
    """Print the peak memory of one run over that after import, in MB; for a child process."""
    n, d = LARGE
    base = _high_water()
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(n, d)) / np.sqrt(d)
    inputs = {"phi": phi, "y": phi @ rng.normal(size=d) + rng.normal(size=n)}
    model = unknown_noise
    if name == "heteroscedastic":
        model, inputs["psi"] = ngmp_models.heteroscedastic, rng.normal(size=(n, 9))
    post = jax.block_until_ready(ngmp.compile(model, max_sweeps=SWEEPS)(**inputs))
    assert np.isfinite(post.free_energy)
    print(_high_water() - base)


def memory() -> list[list]:
    rows = []
    for name in ("heteroscedastic", "unknown_noise"):
        child = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        rows.append([name, *LARGE, float(child.stdout)])
    return rows


def main() -> None:
    header = ["N", "D", "weight space, ms", "function space, ms", "chosen"]
    rows = times()
    print(table("One sweep over N functionals of a vector of D", header, rows))
    header_memory = ["model", "N", "D", "peak, MB"]
    rows_memory = memory()
    print(table("Peak memory of a run, over that after import", header_memory, rows_memory))
    content = {"header": header, "rows": rows, "memory_header": header_memory, "memory": rows_memory}
    print("saved", save("functionals", content))


if __name__ == "__main__":
    peak(sys.argv[1]) if len(sys.argv) > 1 else main()
