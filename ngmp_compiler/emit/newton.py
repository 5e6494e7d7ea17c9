r"""A start for joint edges of which the data say nothing by themselves: a few steps of Newton's method toward the mode.

Under all of a broad prior, expectations of a likelihood are astronomic (think of $e^{e^k u}$), and sweeps that begin
there take long or fail. So their leaves start at projections close to the mean, with nodes a tenth of a standard
deviation apart, with the size of their precision in every direction: the expansion of the log-density that Newton's
method has, away from saddles. A step is cut if there is no expansion at its end.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ngmp_kernels import AbstractProjected
from ngmp_kernels.families import MvGaussian

from .rules import Incoming, select

_NARROW = 0.1  # of the standard deviations of a marginal
_SWEEPS = 6  # the first finds the step of the second
_SHORTER = 0.3
_PUSH = 0.3  # standard deviations of a marginal, by every factor


def near_mode(map: Any, leaves: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """The leaves with those of `keys`, joint edges, moved toward the mode; the others stay."""

    def expanded(leaves: dict[str, Any]) -> tuple[dict[str, Any], Bool[Array, ""]]:
        """The leaves that the expansion at the means asks for, and whether all of them exist."""
        result, new = map.core.run(leaves), dict(leaves)
        fine = result.proper
        for group in (g for g in map.projected if g.keys[0] in keys):
            (q, *others), (leaf, *rest), _ = map.incoming(group, result, leaves)
            about = MvGaussian(q.eta1 / _NARROW**2, q.eta2 / _NARROW**2)
            eta, exists = map.target(group, 0, Incoming((about, *others), (0 * leaf, *rest)))
            eta = concave(eta, q)
            finite = jnp.all(jnp.isfinite(eta.eta1), -1) & jnp.all(jnp.isfinite(eta.eta2), (-2, -1))
            fine &= jnp.all(finite)
            new[group.keys[0]] = select(exists & finite, eta, leaf)
        return map.masked(new), fine

    def sweep(_: int, state: tuple[Any, Any]) -> tuple[Any, Any]:
        """Try the pending step; if all is fine at its end, the next is to the expansion there, else a part of it."""
        leaves, step = state
        trial = jax.tree.map(jnp.add, leaves, step)
        target, fine = expanded(trial)
        longer = jax.tree.map(jnp.subtract, target, trial)
        shorter = jax.tree.map(lambda x: _SHORTER * x, step)
        return jax.tree.map(lambda a, b: jnp.where(fine, a, b), (trial, longer), (leaves, shorter))

    zeros = jax.tree.map(jnp.zeros_like, leaves)
    return _nudged(map, jax.lax.fori_loop(0, _SWEEPS, sweep, (leaves, zeros))[0], keys)


def _nudged(map: Any, leaves: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Leaves with a push, always the same, where all factors of a group are stuck at a point of symmetry: products of
    variables that are all about zero, say, would never leave it."""
    new, result = dict(leaves), None
    for group in (g for g in map.projected if g.keys[0] in keys and len(g.edges) == 1):
        if type(group.factor).stuck is AbstractProjected.stuck:
            continue
        result = map.core.run(leaves) if result is None else result
        (q,), (leaf,), _ = map.incoming(group, result, leaves)
        q = jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape), q, leaf)
        kick = q.kick(jax.random.key(0), jnp.asarray(_PUSH, q.dtype))
        push = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0.0), kick)
        part = jnp.where(jnp.all(group.factor.stuck(q)), 1.0, 0.0).astype(map.plan.dtype)
        new[group.keys[0]] = leaf + part * push
    return map.masked(new)


def concave(eta: MvGaussian, q: MvGaussian) -> MvGaussian:
    """A message with the size of its precision along all directions, in coordinates of q: positive where it was not.

    Its gradient at the mean of q stays as it is, `xi + (|Lambda| - Lambda) m`; with nothing but the prior against it, a
    step along a direction that curves the other way would lead out of sight.
    """
    root = jnp.linalg.cholesky(q.covariance)
    back = jnp.linalg.inv(root)
    turned = jnp.swapaxes(root, -1, -2) @ eta.precision @ root
    sizes, ways = jnp.linalg.eigh(jnp.where(jnp.isfinite(turned), turned, 0.0))
    kept = jnp.einsum("...ik,...k,...jk->...ij", ways, jnp.abs(sizes), ways)
    precision = jnp.swapaxes(back, -1, -2) @ kept @ back
    slope = jnp.einsum("...ij,...j->...i", precision - eta.precision, q.mean)
    return MvGaussian.from_information(eta.eta1 + slope, precision)
