"""NumPyro models as they stand, against NUTS on the very same functions.

    python benchmarks/numpyro_models.py [names] [--lower]     all of them, or some; with --lower only what is recognised

z: the largest difference of means in standard deviations of NUTS, over all sites that are compared; ratio: the range of
our standard deviations over those of NUTS. First calls, warm calls and NUTS are in seconds of processor time. Of models
with discrete sites NUTS runs on one with the same density, the sites summed over by hand. Rows are kept in
results/numpyro_models.json, each with its date, and the table is of all that are kept.
"""

import datetime
import json
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import numpyro_more_cases  # noqa: F401
import report
from numpyro.infer import MCMC, NUTS
from numpyro_cases import CASES

import ngmp_compiler as ngmp

RESULTS = Path(__file__).parent / "results" / "numpyro_models.json"
HEADER = ["model", "z", "ratios", "first call, s", "warm, s", "NUTS, s", ""]


def timed(f):
    start = time.process_time()
    out = jax.block_until_ready(f())
    return out, time.process_time() - start


def nuts(model, inputs):
    mcmc = MCMC(NUTS(model, target_accept_prob=0.9), num_warmup=500, num_samples=1500, progress_bar=False)
    _, seconds = timed(lambda: mcmc.run(jax.random.PRNGKey(0), **inputs))
    return mcmc.get_samples(), seconds


def compared(post, draws, names):
    z, low, high = 0.0, np.inf, 0.0
    for k in names:
        mean, std = np.asarray(draws[k].mean(0)), np.asarray(draws[k].std(0))
        own = post[k]
        z = max(z, float(np.max(np.abs(np.asarray(own.mean) - mean) / std)))
        ratio = np.sqrt(np.asarray(own.variance)) / std
        low, high = min(low, float(ratio.min())), max(high, float(ratio.max()))
    return {"z": round(z, 3), "low": round(low, 3), "high": round(high, 3)}


def run(name):
    model, inputs, names, options, reference = CASES[name]
    row = {"date": datetime.date.today().isoformat()}
    try:
        program = ngmp.compile(ngmp.from_numpyro(model), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            post, row["first"] = timed(lambda: program(**inputs))
            _, row["warm"] = timed(lambda: program(**inputs))
        row |= {"converged": bool(post.converged), "free_energy": float(post.free_energy)}
        draws, row["nuts"] = nuts(model if reference is True else reference, inputs)
        row |= compared(post, draws, names)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}


def main():
    jax.config.update("jax_enable_x64", True)
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or list(CASES)
    table = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        if "--lower" in sys.argv:
            model, inputs, _, options, _ = CASES[name]
            try:
                text = ngmp.compile(ngmp.from_numpyro(model), **options).lower(**inputs).describe()
                print(name, "compiles", text if len(names) == 1 else "")
            except Exception as error:
                print(name, "REFUSED", f"{type(error).__name__}: {error}"[:600])
            continue
        table[name] = run(name)
        print(name, json.dumps(table[name]), flush=True)
        RESULTS.write_text(json.dumps(table, indent=1) + "\n")
        jax.clear_caches()
    if "--lower" not in sys.argv:
        print(report.table("NumPyro models as they stand", HEADER, [words(name, table[name]) for name in table]))


def words(name, row):
    """A row of the table; what is outside of |z| 0.15 and ratios 0.85 to 1.15 is said."""
    if "low" not in row or not row["converged"]:
        return [name, "", "", row.get("first", ""), row.get("warm", ""), row.get("nuts", ""),
                row.get("error", "has not converged")]  # fmt: skip
    off = row["z"] > 0.15 or not 0.85 <= row["low"] <= row["high"] <= 1.15
    ratios = f"{row['low']:.2f}-{row['high']:.2f}"
    return [name, row["z"], ratios, row["first"], row["warm"], row["nuts"], "off" if off else ""]


if __name__ == "__main__":
    main()
