"""Does it converge on models that are fine but hard? `python benchmarks/hard.py [--cases walk ...] [--seeds 3]`

For every case of `hard_models.py`: how many seeds converge, sweeps, the worst residual, the free energies of those that
converged, how many are named as misfits, and processor time. Rows of all
seeds replace those that are kept, as they come; `--resume` leaves out the cases that are.
"""

import argparse
import json
import time
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from hard_models import CASES, HardCase  # noqa: E402
from report import RESULTS, save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402

HEADER = ["case", "converged", "median sweeps", "most sweeps", "worst residual", "free energies, from",
          "to", "misfits", "reasons", "s of processor a run"]  # fmt: skip


def run(name: str, case: HardCase, seeds: int) -> list[Any]:
    program = ngmp.compile(case.model, **case.options)
    posts, spent = [], []
    for seed in range(seeds):
        inputs = case.inputs(seed)
        start = time.process_time()
        if case.restarts:
            post = ngmp.restarts(program, jax.random.key(seed), case.restarts, **inputs).best
        else:
            post = program(**inputs)
        jax.block_until_ready(post.free_energy)
        spent.append(time.process_time() - start)
        posts.append(post)
    sweeps = [int(p.sweeps) for p in posts]
    reasons = sorted({p.reason.splitlines()[0][:40] for p in posts if not bool(p.converged)})
    energies = [float(p.free_energy) for p in posts if bool(p.converged)] or [np.inf]
    assert all(np.isfinite(p.free_energy) or not bool(p.converged) for p in posts)
    return [
        name, f"{sum(bool(p.converged) for p in posts)} / {seeds}", float(np.median(sweeps)), max(sweeps),
        max(float(p.residual) for p in posts), min(energies), max(energies),
        sum(bool(p.misfits) for p in posts), "; ".join(reasons), float(np.median(spent[1:] or spent)),
    ]  # fmt: skip


def kept_rows() -> dict[str, list[Any]]:
    """The rows in `results/hard.json`, by case."""
    path = RESULTS / "hard.json"
    return {row[0]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", default=[""], help="parts of names")
    parser.add_argument("--seeds", type=int, default=None, help="at most so many of each; not kept")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        if not any(part in name for part in options.cases) or options.resume and name in kept_rows():
            continue
        rows.append(run(name, case, min(options.seeds or case.seeds, case.seeds)))
        print(*rows[-1], sep=" | ", flush=True)
        if options.seeds is None:
            kept = kept_rows() | {name: rows[-1]}  # read anew: another process may have added to them
            save("hard", {"header": HEADER, "rows": [kept[n] for n in CASES if n in kept]})
    print(table("Hard models", HEADER, rows))


if __name__ == "__main__":
    main()
