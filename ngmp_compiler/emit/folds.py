r"""A start for deterministic nodes of variables that are the broader the farther along a chain they are.

Under a prior that is broad against the folds of g, $\mathbb E[g(x)]$ says nothing of where x is, and sweeps that begin
there may turn a pendulum over: the answer fits its beginning, and its end, with another number of turns. So the nodes
are heard in the order in which their arguments become known, the narrowest first, as a filter hears them: every round
some more of them, while the rest stand as before (`initial`). What has been heard narrows what comes next, by the
dynamics and by the data, wherever it stands in the graph. A step that leaves a marginal improper is not taken, and the
next is a part of it. Where all arguments are about as well known as each other there is no order, and nothing is done.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ngmp_kernels.families import Gaussian

from .rules import select

_ROUNDS = 64  # of which each hears as many more; where there are fewer nodes, one more
_LAST = 4  # rounds with all of them
_BROAD = 4.0  # largest over smallest variance from which there is an order
_SHORTER = 0.25


def unfolded(map: Any, leaves: dict[str, Any]) -> dict[str, Any]:
    """The leaves with those of scalar deterministic nodes started in the order in which they are known."""
    groups = [g for g in map.projected if g.factor.deterministic and g.factor.families == (Gaussian, Gaussian)]
    if not groups:
        return leaves
    rounds = min(_ROUNDS, max(g.n for g in groups))
    own = {key: leaves[key] for group in groups for key in group.keys}

    def variances(core: Any) -> dict[str, Array]:
        return {g.name: _variance(core.edges[g.keys[1]]) for g in groups}

    def heard(count: Array, core: Any, before: dict[str, Array]) -> dict[str, Bool[Array, " n"]]:
        """The rows that were heard before, and as many more of the narrowest as are to be by now."""
        out = {}
        for group in groups:
            rank = jnp.argsort(jnp.argsort(jnp.where(before[group.name], -jnp.inf, variances(core)[group.name])))
            out[group.name] = before[group.name] | (rank * rounds < group.n * (count + 1))
        return out

    def turn(state: tuple[Any, ...]) -> tuple[Any, ...]:
        good, step, known, part, count = state
        trial = jax.tree.map(lambda x, s: x + part * s, good, step)
        now = leaves | trial
        core = map.core.run(now)
        known = heard(count, core, known)
        target, fine = {}, core.proper
        for group in groups:
            incoming = map.incoming(group, core, now)
            for j, key in enumerate(group.keys):
                eta, exists = map.target(group, j, incoming)
                finite = jnp.isfinite(eta.eta1) & jnp.isfinite(eta.eta2)  # rows without a target stay
                target[key] = select(exists & finite & known[group.name], eta, trial[key])
        longer = jax.tree.map(jnp.subtract, target, trial)
        took = (trial, longer, known, jnp.ones_like(part), count + 1)
        refused = (good, step, state[2], _SHORTER * part, count + 1)
        return jax.tree.map(lambda a, b: jnp.where(fine, a, b), took, refused)

    def goes_on(state: tuple[Any, ...]) -> Array:
        return state[-1] < rounds + _LAST

    core = map.core.run(leaves)
    spread = [jnp.max(v) > _BROAD * jnp.min(v) for v in variances(core).values()]
    ordered = core.proper & jnp.any(jnp.stack(spread))
    none = {g.name: jnp.zeros(g.n, bool) for g in groups}
    begin = jnp.where(ordered, 0, rounds + _LAST)
    one = jnp.ones((), map.plan.dtype)
    found = jax.lax.while_loop(goes_on, turn, (own, jax.tree.map(jnp.zeros_like, own), none, one, begin))[0]
    return map.masked(leaves | found)


def _variance(x: Any) -> Array:
    return jnp.where(x.is_proper(), x.variance, jnp.inf)
