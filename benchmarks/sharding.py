"""Weak scaling over virtual devices: the rows per device stay, devices are added. `python benchmarks/sharding.py`

Virtual devices share the cores of one machine, so what can be seen is not speed but overhead: with d devices the work
is d times as much, and the time of a sweep *per row* would not change if partitioning were free. The table also lists
what is sent between devices: the numbers in the all-reduces of one run's program, which do not depend on the rows.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from typing import Any

from report import save, table

DEVICES = (1, 2, 4, 8)


def child(devices: int, rows: int) -> dict[str, Any]:
    """Run in a process that has this many virtual devices."""
    import statistics
    import time

    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np

    import ngmp_compiler as ngmp
    import ngmp_models

    rng, n = np.random.default_rng(0), rows * devices
    inputs = {"features": rng.normal(size=(n, 8)), "y": rng.integers(0, 2, n)}
    program = ngmp.compile(ngmp_models.logistic_regression, max_sweeps=10, tol=1e-300)
    mesh = jax.make_mesh((devices,), ("rows",))
    sharded = ngmp.shard(inputs, mesh)
    run = jax.jit(lambda x: program(**x)).lower(sharded).compile()
    post = jax.block_until_ready(run(sharded))
    times = []
    for _ in range(7):
        start = time.perf_counter()
        jax.block_until_ready(run(sharded))
        times.append(time.perf_counter() - start)
    alone = jax.jit(lambda x: program(**x))(inputs)
    found = re.findall(r"= ([^=\n]+?) (all-reduce|all-gather|all-to-all|collective-permute)\(", run.as_text())
    sent = sum(_numbers(shape) for shape, _ in found)
    return {
        "devices": devices, "rows": n, "ms a sweep": 100 * statistics.median(times),
        "ns a sweep and row": 1e8 * statistics.median(times) / n, "collectives": sorted({kind for _, kind in found}),
        "numbers sent": sent, "difference": float(np.max(np.abs(alone["w"].mean - post["w"].mean))),
    }  # fmt: skip


def _numbers(shape: str) -> int:
    sizes = re.findall(r"\[([\d,]*)\]", shape)
    total = 0
    for size in sizes:
        count = 1
        for k in size.split(","):
            count *= int(k) if k else 1
        total += count
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", type=int)
    parser.add_argument("--rows", type=int, default=4096, help="on every device")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child, given.rows)))
        return
    rows = []
    for devices in DEVICES:
        flags = f"--xla_force_host_platform_device_count={devices} {os.environ.get('XLA_FLAGS', '')}"
        command = [sys.executable, __file__, "--child", str(devices), "--rows", str(given.rows)]
        environment = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    header = list(rows[0])
    cells = [[", ".join(x) if isinstance(x, list) else x for x in row.values()] for row in rows]
    print(table("Logistic regression of 8 features, rows split over virtual devices", header, cells))
    save("sharding", {"rows": rows})


if __name__ == "__main__":
    main()
