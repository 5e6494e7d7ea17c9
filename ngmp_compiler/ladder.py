"""The ladder: what an eager call tries next where it has not got there.

A run that has not converged goes on with the next solver; an integral that has not settled, with more nodes. Traced
calls keep the first answer, with its flag.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from jax.core import Tracer

from .passes.condition import Carry
from .pipeline import Static
from .results.posterior import Posterior
from .solve.solver import INTEGRAL, RUNNING, STUCK

if TYPE_CHECKING:
    from .program import Program


def climb(
    program: "Program", static: Static, dynamic: list[Any], post: Posterior, carry: Carry | None = None
) -> Posterior:
    """`post`, or what the next rungs of the ladder make of it where it has not converged; not if it is traced."""
    if any(isinstance(x, Tracer) for x in (post.status, *dynamic)):
        return post
    if post.nodes is not None:
        return _refined(program, static, dynamic, post)
    next_rung = program._options.rung + 1
    if next_rung == len(program._options.rungs) or not np.isin(np.asarray(post.status), (RUNNING, STUCK)).all():
        return post
    higher = program._other(rung=next_rung)
    again = higher._jitted(higher._run_impl, static, dynamic)(dynamic, carry, post.state)
    again = climb(higher, static, dynamic, again, carry)
    if not again.converged and not again.residual < post.residual:
        return post
    # The state goes on with this program's own solver.
    kept = post.state.memory, post.sweeps + again.sweeps, post.state.sweeps + again.sweeps, again.state.rung + 1
    return eqx.tree_at(lambda p: (p.state.memory, p.sweeps, p.state.sweeps, p.state.rung), again, kept)


def _refined(program: "Program", static: Static, dynamic: list[Any], post: Posterior) -> Posterior:
    """An integral by more nodes, where it is the number of nodes that it lacks."""
    settled = program._options.finer or (np.asarray(post.status) != INTEGRAL).any()
    if settled or not np.all(post.nodes.found & post.nodes.ends):
        return post
    finer = program._other(finer=True)
    return finer._jitted(finer._run_impl, static, dynamic)(dynamic, None, None)
