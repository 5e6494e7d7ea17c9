"""Many heteroscedastic regressions in one `vmap`, whatever LAPACK's threads are told: `python benchmarks/batched.py`

64 fits of 64 + 64 weights to 100 observations, values and gradients, on one core, on two, and with a pool of eight
threads as on eight cores, with `OPENBLAS_NUM_THREADS` unset and one. Every setting is a process of its own, all of them
interleaved; one that has not answered in `PATIENCE` seconds is reported as such. The times are those of calls once
compiled, the best of all rounds, and the ratios are to the best setting of the same cores. `--quick` takes 16 fits
of 16 weights.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 300
CORES = {"1 core": ("0", {}), "2 cores": ("0,1", {}), "2 cores, pool of 8": ("0,1", {"PJRT_NPROC": "8"})}
THREADS = {"unset": {}, "1": {"OPENBLAS_NUM_THREADS": "1"}}
VARIABLES = "PJRT_NPROC", "OPENBLAS_NUM_THREADS"


def measure(fits: int, d: int, n: int, rounds: int) -> list[float]:
    """Seconds of the values, of the gradients in the prior's log-variance, and of one fit alone."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import numpy as np

    import ngmp_compiler as ngmp
    import ngmp_models

    rng = np.random.default_rng(0)
    phi, psi = jnp.asarray(rng.normal(size=(2, fits, n, d)) / np.sqrt(d))
    noise = np.exp(-0.5 * psi[..., 0]) * rng.normal(size=(fits, n))
    y = jnp.einsum("bnd,bd->bn", phi, rng.normal(size=(fits, d))) + noise
    program = ngmp.compile(ngmp_models.heteroscedastic)

    def energy(t, phi, psi, y):
        return program(phi=phi, psi=psi, y=y, v_variance=jnp.exp(t)).free_energy

    batched, prior = (None, 0, 0, 0), jnp.log(4.0)
    calls = [
        (jax.vmap(energy, batched), (prior, phi, psi, y)),
        (jax.vmap(jax.grad(energy), batched), (prior, phi, psi, y)),
        (energy, (prior, phi[0], psi[0], y[0])),
    ]
    seconds = []
    for call, arguments in calls:
        run = jax.jit(call)
        jax.block_until_ready(run(*arguments))
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            found = jax.block_until_ready(run(*arguments))
            times.append(time.perf_counter() - start)
        assert jnp.all(jnp.isfinite(found))
        seconds.append(min(times))
    return seconds


def _ask(cores: str, threads: str, sizes: list[int]) -> list[float] | None:
    """`measure` in a process of its own; None if it does not answer."""
    where, pool = CORES[cores]
    pinned = ["taskset", "-c", where] if shutil.which("taskset") else []
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES} | pool | THREADS[threads]
    command = [*pinned, sys.executable, __file__, "--measure", *map(str, sizes)]
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except subprocess.TimeoutExpired:
        return None
    return [float(x) for x in answer.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", nargs=4, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(*measure(*given.measure))
        return
    from report import save, table

    sizes = [16, 16, 60, 3] if given.quick else [64, 64, 100, 3]
    best: dict[tuple[str, str], list[float] | None] = {}
    for _ in range(given.rounds):
        for setting in ((c, t) for c in CORES for t in THREADS):
            if best.get(setting, []) is None:
                continue
            found, old = _ask(*setting, sizes), best.get(setting)
            best[setting] = found if found is None or old is None else [min(x) for x in zip(found, old, strict=True)]
            print(*setting, best[setting], flush=True)
    rows, kept = [], []
    for (cores, threads), seconds in best.items():
        rivals = [s for (c, _), s in best.items() if c == cores and s is not None]
        ratios = None if seconds is None else [x / min(col) for x, *col in zip(seconds, *rivals, strict=True)]
        kept.append({"cores": cores, "threads": threads, "seconds": seconds, "ratios": ratios})
        late = [f"not done in {PATIENCE} s"] * 6
        cells = late if seconds is None or ratios is None else [f for x in zip(seconds, ratios, strict=True) for f in x]
        rows.append([cores, threads, *cells])
    fits, d, n, _ = sizes
    header = ["cores", "OPENBLAS_NUM_THREADS", "values, s", "ratio", "gradients, s", "ratio", "one fit, s", "ratio"]
    print(table(f"{fits} fits of {d} + {d} weights to {n} observations in one vmap", header, rows))
    if not given.quick:
        print("kept in", save(Path(__file__).stem, {"sizes": sizes, "rows": kept}).name)


if __name__ == "__main__":
    main()
