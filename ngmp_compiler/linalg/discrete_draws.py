r"""Draws from discrete chains, forests and small networks: what was summed out last is drawn first, and every other
variable from its conditional, given those that it was summed out into."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .discrete_tree import Round, ascend
from .elimination import Cluster, collect


def pick(key: PRNGKeyArray, logits: Float[Array, "*b K"]) -> Int[Array, "*b"]:
    """One class for each row of logits, by the inverse of the distribution function."""
    below = jnp.cumsum(jax.nn.softmax(logits, -1), -1)[..., :-1]
    u = jax.random.uniform(key, below.shape[:-1], below.dtype)
    return jnp.sum(below <= u[..., None], -1)


def chain_classes(
    unary: Float[Array, "T K"], tie: Float[Array, "steps K K"], key: PRNGKeyArray, count: int
) -> Int[Array, "draws T"]:
    r"""Draws from a chain (see `discrete_chain`): $p(x_k \mid x_{k+1}) \propto e^{\alpha_k + u_k + l_k(\cdot,
    x_{k+1})}$, filtered forward and drawn backward."""
    length, k = unary.shape
    every = jnp.broadcast_to(tie, (length - 1, k, k))

    def filter(alpha: Array, step: tuple) -> tuple[Array, Array]:
        unary, tie = step
        here = alpha + unary
        here = here - jnp.max(here)
        return jax.nn.logsumexp(here[:, None] + tie, 0), here

    alpha, past = jax.lax.scan(filter, jnp.zeros_like(unary[0]), (unary[:-1], every))
    # Of every step and next class, the distribution function of the class.
    below = jnp.cumsum(jax.nn.softmax(jnp.swapaxes(past[:, :, None] + every, 1, 2), -1), -1)[..., :-1]
    first, rest = jax.random.split(key)
    last = pick(first, jnp.broadcast_to(alpha + unary[-1], (count, k)))
    noise = jax.random.uniform(rest, (length - 1, count), unary.dtype)

    def back(later: Array, step: tuple) -> tuple[Array, Array]:
        below, u = step
        here = jnp.sum(below[later] <= u[:, None], -1)
        return here, here

    _, others = jax.lax.scan(back, last, (below, noise), reverse=True)
    return jnp.concatenate([others, last[None]]).T


def tree_classes(
    unary: Float[Array, "n K"], tie: Float[Array, "edges K K"], rounds: list[Round], key: PRNGKeyArray, count: int
) -> Int[Array, "draws n"]:
    """Draws from a forest (see `discrete_tree`)."""
    unary, tables, _, _ = ascend(unary, tie, rounds)
    ends = _ends(rounds)
    out = jnp.zeros((unary.shape[0], count), int)
    for r, own in zip(reversed(rounds), jax.random.split(key, len(rounds)), strict=True):
        keys = jax.random.split(own, 3)
        if len(r.roots):
            shape = (len(r.roots), count, unary.shape[1])
            out = out.at[r.roots].set(pick(keys[0], jnp.broadcast_to(unary[r.roots][:, None], shape)))
        if len(r.leaves):
            given = _columns(tables[r.up], out[r.parents])
            out = out.at[r.leaves].set(pick(keys[1], unary[r.leaves][:, None] + given))
        if len(r.middles):
            left, right = (_columns(tables[e], out[ends[e]]) for e in (r.left, r.right))
            out = out.at[r.middles].set(pick(keys[2], unary[r.middles][:, None] + left + right))
    return out.T


def _columns(tables: Float[Array, "m K K"], classes: Int[Array, "m draws"]) -> Float[Array, "m draws K"]:
    """The columns of tables that the classes of their second variables pick."""
    return jax.vmap(lambda table, at: table.T[at])(tables, classes)


def _ends(rounds: list[Round]) -> np.ndarray:
    """The node that every directed edge leads to, of edges that a round sums out over; others are not asked for."""
    top = max([int(e.max()) for r in rounds for e in (r.up, r.left, r.right) if len(e)], default=-1)
    out = np.full(top + 1, -1)
    for r in rounds:
        out[r.up] = r.parents
        out[r.left], out[r.right] = r.between
    return out


def network_classes(
    tables: list[Float[Array, "B *classes"]],
    found: list[Cluster],
    key: PRNGKeyArray,
    count: int,
    given: dict[int, Int[Array, "draws B"]] | None = None,
) -> dict[int, Int[Array, "draws B"]]:
    """Draws from B small networks (see `elimination.eliminate`); the variables of the last cluster may be given."""
    tables, _ = collect(tables, found)
    out = dict(given or {})
    for k, own in zip(reversed(range(len(found))), jax.random.split(key, len(found)), strict=True):
        cluster = found[k]
        sizes = dict(zip(cluster.variables, tables[k].shape[1:], strict=True))
        new = [x for x in cluster.variables if x not in cluster.separator]
        if all(x in out for x in new):
            continue
        order = [1 + cluster.variables.index(x) for x in (*cluster.separator, *new)]
        batch, cells = tables[k].shape[0], int(np.prod([sizes[x] for x in new]))
        rows = jnp.transpose(tables[k], (0, *order)).reshape(batch, -1, cells)
        code = jnp.zeros((count, batch), int)
        for x in cluster.separator:
            code = code * sizes[x] + out[x]
        cell = pick(own, rows[jnp.arange(batch), code])
        for x, classes in zip(new, jnp.unravel_index(cell, [sizes[x] for x in new]), strict=True):
            out[x] = classes
    return out
