r"""The online protocol of the ETTh study: gates that go on learning through the test period.

The forecast is $c_j + \sum_i v_i (f_{ij} - c_j)$ around the mean c of all experts, so that weights 1/k + v sum to one
whatever v is; its log-precision depends on how far experts are apart. Both drift, and come back to equal weights and to
the scale of the fitted rows (`precision_gated.drifting_consensus`). A block is a day. Every day updates the filter, by
`program.update` in a `lax.scan`, with every sixth of its rows, since errors of neighbouring hours are nearly one
number. A row is forecast from the state that had seen only targets observable by then, H hours late, carried ahead by
the drift. Validation rows are all seen before the first test row, as in the published protocol; `strict` keeps them
back for H hours as well, so that nothing is used that a forecaster could not have had.

Settings are lanes of one `vmap`. *Chosen* is the one with the least NLL of such forecasts in the later half of
validation (the first half given), and *mixture* the equal mixture of all, for which nothing is chosen.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etth_arms import Forecast
from jaxtyping import Array

import ngmp_compiler as ngmp
from ngmp_models import etth
from ngmp_models.precision_gated import CARRY, drifting_consensus, log_scale_mixture

DAY, EVERY, C_TOP = 24, 6, 4.0


class Setting(NamedTuple):
    """Memory of a day of weights and of the scale, and how far they walk in a day, as parts of their prior sd."""

    memory: float
    weights: float
    scale: float


GRID = [Setting(*x) for x in product((0.95, 0.98, 0.99), (0.02, 0.1), (0.05, 0.15))]


class Days(NamedTuple):
    """Inputs of the filter, (B, DAY / EVERY, ...)."""

    spread: Array
    centre: Array
    psi: Array
    y: Array


def inputs(task: etth.Cell) -> tuple[np.ndarray, ...]:
    """Deviations of experts, their mean, and columns of the log-precision: a constant, the log of how far experts are
    apart."""
    centre = task.forecasts.mean(1)
    apart = np.log(np.maximum(task.forecasts[:, :5].std(1), 0.05))
    psi = np.c_[np.ones(len(centre)), apart - apart[: task.fitted].mean()]
    return task.forecasts - centre[:, None], centre, psi, task.y


def days(task: etth.Cell) -> tuple[Days, int]:
    """All whole days but what is left over at the beginning, and the row where the first of them starts."""
    first = task.fitted % DAY
    count = (len(task.y) - first) // DAY
    rows = first + np.arange(count * DAY).reshape(count, DAY)[:, ::EVERY]
    return Days(*(x[rows] for x in inputs(task))), first


def priors(task: etth.Cell, setting: Any) -> dict[str, Any]:
    """Weights of sd 0.3; the scale begins at the errors of equal weights on the fitted rows."""
    v, u = np.full(task.forecasts.shape[1], 0.3**2), np.array([0.5**2, 0.3**2])
    level = -np.log(np.mean((task.y - task.forecasts.mean(1))[: task.fitted] ** 2))
    return {"v_variance": v, "u_mean": np.array([level, 0.0]), "u_variance": u, "v_walk": v * setting.weights**2,
            "u_walk": u * setting.scale**2, "memory": setting.memory, "c_top": C_TOP}  # fmt: skip


def compiled() -> Callable[..., Any]:
    """`(blocks, task's priors)` to carries before the first block and after every block, (B + 1, ...), and whether
    updates converged; compiled once for each horizon, settings batched."""
    filter = ngmp.compile(drifting_consensus, carry=CARRY, max_sweeps=100, tol=1e-5)

    def run(blocks: Days, prior: dict[str, Any]) -> tuple[Any, Array]:
        def update(carry: Any, block: Days) -> tuple[Any, Any]:
            carry, post = filter.update(carry, {**block._asdict(), **prior})
            return carry, (carry, post.converged)

        start = filter.start(**jax.tree.map(lambda x: x[0], blocks)._asdict(), **prior)
        _, (carries, done) = jax.lax.scan(update, start, blocks)
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, carries), done

    return jax.jit(jax.vmap(run, (None, 0)))


def forecasts(carries: Any, prior: dict[str, Any], known: Array, ahead: Array, rows: tuple[Array, ...]) -> Forecast:
    """Of rows (n, ...), each from the carry after `known` blocks, `ahead` days on."""
    spread, centre, psi, y = rows
    back = prior["memory"] ** ahead
    grown = (1 - back**2) / (1 - prior["memory"] ** 2)
    moments = []
    for q, x, rest, walk in (
        (carries["v0"], spread, jnp.zeros(spread.shape[1]), prior["v_walk"]),
        (carries["u0"], psi, prior["u_mean"], prior["u_walk"]),
    ):
        at, covariance = q.mean[known], q.covariance[known]
        mean = rest + back[:, None] * (at - rest)
        variance = back**2 * jnp.einsum("nd,nde,ne->n", x, covariance, x) + grown * (x**2 @ walk)
        moments += [jnp.sum(x * mean, 1), variance]
    mean, variance, s, s_variance = centre + moments[0], moments[1], moments[2], moments[3] + 1 / C_TOP
    total = variance + jnp.exp(-s + 0.5 * s_variance)
    return Forecast(log_scale_mixture(y, mean, variance, s, s_variance), mean, total)


def schedule(rows: np.ndarray, first: int, horizon: int, given: int) -> tuple[np.ndarray, np.ndarray]:
    """How many blocks a forecast of each row may know, all before row `given` included, and how many days ahead it is.

    Row i is known where row j is forecast if i <= j - H.
    """
    block = (rows - first) // DAY
    late = np.maximum((block * DAY - horizon + 1) // DAY, 0)
    known = np.where(rows >= given, np.maximum(late, (given - first) // DAY), late)
    return known, block - known + 1


def online(filter: Any, task: etth.Cell) -> list[Forecast]:
    """The setting that is chosen on validation, and the mixture of all; then both of them, strict."""
    blocks, first = days(task)
    each = [priors(task, setting) for setting in GRID]
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v) for v in x]), *each)
    carries, done = filter(blocks, stacked)
    lanes = [jax.tree.map(lambda x, k=k: x[k], carries) for k in range(len(GRID))]
    half = first + (task.fitted - first) // DAY // 2 * DAY

    def made(given: int, last: int, strict: bool) -> list[Forecast]:
        rows = np.arange(given, last)
        known, ahead = schedule(rows, first, task.horizon, len(task.y) if strict else given)
        own = tuple(x[rows] for x in inputs(task))
        return [forecasts(q, prior, known, ahead, own) for q, prior in zip(lanes, each, strict=True)]

    found = []
    for strict in (False, True):
        losses = [-float(jnp.mean(f.log_density)) for f in made(half, task.fitted, strict)]
        best, every = int(np.argmin(losses)), made(task.fitted, len(task.y), strict)
        mean = jnp.mean(jnp.stack([f.mean for f in every]), 0)
        wide = jnp.mean(jnp.stack([f.variance + (f.mean - mean) ** 2 for f in every]), 0)
        log_p = jax.nn.logsumexp(jnp.stack([f.log_density for f in every]), axis=0) - np.log(len(every))
        note = f"{float(jnp.mean(done)):.3f} of the updates converged"
        found += [every[best]._replace(note=f"{tuple(GRID[best])}, {note}"), Forecast(log_p, mean, wide, note)]
    return found
