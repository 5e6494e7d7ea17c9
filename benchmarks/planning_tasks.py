"""The tasks of `planning.py`: where it is light, what moves, and what is wanted."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ngmp_models.planning import Task

STEPS = 20
LIGHT = 5.0
FLOOR = 0.1**2


def still(x: Array, u: Array) -> Array:
    """A body that goes where it is pushed."""
    return x + u


def plane(noise: Callable, want: float = 0.1, goal: tuple = (0.0, 0.0), lit: tuple = ()) -> Task:
    """A body in the plane that sees both of its coordinates."""
    eye = np.eye(2)
    return Task(still, eye, 0.05**2 * eye, eye, noise, lit, np.array(goal), eye / want**2, np.full(2, 0.25), 1.0)


def quadratic(mean: Array, spread: Array) -> Array:
    """Dark away from x_1 = 5, by the square of the distance."""
    return (0.5 * ((LIGHT - mean[0]) ** 2 + spread[0, 0]) + FLOOR) * jnp.ones(2)


def lamp(width: float, dark: float = 9.0) -> Callable:
    """Dark but for a narrow lamp at x_1 = 5."""

    def noise(mean: Array, spread: Array) -> Array:
        wide = width**2 + spread[0, 0]
        lit = width / jnp.sqrt(wide) * jnp.exp(-0.5 * (mean[0] - LIGHT) ** 2 / wide)
        return (FLOOR + dark * (1 - lit)) * jnp.ones(2)

    return noise


def constant(mean: Array, spread: Array) -> Array:
    """As dark everywhere."""
    return jnp.full(2, 1.0)


def round_lamp(mean: Array, spread: Array) -> Array:
    """A lamp at (4, 3), round."""
    wide = 1.2**2 * jnp.eye(2) + spread
    away = mean - jnp.array([4.0, 3.0])
    a, b, c = wide[0, 0], wide[0, 1], wide[1, 1]
    det = a * c - b * b
    square = (c * away[0] ** 2 - 2 * b * away[0] * away[1] + a * away[1] ** 2) / det
    return (FLOOR + 9.0 * (1 - 1.2**2 / jnp.sqrt(det) * jnp.exp(-0.5 * square))) * jnp.ones(2)


def slanted(mean: Array, spread: Array) -> Array:
    """Two sensors that the light serves differently."""
    return quadratic(mean, spread) * jnp.array([1.0, 4.0])


class Case(NamedTuple):
    """A task with where it begins, what the reference planner is told of, and what pictures show."""

    name: str
    title: str
    task: Task
    start: tuple
    spread: np.ndarray
    places: tuple = ()  # by way of which the reference planner also starts
    without: tuple = ()
    judged: tuple = (0, 1)  # coordinates of success
    drawn: tuple = (0, 1)
    window: tuple = ((-2.0, -2.5), (7.0, 4.5))


EYE = np.eye(2)
FEW = ("CEM, 400 x 12",)  # left out where it says nothing new
SKEW = np.array([[1.0, 0.6], [0.6, 0.8]])


def _skewed() -> Task:
    shake = 0.05**2 * np.array([[1.0, -0.5], [-0.5, 1.0]])
    sensors = np.array([[1.0, 0.0], [0.6, 0.8]])
    task = plane(slanted)
    return Task(still, task.push, shake, sensors, slanted, (), task.goal, task.want, task.effort, 1.0)


CASES: dict[str, Callable[[], Case]] = {
    "quadratic": lambda: Case("quadratic", "Light-dark, the quadratic light", plane(quadratic), (2.0, 2.0), EYE,
                              ((LIGHT, 1.0),)),
    "lamp": lambda: Case("lamp", "Light-dark, a narrow lamp (width 0.75, four widths away)",
                         plane(lamp(0.75), lit=(0,)), (2.0, 2.0), EYE, ((LIGHT, 1.0),)),
    "nothing": lambda: Case("nothing", "Nothing to learn (variance 0.005)", plane(quadratic), (2.0, 2.0), 0.005 * EYE,
                            ((LIGHT, 1.0),), FEW),
    "constant": lambda: Case("constant", "Constant noise", plane(constant), (2.0, 2.0), EYE,
                             without=FEW),
    "covariance": lambda: Case("covariance", "Full covariances, slanted sensors", _skewed(), (2.0, 2.0), SKEW,
                               ((LIGHT, 1.0),), FEW),
    "round": lambda: Case("round", "A round lamp in the plane", plane(round_lamp, lit=(0, 1)), (0.0, 2.0), EYE,
                          ((4.0, 3.0),), FEW),
}  # fmt: skip
