r"""A start for deterministic nodes of variables that are the broader the farther along a chain they are.

Under a prior that is broad against the folds of g, $\mathbb E[g(x)]$ says nothing of where x is, and sweeps that begin
there may turn a pendulum over. So the nodes start about the path that the prior expects: the fixed point of
$m \leftarrow$ the means of the core when every output is known to be $g(m)$, as Picard solves a differential equation.
There the leaf of `out` has the moments of g(x), with a variance of no more than the smallest in the group (where a
chain is known best), and the leaf of x keeps it there for a sweep.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ngmp_kernels.families import Gaussian

from .rules import Incoming, select

_ROUNDS = 60  # a path of several turns takes some dozens
_NEAR = 0.1  # of a standard deviation: how little the path moves at its end
_POINT = 1e-4  # of a variance: a path, not a tube


def unfolded(map: Any, leaves: dict[str, Any]) -> dict[str, Any]:
    """The leaves with those of scalar deterministic nodes started about the path that the prior expects."""
    groups = [g for g in map.projected if g.factor.deterministic and g.factor.families == (Gaussian, Gaussian)]
    if not groups:
        return leaves
    core = map.core.run(leaves)
    arguments = {g.name: map.incoming(g, core, leaves).marginals[1] for g in groups}
    narrow = {name: _narrow(x) for name, x in arguments.items()}

    def outputs(leaves: dict[str, Any], means: dict[str, Array], part: float) -> dict[str, Any]:
        """The leaves when arguments stand at these means, with a part of the narrow variance."""
        new = dict(leaves)
        for group in groups:
            about = Gaussian.from_mean_variance(means[group.name], part * narrow[group.name])
            flat = jax.tree.map(jnp.zeros_like, tuple(leaves[k] for k in group.keys))
            eta, exists = map.target(group, 0, Incoming((about, about), flat))
            new[group.keys[0]] = select(exists & eta.is_proper(), eta, leaves[group.keys[0]])
        return map.masked(new)

    def path(state: tuple[Any, ...]) -> tuple[Any, ...]:
        means, _, count = state
        now = outputs(leaves, means, _POINT)
        result = map.core.run(now)
        after = {g.name: map.incoming(g, result, now).marginals[1].mean for g in groups}
        moves = [jnp.max(jnp.abs(after[k] - means[k]) / jnp.sqrt(narrow[k])) for k in after]
        return after, jnp.max(jnp.stack(moves)), count + 1

    def goes_on(state: tuple[Any, ...]) -> Array:
        return (state[1] > _NEAR) & (state[2] < _ROUNDS)

    begin = {name: x.mean for name, x in arguments.items()}
    far = jnp.asarray(jnp.inf, map.plan.dtype)
    means, moved, _ = jax.lax.while_loop(goes_on, path, (begin, far, 0))
    found = moved <= _NEAR
    means = {k: jnp.where(found, means[k], begin[k]) for k in means}
    new = outputs(leaves, means, 1.0)
    for group in groups:
        x, key = arguments[group.name], group.keys[1]
        about = Gaussian.from_mean_variance(means[group.name], narrow[group.name])
        held = core.proper & (jnp.abs(means[group.name] - x.mean) ** 2 + x.variance > 1.5 * about.variance)
        new[key] = select(jnp.broadcast_to(held, leaves[key].eta1.shape), about, leaves[key])
    return map.masked(new)


def _narrow(x: Gaussian) -> Array:
    """Variances of no more than the smallest of a group."""
    return jnp.minimum(x.variance, jnp.min(jnp.where(x.variance > 0, x.variance, jnp.inf)))
