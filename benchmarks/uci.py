r"""UCI regression with a hierarchy of log-precisions. `python benchmarks/uci.py [--quick] [--data ...] [--arms ...]`

$$ y \sim N(\varphi_0^\top v, e^{-s_1}), \quad s_1 \sim N(\varphi_1^\top w_1, e^{-s_2}), \quad
   s_2 \sim N(\varphi_2^\top w_2, 1/25) $$

Six data sets, the 20 published splits of each, inputs and target standardised by the training rows. Arms:

- *published*: 1000 multiscale Matern-3/2 features a layer, structured mean field q(v) q(w1, s1) q(w2, s2) by NCVMP,
  vector-transport momentum (0.6, 0.8, cap 0.5) on the sites toward s, stopped after 60 sweeps, Gaussian predictive;
- *cavity*: the same model by NGMP with the default ladder of solvers to a tolerance of 1e-5, predictive by quadrature
  over s1; the table counts the fits that did not converge;
- *tuned*: as *cavity*, with one level of noise and, for the mean, a kernel learned from the training rows
  (`uci_tasks`); and a *mixture*: the predictive densities of all settings of `GRID`, with weights that maximise the
  log-density of the mixture at the *validation* rows of the same split (`--tune`: fits to train less validation; run it
  first). Sets of more than 1000 rows take the first setting alone, to save time, and need no validation. `GRID` was
  written after a look at the validation rows of a few splits; nothing was chosen by test rows.

Results are kept by data set, arm and split as they come, so a long run can be interrupted and resumed; delete
`results/uci.json` to begin anew.
"""

import argparse
import json
import time
from typing import Any

import equinox as eqx
import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import RESULTS, save, table  # noqa: E402
from uci_tasks import Settings, Task, prepare  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_models import data, precision_hierarchy  # noqa: E402

PUBLISHED = {  # NLL: NGMP, DVI, BBB, and IVON (homoscedastic); RMSE of NGMP
    "concrete": (2.9845, 3.0406, 3.3328, 3.7966, 6.1986),
    "energy": (0.9783, 1.0094, 2.4229, 3.2693, 0.7198),
    "boston_housing": (2.6720, 2.4489, 2.6555, 3.3284, 3.8201),
    "power_plant": (2.7610, 2.8249, 2.7785, 3.7839, 3.9541),
    "wine_quality_red": (0.9571, 0.9448, 0.9438, 1.0430, 0.6582),
    "yacht": (0.2782, 0.4543, 2.6565, 3.6584, 0.9295),
}
ARMS = {"published": Settings(mean_field=True, student=False), "cavity": Settings()}
KERNEL = Settings(kernel=True, levels=1, features=300, scales=(1.0,), lengthscales=(1.0, 3.0))
GRID = {
    "heavy tails": KERNEL._replace(c_top=3.0),
    "logarithm": KERNEL._replace(log=True),
}


# -- inference and scores ---------------------------------------------------------------------------------------------


def compiled(settings: Settings) -> ngmp.Program:
    if not settings.mean_field:
        return ngmp.compile(precision_hierarchy, tol=1e-5)
    levels = range(1, settings.levels + 1)
    sites = ["y", *(f"s{k}" for k in levels)]
    momentum = ngmp.vector_transport(step=0.6, momentum=0.8, max_norm=0.5)
    labels = lambda leaves: {k: "momentum" if k.endswith(".s") else "exact" for k in leaves}  # noqa: E731
    return ngmp.compile(
        precision_hierarchy,
        method=ngmp.NCVMP(),
        factorise=[("v", *((f"w{k}", f"s{k}") for k in levels))],
        schedule=[tuple(f"{s}.r" for s in sites[:-1]), *(f"{s}.s" for s in sites[:-1])],
        solver=optax.multi_transform({"momentum": momentum, "exact": optax.sgd(1.0)}, labels),
        max_sweeps=60,
        tol=1e-300,
    )


def predictions(post: ngmp.Posterior, task: Task, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Log-density of the held-out targets, and point predictions: the mean, or the median where the target is log."""
    means, variances = [], []
    for name, phi in zip(["v", *(f"w{k}" for k in range(1, settings.levels + 1))], task.held, strict=True):
        q: Any = post[name]
        means.append(phi @ q.mean)
        variances.append(jnp.sum((phi @ q.covariance) * phi, axis=1))
    f, var_f, y = means[0], variances[0] + task.missing, task.y
    if settings.student:
        spread = jnp.full(len(y), 1 / settings.c_top)  # E[e^-s] of the level above, from the top down
        for m, v in list(zip(means, variances, strict=True))[:1:-1]:
            spread = jnp.exp(-m + 0.5 * (v + spread))
        z = jnp.linspace(-8.0, 8.0, 201)[:, None]
        log_w = jax.nn.log_softmax(-0.5 * z**2, axis=0)
        variance = var_f + jnp.exp(-(means[1] + jnp.sqrt(variances[1] + spread) * z))
    else:
        log_w, variance = jnp.zeros((1, 1)), jnp.maximum(var_f + jnp.exp(-means[1] + 0.5 * variances[1]), 1e-8)[None]
    log_n = -0.5 * (jnp.log(2 * jnp.pi * variance) + (y - f) ** 2 / variance)
    found, target, point = jax.nn.logsumexp(log_w + log_n, axis=0), *(t * task.sd + task.mean for t in (y, f))
    jacobian = np.log(task.sd) + (target if settings.log else 0.0)
    return np.asarray(found - jacobian), np.asarray(jnp.exp(point) if settings.log else point)


def homoscedastic(program: ngmp.Program, task: Task) -> ngmp.State:
    """Begin at the fit of constant noise: from larger noise, rows it cannot explain stay noise."""
    state = program.init(**task.inputs)
    precision = jnp.exp(task.inputs["w_mean"][0][-1])
    zero = jnp.zeros_like(task.inputs["y"])
    start = ngmp.families.Gaussian(zero, zero - 0.5 * precision)
    return eqx.tree_at(lambda s: s.leaves["y.r"], state, start)


_PROGRAMS: dict[Any, ngmp.Program] = {}


def run(task: Task, settings: Settings) -> ngmp.Posterior:
    key = settings.levels, settings.mean_field
    if key not in _PROGRAMS:
        _PROGRAMS[key] = compiled(settings)
    return _PROGRAMS[key](**task.inputs, init=homoscedastic(_PROGRAMS[key], task))


def fit(name: str, split: int, settings: Settings, validate: bool = False) -> dict[str, Any]:
    """One setting on one split: log-density and prediction of every held-out row, NLL and RMSE, sweeps, seconds."""
    start = time.process_time()
    task = prepare(name, split, settings, validate)
    post = run(task, settings)
    log_density, point = predictions(post, task, settings)
    return {**scores(name, split, validate, log_density, point), "sweeps": int(post.sweeps),
            "residual": float(post.residual), "converged": bool(post.converged), "reason": str(post.reason),
            "seconds": time.process_time() - start,
            "log_density": log_density, "point": point}  # fmt: skip


def scores(name: str, split: int, validate: bool, log_density: np.ndarray, point: np.ndarray) -> dict[str, float]:
    """NLL and RMSE on the held-out rows, in the units of the target."""
    whole = data.uci(name)
    y = whole.y[whole.rows(split, validate)[1]]
    return {"nll": -float(np.mean(log_density)), "rmse": float(np.sqrt(np.mean((y - point) ** 2)))}


# -- mixtures of settings ---------------------------------------------------------------------------------------------


def grid(name: str) -> list[str]:
    """The settings that a data set is tried with."""
    return list(GRID)[:1] if len(data.uci(name).y) > 1000 else list(GRID)


def mixture_weights(log_density: np.ndarray) -> np.ndarray:
    """Weights (k,) that maximise `sum_n log sum_k w_k p_kn + sum_k log w_k` by EM, given log p (k, n): one row of
    prior for every setting keeps those alive that a few rows speak against."""
    k, n = log_density.shape
    weights = np.full(k, 1 / k)
    for _ in range(200):
        joint = np.log(weights)[:, None] + log_density
        share = np.exp(joint - np.logaddexp.reduce(joint))
        weights = (1 + share.sum(1)) / (k + n)
    return weights


def mixture(name: str, split: int) -> dict[str, Any] | None:
    """The tuned arm on one split; None if validation is still to be run."""
    arms, weights = grid(name), np.ones(1)
    if len(arms) > 1:
        kept = load("uci_validation")
        keys = [f"{name}/{arm}/{split + 1}" for arm in arms]
        if not all(key in kept for key in keys):
            return None
        weights = mixture_weights(np.array([kept[key]["log_density"] for key in keys]))
    parts = [fit(name, split, GRID[arm]) for arm in arms]
    log_density = np.logaddexp.reduce([np.log(w) + p["log_density"] for w, p in zip(weights, parts, strict=True)])
    point = np.sum([w * p["point"] for w, p in zip(weights, parts, strict=True)], axis=0)
    return {**scores(name, split, False, log_density, point), "sweeps": sum(p["sweeps"] for p in parts),
            "residual": max(p["residual"] for p in parts), "converged": all(p["converged"] for p in parts),
            "seconds": sum(p["seconds"] for p in parts),
            "weights": dict(zip(arms, weights.round(3).tolist(), strict=True))}  # fmt: skip


# -- the study --------------------------------------------------------------------------------------------------------


def load(path: str) -> dict[str, Any]:
    file = RESULTS / f"{path}.json"
    return json.loads(file.read_text())["splits"] if file.exists() else {}


def sweep(path: str, kept: dict[str, Any], name: str, arm: str, splits: Any, validate: bool = False) -> None:
    """The splits of a data set and an arm, from zero, that are not there yet, saved one by one."""
    for split in splits:
        key = f"{name}/{arm}/{split + 1}"
        if key in kept:
            continue
        found = mixture(name, split) if arm == "tuned" else fit(name, split, {**ARMS, **GRID}[arm], validate)
        if found is None:
            print(f"{key}: no weights yet; run --tune first")
            continue
        rows, _ = found.pop("log_density", None), found.pop("point", None)
        print(key, {k: round(x, 4) if isinstance(x, float) else x for k, x in found.items()}, flush=True)
        kept[key] = {**found, "log_density": rows.round(3).tolist()} if validate and rows is not None else found
        save(path, {"splits": kept})


def each(kept: dict[str, Any], name: str, arm: str, what: str) -> list[float]:
    return [r[what] for key, r in kept.items() if key.startswith(f"{name}/{arm}/")]


def settled(kept: dict[str, Any], name: str, arm: str) -> list[bool]:
    """Which runs have converged; before the rule that stops them was one for each element, the residual told."""
    rows = [r for key, r in kept.items() if key.startswith(f"{name}/{arm}/")]
    return [r.get("converged", r["residual"] <= 1e-5) for r in rows]


def interval(x: list[float]) -> str:
    error = f" ± {1.96 * np.std(x, ddof=1) / np.sqrt(len(x)):.3f}" if len(x) > 1 else ""
    return f"{np.mean(x):.3f}{error}" if x else ""


def report(kept: dict[str, Any]) -> str:
    """The table beside the published rows."""
    lines = []
    for name, known in PUBLISHED.items():
        for arm in ("published", "cavity", "tuned"):
            nll, rmse, sweeps, seconds = (each(kept, name, arm, k) for k in ("nll", "rmse", "sweeps", "seconds"))
            if nll:
                left = "stopped" if arm == "published" else sum(not x for x in settled(kept, name, arm))
                cost = [f"{np.mean(sweeps):.0f}", left, f"{np.mean(seconds):.1f}"]
                lines.append([name, arm, len(nll), interval(nll), *(f"{x:.3f}" for x in known[:4]), interval(rmse),
                              f"{known[4]:.3f}", *cost])  # fmt: skip
    published = ["NGMP", "DVI", "BBB", "IVON"]
    header = ["data", "arm", "splits", "NLL", *published, "RMSE", "NGMP", "sweeps", "not converged", "seconds"]
    return table("UCI: ours (mean ± 1.96 standard errors) beside the published rows", header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--arms", nargs="+", default=["published", "cavity", "tuned"])
    parser.add_argument("--splits", type=int, default=20, help="the first so many of 20 splits")
    parser.add_argument("--only", nargs="+", type=int, help="splits by number, from 1")
    parser.add_argument("--tune", action="store_true", help="score GRID on the validation rows")
    parser.add_argument("--quick", action="store_true", help="3 splits of yacht and Boston, two arms")
    options = parser.parse_args()
    if options.quick:
        options.data, options.arms, options.splits = ["yacht", "boston_housing"], ["published", "cavity"], 3
    splits = [k - 1 for k in options.only] if options.only else range(options.splits)
    if options.tune:
        kept = load("uci_validation")
        for name in options.data:
            for arm in grid(name):
                sweep("uci_validation", kept, name, arm, splits, True)
        lines = [[name, *(interval(each(kept, name, arm, "nll")) for arm in GRID)] for name in PUBLISHED]
        print(table("NLL on the validation rows", ["data", *GRID], lines))
        return
    path = "uci_quick" if options.quick else "uci"
    kept = {} if options.quick else load(path)
    for name in options.data:
        for arm in options.arms:
            sweep(path, kept, name, arm, splits)
    print(report(kept))


if __name__ == "__main__":
    main()
