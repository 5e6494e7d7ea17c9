"""Independent answers that the notebooks compare with: forward-backward on a grid, and long chains of NUTS."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

Moments = dict[str, tuple[np.ndarray, np.ndarray]]
"""Means and standard deviations, by name."""


def on_a_grid(
    log_density: Float[np.ndarray, "steps grid"], z: Float[np.ndarray, " grid"],
    first_mean: float, first_sd: float, step_sd: float,
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"], float]:  # fmt: skip
    r"""Means, standard deviations and log-evidence of a random walk seen through any log-density.

    $z_0 \sim N(m, s^2)$, $z_k \sim N(z_{k-1}, q^2)$, $y_k \sim p(y_k \mid z_k)$: forward-backward over an even grid of
    z, exact up to its spacing. `log_density` is $\log p(y_k \mid z)$ at the points of the grid.
    """
    spacing = z[1] - z[0]
    move = np.exp(-0.5 * ((z[:, None] - z[None]) / step_sd) ** 2)
    move *= spacing / (step_sd * np.sqrt(2 * np.pi))  # from column to row
    p = np.exp(-0.5 * ((z - first_mean) / first_sd) ** 2) / (first_sd * np.sqrt(2 * np.pi)) * spacing
    forward, evidence, back = [], 0.0, [np.ones(len(z))]
    for row in log_density:
        p = (move @ p) * np.exp(row - row.max())
        evidence += np.log(p.sum()) + row.max()
        forward.append(p := p / p.sum())
    for row in log_density[:0:-1]:
        b = move.T @ (np.exp(row - row.max()) * back[-1])
        back.append(b / b.max())
    q = np.array(forward) * np.array(back[::-1])
    q /= q.sum(1, keepdims=True)
    mean = q @ z
    return mean, np.sqrt(q @ z**2 - mean**2), float(evidence)


def nuts(model: Callable, *args: Any, names: Sequence[str], small: bool = False) -> Moments:
    """Moments of 4000 draws of NumPyro (optional extra `numpyro`), after 800 steps of warm-up; 200 each if `small`."""
    from numpyro.infer import MCMC, NUTS

    warmup, draws = (200, 200) if small else (800, 4000)
    chain = MCMC(NUTS(model), num_warmup=warmup, num_samples=draws, progress_bar=False)
    began = time.process_time()
    chain.run(jax.random.key(0), *args)
    found = chain.get_samples()
    print(f"NUTS: {time.process_time() - began:.0f} s of processor time, compilation included")
    return {name: (np.asarray(found[name]).mean(0), np.asarray(found[name]).std(0)) for name in names}


def compare(post: Any, truth: Moments, whose: str = "the exact") -> None:
    """Print how far marginals are from their references, in standard deviations of these."""
    for name, (mean, sd) in truth.items():
        off, ratio = np.abs(np.asarray(post[name].mean) - mean) / sd, np.asarray(post[name].std) / sd
        print(
            f"{name}: means off by at most {np.max(off):.3f} sd, "
            f"deviations {np.min(ratio):.3f} to {np.max(ratio):.3f} of those of {whose}"
        )
