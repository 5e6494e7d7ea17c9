r"""Draws from Gaussians whose precision $P = L L^T$ is eliminated along a chain, a tree or a band.

All are deviations from the mean, $L^{-T} z$ with z standard normal: what was eliminated last is drawn first, and every
other given those that it was eliminated into. Means come from the solution, which is the same for all draws.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ngmp_kernels.numerics.cholesky import inverse_factor, unwhiten, whiten

from .banded import forward
from .factor import factor
from .scalar_chain import Ties
from .scalar_tree import TreeOrder, eliminate

_LONG = 256  # variables of a chain from which on its draws are made one after the other


def chain_draws(unary: Float[Array, " T"], ties: Ties, noise: Float[Array, "draws T"]) -> Float[Array, "draws T"]:
    """Deviations of a scalar chain (see `scalar_chain`): $d_k = (l a b\\, d_{k+1} + \\sqrt{s_k} z_k) / s_k$."""
    length = unary.shape[0]
    onward, own, coupling = (jnp.broadcast_to(x, (length - 1,)) for x in ties)

    def inward(p: Array, step: tuple) -> tuple[Array, Array]:
        unary, onward, own = step
        pivot = p + own
        return unary + onward * p / pivot, pivot

    last, pivots = jax.lax.scan(inward, unary[0], (unary[1:], onward, own))
    scale, gain = jax.lax.rsqrt(jnp.append(pivots, last)), jnp.append(coupling / pivots, 0.0)

    def outward(later: Array, step: tuple) -> tuple[Array, Array]:
        z, scale, gain = step
        moved = gain * later + scale * z
        return moved, moved

    if length < _LONG:
        start = jnp.zeros(noise.shape[0], unary.dtype)
        return jax.lax.scan(outward, start, (noise.T, scale, gain), reverse=True)[1].T
    zero = jnp.zeros((), unary.dtype)
    # Draw by draw: a scan over scalars is one loop.
    return jax.lax.map(lambda z: jax.lax.scan(outward, zero, (z, scale, gain), reverse=True, unroll=4)[1], noise)


def tree_draws(
    order: TreeOrder,
    own: Float[Array, " M"],
    ends: Float[Array, "2 E"],
    coupling: Float[Array, " E"],
    noise: Float[Array, "draws M"],
) -> Float[Array, "draws M"]:
    """Deviations of a forest of scalars (see `scalar_tree.tree_gaussian`)."""
    solved = eliminate(order, own, jnp.zeros_like(own), ends, coupling)[1]
    found = jnp.zeros((order.nodes + 1, noise.shape[0]), noise.dtype)
    noise = jnp.pad(noise.T, ((0, 1), (0, 0)))

    def back(found: Array, given: tuple) -> tuple[Array, None]:
        r, (s, _, *tie) = given
        pull = sum(-x[:, None] * found[r.neighbour[i]] for i, x in enumerate(tie))
        drawn = pull / s[:, None] + noise[r.node] * jax.lax.rsqrt(s)[:, None]
        return found.at[r.node].set(drawn).at[-1].set(0.0), None

    for stage_and_kept in reversed(solved):
        found, _ = jax.lax.scan(back, found, stage_and_kept, reverse=True)
    return found[:-1].T


def banded_draws(
    diagonal: Float[Array, "K s s"],
    beside: Float[Array, "K-1 s s"],
    across: Float[Array, "K s k"],
    corner: Float[Array, "k k"],
    noise: Float[Array, "K s draws"],
    tail: Float[Array, "k draws"],
) -> tuple[Float[Array, "K s draws"], Float[Array, "k draws"]]:
    """Deviations of the line and of the border (see `banded.banded_gaussian`): those of the border come first, then
    $L_k^T x_k = z_k - L_k^{-1} (E_k x_{k+1} + C_k w)$, the last of it as the forward pass has carried it along."""
    scale = jnp.diagonal(diagonal, axis1=-2, axis2=-1)
    end, before = (diagonal[0], across[0]), None
    if len(diagonal) > 1:
        end, before = jax.lax.scan(forward, end, (scale[:-1], beside, diagonal[1:], across[1:]))
    chol = factor(end[0], scale[-1])[0][None]
    through = whiten(chol, end[1][None])
    if before is not None:
        chol, through = jnp.concatenate([before[0], chol]), jnp.concatenate([before[2], through])
    if corner.shape[-1]:
        root, _ = factor(corner - jnp.einsum("nsk,nsl->kl", through, through), jnp.diagonal(corner))
        tail = unwhiten(root, tail)
        noise = noise - through @ tail
    inverse = inverse_factor(chol)
    last = inverse[-1].T @ noise[-1]
    if before is None:
        return last[None], tail

    def back(later: Array, step: tuple) -> tuple[Array, Array]:
        inverse, gain, z = step
        moved = inverse.T @ (z - gain @ later)
        return moved, moved

    _, others = jax.lax.scan(back, last, (inverse[:-1], before[3], noise[:-1]), reverse=True)
    return jnp.concatenate([others, last[None]]), tail
