"""Whether `program.check` flags what is off: all models of accuracy.py, against their NUTS moments.

`python benchmarks/checks.py [--only substring]`. A model is off if a standard deviation is outside 0.85 to 1.15 of that
of NUTS, or a mean by more than 0.15 of it (results/accuracy_reference.json, made by `accuracy.py --reference`). Each
that is off must be flagged: `ok` is false, by a verdict or because the check cannot tell. Models that are fine and
flagged nonetheless are false alarms. Times are of the processor, of the first check (compilation included) and of a
second one.
"""

import argparse
import json
import time
import warnings

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import accuracy_models  # noqa: E402
import accuracy_structures  # noqa: E402
import report  # noqa: E402
from accuracy import REFERENCE  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402


def off_by(post: ngmp.Posterior, moments: dict) -> tuple[float, float]:
    """The largest |z|, and the ratio of standard deviations that is farthest from one."""
    z, ratio = 0.0, 1.0
    for name, (mean, std) in moments.items():
        if name in post.marginals:
            m, s = np.asarray(mean), np.asarray(std)
            q = post[name]
            z = max(z, float(np.max(np.abs(np.asarray(q.mean).reshape(m.shape) - m) / s)))
            each = (np.asarray(q.std).reshape(s.shape) / s).reshape(-1)
            worst = float(each[np.argmax(np.abs(np.log(each)))])
            ratio = max(ratio, worst, key=lambda r: abs(np.log(r)))
    return z, ratio


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    kept = json.loads(REFERENCE.read_text())
    rows, results = [], {}
    for case in [*accuracy_models.cases(), *accuracy_structures.cases()]:
        if asked.only not in case.name or case.name not in kept:
            continue
        program = ngmp.compile(case.model, **case.options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post = program(**case.inputs)
            took = []
            for seed in (0, 1):
                start = time.process_time()
                found = program.check(post, jax.random.key(seed), **case.inputs)
                took.append(time.process_time() - start)
        z, ratio = off_by(post, kept[case.name]["moments"])
        off = z > 0.15 or not 0.85 <= ratio <= 1.15 or not bool(post.converged)
        said = "MISSED" if off and found.ok else "false alarm" if found.ok is False and not off else "right"
        results[case.name] = {"z": z, "ratio": ratio, "khat": found.khat, "ok": found.ok, "by": found.by,
                              "verdict": found.verdict, "said": said, "seconds": took}  # fmt: skip
        rows.append([case.name, z, ratio, found.khat, found.by, found.ok, said, *took, found.verdict[:60]])
        print(rows[-1], flush=True)
        report.save("checks", results)
    header = ["model", "z", "ratio", "khat", "by", "ok", "", "first s", "s", "verdict"]
    print(report.table("Checks against NUTS", header, rows))


if __name__ == "__main__":
    main()
