"""When a run may end: its last steps are short, and those that would follow do not add up to much."""

import jax.numpy as jnp
import pytest

from ngmp_compiler.solve.moves import Moves

TOL = 1e-8


def after(*distances: float) -> bool:
    """Whether a run has converged after whole steps that went so far."""
    far, no, yes = jnp.full(1, jnp.inf), jnp.zeros(1, bool), jnp.ones(1, bool)
    moves = Moves(far, no, no, no, jnp.ones(1), far, far, jnp.ones(1))
    for distance in distances:
        moves = moves._replace(next=yes).seen(0, jnp.asarray(distance), TOL)
    return bool(moves.small(TOL).all())


@pytest.mark.parametrize(
    ("distances", "ends"),
    [
        ((1e-7, 3e-8, 9e-9), True),  # a third every time
        ((1.0, 1e-9), True),  # Newton's
        ((1e-3, 0.0), True),
        ((9.000003e-9, 9.000002e-9, 9.000001e-9), False),  # ten million more of these are a tenth of a deviation
        ((9e-9, 7e-9, 9e-9, 7e-9), False),  # and so are these, of two that take turns
        ((1e-6, 1e-7), False),  # too far
        ((1e-11, 2e-11, 1e-11, 2e-11), True),  # rounding: a chain of 3288 went on for 300 sweeps like this
        ((1e-10, 2e-10, 1e-10, 2e-10), False),
    ],
)
def test_steps_that_follow_count(distances, ends):
    assert after(*distances) is ends


def test_after_a_leap_one_short_step_proves_nothing():
    far, no, yes = jnp.full(1, jnp.inf), jnp.zeros(1, bool), jnp.ones(1, bool)
    moves = Moves(far, no, no, no, jnp.ones(1), far, far, jnp.ones(1))
    moves = moves.seen(0, jnp.asarray(1e-3), TOL)  # by mixing
    moves = moves._replace(next=yes).seen(0, jnp.asarray(1e-9), TOL)
    assert not moves.small(TOL).any()
    assert moves._replace(next=yes).seen(0, jnp.asarray(1e-10), TOL).small(TOL).all()
