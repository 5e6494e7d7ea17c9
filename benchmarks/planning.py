"""Planning by active inference: paths of beliefs against planners that follow one path, in closed loops.

    python benchmarks/planning.py            # all tasks, 500 fresh seeds each
    python benchmarks/planning.py --quick    # 40 seeds
    python benchmarks/planning.py --only lamp quadratic --seeds 200

Every agent of a task meets the same episodes: the same first states, shakes and noises of sensors. `success` is an end
within 0.5 of the goal, `total` effort plus distance in nats, `against` the total less that of the reference planner of
the task, episode by episode, with 95 % intervals; milliseconds are of processor time, all episodes in one `vmap`.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import jax
import jax.numpy as jnp
import numpy as np
from planning_baselines import by_way_of, cem_planner, newton_planner
from planning_mazes import HEADER as MAZES
from planning_mazes import rows
from planning_pictures import picture
from planning_tasks import CASES, STEPS, Case
from report import save, table

from ngmp_models.planning import Episode, Planner, episode, kl_planner, path_planner

FRESH = 20261118  # seeds that nothing was chosen on
HEADER = ["agent", "success", "< 0.3", "mean error", "effort", "total", "+-", "against", "+-", "ms a plan", "compile s"]


def agents(case: Case, words: list[str]) -> dict[str, Callable[[], Planner]]:
    """Planners whose names have one of these words; the last one is the reference."""
    task = case.task
    straight, told = by_way_of(task, None, STEPS), [by_way_of(task, np.array(p), STEPS) for p in case.places]
    found: dict[str, Callable[[], Planner]] = {
        "KL control (certainty equivalence)": lambda: kl_planner(task),
        "NGMP belief": lambda: path_planner(task, 0.0),
        "NGMP efe": lambda: path_planner(task, 1.0),
        "CEM, 400 x 12": lambda: cem_planner(task, STEPS, jax.random.key(1)),
        "Newton, one start": lambda: newton_planner(task, STEPS, [straight]),
    }
    if told:
        name = f"Newton, {1 + len(told)} starts, one by the light"
        found[name] = lambda: newton_planner(task, STEPS, [straight, *told])
    return {k: v for k, v in found.items() if k not in case.without and any(word in k for word in words)}


def run(case: Case, planner: Planner, seeds: int) -> tuple[Episode, float, float]:
    """Episodes, milliseconds of processor time a plan, and seconds of it to compile."""
    keys = jax.random.split(jax.random.key(FRESH), seeds)
    start, spread = jnp.asarray(case.start), jnp.asarray(case.spread)
    every = jax.jit(jax.vmap(lambda key: episode(case.task, planner, key, start, spread, STEPS)))
    begin = time.process_time()
    compiled = every.lower(keys).compile()
    middle = time.process_time()
    found = jax.block_until_ready(compiled(keys))
    return found, (time.process_time() - middle) / seeds / STEPS * 1e3, middle - begin


def measured(case: Case, name: str, found: Episode, reference: np.ndarray | None) -> list[Any]:
    """One row of the table, without the times."""
    ends, controls = np.asarray(found.states[:, -1]), np.asarray(found.controls)
    error = np.linalg.norm((ends - case.task.goal)[:, list(case.judged)], axis=1)
    total = np.asarray(jax.vmap(case.task.cost)(found.controls, found.states[:, -1]))
    effort = 0.5 * np.sum(controls**2 / case.task.effort, (1, 2))
    half = 1.96 / np.sqrt(len(total))
    row = [name, float((error < 0.5).mean()), float((error < 0.3).mean()), float(error.mean()), float(effort.mean())]
    row += [float(total.mean()), float(half * total.std())]
    paired = total - (total if reference is None else reference)
    return [*row, float(paired.mean()), float(half * paired.std())]


def study(case: Case, seeds: int, pictures: Path | None, words: list[str]) -> list[list[Any]]:
    """All agents of a task, the reference first."""
    rows, reference, shown = [], None, {}
    for name, make in reversed(list(agents(case, words).items())):
        found, plan, compile = run(case, make(), seeds)
        if reference is None:
            reference = np.asarray(jax.vmap(case.task.cost)(found.controls, found.states[:, -1]))
        rows.insert(0, [*measured(case, name, found, reference), plan, compile])
        print("  ", rows[0], flush=True)
        shown[name] = jax.tree.map(lambda x: np.asarray(x[:12]), found)
    if pictures is not None:
        picture(case, shown, pictures)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="40 seeds")
    parser.add_argument("--only", nargs="*", default=[*CASES, "mazes"], choices=[*CASES, "mazes"])
    parser.add_argument("--agents", nargs="*", default=[""], help="words of their names")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of paths and beliefs")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    seeds, every = 40 if given.quick else given.seeds, {}
    for name in given.only:
        if name == "mazes":
            every[name] = rows(FRESH, seeds)
            print(table(f"Mazes, {seeds} episodes", MAZES, every[name]), flush=True)
            if seeds >= 200:
                save("planning_mazes", {"seeds": seeds, "header": MAZES, "rows": every[name]})
            continue
        case = CASES[name]()
        every[name] = study(case, seeds, given.pictures, given.agents)
        print(table(f"{case.title}, {seeds} episodes", HEADER, every[name]), flush=True)
        if seeds >= 200 and given.agents == [""]:
            save(f"planning_{name}", {"seeds": seeds, "header": HEADER, "rows": every[name]})


if __name__ == "__main__":
    main()
