r"""Planning by active inference in discrete states: mazes with a sign that says where the reward is.

As in `planning`, a plan is a distribution over paths, here of cells $z_t$ that one means to be in, and what stays
unknown is a context c, left or right. A look from cell z shows the context with probability $a_z$. The energy of the
marginals of the path is the same functional: what is preferred of the belief that will be left, less what is learned,

$$ J[q] = s\,(1 - E_o[\max_c b_o(c)]) - \kappa\, I_q(c; o_{1:T}), $$

where o are the looks along the path. With marginals $q(z_t)$ they are exchangeable votes, and both terms are exact
sums over how many more votes there are for one side (in units of the sign's own strength).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import ngmp_compiler as ngmp
from ngmp_compiler import Categorical, take


class Maze(eqx.Module):
    """Cells, where one may step from each, where a sign can be read, and what is where.

    Attributes:
        moves: which cells one can step to from each.
        sign: whether the sign can be read there.
        strength: the probability that it shows the context.
        reward: of every cell at the end, in nats, for each context.
        slip: the probability that a step is not made.
    """

    moves: np.ndarray
    sign: np.ndarray
    strength: float
    reward: np.ndarray
    slip: float = 0.0


def votes(maze: Maze, path: Float[Array, "T S"], belief: Float[Array, ""]) -> tuple[Array, Array]:
    """`E[max_c b(c)]` after the looks along a path of marginals, and the information gained, from P(c = 1)."""
    steps = path.shape[0]
    chance = path @ jnp.asarray(maze.sign, path.dtype)  # of a look at every step
    size = 2 * steps + 1

    def look(p: Array, r: Array) -> tuple[Array, None]:
        """Votes for 1, more than for 0, of both contexts: a look adds or takes one."""
        up, down = jnp.roll(p, 1, -1), jnp.roll(p, -1, -1)
        right = jnp.array([[1 - maze.strength], [maze.strength]])
        return (1 - r) * p + r * (right * up + (1 - right) * down), None

    start = jnp.zeros((2, size)).at[:, steps].set(1.0)
    each, _ = jax.lax.scan(look, start, chance)
    joint = each * jnp.stack([1 - belief, belief])[:, None]
    total = jnp.sum(joint, 0)
    gain = jnp.sum(_plogp(joint)) - jnp.sum(_plogp(total)) - _plogp(belief) - _plogp(1 - belief)
    return jnp.sum(jnp.max(joint, 0)), gain


def _plogp(p: Array) -> Array:
    """`p log p`, zero and without a slope where p is zero: counts that cannot be."""
    there = p > 1e-200
    return jnp.where(there, p * jnp.log(jnp.where(there, p, 1.0)), 0.0)


def maze_planner(
    maze: Maze, steps: int, kappa: float | None = 0.0, prize: float = 8.0, betas: Any = None, sweeps: int = 4
) -> Callable[[Array, Array, Array], Array]:
    """Plans of the cell to step to next, from a cell, P(c = 1) and the steps that are left; κ of None: KL control."""
    cells = len(maze.sign)
    betas = np.concatenate([np.ones(20), np.geomspace(1.0, 20.0, 20)]) if betas is None else betas
    weight = 0.0 if kappa is None else kappa
    free = jnp.asarray(maze.moves / maze.moves.sum(1, keepdims=True))

    def energy(path: Any, belief: Array, beta: Array) -> Array:
        best, gain = votes(maze, path.probs, belief)
        return beta * (prize * (1 - best) - weight * gain)

    def walk(cell: Array, belief: Array, alive: Array, beta: float = 1.0) -> None:
        def step(z: Any, table: Any) -> tuple[Any, Any]:
            z = ngmp.sample("z", Categorical(probs=take(table, z)))
            return z, z

        tables = jnp.where(jnp.asarray(alive)[:, None, None] > 0, free, jnp.eye(cells))
        first = ngmp.sample("z0", Categorical(probs=jax.nn.one_hot(cell, cells)))
        last, path = ngmp.scan(step, first, tables)
        hope = beta * jnp.log(jnp.exp(maze.reward) @ jnp.stack([1 - belief, belief]))
        hope = 0.5 * jnp.exp(hope - jnp.max(hope))
        ngmp.sample("want", Categorical(probs=take(jnp.stack([1 - hope, hope], -1), last)), obs=1)
        if kappa is not None:
            ngmp.functional("belief", energy, path, belief, beta)

    program = ngmp.compile(walk, solver=optax.sgd(0.4), max_sweeps=sweeps, tol=1e-6)

    def plan(cell: Array, belief: Array, alive: Array) -> Array:
        given: dict[str, Any] = {"cell": cell, "belief": belief, "alive": alive}
        post = program(**given, beta=betas[-1]) if kappa is None else program(**given, anneal={"beta": betas})
        return jnp.argmax(jnp.where(jnp.asarray(maze.moves)[cell] > 0, post["z"].mean[0], -1.0))

    return plan


class Walk(NamedTuple):
    """The cells of an episode (T + 1), the belief along it, and the context."""

    cells: Array
    beliefs: Array
    context: Array


def walked(maze: Maze, plan: Callable, key: Array, start: int, steps: int) -> Walk:
    """Infer, plan, act, observe, as one `lax.scan`."""
    first, key = jax.random.split(key)
    context = jax.random.bernoulli(first).astype(int)
    end = jnp.asarray(maze.moves.sum(1) == 1)  # where one cannot leave, one sees what one has got

    def step(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
        (cell, belief), (key, left) = carry, x
        alive = (jnp.arange(steps) < left).astype(float)
        slips, looks = jax.random.split(key)
        cell = jnp.where(jax.random.bernoulli(slips, maze.slip), cell, plan(cell, belief, alive))
        right = jax.random.bernoulli(looks, maze.strength)
        says = jnp.where(right, context, 1 - context)
        odds = jnp.where(says == 1, maze.strength / (1 - maze.strength), (1 - maze.strength) / maze.strength)
        seen = belief * odds / (belief * odds + 1 - belief)
        belief = jnp.where(jnp.asarray(maze.sign)[cell] > 0, seen, belief)
        belief = jnp.where(end[cell], context.astype(belief.dtype), belief)
        return (cell, belief), (cell, belief)

    begin = jnp.asarray(start), jnp.asarray(0.5)
    _, (cells, beliefs) = jax.lax.scan(step, begin, (jax.random.split(key, steps), steps - jnp.arange(steps)))
    return Walk(jnp.append(begin[0], cells), jnp.append(begin[1], beliefs), context)


def t_maze(strength: float = 0.9) -> Maze:
    """Centre, left arm, right arm, sign: arms are for good, and the sign is a step away from the centre."""
    moves = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    reward = 4.0 * np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    return Maze(moves, np.array([0, 0, 0, 1]), strength, reward)


def grid_world(width: int = 5, height: int = 4, slip: float = 0.1, strength: float = 0.9) -> Maze:
    """A grid with one of two treasures in its upper corners, for good, and a sign in the middle of its lowest row;
    a step is not made with probability `slip`."""
    place = np.arange(width * height).reshape(height, width)
    moves = np.eye(width * height)
    for one, other in ((place[:, 1:], place[:, :-1]), (place[1:], place[:-1])):
        moves[one.ravel(), other.ravel()] = moves[other.ravel(), one.ravel()] = 1
    reward, sign = np.zeros((width * height, 2)), np.zeros(width * height)
    for corner, sides in ((place[0, 0], (1.0, -1.0)), (place[0, -1], (-1.0, 1.0))):
        moves[corner] = np.eye(width * height)[corner]
        reward[corner] = 4.0 * np.array(sides)
    sign[place[-1, width // 2]] = 1.0
    return Maze(moves, sign, strength, reward, slip)
