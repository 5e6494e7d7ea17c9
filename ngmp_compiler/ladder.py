"""The ladder: what an eager call tries next where it has not got there.

A run that has not converged goes on with the next solver. The last two start anew by other rules: one hears half of
each factor at a time (`emit.rules.halved`), one descends on a free energy that has a minimum, of mean field where
factors have several unknowns. From where they converge the rules that were asked for are tried again: if these
converge, it is theirs that is returned. An integral that has not settled, with a grid for every mode,
with more nodes, with draws. Traced calls keep the first answer, with its flag.
"""

import dataclasses
import importlib.util
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .passes.condition import Carry
from .pipeline import Static
from .results.posterior import Posterior
from .solve.solver import DESCENT, HALVES, INTEGRAL, RUNNING, STUCK, State

if TYPE_CHECKING:
    from .program import Program


def climb(
    program: "Program", static: Static, dynamic: list[Any], post: Posterior, carry: Carry | None = None,
    init: Any = None,
) -> Posterior:  # fmt: skip
    """`post`, or what the next rungs of the ladder make of it where it has not converged; not if it is traced.

    Args:
        init: where the run began, if anywhere else than at the automatic start.
    """
    if any(isinstance(x, Tracer) for x in (post.status, *dynamic)):
        return post
    if post.nodes is not None:
        return _refined(program, static, dynamic, post)

    def run(program: "Program", init: Any) -> Posterior:
        return program._jitted(program._run_impl, static, dynamic)(dynamic, carry, init)

    higher, best, sweeps = program, post, post.sweeps
    for rung in range(1, len(program._options.rungs)):
        if not np.isin(np.asarray(best.status), (RUNNING, STUCK)).all():
            break
        higher = higher._other(rung=rung)
        options = higher._options
        anew = options.halves or options.descends  # by rules of its own, from the start
        if anew and not _differs(program, higher, static, dynamic, carry):
            continue
        again = run(higher, init if anew else best.state)
        sweeps = sweeps + again.sweeps
        if anew:
            rung = HALVES if options.halves else DESCENT
        if anew and again.converged:
            own = run(program, again.state)
            sweeps, again, rung = sweeps + own.sweeps, *((own, rung + 1) if own.converged else (again, rung))
        if again.converged or again.residual < best.residual:
            best = _counted(again, post.state, sweeps, rung)
    return best


def _differs(program: "Program", higher: "Program", static: Static, dynamic: list[Any], carry: Carry | None) -> bool:
    """Whether a rung has something to descend on, or rules that are not those of the program."""
    own, other = (jax.eval_shape(lambda x, p=p: p._build(static, x, carry), dynamic) for p in (program, higher))
    return other.solver.descends if higher._options.descends else other.map.rules != own.map.rules


def _counted(post: Posterior, first: State, sweeps: Any, rung: int) -> Posterior:
    """A posterior after all sweeps so far; its state goes on with the solver of the first rung."""
    state = dataclasses.replace(
        post.state, memory=first.memory, objective=first.objective, sweeps=sweeps, rung=jnp.asarray(rung)
    )
    return eqx.tree_at(lambda p: (p.state, p.sweeps), post, (state, sweeps))


def _refined(program: "Program", static: Static, dynamic: list[Any], post: Posterior) -> Posterior:
    """An integral with a grid for every mode, if some were missed; else by more nodes, if that is what it lacks; then,
    of more numbers than grids are used for, by draws."""
    effort, nodes = program._options.effort, post.nodes
    if (np.asarray(post.status) != INTEGRAL).any() or not np.all((nodes.found | nodes.many) & nodes.ends):
        return post
    if np.any(nodes.missed) and not effort.modes:
        more = effort._replace(modes=True)
    elif not effort.finer and not effort.draws:
        more = effort._replace(finer=True)
    elif not effort.draws and nodes.many and importlib.util.find_spec("blackjax") is not None:
        more = effort._replace(draws=True)
    else:
        return post
    other = program._other(effort=more)
    return _refined(other, static, dynamic, other._jitted(other._run_impl, static, dynamic)(dynamic, None, None))
