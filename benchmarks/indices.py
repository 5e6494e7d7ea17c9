"""Indices that are inputs of the model: 100,000 answers of 5,000 students to 200 items, and random slopes of groups.

    python benchmarks/indices.py [--quick]

The first call, a sweep, and a call with other contents, which compiles nothing; and how far the answers are from those
of a program that knows the indices (at small size).
"""

import argparse
import time

import jax
import numpy as np
from report import save, table

import ngmp_compiler as ngmp
from ngmp_compiler import Bernoulli, Gamma, Normal

jax.config.update("jax_enable_x64", True)


def answers(student, item, y, students, items):
    """Ability less difficulty, the log-odds of a right answer."""
    mu = ngmp.sample("mu", Normal(0.0, variance=4.0))
    ability = ngmp.sample("ability", Normal(ngmp.broadcast_to(mu, (students,)), variance=1.0))
    difficulty = ngmp.sample("difficulty", Normal(np.zeros(items), variance=2.0))
    ngmp.sample("y", Bernoulli(logits=ability[student] - difficulty[item]), obs=y)


def slopes(group, x, y, groups):
    """An intercept and a slope for every group, ragged; noise of unknown precision."""
    a = ngmp.sample("a", Normal(np.zeros(groups), variance=4.0))
    b = ngmp.sample("b", Normal(np.zeros(groups), variance=1.0))
    common = ngmp.sample("common", Normal(0.0, variance=4.0))
    tau = ngmp.sample("tau", Gamma(2.0, rate=1.0))
    ngmp.sample("y", Normal(a[group] + b[group] * x + common * x, precision=tau), obs=y)


def draw(rng: np.random.Generator, n: int, students: int, items: int, groups: int):
    """Models, and two sets of inputs for each that differ in contents only."""

    def one():
        student, item = rng.integers(0, students, n), rng.integers(0, items, n)
        logits = rng.normal(size=students)[student] - rng.normal(size=items)[item]
        y = 1.0 * (rng.random(n) < 1 / (1 + np.exp(-logits)))
        return {"student": student, "item": item, "y": y, "students": students, "items": items}

    def other():
        group, x = rng.integers(0, groups, n), rng.normal(size=n)
        y = rng.normal(size=groups)[group] + rng.normal(size=groups)[group] * x + 0.5 * rng.normal(size=n)
        return {"group": group, "x": x, "y": y, "groups": groups}

    return {"answers, crossed": (answers, one(), one()), "slopes of groups": (slopes, other(), other())}


def clocked(program: ngmp.Program, inputs: dict) -> tuple[float, float, ngmp.Posterior]:
    wall, processor = time.perf_counter(), time.process_time()
    out = jax.block_until_ready(program(**inputs))
    return time.perf_counter() - wall, time.process_time() - processor, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = (2_000, 100, 20, 100) if parser.parse_args().quick else (100_000, 5_000, 200, 5_000)
    rows = []
    for name, (model, first, second) in draw(np.random.default_rng(0), *sizes).items():
        program = ngmp.compile(model)
        start = clocked(program, first)
        warm = min((clocked(program, first) for _ in range(3)), key=lambda r: r[0])
        new = clocked(program, second)
        post = warm[2]
        rows.append({
            "model": name, "rows": sizes[0], "first call, s": start[0], "of the processor, s": start[1],
            "sweeps": int(post.sweeps), "a sweep, ms": 1e3 * warm[0] / int(post.sweeps),
            "new contents, s": new[0], "compiled": len(program._compiled), "converged": bool(post.converged),
        })  # fmt: skip
    header = list(rows[0])
    print(table("Indices that are inputs", header, [list(row.values()) for row in rows]))
    save("indices", {"rows": rows})


if __name__ == "__main__":
    main()
