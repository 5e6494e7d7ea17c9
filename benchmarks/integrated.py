"""Integrated hyperparameters against exact answers: `python benchmarks/integrated.py [--only substring]`.

For every model and hyperparameter: |z| of the mean, in posterior standard deviations; the ratio of standard deviations;
how far the 5 % and 95 % quantiles are off, in standard deviations; the error of the log-evidence; nodes; processor time
of the first call and wall time of a warm one. Exact answers are brute-force grids (`integrated_cases.py`,
`integrated_more.py`), or long runs of NumPyro's NUTS (marked ~: no evidence, and means to about 0.02); they are kept in
`results/integrated_references.json`, and computed anew with --again. PASS: |z| <= 0.05, ratio 0.95-1.05, quantiles
within 0.05, evidence within 0.05 nats. Variables of the graph (marked *) are held to the same bars.
"""

import argparse
import json
import time
from typing import Any

import jax
import numpy as np
from scipy.interpolate import CubicSpline

jax.config.update("jax_enable_x64", True)

import report  # noqa: E402
from integrated_cases import Case, cases  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

_CHUNK = 4096


def exact(case: Case) -> tuple[float, dict[str, tuple[float, float, float, float]]]:
    """The log-evidence, and mean, standard deviation, 5 % and 95 % point of every axis, by Gregory's rule."""
    axes = list(case.grid.values())
    points = np.stack([x.reshape(-1) for x in np.meshgrid(*axes, indexing="ij")], -1)
    batch = jax.jit(jax.vmap(lambda p: case.log_joint(*p)))
    log = np.concatenate([np.asarray(batch(points[i : i + _CHUNK])) for i in range(0, len(points), _CHUNK)])
    log = np.where(np.isnan(log), -np.inf, log).reshape([len(x) for x in axes])  # far off
    for axis, x in enumerate(axes):
        log = log + np.log(_widths(x)).reshape([-1 if k == axis else 1 for k in range(len(axes))])
    total = np.logaddexp.reduce(log.reshape(-1))
    weights = np.exp(log - total)
    out = {}
    for axis, (name, x) in enumerate(case.grid.items()):
        w = weights.sum(tuple(k for k in range(len(axes)) if k != axis))
        mean = (w * x).sum()
        out[name] = (mean, np.sqrt((w * (x - mean) ** 2).sum()), *_tails(x, w))
    return float(total), out


def _widths(x: np.ndarray) -> np.ndarray:
    """Weights of the points of a grid: the trapezoidal rule with Gregory's corrections, for grids that begin where the
    density does not vanish, at a scale of zero; of integers, ones."""
    if np.allclose(np.diff(x), 1.0):
        return np.ones(len(x))
    ends = np.ones(len(x))
    ends[:3] = ends[:-4:-1] = 3 / 8, 7 / 6, 23 / 24
    return np.gradient(x, edge_order=2) * ends


def _tails(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The 5 % and 95 % points of masses on a grid, by splines between its points: straight lines are off
    by 0.15 standard deviations where points are half of one apart."""
    if not np.allclose(np.diff(x), 1.0):
        at, fine = np.arange(len(x)), np.linspace(0, len(x) - 1, 40 * (len(x) - 1) + 1)
        height = w * np.gradient(x, edge_order=2) / _widths(x)
        x, w = CubicSpline(at, x)(fine), np.exp(CubicSpline(at, np.log(np.maximum(height, 1e-30)))(fine))
        w = w / w.sum()
    return np.interp([0.05, 0.95], np.cumsum(w) - 0.5 * w, x)


def sampled(case: Case) -> tuple[float, dict[str, tuple[float, float, float, float]]]:
    """The same by NUTS on everything: four chains of 2,000 warm-up and 20,000 kept draws; no evidence."""
    import numpyro
    from numpyro.infer import MCMC, NUTS

    del numpyro
    kernel = NUTS(case.everything, target_accept_prob=0.95)
    mcmc = MCMC(kernel, num_warmup=2000, num_samples=20000, num_chains=4, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0), **case.inputs)
    draws = {name: np.asarray(mcmc.get_samples()[name]) for name in case.grid}
    return float("nan"), {k: (x.mean(), x.std(), *np.quantile(x, [0.05, 0.95])) for k, x in draws.items()}


def reference(case: Case, again: bool) -> tuple[float, dict[str, tuple[float, float, float, float]]]:
    """The exact answer, from the file if it is there."""
    path = report.RESULTS / "integrated_references.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if again or case.name not in kept:
        evidence, moments = exact(case) if case.log_joint else sampled(case)
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[case.name] = {"evidence": evidence, "moments": {k: [float(x) for x in v] for k, v in moments.items()}}
        path.write_text(json.dumps(kept, indent=1) + "\n")
    return kept[case.name]["evidence"], kept[case.name]["moments"]


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


def rows(case: Case, again: bool = False) -> list[list[Any]]:
    evidence, exactly = reference(case, again)
    own = found(case)
    out = []
    for name, (mean, sd, low, high) in exactly.items():
        m, s, a, b = own["moments"][name]
        z, ratio, tails = abs(m - mean) / sd, s / sd, max(abs(a - low), abs(b - high)) / sd
        error = own["evidence"] - evidence
        near = z <= 0.05 and 0.95 <= ratio <= 1.05 and tails <= 0.05
        good = near and not abs(error) > 0.05 and own["converged"]  # NaN: there is no exact evidence
        star = "*" * (name in case.latent) + "~" * (case.log_joint is None)
        verdict = "PASS" if good else "FAIL" if own["converged"] else "flagged"
        times = own["first"], 1e3 * own["warm"]
        out.append([case.name, name + star, z, ratio, tails, error, own["nodes"], *times, verdict])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--again", action="store_true", help="compute the exact answers anew")
    parser.add_argument("--references", action="store_true", help="compute nothing else")
    asked = parser.parse_args()
    header = ["model", "unknown", "z", "ratio", "tails", "evidence", "nodes", "first, cpu s", "warm, ms", "verdict"]
    path = report.RESULTS / "integrated.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    for case in cases():
        if asked.only not in case.name:
            continue
        if asked.references:
            print(case.name, reference(case, asked.again), flush=True)
            continue
        every = rows(case, asked.again)
        for row in every:
            print(*(f"{x:.4g}" if isinstance(x, float) else x for x in row), flush=True)
        kept = [row for row in kept if row[0] != case.name] + every  # those of other models stay as they were
        report.save("integrated", {"header": header, "rows": kept})
    print(report.table("Integrated hyperparameters against exact answers", header, kept))


if __name__ == "__main__":
    main()
