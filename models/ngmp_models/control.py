"""Motion and control: states of moving bodies, where they were seen from, and what would bring them to a goal."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

import ngmp_compiler as ngmp
from ngmp_compiler import MvNormal, Normal

STEP = 0.1
DRIFT = np.array([[1.0, STEP], [0.0, 1.0]])  # position and velocity, a tenth of a second later
SHAKE = np.array([[STEP**3 / 3, STEP**2 / 2], [STEP**2 / 2, STEP]])  # what white noise in the acceleration adds
PUSH = np.array([STEP**2 / 2, STEP])  # what an acceleration does in that time


def tracking(
    y: Float[Array, "n 2"], mask: Bool[Array, " n"] | None = None, push: float = 1.0, noise: float = 0.2
) -> None:
    r"""A body in the plane, $x = (p, v)$ by axis: $x_k \sim N(A x_{k-1}, q Q)$, $y_k \sim N(p_k, \rho^2)$, where Q is
    what white noise in the acceleration does in one step."""
    for axis, name in enumerate(("x", "y")):

        def step(state, given, name=name):
            y_k, seen = given
            state = ngmp.sample(name, MvNormal(DRIFT @ state, covariance=push**2 * SHAKE))
            ngmp.sample(f"seen_{name}", Normal(state[0], std=noise), obs=y_k, mask=seen)
            return state, None

        start = ngmp.sample(f"{name}0", MvNormal(np.zeros(2), covariance=np.array([4.0, 1.0])))
        ngmp.scan(step, start, (y[:, axis], mask))


def range_bearing(
    distance: Float[Array, " n"], angle: Float[Array, " n"], walk: float = 0.3, far: float = 0.1, turned: float = 0.05
) -> None:
    r"""A walk in the plane seen from the origin: $x_k \sim N(x_{k-1}, q^2 I)$, $r_k \sim N(|x_k|, \rho^2)$,
    $\theta_k \sim N(\arctan_2 x_k, \kappa^2)$."""

    def step(x, given):
        r_k, a_k = given
        x = ngmp.sample("x", MvNormal(x, covariance=walk**2))
        ngmp.sample("distance", Normal(ngmp.apply(_length, x, name="length"), std=far), obs=r_k)
        ngmp.sample("angle", Normal(ngmp.apply(_turn, x, name="turn"), std=turned), obs=a_k)
        return x, None

    ngmp.scan(step, ngmp.sample("x0", MvNormal(np.array([3.0, 3.0]), covariance=1.0)), (distance, angle))


def _length(x):
    return jnp.sqrt(x[0] ** 2 + x[1] ** 2)


def _turn(x):
    return jnp.arctan2(x[1], x[0])


def regulator(start: Float[Array, "2"], goal: Float[Array, "2"], steps: int, effort: float = 1.0) -> None:
    r"""Control as inference: $u_k \sim N(0, 1/r)$, $x_k = A x_{k-1} + B u_k$, and the last state is seen at the goal.

    The mean of `u` (steps,) is the linear-quadratic optimum of $\sum_k r u_k^2$; exact.
    """
    u = ngmp.sample("u", MvNormal(np.zeros(steps), covariance=1.0 / effort))
    after = [np.linalg.matrix_power(DRIFT, k) for k in range(steps + 1)]
    reach = np.stack([after[steps - 1 - k] @ PUSH for k in range(steps)], -1)  # (2, steps)
    ngmp.sample("goal", MvNormal(reach @ u + after[steps] @ start, covariance=1e-4), obs=goal)


def pendulum(y: Float[Array, " n"], noise: float = 0.2, push: float = 0.2) -> None:
    r"""A pendulum of unknown swing, angle and velocity: $\omega_k \sim N(\omega_{k-1} - h g \sin\theta_{k-1}, q)$,
    $\theta_k \sim N(\theta_{k-1} + h \omega_k, 10^{-4})$, $y_k \sim N(\sin\theta_k, \rho^2)$, h = 0.1, g = 9.81."""

    def step(carry, y_k):
        angle, speed = carry
        pull = ngmp.sin(angle)
        speed = ngmp.sample("speed", Normal(speed - 0.981 * pull, std=push))
        angle = ngmp.sample("angle", Normal(angle + 0.1 * speed, std=0.05))
        ngmp.sample("y", Normal(ngmp.sin(angle), std=noise), obs=y_k)
        return (angle, speed), None

    start = ngmp.sample("angle0", Normal(0.5, std=0.3)), ngmp.sample("speed0", Normal(0.0, std=0.5))
    ngmp.scan(step, start, y)
