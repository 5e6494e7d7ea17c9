"""The whole gallery, `ngmp_models`, against NUTS on the same data, or against exact answers where there are some.

    python benchmarks/gallery.py [--only substring] [--resume] [--reference]

For every model: whether it converged; the largest |z|, the difference of means in posterior standard deviations, over
all unknowns; the ratios of standard deviations, smallest and largest; processor seconds of the first call, tracing and
compilation included, and of a warm one, and those of NUTS (NumPyro; one chain, 1000 steps of warm-up and 1000 draws,
compilation included). A row is right within |z| <= 0.15 and ratios 0.85 to 1.15; of one that is not, the last column
has what the program itself says of it: its approximations, its reason, and the verdict of `program.check`.

Rows are kept in results/gallery.json as they come; `--resume` measures those that are not there yet, and prints all.
References are kept in results/gallery_reference.json; `--reference` makes them anew (seeds and lengths of the runs are
in `gallery_case.py`), which needs NumPyro and about half an hour.
"""

import argparse
import json
import time
from typing import Any

import gallery_classes
import gallery_groups
import gallery_regressions
import gallery_series
import jax
import numpy as np
import report
from gallery_case import Case, reference

import ngmp_compiler as ngmp

REFERENCE, KEPT = report.RESULTS / "gallery_reference.json", report.RESULTS / "gallery.json"
HEADER = "kind model against worked right z low high sweeps first warm nuts said".split()
KINDS = {
    "regression": gallery_regressions.regressions, "hierarchies": gallery_regressions.hierarchies,
    "psychometrics": gallery_groups.psychometrics, "survival": gallery_groups.survival,
    "series": gallery_series.series, "volatility": gallery_series.volatility, "space": gallery_groups.space,
    "discrete": gallery_classes.discrete, "mixtures": gallery_classes.mixtures, "networks": gallery_groups.networks,
    "control": gallery_series.control,
}  # fmt: skip


def cases() -> list[tuple[str, Case]]:
    """Every model with its kind."""
    return [(kind, case) for kind, make in KINDS.items() for case in make()]


def references() -> dict[str, Any]:
    """What is kept of the references, by model."""
    return json.loads(REFERENCE.read_text())["models"] if REFERENCE.exists() else {}


def moments(marginal: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation; of classes, their probabilities and those of the indicators."""
    if hasattr(marginal, "probs"):
        p = np.asarray(marginal.probs)
        return p, np.sqrt(p * (1 - p))
    mean, variance = np.asarray(marginal.mean), np.asarray(marginal.variance)
    if variance.ndim > mean.ndim:
        variance = np.diagonal(variance, axis1=-2, axis2=-1)
    return mean, np.sqrt(variance)


def compare(post: ngmp.Posterior, expected: dict[str, Any]) -> dict[str, list[float]]:
    """By unknown: the largest |z|, and the smallest and largest ratio."""
    out = {}
    for name, (mean, std) in expected.items():
        if name in post.marginals:
            m, s = (x.reshape(np.shape(mean)) for x in moments(post[name]))
            z = np.abs(m - mean) / np.maximum(std, 1e-6)
            ratio = np.maximum(s, 1e-6) / np.maximum(std, 1e-6)
            out[name] = [float(z.max()), float(ratio.min()), float(ratio.max())]
    return out


def right(unknowns: dict[str, list[float]]) -> bool:
    return all(z <= 0.15 and low >= 0.85 and high <= 1.15 for z, low, high in unknowns.values())


def said(program: ngmp.Program, case: Case, post: ngmp.Posterior) -> str:
    """What a program says of a posterior that is off."""
    words = [str(post.reason)] if post.reason else []
    words += [f"{len(post.approximate)} approximations named"] if post.approximate else []
    try:
        verdict = program.check(post, jax.random.key(0), **case.inputs)
        words.append(f"check: {'ok' if verdict.ok else 'not ok'}, khat {float(verdict.khat):.2f}")
    except (ngmp.ModelError, TypeError, ValueError, NotImplementedError) as error:
        words.append(f"check: {str(error).splitlines()[0][:60]}")
    return "; ".join(words) or "nothing"


def measure(case: Case) -> tuple[ngmp.Program, ngmp.Posterior, float, float]:
    """The program, its posterior, and the processor seconds of the first and of a warm call."""
    program, took = ngmp.compile(case.model, **case.options), []
    for _ in range(4):
        start = time.process_time()
        post = program(**case.inputs)
        jax.block_until_ready(post.free_energy)
        took.append(time.process_time() - start)
    return program, post, took[0], min(took[1:])


def row(kind: str, case: Case, expected: dict[str, Any]) -> dict[str, Any]:
    """All that is printed of one model."""
    out: dict[str, Any] = {"kind": kind, "model": case.name, "against": expected["how"]}
    try:
        program, post, first, warm = measure(case)
    except Exception as error:  # a row that fails is a row of the table
        return {**out, "worked": False, "right": False, "said": f"{type(error).__name__}: {error}"}
    unknowns = compare(post, expected["moments"])
    fine = right(unknowns) and bool(unknowns)
    words = "" if fine and post.converged else said(program, case, post)
    seconds = expected.get("seconds")
    if seconds is not None and first > seconds:
        words += f"{'; ' if words else ''}first call: {first - warm:.1f} s of it compile"
    return {
        **out, "worked": bool(post.converged), "right": fine, "z": max(u[0] for u in unknowns.values()),
        "low": min(u[1] for u in unknowns.values()), "high": max(u[2] for u in unknowns.values()),
        "sweeps": int(post.sweeps), "first": first, "warm": warm, "nuts": seconds, "said": words, "unknowns": unknowns,
    }  # fmt: skip


def refer(chosen: list[tuple[str, Case]], kept: dict[str, Any]) -> None:
    """Make references and keep them."""
    for _, case in chosen:
        start = time.process_time()
        kept[case.name] = reference(case)
        told = {k: v for k, v in kept[case.name].items() if k != "moments"}
        print(case.name, f"{time.process_time() - start:.0f} s", told, flush=True)
        report.save("gallery_reference", {"models": kept})


def main() -> None:
    jax.config.update("jax_enable_x64", True)  # not where the tests import this file: their process has a precision
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--reference", action="store_true")
    asked = parser.parse_args()
    kept = references()
    names = asked.only.split(",")
    chosen = [(kind, case) for kind, case in cases() if any(name in case.name for name in names)]
    refer([pair for pair in chosen if asked.reference or pair[1].name not in kept], kept)
    known = {r["model"]: r for r in json.loads(KEPT.read_text())["rows"]} if KEPT.exists() else {}
    for kind, case in chosen:
        if not (asked.resume and case.name in known):
            known[case.name] = row(kind, case, kept[case.name])
            print({k: v for k, v in known[case.name].items() if k != "unknowns"}, flush=True)
            report.save("gallery", {"rows": [known[c.name] for _, c in cases() if c.name in known]})
            jax.clear_caches()
    rows = [known[case.name] for _, case in chosen]
    print(report.table("The gallery", HEADER, [[r.get(k, "") for k in HEADER] for r in rows]))
    quick = [r for r in rows if r.get("nuts") and r.get("first", np.inf) < r["nuts"]]
    timed = [r for r in rows if r.get("nuts")]
    good = sum(r["right"] and r["worked"] for r in rows)
    print(f"{good} of {len(rows)} right; first call faster than NUTS in {len(quick)} of {len(timed)}")


if __name__ == "__main__":
    main()
