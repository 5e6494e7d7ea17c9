r"""Planning by active inference in continuous states: a path of *beliefs* that is worth its effort.

States $x' = A x + B u + w$, $w \sim N(0, Q)$, are seen through sensors $y_i = c_i x + v_i$ whose noise $R_i(x)$ depends
on where one is. Ahead of time, x = m + ξ: the mean of the belief to come, and what will still be unknown then, $\xi
\sim N(0, P)$. A plan is a distribution over paths of m, with controls $u \sim N(0, \Sigma_u)$ and a preference
$N(m_T; goal, \Lambda^{-1})$; and the energy of its marginals that makes looking worth a detour,

$$ J[q] = \tfrac12 \mathrm{tr}(\Lambda P_T) - \kappa \sum_t \tfrac12 \log \det(I + \bar R_t^{-1} C P^-_t C^T), $$

with the Riccati recursion $P^-_t = A P A^T + Q$, $P = (P^{-,-1} + C^T \bar R_t^{-1} C)^{-1}$ at the information that is
expected of a sensor, $\bar R_{t,i}^{-1} = E_{q(m_t)}[1 / E_{\xi}[R_i(m_t + \xi)]]$. κ = 0 prefers beliefs that end at
the goal, κ = 1 also counts what is learned (the expected free energy). All energies are multiplied by β, which is
scheduled: at β = 1 plans are wide and find a light that is far away, at β = 100 they have decided.
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
from ngmp_compiler import MvNormal
from ngmp_kernels.quadrature.nodes import hermite_product

STILL = 1e-8  # variance of what does not move: the first belief mean, and all after the last step
BETAS = np.concatenate([np.ones(30), np.geomspace(1.0, 100.0, 30), np.full(30, 100.0)])
_NODES = {1: 16, 2: 7, 3: 4}  # an axis, for expected information


class Task(eqx.Module):
    """A body that moves and sees, and what is wanted of it.

    Attributes:
        dynamics: `f(x, u)`, linear: A x + B u.
        push: B.
        shake: Q.
        sensors: the rows c_i.
        noise: `(mean, covariance) -> (s,)`: E[R_i(x)] under N(mean, covariance); with a covariance of zero, R_i(mean).
        lit: the coordinates along which information is averaged over the plan; none: the noise is (see
            `expected_information`).
        goal: of the state at the end.
        want: Λ, the precision of that preference.
        effort: Σ_u, variances of controls.
        limit: the largest control that can be carried out, entry by entry.
    """

    dynamics: Callable[[Array, Array], Array] = eqx.field(static=True)
    push: Float[np.ndarray, "d k"]
    shake: Float[np.ndarray, "d d"]
    sensors: Float[np.ndarray, "s d"]
    noise: Callable[[Array, Array], Array] = eqx.field(static=True)
    lit: tuple[int, ...] = eqx.field(static=True)
    goal: Float[np.ndarray, " d"]
    want: Float[np.ndarray, "d d"]
    effort: Float[np.ndarray, " k"]
    limit: float

    def slopes(self, x: Array, u: Array) -> tuple[Array, Array]:
        """A and B of the dynamics at a point."""
        return jax.jacfwd(self.dynamics, (0, 1))(x, u)

    def cost(self, controls: Float[Array, "T k"], end: Float[Array, " d"]) -> Float[Array, ""]:
        """What an episode has cost: effort, and the distance from the goal, in nats."""
        away = end - self.goal
        return 0.5 * jnp.sum(controls**2 / self.effort) + 0.5 * away @ self.want @ away


def looked(spread: Float[Array, "d d"], sensors: Any, information: Float[Array, " s"]) -> tuple[Array, Array]:
    """The covariance after a look through sensors of such precisions, one after the other, and the nats gained."""
    gain = jnp.zeros((), spread.dtype)
    for c, precision in zip(sensors, information, strict=True):
        seen = spread @ c
        more = 1 + precision * (c @ seen)
        spread, gain = spread - (precision / more) * seen[:, None] * seen, gain + 0.5 * jnp.log(more)
    return spread, gain


def expected_information(task: Task, mean: Array, wide: Array, spread: Array) -> Float[Array, " s"]:
    """`E_q[1 / E_ξ[R(m + ξ)]]` for m ~ N(mean, wide) and ξ ~ N(0, spread), by nodes along the lit coordinates; with
    none of these `1 / E[R(m + ξ)]`, which is smooth, and finds no light that is narrow and far away."""
    lit = list(task.lit)
    if not lit:
        return 1 / task.noise(mean, wide + spread)
    u, log_weights = hermite_product(_NODES[len(lit)], len(lit))
    root = _root(wide[jnp.ix_(jnp.array(lit), jnp.array(lit))])
    at = jnp.broadcast_to(mean, (len(u), mean.shape[0])).at[:, jnp.array(lit)].add(u @ root.T)
    noise = jax.vmap(task.noise, (0, None))(at, spread)
    weights = np.exp(log_weights)
    return jnp.sum((weights / weights.sum())[:, None] / noise, 0)


def _root(wide: Array) -> Array:
    """The Cholesky factor of a small matrix, written out: LAPACK is called for each of a batch."""
    d, rows = wide.shape[-1], {}
    for i in range(d):
        for j in range(i + 1):
            rest = wide[i, j] - sum(rows[i, k] * rows[j, k] for k in range(j))
            rows[i, j] = jnp.sqrt(jnp.maximum(rest, 1e-12)) if i == j else rest / rows[j, j]
    return jnp.stack([jnp.stack([rows.get((i, j), jnp.zeros(())) for j in range(d)]) for i in range(d)])


def belief_energy(
    task: Task, means: Float[Array, "T d"], wides: Float[Array, "T d d"], spread: Float[Array, "d d"],
    alive: Float[Array, " T"], kappa: Any,
) -> Float[Array, ""]:  # fmt: skip
    """J of a path of belief means, linear dynamics; steps that are not `alive` neither move nor look."""
    a, _ = task.slopes(jnp.zeros_like(means[0]), jnp.zeros(task.effort.shape))

    def step(carry: tuple[Array, Array], x: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        (spread, gain), (mean, wide, on) = carry, x
        spread = jnp.where(on > 0, a @ spread @ a.T + task.shake, spread)
        spread, more = looked(spread, task.sensors, on * expected_information(task, mean, wide, spread))
        return (spread, gain + more), None

    (spread, gain), _ = jax.lax.scan(step, (spread, jnp.zeros((), means.dtype)), (means, wides, alive))
    return 0.5 * jnp.trace(task.want @ spread) - kappa * gain


class Plan(NamedTuple):
    """The first control of a plan, the path it belongs to, how far from stationary it was left, and its energy."""

    control: Float[Array, " k"]
    path: Any
    residual: Float[Array, ""]
    energy: Float[Array, ""]


Planner = Callable[[Array, Array, Array], Plan]  # of the mean and covariance of a belief, and the steps that are left


def kl_planner(task: Task) -> Planner:
    """KL control of linear dynamics: the same chain without an energy, solved exactly; what is unknown plays no part,
    so this is certainty equivalence as well."""
    d, k = task.push.shape
    a, b = task.slopes(jnp.zeros(d), jnp.zeros(k))
    program = ngmp.compile(_belief_path(task, a, b, None))

    def plan(now: Array, spread: Array, alive: Array) -> Plan:
        post = program(now=now, spread=spread, alive=alive)
        return Plan(_control(task, a, b, now, post["m"].mean[0]), post["m"], post.residual, post.free_energy)

    return plan


def path_planner(task: Task, kappa: float = 0.0, betas: Any = BETAS, sweeps: int = 4, damping: float = 0.4) -> Planner:
    """Plans of linear dynamics: a chain of belief means, controls eliminated, with the energy of its marginals."""
    d, k = task.push.shape
    a, b = task.slopes(jnp.zeros(d), jnp.zeros(k))

    def energy(path: Any, spread: Array, alive: Array, beta: Array) -> Array:
        return beta * belief_energy(task, path.mean, path.covariance, spread, alive, kappa)

    model = _belief_path(task, a, b, energy)
    program = ngmp.compile(model, solver=optax.sgd(damping), max_sweeps=sweeps, tol=1e-6)

    def plan(now: Array, spread: Array, alive: Array) -> Plan:
        post = program(now=now, spread=spread, alive=alive, anneal={"beta": betas})
        control = _control(task, a, b, now, post["m"].mean[0])
        return Plan(control, post["m"], post.residual, post.free_energy / betas[-1])

    return plan


def _push(task: Task, b: Array) -> Array:
    """What controls do in a step, as a covariance; a little of it where they move less than all of the state."""
    return b * task.effort @ b.T + 1e-6 * jnp.eye(b.shape[0])


def _belief_path(task: Task, a: Array, b: Array, energy: Callable[..., Array] | None) -> Callable[..., None]:
    """The model of a path of belief means, from `now` to the goal, controls eliminated."""
    d, push = b.shape[0], _push(task, b)

    def belief_path(now: Array, spread: Array, alive: Array, beta: float = 1.0) -> None:
        def step(m: Any, x: Any) -> tuple[Any, Any]:
            moves, spreads = x
            m = ngmp.sample("m", MvNormal(moves @ m, covariance=spreads))
            return m, m

        on = jnp.asarray(alive)[:, None, None] > 0
        moves, spreads = jnp.where(on, a, jnp.eye(d)), jnp.where(on, push, STILL * jnp.eye(d)) / beta
        first = ngmp.sample("m0", MvNormal(now, covariance=STILL / beta * np.eye(d)))
        m, path = ngmp.scan(step, first, (moves, spreads))
        ngmp.sample("want", MvNormal(m, precision=beta * task.want), obs=task.goal)
        if energy is not None:
            ngmp.functional("belief", energy, path, spread, alive, beta)

    return belief_path


def _control(task: Task, a: Array, b: Array, now: Array, then: Array) -> Array:
    """`E[u]`, given the step that it makes."""
    return task.effort * (b.T @ jnp.linalg.solve(_push(task, b), then - a @ now))


class Episode(NamedTuple):
    """What happened: states and belief means (T + 1, d), covariances, controls (T, k), residuals of the plans."""

    states: Array
    means: Array
    spreads: Array
    controls: Array
    residuals: Array


def episode(task: Task, plan: Planner, key: Array, now: Array, spread: Array, steps: int) -> Episode:
    """Infer, plan, act, observe, to the end: one `lax.scan`. The first state is drawn from the first belief."""
    first, key = jax.random.split(key)
    root = jnp.linalg.cholesky(jnp.asarray(spread))
    state = now + root @ jax.random.normal(first, now.shape)
    shake = jnp.linalg.cholesky(task.shake + 1e-18 * jnp.eye(len(now)))

    def step(carry: tuple, x: tuple) -> tuple[tuple, tuple]:
        (state, mean, spread), (key, left) = carry, x
        alive = (jnp.arange(steps) < left).astype(float)
        found = plan(mean, spread, alive)
        u = jnp.clip(found.control, -task.limit, task.limit)
        moving, seeing = jax.random.split(key)
        state = task.dynamics(state, u) + shake @ jax.random.normal(moving, state.shape)
        noise = task.noise(state, jnp.zeros_like(spread))
        y = task.sensors @ state + jnp.sqrt(noise) * jax.random.normal(seeing, noise.shape)
        mean, spread = filtered(task, mean, spread, u, y)
        return (state, mean, spread), (state, mean, spread, u, found.residual)

    begin = state, jnp.asarray(now), jnp.asarray(spread)
    _, path = jax.lax.scan(step, begin, (jax.random.split(key, steps), steps - jnp.arange(steps)))
    joined = (jnp.concatenate([x[None], rest]) for x, rest in zip(begin, path[:3], strict=True))
    return Episode(*joined, *path[3:])


def filtered(task: Task, mean: Array, spread: Array, u: Array, y: Array) -> tuple[Array, Array]:
    """The belief after a control and a look: moments matched, with the noise that is expected under it."""
    a, _ = task.slopes(mean, u)
    mean, spread = task.dynamics(mean, u), a @ spread @ a.T + task.shake
    for c, seen, noise in zip(task.sensors, y, task.noise(mean, spread), strict=True):
        gain = spread @ c / (c @ spread @ c + noise)
        mean, spread = mean + gain * (seen - c @ mean), spread - gain[:, None] * (c @ spread)
    return mean, spread
