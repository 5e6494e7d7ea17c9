"""Pictures of planning: where bodies went, what they believed on the way, and where it is light."""

from pathlib import Path
from typing import Any

import numpy as np


def picture(case: Any, shown: dict[str, Any], folder: Path) -> None:
    """One panel for each agent: states of some episodes, and the beliefs of the first one as ellipses."""
    import jax.numpy as jnp
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(shown), figsize=(3.4 * len(shown), 3.4), sharex=True, sharey=True, squeeze=False)
    low, high = case.window
    grid = np.stack(np.meshgrid(np.linspace(low[0], high[0], 80), np.linspace(low[1], high[1], 80)), -1)
    rest, zero = np.zeros(len(case.task.goal)), jnp.zeros((len(case.task.goal),) * 2)
    points = np.broadcast_to(rest, (*grid.shape[:2], len(rest))).copy()
    points[..., list(case.drawn)] = grid
    dark = np.array([[float(np.mean(case.task.noise(jnp.asarray(p), zero))) for p in row] for row in points])
    for ax, (name, found) in zip(axes[0], reversed(shown.items()), strict=True):
        ax.imshow(-np.log(dark), extent=(low[0], high[0], low[1], high[1]), origin="lower", cmap="gray", aspect="auto")
        for path in found.states:
            ax.plot(*path[:, list(case.drawn)].T, color="tab:orange", lw=0.8, alpha=0.6)
        for mean, spread in zip(found.means[0], found.spreads[0], strict=True):
            ellipse(ax, mean[list(case.drawn)], spread[np.ix_(case.drawn, case.drawn)])
        ax.plot(*case.task.goal[list(case.drawn)], "*", color="tab:red", ms=10)
        ax.set(title=name, xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        ax.title.set_fontsize(8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"planning_{case.name}.png", dpi=80)
    plt.close(figure)


def ellipse(ax: Any, mean: np.ndarray, spread: np.ndarray) -> None:
    """One standard deviation around a mean."""
    turn = np.linspace(0, 2 * np.pi, 60)
    values, vectors = np.linalg.eigh(spread)
    ax.plot(*(mean[:, None] + vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * [np.cos(turn), np.sin(turn)])),
            color="tab:blue", lw=0.8)  # fmt: skip
