"""Whether `program.check` flags what is off: the gallery and the models of accuracy.py, against their references.

`python benchmarks/checks.py [--only substring] [--resume]`. A model is off if a standard deviation is outside 0.85 to
1.15 of the reference, a mean by more than 0.15 of it (results/gallery_reference.json, results/accuracy_reference.json),
or if it has not converged. Each that is off must be flagged: `ok` is false, by a verdict or because the check cannot
tell. Models that are fine and flagged nonetheless are false alarms. Times are of the processor, of the first check
(compilation included) and of a second one. Rows are kept in results/checks.json as they come; `--resume` measures those
that are not there yet.
"""

import argparse
import json
import time
import warnings
from typing import Any

import accuracy_models
import accuracy_structures
import gallery
import jax
import report

import ngmp_compiler as ngmp

KEPT, ACCURACY = report.RESULTS / "checks.json", report.RESULTS / "accuracy_reference.json"
HEADER = ["set", "model", "z", "low", "high", "khat", "by", "ok", "said", "first", "second", "verdict"]


def cases() -> list[tuple[str, Any, dict[str, Any]]]:
    """Every model of both sets that has a reference, with its moments."""
    kept = gallery.references()
    known = [("gallery", case, kept[case.name]["moments"]) for _, case in gallery.cases() if case.name in kept]
    kept = json.loads(ACCURACY.read_text())
    more = [*accuracy_models.cases(), *accuracy_structures.cases()]
    return known + [("accuracy", case, kept[case.name]["moments"]) for case in more if case.name in kept]


def row(case: Any, moments: dict[str, Any]) -> dict[str, Any]:
    """How far a posterior is off, and what its check says."""
    program, took = ngmp.compile(case.model, **case.options), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = program(**case.inputs)
        for seed in (0, 1):
            start = time.process_time()
            found = program.check(post, jax.random.key(seed), **case.inputs)
            took.append(time.process_time() - start)
    unknowns = gallery.compare(post, moments)
    off = not gallery.right(unknowns) or not bool(post.converged)
    said = ("MISSED" if found.ok else "flagged") if off else ("right" if found.ok else "false alarm")
    z, low, high = (f(u[i] for u in unknowns.values()) for i, f in enumerate((max, min, max)))
    return {"z": z, "low": low, "high": high, "khat": found.khat, "by": found.by, "ok": found.ok, "said": said,
            "first": took[0], "second": took[1], "verdict": found.verdict}  # fmt: skip


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    known = {r["model"]: r for r in json.loads(KEPT.read_text()).get("rows", [])} if KEPT.exists() else {}
    chosen = [each for each in cases() if asked.only in each[1].name]
    for group, case, moments in chosen:
        if not (asked.resume and case.name in known):
            known[case.name] = {"set": group, "model": case.name, **row(case, moments)}
            print(known[case.name], flush=True)
            report.save("checks", {"rows": [known[c.name] for _, c, _ in cases() if c.name in known]})
            jax.clear_caches()
    rows = [known[case.name] for _, case, _ in chosen]
    print(report.table("Checks against NUTS", HEADER, [[r[k] for k in HEADER] for r in rows]))
    told = [r["said"] for r in rows]
    print({what: told.count(what) for what in ("right", "flagged", "false alarm", "MISSED")})


if __name__ == "__main__":
    main()
