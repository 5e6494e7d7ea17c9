"""Can `converged` be trusted, and is it True? `python benchmarks/reliability.py [--quick] [--only NAME [--seed K]]`

The table is kept as it grows; `--resume` goes on with the templates that it lacks, and `--only` replaces its rows.

Thousands of random problems of the templates in `reliability_models.py`: one in five is an extreme corner. Each
template is one `jit(vmap(...))`, in float64 and again in float32, with the default options; the
reference is a run in float64 at tol 1e-12 on the very same numbers. A few problems are run again by an eager call.

What is counted, for every problem and precision:

- bad: a marginal that is improper or not finite, or a free energy or residual that is NaN. The bar is none.
- converged. The bar is 99.5 % of all. Priors are proper and likelihoods bounded, so every posterior is proper: no
  problem is left out as degenerate.
- error: of a converged run, the largest distance of a location from the reference, in scales of the reference (means in
  standard deviations, see `AbstractFamily.location_scale`), and of a squared scale, as a ratio. The bars are 1e-4 and
  1e-3 in float64, 1e-2 and 3e-2 in float32. A location that lies many scales from zero cannot be written down any
  better than to rounding: 16 units of the last place of it (of the largest entry of a vector, whose entries are found
  from each other) are forgiven, and how often that mattered is counted.
- another fixed point: the run is farther than that, but the reference, started at the leaves of the run, agrees with it
  to the same bars. More than that is wrong. The bar is none.
- unreferenced: the reference itself has converged neither in 500 sweeps, nor, from there, in 2,000 more to 1e-10
  (where many standard deviations of one edge are one rounding unit of another, 1e-12 is out of reach); the run cannot
  be judged. Seconds are of the processor, compilation included.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from reliability_draws import Draw, Template, rounded  # noqa: E402
from reliability_models import TEMPLATES  # noqa: E402
from report import RESULTS, save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_compiler.pipeline import Specialised  # noqa: E402
from ngmp_compiler.results.infer import posterior, settle  # noqa: E402
from ngmp_compiler.results.reports import LogGaussian  # noqa: E402
from ngmp_compiler.solve.solver import Solver  # noqa: E402

BARS = {np.float64: (1e-4, 1e-3), np.float32: (1e-2, 3e-2)}
TOLERANCES = {np.float64: 1e-8, np.float32: 1e-4}  # the library's own
SLOW = 2000  # sweeps of a reference that has not converged in 500
QUICK = ("Bernoulli regression", "volatility chain", "mean, precision, VMP", "conjugate pairs", "HMM")
HEADER = ["template", "dtype", "problems", "converged %", "sweeps", "bad", "wrong", "other fixed points",
          "unreferenced", "error, sd", "error, variance", "forgiven", "seconds"]  # fmt: skip


class Found(NamedTuple):
    """What a run of many lanes found, in numpy: locations, squared scales and sizes by name, flags, and the states."""

    places: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    good: np.ndarray
    converged: np.ndarray
    sweeps: np.ndarray
    state: Any


def problems(template: Template, seeds: list[int]) -> dict[str, Any]:
    """The inputs of the problems of these seeds, stacked."""
    each = [rounded(template.draw(Draw(seed))) for seed in seeds]
    return jax.tree.map(lambda *x: np.stack(x), *each)


def cast(tree: Any, dtype: Any) -> Any:
    """Floating arrays in another precision."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def call(program: ngmp.Program, inputs: dict[str, Any], init: Any = None) -> ngmp.Posterior:
    """One run; a template that carries has its priors in the carry."""
    if program.carried:
        return program.update(program.start(**inputs), inputs)[1]
    return program(**inputs, init=init)


def summary(post: ngmp.Posterior) -> tuple[Any, ...]:
    """What is kept of a posterior, under `vmap`."""
    good = ~jnp.isnan(post.free_energy) & ~jnp.isnan(post.residual)
    marginals = {name: q.log if isinstance(q, LogGaussian) else q for name, q in post.marginals.items()}
    for q in marginals.values():
        good &= jnp.all(q.is_proper())
        for x in q.location_scale():
            good &= jnp.all(jnp.isfinite(x))
    places = {}
    for name, q in marginals.items():
        location, square = q.location_scale()
        places[name] = location, square, jnp.max(jnp.abs(location), tuple(range(-q.event_ndim, 0)), keepdims=True)
    return places, good, post.converged, post.sweeps, post.state


class Lanes:
    """All problems of a template, one compiled program for each precision: where to start and stop are arguments."""

    def __init__(self, template: Template, width: int):
        self.width = width
        self.program = ngmp.compile(template.model, **template.options)
        self._run = jax.jit(jax.vmap(self._one, (0, 0, None, None, None)))

    def _one(self, inputs: dict[str, Any], leaves: Any, fresh: Any, tol: Any, most: Any) -> tuple[Any, ...]:
        if self.program.carried:  # its priors are in the carry
            return summary(call(self.program, inputs))
        given = self.program.specialise(**inputs).solver
        start = jax.tree.map(lambda a, b: jnp.where(fresh, a, b), given.map.initial(), leaves)
        solver = Solver(given.map, given.step, most, tol, given.blocks)
        return summary(posterior(Specialised(solver), settle(solver, start)))

    def __call__(self, inputs: dict[str, Any], leaves: Any = None, tol: float = 1e-8, most: int = 500) -> "Found":
        """From the start of the library, or from given leaves."""
        if leaves is None and not self.program.carried:
            like = jax.eval_shape(jax.vmap(lambda x: self.program.init(**x).leaves), inputs)
            started = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        else:
            started = leaves
        tol, total = jnp.asarray(tol, _dtype(inputs)), len(jax.tree.leaves(inputs)[0])
        rounds = []
        for at in range(0, total, self.width):  # the slowest of some sets the pace of all that run beside it
            lanes = np.arange(at, at + self.width).clip(max=total - 1)
            some = jax.tree.map(lambda x, lanes=lanes: x[lanes], (inputs, started))
            rounds.append(found(self._run(*some, leaves is None, tol, most)))
        return jax.tree.map(lambda *x: np.concatenate(x)[:total], *rounds)


def _dtype(tree: Any) -> Any:
    """That of the floating arrays."""
    return jnp.result_type(*(x.dtype for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)))


def found(result: tuple[Any, ...]) -> Found:
    return Found(*jax.tree.map(np.asarray, jax.block_until_ready(result)))


def distance(a: Found, b: Found, eps: float) -> np.ndarray:
    """Errors (lanes, 3) of a from b: of locations in scales, less what rounding forgives, of squared scales; raw."""
    out = []
    for name, (location, square, size) in b.places.items():
        own, own_square, _ = (np.asarray(x, np.float64) for x in a.places[name])
        with np.errstate(all="ignore"):
            gap = np.abs(own - location)
            scale = np.sqrt(square)
            less = np.maximum(gap - 16 * eps * size, 0.0) / scale
            each = [less, np.abs(own_square / square - 1.0), gap / scale]
        out.append(np.stack([np.nan_to_num(x, nan=np.inf).reshape(len(x), -1).max(1) for x in each], 1))
    return np.max(out, axis=0)


class Judge:
    """The reference of one template: runs in float64 to 1e-12, or, from where these end, to 1e-10."""

    def __init__(self, lanes: Lanes, inputs: dict[str, Any]):
        self.inputs, self.lanes = inputs, lanes
        self.carried = bool(lanes.program.carried)
        self.cold = lanes(inputs, tol=1e-12)
        rows = np.flatnonzero(~self.cold.converged)
        if len(rows) and not self.carried:  # slow ones go on from where they are
            self._replace(rows, self.warm(rows, self.cold.state))

    def warm(self, rows: np.ndarray, state: Any) -> Found:
        """The reference of some problems, started at the leaves of a run of all."""
        inputs, leaves = jax.tree.map(lambda x: x[rows], (self.inputs, cast(state.leaves, np.float64)))
        return self.lanes(inputs, leaves, tol=1e-10, most=SLOW)

    def _replace(self, rows: np.ndarray, warm: Found) -> None:
        def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            old = old.copy()
            old[rows] = new
            return old

        self.cold = jax.tree.map(put, self.cold, warm)


def judge(name: str, dtype: Any, run: Found, judge: Judge, seeds: np.ndarray, seconds: float) -> dict[str, Any]:
    """The row of one template in one precision, with the seeds of everything that went wrong."""
    bars, eps = BARS[dtype], float(np.finfo(dtype).eps)
    known = run.converged & run.good & judge.cold.converged
    errors = distance(run, judge.cold, eps)
    far = known & (errors[:, :2] > np.array(bars)).any(1)
    other = np.zeros_like(far)
    rows = np.flatnonzero(far | (run.converged & run.good & ~judge.cold.converged))
    if len(rows) and not judge.carried:
        again = judge.warm(rows, run.state)
        near = jax.tree.map(lambda x: x[rows], run)
        gaps = distance(near, again, eps)
        other[rows] = again.converged & (gaps[:, :2] <= np.array(bars)).all(1)
    wrong = far & ~other
    near = known & ~far
    lists = {"bad": ~run.good, "not converged": ~run.converged & run.good, "wrong": wrong, "other": other,
             "unreferenced": run.converged & ~judge.cold.converged & ~other}  # fmt: skip
    worst = errors[near].max(0) if near.any() else np.zeros(3)
    return {
        "template": name, "dtype": np.dtype(dtype).name, "problems": len(seeds),
        "converged": int(run.converged.sum()), "sweeps": float(np.median(run.sweeps)), "error": float(worst[0]),
        "variance error": float(worst[1]), "forgiven": int((near & (errors[:, 2] > bars[0])).sum()),
        "seconds": seconds, "seeds": {k: seeds[rows].tolist() for k, rows in lists.items()},
    }  # fmt: skip


def alone(program: ngmp.Program, inputs: dict[str, Any], run: Found, count: int) -> int:
    """How many of the first problems an eager call answers otherwise than a lane that has converged.

    Where the lane has not, an eager call goes on with other solvers, and may.
    """
    differ = 0
    for k in range(count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ngmp.ConvergenceWarning)
            post = call(program, jax.tree.map(lambda x, k=k: x[k], inputs))
        one = jax.tree.map(lambda x: np.asarray(x)[None], Found(*summary(post)))
        lane = jax.tree.map(lambda x, k=k: x[k : k + 1], run)
        far = distance(one, lane, float(np.finfo(np.float64).eps))[0, :2] > 1e-5
        differ += int(lane.converged[0] and (far.any() or not one.converged[0]))
    return differ


def study(name: str, seeds: list[int], eager: int = 0) -> list[dict[str, Any]]:
    """Both precisions of one template."""
    template, seeds = TEMPLATES[name], sorted(seeds, key=lambda s: not Draw(s).corner)  # the corners beside each other
    inputs, rows, runs, each = problems(template, seeds), [], {}, Lanes(template, -(-len(seeds) // 5))
    for dtype, tol in TOLERANCES.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the whole model is computed in float32")
            runs[dtype] = each(cast(inputs, dtype), tol=tol), time.process_time() - start
    differ = alone(each.program, inputs, runs[np.float64][0], eager)
    reference = Judge(each, cast(inputs, np.float64))
    for dtype, (run, seconds) in runs.items():
        rows.append(judge(name, dtype, run, reference, np.asarray(seeds), seconds))
    rows[0]["eager differs"] = differ
    return rows


def line(row: dict[str, Any]) -> list[Any]:
    count = {k: len(v) for k, v in row["seeds"].items()}
    return [row["template"], row["dtype"], row["problems"], 100.0 * row["converged"] / row["problems"], row["sweeps"],
            count["bad"], count["wrong"], count["other"], count["unreferenced"], row["error"], row["variance error"],
            row["forgiven"], row["seconds"]]  # fmt: skip


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over all rows, and whether they pass."""
    sums: dict[str, Any] = {k: sum(len(r["seeds"][k]) for r in rows) for k in rows[0]["seeds"]}
    sums["problems"] = sum(r["problems"] for r in rows)
    sums["eager differs"] = sum(r.get("eager differs", 0) for r in rows)
    share = sum(r["converged"] for r in rows) / sums["problems"]
    bars = {"bad": sums["bad"] == 0, "converged": share >= 0.995, "wrong": sums["wrong"] == 0,
            "eager": sums["eager differs"] == 0}  # fmt: skip
    return {**sums, "converged": share, "pass": bars}


def kept() -> list[dict[str, Any]]:
    """The rows of the table as it was kept."""
    path = RESULTS / "reliability.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def keep(rows: list[dict[str, Any]]) -> Path:
    """Keep the rows in the order of the templates."""
    order = list(TEMPLATES)
    rows = sorted(rows, key=lambda r: (order.index(r["template"]), r["dtype"] != "float64"))
    return save("reliability", {"totals": totals(rows), "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five templates of 40 problems; not kept")
    parser.add_argument("--only", nargs="*", help="names of templates")
    parser.add_argument("--seed", type=int, nargs="*", help="only these problems of each; not kept")
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed; others than before are fresh problems")
    parser.add_argument("--eager", type=int, default=0, help="problems of each that are run again by an eager call")
    parser.add_argument("--templates", help="A:B, only the A-th to the one before the B-th of the templates")
    parser.add_argument("--resume", action="store_true", help="leave out the templates that are in the table")
    options = parser.parse_args()
    chunk = slice(*(int(x) if x else None for x in (options.templates or ":").split(":")))
    names = options.only or list(QUICK if options.quick else TEMPLATES)[chunk]
    count = min(options.problems, 40) if options.quick else options.problems
    rows = kept() if options.resume or options.only or options.templates else []
    if options.resume:
        names = [name for name in names if name not in {r["template"] for r in rows}]
    for name in names:
        new = study(name, options.seed or list(range(options.first, options.first + count)), options.eager)
        for row in new:
            print(*(f"{x:.3g}" if isinstance(x, float) else x for x in line(row)), sep=" | ", flush=True)
            print("   ", {k: v[:12] for k, v in row["seeds"].items() if v}, flush=True)
        rows = [r for r in rows if r["template"] != name] + new
        if not (options.quick or options.seed):
            keep(rows)
        jax.clear_caches()
    print(table("Reliability", HEADER, [line(r) for r in rows]))
    sums = totals(rows)
    print(sums, "PASS" if all(sums["pass"].values()) else "FAIL")


if __name__ == "__main__":
    main()
