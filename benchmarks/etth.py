r"""The paper's largest study: seven frozen forecasters of an oil temperature, weighed by gates that read a context.

    python benchmarks/etth.py                  # eight cells, both contexts, the online protocol; what is there is kept
    python benchmarks/etth.py --quick          # two cells, principal components, nothing kept
    python benchmarks/etth.py --only online    # parts; --arms takes words of names of arms
    python benchmarks/etth.py --pictures docs  # a week of forecasts of every cell

Needs NGMP_DATA, and for PVMP as published its stored results (fetched, or in NGMP_CACHE). Gates are fitted on
validation windows and judged on test windows, as published; all arms of ours have the same context (the autoencoder of
`etth_context`, or principal components), so that only the inference differs. Settings are chosen inside of validation.
Intervals are 1.96 standard errors as published, and, for paired differences, those of means over weeks, because errors
of neighbouring hours are nearly one number. Seconds are of processor time, compiling included.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import jax

jax.config.update("jax_enable_x64", True)

import etth_published as published  # noqa: E402
import numpy as np  # noqa: E402
from etth_arms import (  # noqa: E402
    Fold,
    Forecast,
    best_single,
    equal_weights,
    folds,
    gate_arms,
    gated,
    gaussian,
)
from etth_context import autoencoded  # noqa: E402
from etth_online import compiled, online  # noqa: E402
from etth_optimisers import chosen  # noqa: E402
from etth_pictures import week  # noqa: E402
from etth_report import STORED, Key, folder, keep, load, scores, tables  # noqa: E402
from report import save  # noqa: E402

from ngmp_models import etth, precision_gated  # noqa: E402

CONTEXTS: dict[str, Callable[[etth.Cell], np.ndarray]] = {"vae": autoencoded, "pca": etth.principal_components}
PARTS = ["published", "online", *CONTEXTS]
ONLINE = ("chosen", "mixture", "chosen, strict", "mixture, strict")
SLOW = ("NGMP, joint edges", "NGMP, beta integrated")
DRAWN: list[Key] = [
    (STORED, "published"),
    ("PVMP, 500 sweeps", "vae"),
    ("NGMP, converged", "vae"),
    ("mixture", "online"),
]


def stored(task: etth.Cell) -> Forecast:
    """The published PVMP row from its precisions and our copies of the experts."""
    fused = precision_gated.fuse(published.stored_precisions(task.dataset, task.horizon), task.forecasts[task.fitted :])
    return Forecast(gaussian(task.y[task.fitted :], fused.mean, fused.variance), fused.mean, fused.variance)


def arms() -> dict[str, Callable[[Fold, Fold], Forecast]]:
    """Of the published protocol on a context: given the whole fold, and the one inside of validation."""
    gates = {name: lambda whole, _, run=run: gated(run, whole) for name, run in gate_arms().items()}
    trained = {
        f"{kind}, {'ReLU' if relu else 'affine'}": lambda whole, part, k=kind, r=relu: chosen(k, r, whole, part)
        for kind, relu in product(("Adam", "IVON"), (False, True))
    }
    plain = {"best single expert": best_single, "equal weights": equal_weights}
    return {name: lambda whole, _, run=run: run(whole) for name, run in plain.items()} | gates | trained


def blocks(
    every: dict[str, Any], filter: Any, part: str
) -> list[tuple[list[Key], Callable[[etth.Cell], list[Forecast]]]]:
    """What is made in one go: arms, and their forecasts in a cell."""
    if part == "published":
        return [([(STORED, part)], lambda task: [stored(task)])]
    if part == "online":
        return [([(k, part) for k in ONLINE], lambda task: online(filter, task))]
    features = cache(lambda dataset, horizon: CONTEXTS[part](etth.cell(dataset, horizon)))
    own = lambda task, run: [run(*folds(task, features(task.dataset, task.horizon)))]  # noqa: E731
    return [([(name, part)], lambda task, run=run: own(task, run)) for name, run in every.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two cells, nothing kept, without the two slowest arms")
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS, help="parts; none prints what is there")
    parser.add_argument("--arms", nargs="*", default=[""], help="words of their names")
    parser.add_argument("--pictures", type=Path, help="a folder for a week of forecasts of every cell that is there")
    given = parser.parse_args()
    where = Path(tempfile.mkdtemp()) if given.quick else folder()
    # By horizon, so that the second data set finds everything compiled.
    todo = [etth.cell(d, h) for h in etth.HORIZONS[: 1 if given.quick else None] for d in etth.DATASETS]
    every, filter = arms(), compiled()
    parts = {part: blocks(every, filter, part) for part in PARTS}
    keys = [key for own in parts.values() for names, _ in own for key in names]
    for task, part in product(todo, [p for p in given.only if not (given.quick and p == "vae")]):
        print(task.dataset, task.horizon, part, flush=True)
        for names, make in parts[part]:
            wanted = any(word in names[0][0] for word in given.arms) and not (given.quick and names[0][0] in SLOW)
            if wanted:
                keep(where, task, names, lambda make=make, task=task: make(task))
    cells = {f"{task.dataset}/{task.horizon}": scores(where, task, keys) for task in todo}
    if not given.quick:
        save("etth", {"cells": cells})
    if given.pictures is not None:
        for task in todo:
            shown = {", ".join(key): load(where, task, key) for key in DRAWN}
            week(task, {name: rows[0] for name, rows in shown.items() if rows is not None}, given.pictures)
    print(tables(cells))


if __name__ == "__main__":
    main()
