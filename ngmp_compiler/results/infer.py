"""Infer: from a specialised program to a posterior, its derivatives those of the fixed point."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..emit.core import Leaves
from ..emit.initial import Given
from ..passes.checks import checks
from ..pipeline import Specialised
from ..solve.implicit import attach, envelope, flagged
from ..solve.lanes import without_derivatives
from ..solve.moves import blurred
from ..solve.solver import BLURRED, CONVERGED, INVALID, UNSETTLED, Solver, State
from .approximations import approximations
from .posterior import Members, Posterior, runs, topology


def infer(program: Specialised, init: State | Given | None = None) -> Posterior:
    """Run to the fixed point, from a state or from marginals by name."""
    solver, map = program.solver, program.map
    if not map.projected:
        post = posterior(program, solver.init({}))
        return flagged(post.converged, post)
    state = settle(solver, init.leaves if isinstance(init, State) else map.initial(init))
    post = posterior(program, state)
    if map.stationary:
        energy = envelope(lambda leaves, map: map.energy(leaves), post.free_energy, state.leaves, map)
        post = eqx.tree_at(lambda p: p.free_energy, post, energy)
    return flagged(post.converged, post)


def settle(solver: Solver, start: Leaves) -> State:
    """Iterate to the fixed point; the leaves have its derivatives in the arrays of the map."""
    if not solver.map.projected:  # there is nothing to iterate
        return solver.exact(solver.init({}), solver.map.core.run({}).proper)[0]
    # The iteration is not differentiated; the fixed point is.
    alone = any(executor.alone for executor in solver.map.plan.gaussian)
    state = without_derivatives(Solver.run, solver, solver.init(start), alone)
    inputs = solver.map, state.shares
    leaves = attach(lambda leaves, x: x[0].evaluate(leaves, shares=x[1]).target, state.leaves, inputs, 0.1 * solver.tol)
    return eqx.tree_at(lambda s: s.leaves, state, leaves)


def posterior(program: Specialised, state: State) -> Posterior:
    """What a state says: marginals by name, the free energy, and whether to trust them."""
    plan, map, solver = program.plan, program.map, program.solver
    result = map.core.refined(state.leaves)
    if map.projected:
        status = solver.status(state)
    else:  # conjugate: the core is exact, in one sweep
        state, status = solver.exact(state, result.proper & jnp.isfinite(result.log_partition))
    status = jnp.where((status == CONVERGED) & ~result.settled, UNSETTLED, status)
    for q in result.planes.values():
        status = jnp.where((status == CONVERGED) & blurred(q), BLURRED, status)
    status = jnp.where(_violated(program), INVALID, status)
    marginals = {}
    for key, (plane, positions, _) in plan.collections.items():
        start, count = int(positions.reshape(-1)[0]), positions.size

        def shaped(x: jax.Array, start=start, count=count, shape=positions.shape) -> jax.Array:
            part = x if count == x.shape[0] else x[start : start + count]
            return part.reshape(*shape, *x.shape[1:])

        marginals[key] = jax.tree.map(shaped, result.planes[plane])
    energy = map.free_energy(state.leaves, result, state.shares)
    if map.projected:
        energy = jnp.where(solver.lost(state), jnp.inf, energy)
    neighbours = runs({name: plan.names[name] for name in marginals if name in plan.names}, result.neighbours)
    return Posterior(
        marginals, energy, status == CONVERGED, state.sweeps, state.residual, status, state, neighbours,
        result.jitter, Members(plan.collections), approximations(map), topology(plan),
    )  # fmt: skip


def _violated(program: Specialised) -> Bool[Array, ""]:
    """Whether data or parameters are such that no posterior can be computed."""
    found = [jnp.any(~check.ok) for check in checks(program.plan)]
    return jnp.any(jnp.stack(found)) if found else jnp.asarray(False)
