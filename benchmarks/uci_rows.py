r"""Depth-three hierarchies by their training rows. `python benchmarks/uci_rows.py [--data yacht] [--power 0.5]`

The *cavity* arm of `uci.py`, where the features of n rows, $\Phi S^{1/2} = U \Lambda V^\top$ under the prior's
covariance S, are turned to the n columns $U \Lambda$: the same model, in a fraction of the time. Held-out rows have the
features $\varphi_* S^{1/2} V$, and what of their prior variance is outside of the span is added to predictions.
Only the default solver runs, of the ladder's rungs: its sweeps say what a rule does. Rows are kept as they come.
"""

import argparse
import json
import time
import warnings
from typing import Any

import equinox as eqx
import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from report import RESULTS, save, table  # noqa: E402
from uci_tasks import Settings, prepare  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_models import precision_hierarchy  # noqa: E402

PATH = "uci_rows"


def turned(phi: Any, held: Any, mean: Any, variance: Any) -> tuple[np.ndarray, ...]:
    """Features (n, n) and their prior mean; features of held-out rows, what is missing of their variance and mean."""
    scale = jnp.sqrt(variance)
    own, other = np.asarray(phi * scale), np.asarray(held * scale)
    square, u = np.linalg.eigh(own @ own.T)
    known = square > 1e-12 * square.max()
    root = np.sqrt(np.where(known, square, 1.0))
    v = own.T @ (known * u / root)
    features, new, prior = known * u * root, other @ v, np.asarray(mean / scale) @ v
    missing = np.maximum((other**2).sum(1) - (new**2).sum(1), 0.0)
    return features, prior, new, missing, np.asarray(held @ mean) - new @ prior


def scores(post: Any, layers: list[Any], task: Any, c_top: float) -> tuple[float, float]:
    """NLL and RMSE of the held-out rows, as `uci.predictions` has them."""
    moments = []
    for name, (_, _, new, missing, shift) in zip(("v", "w1", "w2"), layers, strict=True):
        q = post[name]
        moments.append((new @ np.asarray(q.mean) + shift, ((new @ np.asarray(q.covariance)) * new).sum(1) + missing))
    (f, var_f), (s1, var_1), (s2, var_2) = moments
    z = np.linspace(-8.0, 8.0, 201)[:, None]
    log_w = -0.5 * z**2 - np.logaddexp.reduce(-0.5 * z**2)
    spread = np.exp(-s2 + 0.5 * (var_2 + 1 / c_top))
    variance = var_f + np.exp(-(s1 + np.sqrt(var_1 + spread) * z))
    log_n = -0.5 * (np.log(2 * np.pi * variance) + (task.y - f) ** 2 / variance)
    nll = -float(np.mean(np.logaddexp.reduce(log_w + log_n, 0))) + float(np.log(task.sd))
    return nll, float(task.sd * np.sqrt(np.mean((task.y - f) ** 2)))


def fit(program: ngmp.Program, name: str, split: int) -> dict[str, Any]:
    start, settings = time.process_time(), Settings()
    task = prepare(name, split, settings, False)
    given, width = task.inputs, task.inputs["features"][0].shape[1]
    means = (jnp.zeros(width), *given["w_mean"])
    variances = (given["v_variance"] * jnp.ones(width), *(given["w_variance"],) * settings.levels)
    layers = [turned(*layer) for layer in zip(given["features"], task.held, means, variances, strict=True)]
    features, (v, *w), *_ = zip(*layers, strict=True)
    inputs = {"features": tuple(map(jnp.asarray, features)), "y": given["y"], "v_mean": v, "w_mean": tuple(w),
              "c_top": given["c_top"]}  # fmt: skip
    zero, noise = jnp.zeros_like(given["y"]), jnp.exp(given["w_mean"][0][-1])
    flat = ngmp.families.Gaussian(zero, zero - 0.5 * noise)  # the fit of constant noise, see `uci.homoscedastic`
    state = eqx.tree_at(lambda s: s.leaves["y.r"], program.init(**inputs), flat)
    post = program(**inputs, init=state)
    nll, rmse = scores(post, layers, task, settings.c_top)
    return {"converged": bool(post.converged), "sweeps": int(post.sweeps), "residual": float(post.residual),
            "in part": int(post.state.borrowed), "free energy": float(post.free_energy), "nll": nll, "rmse": rmse,
            "seconds": time.process_time() - start}  # fmt: skip


def load() -> dict[str, Any]:
    file = RESULTS / f"{PATH}.json"
    return json.loads(file.read_text())["splits"] if file.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["yacht", "boston_housing", "energy"])
    parser.add_argument("--power", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", type=int, default=list(range(1, 21)), help="splits, from 1")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ngmp.ConvergenceWarning)
    rule = ngmp.NGMP(power=options.power)
    program = ngmp.compile(precision_hierarchy, tol=1e-5, method=rule, solver=ngmp.adaptive())
    for name in options.data:
        for split in options.only:
            key = f"{name}/{options.power:g}/{split}"
            if key not in load():
                found = fit(program, name, split - 1)
                print(key, {k: round(x, 4) if isinstance(x, float) else x for k, x in found.items()}, flush=True)
                save(PATH, {"splits": load() | {key: found}})
    rows, kept = [], load()
    for arm in dict.fromkeys(key.rpartition("/")[0] for key in kept):
        own = [r for key, r in kept.items() if key.startswith(arm + "/")]
        mean = [np.mean([r[what] for r in own]) for what in ("nll", "rmse", "sweeps", "in part", "seconds")]
        rows.append([arm, len(own), sum(r["converged"] for r in own), *map(float, mean)])
    header = ["data / power", "splits", "converged", "NLL", "RMSE", "sweeps", "in part", "s of processor"]
    print(table("Three levels, by the default solver", header, rows))


if __name__ == "__main__":
    main()
