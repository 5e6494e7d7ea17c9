"""A week of forecasts with bands, as in the paper."""

from pathlib import Path

import numpy as np
from etth_arms import Forecast

from ngmp_models import etth

FIRST, HOURS = 24 * 60, 7 * 24  # the week that starts on the sixtieth day of the test windows


def week(task: etth.Cell, shown: dict[str, Forecast], folder: Path) -> None:
    """One panel for each arm: targets, mean, one and two standard deviations."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = slice(FIRST, FIRST + HOURS)
    hours, y = np.arange(HOURS) / 24, task.y[task.fitted :][rows]
    figure, axes = plt.subplots(len(shown), 1, figsize=(8, 2.2 * len(shown)), sharex=True, sharey=True, squeeze=False)
    for ax, (name, forecast) in zip(axes[:, 0], shown.items(), strict=True):
        mean, sd = np.asarray(forecast.mean)[rows], np.sqrt(np.asarray(forecast.variance)[rows])
        for k, alpha in ((2, 0.15), (1, 0.25)):
            ax.fill_between(hours, mean - k * sd, mean + k * sd, color="tab:blue", alpha=alpha, lw=0)
        ax.plot(hours, mean, color="tab:blue", label="mean, one and two sd")
        ax.plot(hours, y, color="black", lw=1, label="came")
        loss = -float(np.mean(np.asarray(forecast.log_density)[rows]))
        ax.set_title(f"{task.dataset}, {task.horizon} hours ahead: {name} (NLL of this week {loss:.2f})", fontsize=9)
        ax.set_ylabel("standardised OT")
    axes[0, 0].legend(loc="lower right", fontsize=8, ncols=2)
    axes[-1, 0].set_xlabel("day")
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"etth_{task.dataset}_{task.horizon}.png", dpi=80)
    plt.close(figure)
