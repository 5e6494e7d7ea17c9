"""Compiled programs against hand-lowered code, C and peers: `python benchmarks/speed.py [--quick] [--only WORD]`

Every contestant answers the same question in one process, in turn, round after round (short calls several to a turn,
slow contestants in the first three rounds only). A row gives the median time of a call, how many times longer the
contestant takes than ours, the first call (trace, compile, run) and the errors against an exact answer, the largest and
the root of the mean square. In one thread it is the processor time of the process, which other jobs on the machine
disturb least; with all threads, time on the wall. Arms: one thread and all threads, double and single precision, each
in a process of its own. Contestants that iterate our map must give our answer, to 1e-8 in double precision.

Peers (dynamax, cuthbert, NumPyro, BlackJAX, BayesPy) are left out, with a message, where they are not installed:
`pip install -e ".[bench]"`. `--quick` leaves out the slow ones, which need seconds to compile, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARMS = {"1 thread, float64": (1, 64), "all threads, float64": (0, 64), "1 thread, float32": (1, 32)}
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
HEADER = ["model", "contestant", "ms", "ours is faster by", "first call, s", "largest error", "rms error"]


def one_processor() -> None:
    """Before jax is imported: XLA splits every large operation over the processors that it may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def agreement(ours: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference of two answers, relative to the size of what is compared."""
    import numpy as np
    from speed_exact import probabilities, summary

    if "probs" in other or "classes" in other:
        return float(np.abs(probabilities(ours) - probabilities(other)).max())
    a, b = summary(ours), summary(other)
    return float(max(np.abs(x - y).max() / (1 + np.abs(x).max()) for x, y in zip(a, b, strict=True)))


def run_case(case: Any, seconds: float, precise: bool, clock: Callable[[], float]) -> list[list[Any]]:
    """The rows of a case: contestants take turns, at least five rounds, until those of every round used up the time.

    A turn is one call that is not timed and as many more as fit in ten milliseconds, at least one: a single call would
    find the caches full of what the contestant before it left there, and fetch every page of its memory anew.
    """
    import jax
    import numpy as np

    first, answers, times, spent = {}, {}, {name: [] for name in case.contestants}, 0.0
    calls = dict.fromkeys(case.contestants, 1)
    for name, contestant in case.contestants.items():
        marks = [time.perf_counter()]
        for _ in range(2 if contestant.rounds is None else 1):
            answers[name] = jax.block_until_ready(contestant.call())
            marks.append(time.perf_counter())
        first[name] = marks[1] - marks[0]
        if contestant.rounds is None:
            calls[name] = max(1, round(0.01 / (marks[2] - marks[1])))
    while spent < seconds or len(times["ours"]) < 5:
        for name, contestant in case.contestants.items():
            if contestant.rounds is not None and len(times[name]) >= contestant.rounds:
                continue
            wall = time.perf_counter()
            if contestant.rounds is None:  # memory that the contestant before it gave back is got again, untimed
                jax.block_until_ready(contestant.call())
            start = clock()
            for _ in range(calls[name]):
                jax.block_until_ready(contestant.call())
            times[name].append((clock() - start) / calls[name])
            spent += time.perf_counter() - wall if contestant.rounds is None else 0.0
    rows = []
    for name, contestant in case.contestants.items():
        if contestant.agrees and precise:
            gap = agreement(answers["ours"], answers[name])
            assert gap < 1e-8, f"{case.title}: {name} differs from ours by {gap:.1e}"
        ms, ours = (1e3 * float(np.median(times[n])) for n in (name, "ours"))
        rows.append([case.title, name, ms, ms / ours, first[name], *case.error(answers[name])])
    return rows


def worker(threads: int, bits: int, quick: bool, only: str, out: str) -> None:
    """Run all cases in this process and write their rows."""
    if threads == 1:
        one_processor()
    import jax

    jax.config.update("jax_enable_x64", bits == 64)
    import numpy as np
    import speed_cases

    rows, errors, clock = [], {}, time.process_time if threads == 1 else time.perf_counter
    for make in speed_cases.cases(np.float64 if bits == 64 else np.float32, quick):
        case = make()
        if only in case.title:
            rows += run_case(case, 1.5 if quick else 6.0, bits == 64, clock)
            errors[case.title] = case.error_of
            print(f"  {case.title}: done", flush=True)
    Path(out).write_text(json.dumps({"rows": rows, "errors are": errors}))


def figure(found: dict[str, Any], path: Path) -> None:
    """How many times longer than ours every contestant takes, by model, and its rms error; bars start at one."""
    from matplotlib.figure import Figure

    models, lines, labels = [], {}, []  # a line for every contestant; that of ours bears the name of the model
    for arm in found.values():
        models += [row[0] for row in arm["rows"] if row[0] not in models]
    for model in models:
        for row in (r for arm in found.values() for r in arm["rows"] if r[0] == model and (model, r[1]) not in lines):
            lines[model, row[1]] = len(labels)
            labels.append(f"{model if row[1] == 'ours' else row[1]}  [{row[6]:.1g}]")
    fig = Figure(figsize=(9, 1.2 + 0.24 * len(labels)), dpi=110, layout="constrained")
    axes, height = fig.subplots(), 0.8 / len(found)
    reach = {}  # of the bars of a line
    for number, (arm, colour) in enumerate(zip(found, ("#1f5fa8", "#e39c37", "#7f7f7f"), strict=False)):
        ratios = {lines[r[0], r[1]]: r[3] for r in found[arm]["rows"] if r[1] != "ours"}
        at = [line - 0.4 + height * (number + 0.5) for line in ratios]
        axes.barh(at, [r - 1 for r in ratios.values()], height, left=1.0, color=colour, label=arm)
        for line, ratio in ratios.items():
            reach.setdefault(line, []).append(ratio)
    for line, ratios in reach.items():
        end, side, shift = (max(ratios), "left", 3) if ratios[0] > 1 else (min(ratios), "right", -3)
        text = f"{float(f'{ratios[0]:.2g}'):g}"
        axes.annotate(text, (end, line), (shift, 0), textcoords="offset points", ha=side, va="center", fontsize=7)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    for (_, name), tick in zip(lines, axes.get_yticklabels(), strict=True):
        tick.set_fontweight("bold" if name == "ours" else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels), -1)
    axes.margins(x=0.08)
    fig.suptitle(f"Time over that of ours (figures: {next(iter(found))}); in brackets, the rms error", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    fig.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one thread, double precision, short chains")
    parser.add_argument("--only", default="", help="cases whose title contains this")
    parser.add_argument("--arm", default="", help="arms whose name contains this, such as 'float32'")
    parser.add_argument("--worker", nargs=3, metavar=("THREADS", "BITS", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        threads, bits, out = args.worker
        return worker(int(threads), int(bits), args.quick, args.only, out)
    from report import RESULTS, save, table

    first = next(iter(ARMS))
    arms = {arm: v for arm, v in ARMS.items() if (arm == first if args.quick else args.arm in arm)}
    found = {}
    for arm, (threads, bits) in arms.items():
        print(arm, flush=True)
        out = Path(tempfile.mkdtemp()) / "rows.json"
        environment = {**os.environ, "XLA_FLAGS": ONE_THREAD if threads == 1 else ""}
        if threads == 1:
            environment["OPENBLAS_NUM_THREADS"] = "1"  # scipy's BLAS, which XLA calls, has threads of its own
        options = ["--worker", str(threads), str(bits), str(out), "--only", args.only] + ["--quick"] * args.quick
        subprocess.run([sys.executable, __file__, *options], env=environment, check=True)
        found[arm] = json.loads(out.read_text())
        print(table(arm, HEADER, found[arm]["rows"]))
    name = "speed" + ("_quick" if args.quick else "")
    print("saved", save(name, {"header": HEADER, "arms": found}))
    figure(found, RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
