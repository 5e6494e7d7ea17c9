"""Refine: draws from the model itself by NUTS, which starts at the posterior and moves in its coordinates."""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .coordinates import Entry, Standard, flat, standardise, unflat
from .decouple import Decoupled

_DOUBLINGS = 8  # of a trajectory
ACCEPTED = 0.85


class Refined(NamedTuple):
    """Draws of NUTS by name, (chains, draws, *shape), with the split R-hat and the effective number of each."""

    draws: dict[str, np.ndarray]
    r_hat: dict[str, np.ndarray]
    ess: dict[str, np.ndarray]
    divergences: int
    leapfrogs: float  # a draw

    @property
    def ok(self) -> bool:
        """Whether chains agree (R-hat up to 1.02), no number has fewer than 100 effective draws, and few diverged."""
        worst = max((float(np.max(x, initial=1.0)) for x in self.r_hat.values()), default=1.0)
        least = min((float(np.min(x, initial=np.inf)) for x in self.ess.values()), default=np.inf)
        chains, count = next(iter(self.draws.values())).shape[:2]
        return bool(worst < 1.02 and least > 100 and self.divergences < 0.01 * chains * count)

    def __repr__(self) -> str:
        worst = max(float(np.max(x, initial=1.0)) for x in self.r_hat.values())
        least = min(float(np.min(x, initial=np.inf)) for x in self.ess.values())
        chains, count = next(iter(self.draws.values())).shape[:2]
        state = "ok" if self.ok else "NOT to be trusted: more draws, or another parameterisation"
        found = f"{chains} chains of {count} draws, R-hat up to {worst:.3f}, at least {least:.0f} effective"
        return f"Refined({found}, {self.divergences} divergences: {state})"


def needs_blackjax() -> None:
    """Say what is missing."""
    if importlib.util.find_spec("blackjax") is None:
        raise ImportError("program.refine runs NUTS, from BlackJAX: pip install 'ngmp-compiler[blackjax]', or blackjax")


def standard_density(
    entries: list[Entry], density: Callable[[dict[str, Array]], Array], scale: Standard
) -> Callable[[Array], Array]:
    """The log-density of the standardised vector."""

    def log_density(x: Float[Array, " d"]) -> Float[Array, ""]:
        values, volume = unflat(entries, scale.real(x))
        found = density(values) + volume
        return jnp.where(jnp.isfinite(found), found, -jnp.inf)

    return log_density


def nuts(
    entries: list[Entry], density: Callable[[dict[str, Array]], Array], maps: Decoupled, start: dict[str, Array],
    key: PRNGKeyArray, chains: int, draws: int, warmup: int,
) -> Any:  # fmt: skip
    """Draws (chains, draws) by name, the standardised draws, divergences and leapfrog steps.

    Args:
        entries: the unknowns.
        density: of their values by name.
        maps: into the coordinates in which chains move, and out of them.
        start: draws of the posterior, by name, with a leading axis.
        key: a jax random key.
        chains, draws, warmup: numbers of them; the warm-up finds the size of steps, and corrects scales.
    """
    from blackjax import nuts as kernel  # pyright: ignore[reportMissingImports]
    from blackjax import window_adaptation  # pyright: ignore[reportMissingImports]

    def moved(values: dict[str, Array]) -> Array:
        inside, volume = maps.out(values)
        return density(inside) + volume

    u = jax.vmap(lambda values: flat(entries, maps.into(values)))(start)
    scale = standardise(u)
    log_density = standard_density(entries, moved, scale)
    begin = jax.vmap(scale.standard)(u[:chains])

    def chain(key: Array, x: Array) -> Any:
        adapt, go = jax.random.split(key)
        options = {"target_acceptance_rate": ACCEPTED, "max_num_doublings": _DOUBLINGS}
        search: Any = window_adaptation(kernel, log_density, initial_step_size=0.8, **options)
        (state, parameters), _ = search.run(adapt, x, num_steps=warmup)
        step: Any = kernel(log_density, **parameters).step

        def one(state: Any, key: Array) -> Any:
            state, info = step(key, state)
            return state, (state.position, info.is_divergent, info.num_integration_steps)

        return jax.lax.scan(one, state, jax.random.split(go, draws))[1]

    x, divergent, steps = jax.vmap(chain)(jax.random.split(key, chains), begin)
    values = jax.vmap(jax.vmap(lambda row: maps.out(unflat(entries, scale.real(row))[0])[0]))(x)
    return values, jnp.sum(divergent), jnp.mean(steps)


def refined(values: dict[str, Array], divergences: Any, steps: Any) -> Refined:
    """With the numbers that say whether to believe them."""
    from blackjax.diagnostics import (  # pyright: ignore[reportMissingImports]
        effective_sample_size,
        potential_scale_reduction,
    )

    host = {name: np.asarray(x) for name, x in values.items()}
    r_hat = {name: np.asarray(potential_scale_reduction(_split(x))) for name, x in host.items()}
    ess = {name: np.asarray(effective_sample_size(x)) for name, x in host.items()}
    return Refined(host, r_hat, ess, int(divergences), float(steps))


def _split(x: np.ndarray) -> np.ndarray:
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, half : 2 * half]])
