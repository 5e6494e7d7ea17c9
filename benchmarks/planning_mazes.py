"""The discrete rows of `planning.py`: a T-maze and a grid world whose steps may fail, by the same functional."""

import time
from typing import Any

import jax
import numpy as np

from ngmp_models.mazes import Maze, grid_world, maze_planner, t_maze, walked

HEADER = ["maze", "agent", "success", "+-", "wrong", "looks", "ms a plan"]
AGENTS = {"KL control": None, "NGMP belief": 0.0, "NGMP efe": 1.0}
MAZES: dict[str, tuple[Maze, int, int]] = {
    "T-maze, 4 steps": (t_maze(), 0, 4),
    "grid 5 x 4, 12 steps, one in ten fails": (grid_world(), 7, 12),
}


def rows(seed: int, seeds: int) -> list[list[Any]]:
    """Success is the right treasure at the end, wrong the other one."""
    found, keys = [], jax.random.split(jax.random.key(seed), seeds)
    for name, (maze, start, steps) in MAZES.items():
        for agent, kappa in AGENTS.items():
            plan = maze_planner(maze, steps, kappa)
            every = jax.jit(jax.vmap(lambda key, m=maze, p=plan, s=start, n=steps: walked(m, p, key, s, n)))
            compiled = every.lower(keys).compile()
            begin = time.process_time()
            walks = jax.block_until_ready(compiled(keys))
            spent = (time.process_time() - begin) / seeds / steps * 1e3
            got = maze.reward[np.asarray(walks.cells[:, -1]), np.asarray(walks.context)]
            right, looks = float((got > 0).mean()), maze.sign[np.asarray(walks.cells[:, 1:])].sum(1)
            half = 1.96 * float(np.sqrt(right * (1 - right) / seeds))
            found.append([name, agent, right, half, float((got < 0).mean()), float(looks.mean()), spent])
    return found
