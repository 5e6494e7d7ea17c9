"""The arms of the ETTh study that are fitted once, on validation rows: gates by messages, and plain baselines.

All gates have one prior (`gate_prior`), one context and one predictive rule (`precision_gated.gates`), so that only the
inference differs. Experts are lanes of a `vmap`; an arm is compiled once for each horizon.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import etth_published
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import ngmp_compiler as ngmp
from ngmp_models import etth, precision_gated

MEAN_FIELD = {"z": ngmp.VMP(), "carrier": ngmp.PVMP(), "y": ngmp.PVMP()}
SAME_END = {"z": ngmp.VMP(), "carrier": ngmp.NCVMP(), "y": ngmp.NCVMP()}  # one projection, the same fixed points
BATCHED = (None, 1, None, 0, None)  # experts, of the arguments of `_program`


class Fold(NamedTuple):
    """Rows that are fitted, and the rows that follow."""

    context: Float[np.ndarray, "n d"]
    forecasts: Float[np.ndarray, "n k"]
    y: Float[np.ndarray, " n"]
    new_context: Float[np.ndarray, "m d"]
    new_forecasts: Float[np.ndarray, "m k"]
    new_y: Float[np.ndarray, " m"]


class Forecast(NamedTuple):
    """Of the new rows: log-density of what came, mean and variance of the predictive; what there is to say of the
    fit."""

    log_density: Float[Array, " m"]
    mean: Float[Array, " m"]
    variance: Float[Array, " m"]
    note: str = ""


def gaussian(y: Any, mean: Any, variance: Any) -> Array:
    """Log-density."""
    return -0.5 * (jnp.log(2 * jnp.pi * variance) + (y - mean) ** 2 / variance)


def folds(task: etth.Cell, features: Float[np.ndarray, "n d"]) -> tuple[Fold, Fold]:
    """The whole protocol (validation, then test), and one inside of validation: its first half, then what comes H
    hours later."""
    n, h = task.fitted, task.fitted // 2

    def fold(fitted: int, first: int, last: int) -> Fold:
        x = etth.gate_context(features[:last], fitted)
        rows = slice(0, fitted), slice(first, last)
        return Fold(*(a[r] for r in rows for a in (x, task.forecasts, task.y)))

    return fold(n, n, len(task.y)), fold(h, h + task.horizon, n)


# -- gates by messages -------------------------------------------------------------------------------------------------


def _program(model: Callable[..., None], **options: Any) -> Callable[..., Any]:
    """`(context, forecast, y, w_mean, w_variance)` to moments of w, variance of z, mean of beta, and how it went."""
    program = ngmp.compile(model, **options)

    def run(context: Array, forecast: Array, y: Array, w_mean: Array, w_variance: Array) -> Any:
        post = program(context=context, forecast=forecast, y=y, w_mean=w_mean, w_variance=w_variance)
        w, noise = post["w"], 1 / post["tau"].mean if model is precision_gated.precision_gate else jnp.zeros(())
        return w.mean, w.covariance, noise, post["beta"].mean, (post.converged, post.sweeps)

    return run


def _published(context: Array, forecast: Array, y: Array, w_mean: Array, w_variance: Array) -> Any:
    s = etth_published.run(context, forecast, y, w_mean, w_variance)
    return s.w_mean, s.w_covariance, s.tau[1] / s.tau[0], s.beta[0] / s.beta[1], (jnp.zeros((), bool), 20)


def gate_arms() -> dict[str, Callable[..., Any]]:
    """By name, batched over experts; 20 sweeps are those of the published updates, 5 those of published PVMP."""
    gate, families = precision_gated.precision_gate, precision_gated.FAMILIES
    plain: dict[str, Any] = {"solver": optax.sgd(1.0), "max_sweeps": 5, "tol": 1e-300}
    until: dict[str, Any] = {"max_sweeps": 500, "tol": 1e-4}
    runs = {
        "PVMP, 5 sweeps": _program(gate, families=families, rules=MEAN_FIELD, **plain),
        "PVMP, 500 sweeps": _program(gate, families=families, rules=SAME_END, **until),
        "NGMP, 20 sweeps": _published,
        "NGMP, converged": _program(gate, families=families, **until),
        "NGMP, joint edges": _program(gate, families=families | {"tau": "log-gaussian"}, **until),
        "NGMP, beta integrated": _program(precision_gated.direct_gate, integrate=("beta",)),
    }
    return {name: jax.jit(jax.vmap(run, BATCHED)) for name, run in runs.items()}


def gated(run: Callable[..., Any], fold: Fold) -> Forecast:
    """Fit, and the product of experts on the new rows."""
    prior = precision_gated.gate_prior(fold.context.shape[1], fold.forecasts, fold.y)
    w, covariance, noise, beta, (done, sweeps) = run(fold.context, fold.forecasts, fold.y, *prior)
    fused = precision_gated.fuse(
        precision_gated.gates(fold.new_context, w, covariance, noise, beta), fold.new_forecasts
    )
    note = f"{int(np.sum(done))}/{len(w)} converged, sweeps <= {int(np.max(sweeps))}"
    return Forecast(gaussian(fold.new_y, fused.mean, fused.variance), fused.mean, fused.variance, note)


# -- baselines ---------------------------------------------------------------------------------------------------------


def best_single(fold: Fold) -> Forecast:
    """The expert with the least squared error on fitted rows, that error its variance."""
    square = np.mean((fold.forecasts - fold.y[:, None]) ** 2, axis=0)
    i = int(np.argmin(square))
    return _constant(fold, fold.new_forecasts[:, i], float(square[i]), etth.EXPERTS[i])


def equal_weights(fold: Fold) -> Forecast:
    """The mean of all experts, its squared error on fitted rows its variance."""
    return _constant(fold, fold.new_forecasts.mean(1), float(np.mean((fold.forecasts.mean(1) - fold.y) ** 2)), "")


def _constant(fold: Fold, mean: np.ndarray, variance: float, note: str) -> Forecast:
    wide = jnp.full(len(mean), variance)
    return Forecast(gaussian(fold.new_y, mean, wide), jnp.asarray(mean), wide, note)
