r"""A start for joint edges of which the data say nothing by themselves: a few steps of Newton's method toward the mode.

Under all of a broad prior, expectations of a likelihood are astronomic (think of $e^{e^k u}$), and sweeps that begin
there take long or fail. So their leaves start at projections close to the mean, with nodes a tenth of a standard
deviation apart, with the size of their precision in every direction: the expansion of the log-density that Newton's
method has, away from saddles. A step is cut if there is no expansion at its end, or if the density there is lower.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ngmp_kernels import AbstractProjected, Quadrature
from ngmp_kernels.families import MvGaussian

from .centre import at_mean, term
from .chunks import by_chunks
from .core import masked
from .rules import Incoming, select

_NARROW = 0.1  # of the standard deviations of a marginal
_STEPS, _TRIES = 6, 30  # that are taken, the first of which finds the second; and with those that are refused
_SHORTER = 0.3
_PUSH = 0.3  # standard deviations of a marginal, by every factor


def near_mode(map: Any, leaves: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """The leaves with those of `keys`, joint edges, moved toward the mode; the others stay."""

    def expanded(leaves: dict[str, Any]) -> tuple[dict[str, Any], Bool[Array, ""], Float[Array, ""]]:
        """The leaves that the expansion at the means asks for, whether all of them exist, and the log-density there."""
        result, new = map.core.run(leaves), dict(leaves)
        fine, height = result.proper, _height(map.core, leaves, result, keys)
        for group in (g for g in map.projected if g.keys[0] in keys):
            (q, *others), (leaf, *rest), _ = map.incoming(group, result, leaves)
            about = MvGaussian(q.eta1 / _NARROW**2, q.eta2 / _NARROW**2)
            incoming = Incoming((about, *others), (0 * leaf, *rest))
            eta, exists = map.target(group, 0, incoming)
            height += jnp.sum(masked(group, _expected(group, incoming)))
            eta = concave(eta, q)
            finite = jnp.all(jnp.isfinite(eta.eta1), -1) & jnp.all(jnp.isfinite(eta.eta2), (-2, -1))
            fine &= jnp.all(finite)
            new[group.keys[0]] = select(exists & finite, eta, leaf)
        return map.masked(new), fine, height

    def sweep(state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Try the pending step; if all is fine at its end, the next is to the expansion there, else a part of it."""
        leaves, step, best, taken, tries = state
        trial = jax.tree.map(jnp.add, leaves, step)
        target, fine, height = expanded(trial)
        longer = jax.tree.map(jnp.subtract, target, trial)
        shorter = jax.tree.map(lambda x: _SHORTER * x, step)
        fine &= height > best
        found = jax.tree.map(lambda a, b: jnp.where(fine, a, b), (trial, longer, height), (leaves, shorter, best))
        return *found, taken + fine, tries + 1

    def goes_on(state: tuple[Any, ...]) -> Array:
        return (state[3] < _STEPS) & (state[4] < _TRIES)

    zero, low = jnp.zeros((), int), jnp.asarray(-jnp.inf, map.plan.dtype)
    begin = leaves, jax.tree.map(jnp.zeros_like, leaves), low, zero, zero
    return _nudged(map, jax.lax.while_loop(goes_on, sweep, begin)[0], keys)


def _height(core: Any, leaves: dict[str, Any], result: Any, keys: frozenset[str]) -> Float[Array, ""]:
    """The logarithm of the core's density at its mean, without the leaves of `keys`."""
    terms = [(edge, term(edge, leaf)) for (_, _, edge), leaf, key in
             zip(core.plan.functionals, core.stacked(leaves), core.keys, strict=True) if key not in keys]  # fmt: skip
    means = {plane: q.mean for plane, q in result.planes.items() if plane.family.core == "gaussian"}
    return at_mean([edge for edge, _ in terms], [own for _, own in terms], means)


def _expected(group: Any, incoming: Incoming) -> Float[Array, " n"]:
    """The expected log-message on a joint edge."""

    def expected(factor: Any, q: Any, cavities: Any) -> Array:
        return factor.expected_log_message(0, q, cavities, Quadrature())

    cavities, _ = incoming.proper_cavities()
    return by_chunks(expected, group.n, group.factor, incoming.marginals[0], cavities)


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
