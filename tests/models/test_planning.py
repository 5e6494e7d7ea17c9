"""Planning by active inference, small: plans against plain optimisation, closed loops, and the harm it does not do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from ngmp_models.mazes import grid_world, maze_planner, t_maze, votes, walked
from ngmp_models.planning import Task, episode, expected_information, filtered, kl_planner, looked, path_planner

T = 8
EYE = np.eye(2)


def light(mean, spread):
    return (0.5 * ((3.0 - mean[0]) ** 2 + spread[0, 0]) + 0.01) * jnp.ones(2)


def dark(mean, spread):
    return jnp.full(2, 1.0)


def task(noise):
    return Task(lambda x, u: x + u, EYE, 0.0025 * EYE, EYE, noise, (), np.zeros(2), 100.0 * EYE, np.full(2, 0.25), 1.0)


NOW, ALIVE = jnp.array([1.5, 1.0]), jnp.ones(T)


@pytest.fixture(scope="module")
def plan():
    return jax.jit(path_planner(task(light)))


def test_plan_is_that_of_one_path_where_it_has_decided(plan):
    """At β = 100 a plan has little width: its cost is that of the best single path, found by scipy, to a percent."""
    found = plan(NOW, jnp.asarray(EYE), ALIVE)
    assert found.residual < 1e-2

    def cost(flat):
        path = jnp.concatenate([NOW[None], flat.reshape(T, 2)])
        spread = jnp.asarray(EYE)
        for m in path[1:]:
            spread = spread + 0.0025 * EYE
            noise = light(m, spread)
            spread = spread - spread @ jnp.linalg.inv(spread + jnp.diag(noise)) @ spread
        end = path[-1]
        return jnp.sum((path[1:] - path[:-1]) ** 2) / 0.5 + 50.0 * (end @ end) + 50.0 * jnp.trace(spread)

    value = jax.jit(jax.value_and_grad(cost))
    starts = [np.linspace(NOW, [0.0, 0.0], T + 1)[1:], np.concatenate([np.full((4, 2), 3.0), np.zeros((4, 2))])]
    best = min((minimize(value, s.ravel(), jac=True, method="BFGS") for s in starts), key=lambda r: r.fun)
    own = float(cost(jnp.asarray(found.path.mean).ravel()))
    assert own < 1.01 * best.fun
    assert float(found.path.mean[:, 0].max()) > 2.0  # by way of the light


def test_nothing_to_see_is_kl_control():
    """Constant noise: the energy has no slope, and the plan is that of KL control."""
    found, plain = path_planner(task(dark))(NOW, jnp.asarray(EYE), ALIVE), kl_planner(task(dark))(NOW, EYE, ALIVE)
    np.testing.assert_allclose(found.control, plain.control, atol=1e-8)
    straight = -np.asarray(NOW) / (T + 0.01 / 0.25)  # pulled by the preference, held by T steps
    np.testing.assert_allclose(plain.control, straight, rtol=1e-5)


def test_beliefs(x64):
    """A look, a filter step and expected information, against dense algebra and quadrature."""
    spread = np.array([[1.0, 0.3], [0.3, 0.5]])
    sensors, noise = np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([0.5, 0.2])
    after, gain = looked(jnp.asarray(spread), sensors, 1 / noise)
    seen = sensors @ spread @ sensors.T + np.diag(noise)
    np.testing.assert_allclose(after, spread - spread @ sensors.T @ np.linalg.solve(seen, sensors @ spread), rtol=1e-10)
    np.testing.assert_allclose(gain, 0.5 * np.log(np.linalg.det(seen) / noise.prod()), rtol=1e-10)
    own = task(light)
    mean, less = filtered(own, NOW, jnp.asarray(spread), jnp.zeros(2), jnp.array([2.0, 0.5]))
    ahead = spread + 0.0025 * EYE
    gain = ahead @ np.linalg.inv(ahead + np.diag(np.asarray(light(NOW, ahead))))
    np.testing.assert_allclose(mean, NOW + gain @ (np.array([2.0, 0.5]) - NOW), rtol=1e-10)
    np.testing.assert_allclose(less, ahead - gain @ ahead, rtol=1e-9)
    lit = Task(own.dynamics, EYE, own.shake, EYE, light, (0,), own.goal, own.want, own.effort, 1.0)
    grid = np.linspace(-6, 6, 4001)
    weights = np.exp(-0.5 * grid**2)
    at = [float(light(jnp.array([1.5 + 0.3 * z, 1.0]), spread)[0]) for z in grid[::40]]
    expected = np.sum(weights[::40] / np.array(at)) / weights[::40].sum()
    found = expected_information(lit, NOW, 0.09 * jnp.asarray(EYE), jnp.asarray(spread))
    np.testing.assert_allclose(found, np.full(2, expected), rtol=1e-4)


def test_closed_loop(plan):
    """Episodes in one vmap: by the light, and back to the goal."""
    run = jax.jit(jax.vmap(lambda key: episode(task(light), plan, key, NOW, jnp.asarray(EYE), T)))
    found = run(jax.random.split(jax.random.key(0), 8))
    assert found.states.shape == (8, T + 1, 2) and jnp.all(jnp.isfinite(found.states))
    assert jnp.mean(found.means[:, :, 0].max(1)) > 2.0
    assert jnp.mean(jnp.linalg.norm(found.states[:, -1], axis=-1)) < 1.0


# -- in discrete states -----------------------------------------------------------------------------------------------


def test_votes_are_sums_over_all_looks(x64):
    """The best guess and the information after looks, against enumeration of every sequence of them."""
    maze, belief = t_maze(0.8), 0.3
    path = np.array([[0.2, 0.1, 0.1, 0.6], [0.1, 0.0, 0.1, 0.8], [0.7, 0.2, 0.1, 0.0]])
    joint = {}
    for code in range(27):
        looks = [code // 3**t % 3 for t in range(3)]  # nothing, the sign says 0, it says 1
        for c, prior in ((0, 0.7), (1, 0.3)):
            p, votes_for = prior, 0
            for t, look in enumerate(looks):
                r = path[t, 3]
                p *= 1 - r if look == 0 else r * (0.8 if look - 1 == c else 0.2)
                votes_for += (0, -1, 1)[look]
            joint.setdefault(votes_for, [0.0, 0.0])[c] += p
    table = np.array(list(joint.values()))
    table = table[table.sum(1) > 0]
    best = table.max(1).sum()
    given = table / table.sum(1, keepdims=True)
    logs = np.where(table > 0, np.log(np.where(given > 0, given, 1.0)), 0.0)
    gain = (table * logs).sum() - (0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    np.testing.assert_allclose(votes(maze, jnp.asarray(path), jnp.asarray(belief)), (best, gain), rtol=1e-9)


def test_t_maze():
    """KL control guesses; the energy of beliefs looks once, and is right as often as the sign is."""
    maze, keys = t_maze(0.9), jax.random.split(jax.random.key(3), 200)
    rates = []
    for kappa in (None, 0.0):
        plan = maze_planner(maze, 4, kappa)
        found = jax.jit(jax.vmap(lambda key, plan=plan: walked(maze, plan, key, 0, 4)))(keys)
        rates.append(float((maze.reward[np.asarray(found.cells[:, -1]), np.asarray(found.context)] > 0).mean()))
    assert rates[0] < 0.6 and rates[1] > 0.85


def test_grid_world_is_one():
    maze = grid_world(3, 3)
    assert maze.moves[0].sum() == 1 and maze.moves[4].sum() == 5 and maze.sign.sum() == 1
