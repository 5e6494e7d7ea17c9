"""Pictures of posteriors (extra `plot`): marginals, trajectories, forests, convergence, calibration, pairs, maps.

Every function takes `ax=`, or makes a figure, and returns the axes. Colours are those of Okabe and Ito, which people
with any kind of colour vision tell apart, and lines differ in more than their colour.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .results.labels import element

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
STATES = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#F0E442", "#000000")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("ngmp.plot needs matplotlib: pip install 'ngmp-compiler[plot]', or matplotlib") from error
    return plt


def _axes(ax: Any, size: tuple[float, float] = (6.0, 3.2)) -> Any:
    if ax is None:
        _, ax = _pyplot().subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _marginal(post: Any, name: str) -> Any:
    if np.ndim(post.free_energy):
        raise ValueError("a batch of posteriors: plot one of them, jax.tree.map(lambda x: x[0], posts)")
    return post[name]


def marginals(post: Any, *names: str, **options: Any) -> Any:
    """One picture for each name, by default of all: `trajectory` of what has one axis, `states` of classes along one,
    `lattice` of what has two, `density` of numbers."""
    names = names or post.keys()
    plt = _pyplot()
    if len(names) == 1:
        return _one(post, names[0], **options)
    rows = -(-len(names) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(9, 2.6 * rows), layout="constrained", squeeze=False)
    for name, ax in zip(names, axes.reshape(-1), strict=False):
        _one(post, name, ax=ax, **options)
    for ax in axes.reshape(-1)[len(names) :]:
        ax.set_axis_off()
    return figure.axes


def _one(post: Any, name: str, **options: Any) -> Any:
    q = _marginal(post, name)
    classes, ndim = hasattr(q, "probs") and np.ndim(q.mean) > len(q.batch_shape), np.ndim(q.mean)
    if classes:
        return states(post, name, **options)
    make = {0: density, 1: trajectory}.get(ndim, lattice)
    return make(post, name, **options)


def density(post: Any, name: str, ax: Any = None) -> Any:
    """The density of a number, with its mean and its central 90 %."""
    q, ax = _marginal(post, name), _axes(ax)
    mean = np.ravel(np.asarray(q.mean))
    low, high = (np.ravel(np.asarray(q.quantile(p))) for p in (0.001, 0.999))
    for i in range(min(mean.size, len(STATES))):
        x = np.linspace(low[i], high[i], 300)
        y = np.asarray(jax.vmap(q.density)(x.reshape(-1, *(1,) * np.ndim(q.mean)) * np.ones(np.shape(q.mean))))
        y = y.reshape(len(x), -1)[:, i]
        ax.plot(x, y, color=STATES[i], ls=LINES[i % 4], label=name if mean.size == 1 else f"{name}[{i}]")
        ends = [float(np.ravel(np.asarray(q.quantile(p)))[i]) for p in (0.05, 0.95)]
        inside = (x >= ends[0]) & (x <= ends[1])
        ax.fill_between(x[inside], 0, y[inside], color=STATES[i], alpha=0.25, lw=0)
        ax.axvline(mean[i], color=STATES[i], lw=0.8, ls=LINES[i % 4])
    ax.set(xlabel=name, ylabel="density")
    ax.set_ylim(bottom=0)
    if mean.size > 1:
        ax.legend(frameon=False, fontsize=8)
    return ax


def trajectory(post: Any, name: str, data: Any = None, x: Any = None, mass: float = 0.9, ax: Any = None,
               transform: Any = None) -> Any:  # fmt: skip
    """Means along an axis with the band of that mass and, if given, data; `transform` is monotone, such as `np.exp`."""
    q, ax = _marginal(post, name), _axes(ax)
    function = (lambda v: v) if transform is None else transform
    low, middle, high = (function(np.asarray(q.quantile(p))) for p in ((1 - mass) / 2, 0.5, (1 + mass) / 2))
    x = np.arange(len(middle)) if x is None else np.asarray(x)
    if data is not None:
        ax.plot(x, np.asarray(data), ls="", marker="o", ms=3, mfc="none", color=GREY, label="data")
    ax.fill_between(x, low, high, color=BLUE, alpha=0.25, lw=0, label=f"{mass:.0%}")
    ax.plot(x, middle, color=BLUE, lw=1.5, label="median")
    label = name if transform is None else f"{getattr(transform, '__name__', 'function')}({name})"
    ax.set(xlabel="index", ylabel=label)
    ax.legend(frameon=False, fontsize=8)
    return ax


def forest(post: Any, *names: str, mass: float = 0.9, ax: Any = None) -> Any:
    """Medians with their central intervals, one line for every element, with the labels of the inputs."""
    rows = []
    for name in names or post.keys():
        q = _marginal(post, name)
        ends = [np.ravel(np.asarray(q.quantile(p))) for p in ((1 - mass) / 2, 0.25, 0.5, 0.75, (1 + mass) / 2)]
        shape = np.shape(q.mean)
        labels = [element(name, at, shape, post._labels) for at in np.ndindex(*shape)]
        rows += list(zip(labels, zip(*ends, strict=True), strict=True))
    ax = _axes(ax, (6.0, 0.6 + 0.24 * len(rows)))
    for k, (_, (low, inner, middle, outer, high)) in enumerate(rows):
        ax.plot([low, high], [k, k], color=BLUE, lw=1)
        ax.plot([inner, outer], [k, k], color=BLUE, lw=3.5, solid_capstyle="butt")
        ax.plot(middle, k, marker="o", ms=5, mfc="white", color=BLUE)
    ax.axvline(0, color=GREY, lw=0.8, ls=":")
    ax.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel(f"median, half and {mass:.0%} of the mass")
    return ax


def convergence(trace: Any, ax: Any = None) -> Any:
    """Residual and free energy by sweep, of `program.trace(...)`."""
    ax = _axes(ax)
    sweeps, residual, energy = np.arange(len(trace.residual)), np.asarray(trace.residual), np.asarray(trace.free_energy)
    (first,) = ax.semilogy(sweeps, np.maximum(residual, 1e-16), color=BLUE, marker="o", ms=3, label="residual")
    ax.set(xlabel="sweep", ylabel="residual (standard deviations)")
    other = ax.twinx()
    other.spines[["top"]].set_visible(False)
    (second,) = other.plot(sweeps, energy, color=RED, ls="--", marker="s", ms=3, label="free energy")
    other.set_ylabel("free energy")
    ax.legend(handles=[first, second], frameon=False, fontsize=8)
    return ax


def calibration(prediction: Any, y: Any, bins: int = 10, ax: Any = None) -> Any:
    """The histogram of `F(y)` under predictions, flat where they are calibrated, with the band that chance explains.

    A count fills all of the interval from `F(y - 1)` to `F(y)` evenly (Czado, Gneiting and Held, 2009).
    """
    ax = _axes(ax)
    low, high = _levels(prediction, np.asarray(y))
    expected, spread = high.size / bins, np.sqrt(high.size / bins * (1 - 1 / bins))
    ax.axhspan(max(expected - 2 * spread, 0), expected + 2 * spread, color=GREY, alpha=0.2, lw=0, label="by chance")
    ax.axhline(expected, color=GREY, lw=1, ls="--")
    edges = np.linspace(0, 1, bins + 1)
    heights = [_share(low, high, a, b).sum() for a, b in zip(edges[:-1], edges[1:], strict=True)]
    ax.bar(edges[:-1], heights, 0.94 / bins, align="edge", color=BLUE, alpha=0.7, label="F(y)")
    inside = _share(low, high, 0.05, 0.95).mean()
    ax.set(xlabel="F(y)", ylabel="count", title=f"{inside:.0%} of the data in the central 90 %")
    ax.set_ylim(top=1.22 * ax.get_ylim()[1])  # room for the legend above the bars
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
    return ax


def _levels(prediction: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """F just below an outcome, and at it."""
    high = np.ravel(np.asarray(prediction.cdf(y)))
    low = high
    if prediction.outcome.counts:
        below = np.asarray(prediction.cdf(np.maximum(y - 1, 0)))
        low = np.ravel(np.where(np.broadcast_to(y, below.shape) > 0, below, 0.0))
    seen = np.isfinite(high) & np.isfinite(low)
    return np.minimum(low, high)[seen], high[seen]


def _share(low: np.ndarray, high: np.ndarray, start: float, end: float) -> np.ndarray:
    """How much of every interval, or whether the point that it is, lies between start and end."""
    width = high - low
    inside = np.clip(np.minimum(high, end) - np.maximum(low, start), 0.0, None)
    point = ((start < high) & (high <= end)) | ((start == 0.0) & (high == 0.0))
    return np.where(width > 1e-12, inside / np.maximum(width, 1e-12), point)


def predictive(draws: Any, y: Any, most: int = 50, ax: Any = None) -> Any:
    """Data among draws of them, (draws, n): distribution functions of both."""
    ax = _axes(ax)
    draws = np.asarray(draws).reshape(len(draws), -1)[:most]
    seen = np.sort(np.ravel(np.asarray(y)))
    share = (np.arange(seen.size) + 1) / seen.size
    for k, row in enumerate(draws):
        ax.step(np.sort(row), share, color=BLUE, lw=0.6, alpha=0.35, where="post", label="drawn" if k == 0 else None)
    ax.step(seen, share, color="black", lw=1.8, where="post", label="data")
    ax.set(xlabel="outcome", ylabel="share at or below")
    ax.legend(frameon=False, fontsize=8)
    return ax


def pairs(draws: dict[str, Any], names: Sequence[str] | None = None, most: int = 2000) -> Any:
    """Scatter of every pair of numbers among joint draws, `post.sample(key, (2000,))`, and their histograms."""
    plt = _pyplot()
    names = list(names or [n for n, x in draws.items() if np.ndim(x) == 1])
    data = [np.asarray(draws[n])[:most] for n in names]
    size = 1.9 * len(names) + 0.5
    figure, axes = plt.subplots(len(names), len(names), figsize=(size, size), layout="constrained", squeeze=False)
    for i, j in np.ndindex(len(names), len(names)):
        ax = axes[i, j]
        ax.spines[["top", "right"]].set_visible(False)
        if i == j:
            ax.hist(data[i], bins=30, color=BLUE, alpha=0.7)
            ax.set_yticks([])
        elif j < i:
            ax.plot(data[j], data[i], ls="", marker=".", ms=2, color=BLUE, alpha=0.3, rasterized=True)
        else:
            ax.text(0.5, 0.5, f"{np.corrcoef(data[i], data[j])[0, 1]:.2f}", ha="center", va="center", fontsize=14)
            ax.set_axis_off()
        ax.set_xlabel(names[j] if i == len(names) - 1 else "")
        ax.set_ylabel(names[i] if j == 0 and i else "")
    return figure.axes


def lattice(post: Any, name: str, ax: Any = None, what: str = "mean") -> Any:
    """A map of what has two axes: its means, or with `what="std"` its standard deviations."""
    q, ax = _marginal(post, name), _axes(ax, (4.6, 3.8))
    values = np.asarray(getattr(q, what))
    values = values.reshape(values.shape[0], -1)
    image = ax.imshow(values, cmap="cividis", interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label=f"{what} of {name}")
    return ax


def states(post: Any, name: str, x: Any = None, ax: Any = None) -> Any:
    """Probabilities of the classes along an axis, stacked: the states of a hidden Markov model over time."""
    q, ax = _marginal(post, name), _axes(ax, (6.0, 2.4))
    probs = np.atleast_2d(np.asarray(q.probs))
    x = np.arange(len(probs) + 1) if x is None else np.asarray(x)
    below = np.zeros(len(probs))
    for k in range(probs.shape[1]):
        top = below + probs[:, k]
        steps = [np.append(v, v[-1]) for v in (below, top)]
        ax.fill_between(x, *steps, step="post", color=STATES[k % 8], alpha=0.75, lw=0, hatch=HATCHES[k % 8],
                        edgecolor="white", label=f"{k}")  # fmt: skip
        below = top
    ax.set(xlabel="index", ylabel=f"probability of {name}", ylim=(0, 1), xlim=(x[0], x[-1]))
    ax.legend(title=name, frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return ax
