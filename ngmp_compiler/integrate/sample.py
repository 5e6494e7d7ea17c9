r"""Sample: hyperparameters drawn by NUTS from their marginal density, where there are too many for points.

Draws of all chains are the nodes, of equal weight. The evidence comes from a bridge between the draws and a Gaussian g
that was fitted to the first half of them (Meng and Wong, 1996): with $l = p / g$ at $n_1$ draws of the second half and
at $n_2$ points of g, the fixed point of

$$ Z = \frac{\frac1{n_2} \sum_j l_j / (n_1 l_j + n_2 Z)}{\frac1{n_1} \sum_i 1 / (n_1 l_i + n_2 Z)}. $$
"""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from .climb import lattice, root

MOST = 16  # numbers that points of low discrepancy are used for
_CHAINS, _WARMUP, _DRAWS = 4, 400, 500
_TURNS = 30  # of the fixed point
_STEPS = 7  # doublings of a trajectory


class Draws(NamedTuple):
    """Draws of all chains, the log-evidence, how far another estimate of it is off, and how well chains agree."""

    v: Float[Array, "m d"]
    log_evidence: Float[Array, ""]
    error: Float[Array, ""]
    r_hat: Float[Array, ""]


def draw(log_density: Callable[[Array], Array], dim: int, dtype: Any) -> Draws:
    """Draw from a density of `dim` coordinates; always the same draws."""
    if importlib.util.find_spec("blackjax") is None:
        works = "pip install 'ngmp-compiler[blackjax]', or blackjax; or integrate fewer"
        raise ImportError(f"integrating {dim} numbers needs NUTS, from BlackJAX: {works}")
    from blackjax import nuts, window_adaptation  # pyright: ignore[reportMissingImports]

    def density(v: Array) -> Array:
        found = log_density(v)
        return jnp.where(jnp.isfinite(found), found, -jnp.inf)

    first = 0.7 * jnp.asarray(lattice(8 * _CHAINS, dim), dtype)
    begin = first[jax.lax.top_k(jax.lax.map(density, first), _CHAINS)[1]]

    def chain(key: Array, v: Array) -> tuple[Array, Array]:
        adapt, go = jax.random.split(key)
        warmup: Any = window_adaptation(nuts, density, target_acceptance_rate=0.85, max_num_doublings=_STEPS)
        (state, parameters), _ = warmup.run(adapt, v, num_steps=_WARMUP)
        step = nuts(density, **parameters).step

        def one(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
            state, _ = step(key, state)
            return state, (state.position, state.logdensity)

        return jax.lax.scan(one, state, jax.random.split(go, _DRAWS))[1]

    v, log = jax.vmap(chain)(jax.random.split(jax.random.key(0), _CHAINS), begin)
    evidence, error = _bridge(density, v, log)
    return Draws(v.reshape(-1, dim), evidence, error, _r_hat(v))


def _bridge(
    density: Callable[[Array], Array], v: Float[Array, "c n d"], log: Float[Array, "c n"]
) -> tuple[Array, Array]:
    dim, half = v.shape[-1], v.shape[1] // 2
    fit, rest = v[:, :half].reshape(-1, dim), v[:, half:].reshape(-1, dim)
    mean = jnp.mean(fit, 0)
    lower, inverse = root((fit - mean).T @ (fit - mean) / len(fit))
    volume = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * dim * np.log(2 * np.pi)
    white = jax.random.normal(jax.random.key(1), rest.shape, v.dtype)
    proposed = jax.lax.map(density, mean + white @ lower.T) + 0.5 * jnp.sum(white**2, -1) + volume
    drawn = log[:, half:].reshape(-1) + 0.5 * jnp.sum(((rest - mean) @ inverse.T) ** 2, -1) + volume

    def turn(_: Any, z: Array) -> Array:
        both = [jnp.logaddexp(x, z) for x in (proposed, drawn)]
        return logsumexp(proposed - both[0]) - logsumexp(-both[1])

    start = jnp.median(drawn)
    found = jax.lax.fori_loop(0, _TURNS, turn, start)
    return found, jnp.abs(found - (logsumexp(proposed) - np.log(len(proposed))))


def _r_hat(v: Float[Array, "c n d"]) -> Float[Array, ""]:
    """The largest split R-hat of all coordinates."""
    half = v.shape[1] // 2
    parts = v[:, : 2 * half].reshape(-1, half, v.shape[-1])
    within, between = jnp.mean(jnp.var(parts, 1, ddof=1), 0), half * jnp.var(jnp.mean(parts, 1), 0, ddof=1)
    return jnp.max(jnp.sqrt((half - 1) / half + between / (half * within)))
