"""The demo: compile the Poisson chain, smooth the yearly coal-mining disasters, print what came out, save a plot."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import ngmp_compiler as ngmp

from .coal import YearlyCounts, coal_disasters
from .series import poisson_chain

SHOWN_YEARS = (1851, 1870, 1890, 1900, 1920, 1940, 1962)
SIGMA2 = 0.02  # about the minimum of the free energy over the variance of a yearly step


class Rate(NamedTuple):
    """Posterior of the rate exp(z) when z is Gaussian, hence log-normal: mean and central 95 % band, each (n,)."""

    mean: Float[np.ndarray, " n"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]


def log_normal(mean: Float[np.ndarray, " n"], variance: Float[np.ndarray, " n"]) -> Rate:
    """E[exp z] = exp(m + v/2); quantiles of exp z are exp of the quantiles of z."""
    half_width = 1.959963984540054 * np.sqrt(variance)
    return Rate(np.exp(mean + variance / 2), np.exp(mean - half_width), np.exp(mean + half_width))


def timed(call: Callable[[], Any], repeats: int = 20) -> tuple[Any, float, float]:
    """Result, trace+compile seconds (first call minus a warm one) and run seconds (median of warm calls)."""

    def once() -> tuple[Any, float]:
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        return result, time.perf_counter() - start

    result, first = once()
    warm = statistics.median(once()[1] for _ in range(repeats))
    return result, first - warm, warm


def report(series: YearlyCounts, rate: Rate, post: Any, compile_seconds: float, run_seconds: float) -> str:
    """The printed summary."""
    lines = ["posterior of the yearly rate (disasters per year)", "  year  count   mean   95 % band"]
    for year in SHOWN_YEARS:
        k = int(np.flatnonzero(series.years == year)[0])
        lines.append(f"  {year}  {series.counts[k]:5d}  {rate.mean[k]:5.2f}   [{rate.low[k]:.2f}, {rate.high[k]:.2f}]")
    lines += [
        "",
        f"free energy      {float(post.free_energy):.6f}",
        f"converged        {bool(post.converged)}" + ("" if post.converged else f" ({post.reason})"),
        f"sweeps           {int(post.sweeps)}",
        f"residual         {float(post.residual):.2e}",
        f"trace + compile  {compile_seconds:.3f} s",
        f"run              {run_seconds * 1e3:.3f} ms (median of warm calls)",
    ]
    return "\n".join(lines)


def plot(series: YearlyCounts, rate: Rate, out: str) -> None:
    """Counts as bars, the posterior mean of the rate as a line inside its 95 % band."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # optional dependency: the extra `plot`
    from matplotlib.figure import Figure

    ink, colour = "#333333", "#c0392b"
    figure = Figure(figsize=(9.0, 4.2), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.bar(series.years, series.counts, width=0.8, color="#c9ced6", label="disasters in the year")
    axes.fill_between(series.years, rate.low, rate.high, color=colour, alpha=0.22, lw=0, label="95 % credible band")
    axes.plot(series.years, rate.mean, color=colour, lw=2.0, label="smoothed rate (posterior mean)")
    axes.set_title("British coal-mining disasters, 1851\N{EN DASH}1962", loc="left", color=ink, fontsize=12, pad=10)
    axes.set_ylabel("disasters per year", color=ink)
    axes.set_xlim(series.years[0] - 1, series.years[-1] + 1)
    axes.set_ylim(0, None)
    axes.tick_params(colors=ink, length=3)
    axes.grid(axis="y", color="#e6e6e6", lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper right", labelcolor=ink, facecolor="white", edgecolor="none", framealpha=1.0)
    figure.savefig(out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit status: 0 when inference converged and the plot was written."""
    parser = argparse.ArgumentParser(prog="python -m ngmp_models", description=__doc__)
    parser.add_argument("--out", default="coal.png", help="where to save the plot (default: %(default)s)")
    parser.add_argument("--sigma2", type=float, default=SIGMA2, help="variance of a yearly step (default: %(default)s)")
    options = parser.parse_args(arguments)

    jax.config.update("jax_enable_x64", True)  # an application may choose its precision; the library never does
    series = coal_disasters()
    inputs: dict[str, Any] = {"y": jnp.asarray(series.counts), "sigma2": jnp.asarray(options.sigma2)}
    program = ngmp.compile(poisson_chain)
    post, compile_seconds, run_seconds = timed(lambda: program(**inputs))
    rate = log_normal(np.asarray(post["z"].mean), np.asarray(post["z"].variance))

    print(program.lower(**inputs).describe())
    print()
    print(report(series, rate, post, compile_seconds, run_seconds))
    try:
        plot(series, rate, options.out)
    except ImportError:
        print('\nno plot: matplotlib is not installed (pip install "ngmp-compiler[plot]")')
        return 1
    print(f"plot             {options.out}")
    return 0 if post.converged else 1
