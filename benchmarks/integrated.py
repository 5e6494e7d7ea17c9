"""Integrated hyperparameters against exact answers: `python benchmarks/integrated.py [--only substring]`.

For every model and hyperparameter: |z| of the mean, in posterior standard deviations; the ratio of standard deviations;
how far the 5 % and 95 % quantiles are off, in standard deviations; the error of the log-evidence; nodes; processor time
of the first call and wall time of a warm one. Exact answers are brute-force grids (`integrated_cases.py`). PASS: |z| <=
0.05, ratio 0.95-1.05, quantiles within 0.05, evidence within 0.05 nats. Variables of the graph (marked *) are held to
the same bars.
"""

import argparse
import time
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import report  # noqa: E402
from integrated_cases import Case, cases  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

_CHUNK = 4096


def exact(case: Case) -> tuple[float, dict[str, tuple[float, float, float, float]]]:
    """The log-evidence, and mean, standard deviation, 5 % and 95 % point of every axis, by the trapezoidal rule."""
    axes = list(case.grid.values())
    points = np.stack([x.reshape(-1) for x in np.meshgrid(*axes, indexing="ij")], -1)
    batch = jax.jit(jax.vmap(lambda p: case.log_joint(*p)))
    log = np.concatenate([np.asarray(batch(points[i : i + _CHUNK])) for i in range(0, len(points), _CHUNK)])
    log = log.reshape([len(x) for x in axes])
    for axis, x in enumerate(axes):
        width = np.gradient(x) if not np.allclose(np.diff(x), 1.0) else np.ones(len(x))
        log = log + np.log(width).reshape([-1 if k == axis else 1 for k in range(len(axes))])
    total = np.logaddexp.reduce(log.reshape(-1))
    weights = np.exp(log - total)
    out = {}
    for axis, (name, x) in enumerate(case.grid.items()):
        w = weights.sum(tuple(k for k in range(len(axes)) if k != axis))
        mean = (w * x).sum()
        low, high = np.interp([0.05, 0.95], np.cumsum(w) - 0.5 * w, x)
        out[name] = (mean, np.sqrt((w * (x - mean) ** 2).sum()), low, high)
    return float(total), out


def found(case: Case) -> dict[str, Any]:
    """The same by the library, with times."""
    names = tuple(name for name in case.grid if name not in case.latent)
    program = ngmp.compile(case.model, integrate=names)
    start = time.process_time()
    post = jax.block_until_ready(program(**case.inputs))
    first, warm = time.process_time() - start, []
    for _ in range(5):
        start = time.perf_counter()
        post = jax.block_until_ready(program(**case.inputs))
        warm.append(time.perf_counter() - start)
    moments = {}
    for name in case.grid:
        q: Any = post[name]
        if hasattr(q, "probs"):
            k = np.arange(q.probs.size)
            mean = float(q.probs @ k)
            cdf = np.cumsum(q.probs) - 0.5 * q.probs
            moments[name] = (mean, float(np.sqrt(q.probs @ (k - mean) ** 2)), *np.interp([0.05, 0.95], cdf, k))
        else:
            moments[name] = (float(q.mean), float(q.std), *(float(q.quantile(p)) for p in (0.05, 0.95)))
    return {"evidence": -float(post.free_energy), "moments": moments, "first": first, "warm": float(np.median(warm)),
            "nodes": len(post.nodes.weights), "converged": bool(post.converged)}  # fmt: skip


def rows(case: Case) -> list[list[Any]]:
    evidence, reference = exact(case)
    own = found(case)
    out = []
    for name, (mean, sd, low, high) in reference.items():
        m, s, a, b = own["moments"][name]
        z, ratio, tails = abs(m - mean) / sd, s / sd, max(abs(a - low), abs(b - high)) / sd
        error = own["evidence"] - evidence
        good = z <= 0.05 and 0.95 <= ratio <= 1.05 and tails <= 0.05 and abs(error) <= 0.05 and own["converged"]
        star = "*" if name in case.latent else ""
        verdict = "PASS" if good else "FAIL" if own["converged"] else "flagged"
        times = own["first"], 1e3 * own["warm"]
        out.append([case.name, name + star, z, ratio, tails, error, own["nodes"], *times, verdict])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name contains this")
    only = parser.parse_args().only
    header = ["model", "unknown", "z", "ratio", "tails", "evidence", "nodes", "first, cpu s", "warm, ms", "verdict"]
    every = []
    for case in cases():
        if only in case.name:
            every += rows(case)
            print(*(f"{x:.4g}" if isinstance(x, float) else x for x in every[-1]), flush=True)
    print(report.table("Integrated hyperparameters against exact answers", header, every))
    if not only:
        report.save("integrated", {"header": header, "rows": every})


if __name__ == "__main__":
    main()
