"""Rows of the ETTh study, one for each arm and cell: kept as they come, scored, compared in pairs, put in tables.

Rows (log-density, mean and variance of every test window) are kept in NGMP_CACHE, by cell, context and arm, so that a
long run may be interrupted and resumed. Delete the folder `etth_rows` there to begin anew.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import etth_published as published
import numpy as np
from etth_arms import Forecast
from report import table

from ngmp_models import etth

WEEK = 7 * 24
STORED = "PVMP, stored precisions"
REFERENCES = ((STORED, "published"), ("PVMP, 500 sweeps", None))  # None: the context of the arm that is compared

Key = tuple[str, str]  # arm, context


def folder() -> Path:
    return Path(os.environ.get("NGMP_CACHE", Path.home() / ".cache" / "ngmp_compiler")) / "etth_rows"


def _path(where: Path, task: etth.Cell, key: Key) -> Path:
    return where / f"{task.dataset}_{task.horizon}_{key[1]}_{key[0].replace(' ', '_').replace(',', '')}.npz"


def keep(where: Path, task: etth.Cell, keys: list[Key], make: Callable[[], list[Forecast]]) -> None:
    """Make the rows of some arms, unless they are there."""
    if all(_path(where, task, key).exists() for key in keys):
        return
    begin = time.process_time()
    found = [Forecast(*(np.asarray(x) for x in f[:3]), f.note) for f in make()]
    seconds = time.process_time() - begin
    where.mkdir(parents=True, exist_ok=True)
    for key, f in zip(keys, found, strict=True):
        print(f"   {', '.join(key)}: NLL {-np.mean(f.log_density):.4f}, {seconds:.0f} s. {f.note}", flush=True)
        np.savez(_path(where, task, key), **f._asdict(), seconds=seconds)


def load(where: Path, task: etth.Cell, key: Key) -> tuple[Forecast, float] | None:
    path = _path(where, task, key)
    if not path.exists():
        return None
    with np.load(path) as kept:
        rows = Forecast(kept["log_density"], kept["mean"], kept["variance"], str(kept["note"]))
        return rows, float(kept["seconds"])


def scores(where: Path, task: etth.Cell, keys: list[Key]) -> dict[str, Any]:
    """Of all arms of a cell that are there, by "arm, context"."""
    y, found = task.y[task.fitted :], {}
    for arm, context in keys:
        rows = load(where, task, (arm, context))
        if rows is None:
            continue
        (forecast, seconds), own = rows, {}
        loss, square = -forecast.log_density, (forecast.mean - y) ** 2
        rmse = float(np.sqrt(square.mean()))
        own = {"nll": mean_and_half(loss), "rmse": [rmse, *(h / 2 / rmse for h in mean_and_half(square)[1:])],
               "within one sd": float(np.mean(square < forecast.variance)), "seconds": seconds,
               "note": forecast.note}  # fmt: skip
        for name, place in REFERENCES:
            other = load(where, task, (name, place or context))
            if other is not None and name != arm:
                own[f"less {name}"] = {"nll": mean_and_half(loss + other[0].log_density),
                                       "square": mean_and_half(square - (other[0].mean - y) ** 2)}  # fmt: skip
        found[f"{arm}; {context}"] = own
    return found


def mean_and_half(x: np.ndarray) -> list[float]:
    """Mean, half the width of its interval as published, and by means of weeks."""
    weeks = x[: len(x) // WEEK * WEEK].reshape(-1, WEEK).mean(1)
    return [float(x.mean()), *(float(1.96 * a.std(ddof=1) / np.sqrt(len(a))) for a in (x, weeks))]


def tables(cells: dict[str, Any]) -> str:
    """NLL, RMSE and paired differences of NLL, by arm and cell."""
    names = [f"{d}/{h}" for d, h in published.CELLS if f"{d}/{h}" in cells]
    places = [i for i, (d, h) in enumerate(published.CELLS) if f"{d}/{h}" in cells]
    best, lines = [published.BEST[i] for i in places], []
    keys = list(dict.fromkeys(key for own in cells.values() for key in own))
    for i, measure in enumerate(("nll", "rmse")):
        rows: list[list[Any]] = [[f"{k}, published", *(v[i][j] for j in places), ""] for k, v in published.ROWS.items()]
        for key in keys:
            own = [cells[c].get(key) for c in names]
            text = ["" if x is None else f"{x[measure][0]:.4f} ± {x[measure][1]:.4f}" for x in own]
            below = sum(x is not None and x["nll"][0] < b for x, b in zip(own, best, strict=True))
            rows.append([key, *text, "" if i else f"{below} of {sum(x is not None for x in own)}"])
        lines.append(table(f"{measure.upper()}, test windows", ["arm; context", *names, "below best published"], rows))
    for reference, _ in REFERENCES:
        rows = []
        for key in keys:
            own = [cells[c].get(key, {}).get(f"less {reference}") for c in names]
            if any(own):
                rows.append([key, *(f"{x['nll'][0]:.3f} ± {x['nll'][2]:.3f}" if x else "" for x in own)])
        lines.append(table(f"NLL less that of {reference}, intervals by weeks", ["arm; context", *names], rows))
    return "\n".join(lines)
