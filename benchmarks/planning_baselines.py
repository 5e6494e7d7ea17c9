r"""What `planning.py` compares with: planners that follow one path of controls through the same belief dynamics.

All minimise $\sum_t u_t^2 / 2 \Sigma_u + \tfrac12 \|m_T - goal\|^2_\Lambda + \tfrac12 tr(\Lambda P_T)$ over the
controls, the most likely observations taken for granted: Newton's method (damped as by Levenberg and Marquardt, from
one or several starts) and the cross-entropy method. What they differ in from ours is that a path has no width.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ngmp_models.planning import Plan, Planner, Task, looked


def path_cost(task: Task, controls: Array, now: Array, spread: Array, alive: Array) -> Array:
    """The cost of controls (T, k) in belief space."""

    def step(carry: tuple, x: tuple) -> tuple[tuple, None]:
        (mean, spread), (u, on) = carry, x
        a, _ = task.slopes(mean, u)
        new = task.dynamics(mean, u), a @ spread @ a.T + task.shake
        mean, spread = (jnp.where(on > 0, x, old) for x, old in zip(new, (mean, spread), strict=True))
        return (mean, looked(spread, task.sensors, on / task.noise(mean, spread))[0]), None

    (mean, spread), _ = jax.lax.scan(step, (jnp.asarray(now), jnp.asarray(spread)), (controls, alive))
    return task.cost(controls, mean) + 0.5 * jnp.trace(task.want @ spread)


def newton_planner(task: Task, steps: int, starts: Array, iterations: int = 15) -> Planner:
    """Newton's method from several paths of controls, `(starts, steps, k)`; the best end counts.

    A path that has `left` steps is the start shortened: its first steps are made in proportion, so that it passes the
    same places where there is time for them.
    """
    k = task.effort.shape[0]

    def plan(now: Array, spread: Array, alive: Array) -> Plan:
        def value(flat: Array) -> Array:
            u = flat.reshape(steps, k)
            idle = 0.5 * jnp.sum(((1 - alive)[:, None] * u) ** 2)
            return path_cost(task, u * alive[:, None], now, spread, alive) + idle

        slope, bend = jax.grad(value), jax.hessian(value)

        def better(carry: tuple, _: None) -> tuple[tuple, None]:
            flat, cost, damping = carry
            matrix = bend(flat)
            low, vectors = jnp.linalg.eigh(matrix)
            step = vectors @ ((vectors.T @ slope(flat)) / (jnp.abs(low) + damping))
            trial = flat - step
            new = value(trial)
            good = new < cost
            flat, cost = jnp.where(good, trial, flat), jnp.where(good, new, cost)
            return (flat, cost, jnp.clip(jnp.where(good, 0.2 * damping, 10 * damping), 1e-6, 1e8)), None

        def descend(start: Array) -> tuple[Array, Array]:
            flat = (start(now, alive) if callable(start) else start * alive[:, None]).reshape(-1)
            (flat, cost, _), _ = jax.lax.scan(better, (flat, value(flat), jnp.asarray(1.0)), None, length=iterations)
            return flat, cost

        found = [descend(start) for start in starts]
        costs = jnp.stack([cost for _, cost in found])
        controls = jnp.stack([flat for flat, _ in found])[jnp.nanargmin(costs)].reshape(steps, k)
        return Plan(controls[0], controls, jnp.zeros(()), jnp.nanmin(costs))

    return plan


def by_way_of(task: Task, place: Array | None, steps: int):
    """A start: straight to the goal, or first to a place with half of the time that is left (bodies that go where they
    are pushed)."""
    goal = jnp.asarray(task.goal)

    def start(now: Array, alive: Array) -> Array:
        left = jnp.sum(alive)
        if place is None:
            return jnp.broadcast_to((goal - now) / left, (steps, len(goal))) * alive[:, None]
        half = jnp.ceil(left / 2)
        first = (jnp.arange(steps) < half)[:, None]
        out, back = (jnp.asarray(place) - now) / half, (goal - jnp.asarray(place)) / jnp.maximum(left - half, 1.0)
        return jnp.where(first, out, back) * alive[:, None]

    return start


def cem_planner(task: Task, steps: int, key: Array, draws: int = 400, rounds: int = 12, best: int = 40) -> Planner:
    """The cross-entropy method: draws of controls, the best of them fitted by a Gaussian, again and again."""
    k = task.effort.shape[0]

    def plan(now: Array, spread: Array, alive: Array) -> Plan:
        def narrower(carry: tuple, key: Array) -> tuple[tuple, Array]:
            mean, std = carry
            u = (mean + std * jax.random.normal(key, (draws, steps, k))) * alive[:, None]
            costs = jax.vmap(lambda u: path_cost(task, u, now, spread, alive))(u)
            elite = u[jax.lax.top_k(-costs, best)[1]]
            return (jnp.mean(elite, 0), jnp.std(elite, 0) + 0.01), jnp.min(costs)

        start = jnp.zeros((steps, k)), jnp.broadcast_to(jnp.sqrt(task.effort), (steps, k))
        seed = jax.random.fold_in(key, jnp.sum(jnp.asarray(now) * 1e4).astype(int))
        (mean, _), costs = jax.lax.scan(narrower, start, jax.random.split(seed, rounds))
        return Plan(mean[0], mean, jnp.zeros(()), costs[-1])

    return plan
