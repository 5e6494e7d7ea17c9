r"""UCI regression with a hierarchy of log-precisions. `python benchmarks/uci.py [--quick] [--data ...] [--arms ...]`

$$ y \sim N(\varphi_0^\top v, e^{-s_1}), \quad s_1 \sim N(\varphi_1^\top w_1, e^{-s_2}), \quad
   s_2 \sim N(\varphi_2^\top w_2, 1/25) $$

Six data sets, the 20 published splits of each, inputs and target standardised by the training rows. Arms:

- *published*: 1000 multiscale Matern-3/2 features a layer, structured mean field q(v) q(w1, s1) q(w2, s2) by NCVMP,
  vector-transport momentum (0.6, 0.8, cap 0.5) on the sites toward s, stopped after 60 sweeps, Gaussian predictive;
- *cavity*: the same model by NGMP with the default solver to a residual of 1e-5, predictive by quadrature over s1. A
  fit that does not get there in 200 sweeps is run again with steps of at most a quarter, and the one with the smaller
  residual is kept; the table counts those that did not converge either way;
- *tuned*: as *cavity*, with a lengthscale for every input, by the evidence of a Gaussian process on (at most 600 of)
  the training rows, and for every split the setting of `GRID` that has the least NLL on its *validation* rows
  (`--tune`: trained on train less validation). Choose first, then run. A choice sees only the training rows of its own
  split. `GRID` itself was written after a look at a few validation splits.

Results are kept by data set, arm and split as they come, so a long run can be interrupted and resumed; delete
`results/uci.json` to begin anew.
"""

import argparse
import functools
import json
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import RESULTS, save, table  # noqa: E402

import ngmp_compiler as ngmp  # noqa: E402
from ngmp_models import data, fourier_features, fourier_map, matern32, precision_hierarchy, rbf  # noqa: E402

C_TOP = 25.0
KERNELS = {"matern32": matern32, "rbf": rbf}
PUBLISHED = {  # NLL: NGMP, DVI, BBB, and IVON (homoscedastic); RMSE of NGMP
    "concrete": (2.9845, 3.0406, 3.3328, 3.7966, 6.1986),
    "energy": (0.9783, 1.0094, 2.4229, 3.2693, 0.7198),
    "boston_housing": (2.6720, 2.4489, 2.6555, 3.3284, 3.8201),
    "power_plant": (2.7610, 2.8249, 2.7785, 3.7839, 3.9541),
    "wine_quality_red": (0.9571, 0.9448, 0.9438, 1.0430, 0.6582),
    "yacht": (0.2782, 0.4543, 2.6565, 3.6584, 0.9295),
}


class Settings(NamedTuple):
    """What an arm fixes."""

    features: int = 1000
    levels: int = 2  # of log-precision
    kernel: str = "matern32"
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    lengthscales: tuple[float, ...] = (1.5, 1.5 / 2**0.5, 0.75)  # of the mean and of every level
    ard: int = 0  # training rows for lengthscales by evidence, which those above then multiply; 0: none
    v_variance: float = 1.0
    w_variance: float = 0.16
    mean_field: bool = False
    student: bool = True  # integrate the predictive over s1; otherwise a Gaussian of the expected variance


ARMS = {"published": Settings(mean_field=True, student=False), "cavity": Settings()}
ARD = Settings(features=500, levels=1, scales=(1.0,), lengthscales=(1.0, 3.0, 3.0), ard=600)
GRID = {
    "ARD": ARD,
    "rough": ARD._replace(lengthscales=(0.5, 3.0), v_variance=3.0),
    "very rough": ARD._replace(lengthscales=(0.2, 2.0), v_variance=3.0, features=1000),
    "smooth": ARD._replace(lengthscales=(6.0, 12.0)),
    "no ARD": ARD._replace(ard=0, lengthscales=(2.5, 4.0), v_variance=0.3),
}


# -- what is fixed before inference -----------------------------------------------------------------------------------


def standardised(x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns less their training mean over their training sd; the mean and the sd."""
    mean, sd = x[rows].mean(0), x[rows].std(0, ddof=1)
    sd = np.where(sd <= 1e-8, 1.0, sd)
    return (x - mean) / sd, mean, sd


@jax.jit
def evidence_lengthscales(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lengthscales (d,) and signal variance of a Matern-3/2 Gaussian process, by 120 Adam steps on its evidence."""

    def loss(p):
        z = x / jnp.exp(p["scale"])
        square = jnp.sum(z**2, 1)
        r = jnp.sqrt(3 * jnp.maximum(square[:, None] + square[None] - 2 * z @ z.T, 1e-12))
        k = jnp.exp(p["signal"]) * (1 + r) * jnp.exp(-r) + 1.0 + 0.1 * x @ x.T
        k = k + (jnp.exp(p["noise"]) + 1e-6) * jnp.eye(len(y))
        chol = jnp.linalg.cholesky(k)
        white = jax.scipy.linalg.solve_triangular(chol, y, lower=True)
        # A weak prior keeps inputs that do not matter from running off.
        prior = 0.05 * jnp.sum((p["scale"] - 1.0) ** 2) + 0.05 * (p["signal"] ** 2 + (p["noise"] + 2) ** 2)
        return 0.5 * white @ white + jnp.sum(jnp.log(jnp.diag(chol))) + prior

    start = {"scale": jnp.full(x.shape[1], 1.0), "signal": jnp.zeros(()), "noise": jnp.asarray(-2.0)}
    adam = optax.adam(optax.cosine_decay_schedule(0.15, 120))

    def step(carry, _):
        p, state = carry
        updates, state = adam.update(jax.grad(loss)(p), state)
        return (optax.apply_updates(p, updates), state), None

    p = jax.lax.scan(step, (start, adam.init(start)), None, length=120)[0][0]
    return jnp.exp(p["scale"]), jnp.exp(p["signal"])


@jax.jit
def residual_variance(phi: jax.Array, y: jax.Array, variance: jax.Array) -> jax.Array:
    """The noise variance of a homoscedastic fit, precision ~ Gamma(2, rate 2/25): 20 sweeps of VMP."""
    phi = phi * jnp.sqrt(variance)
    small = phi @ phi.T if phi.shape[0] < phi.shape[1] else phi.T @ phi
    spectrum, basis = jnp.linalg.eigh(small)
    spectrum = jnp.maximum(spectrum, 0.0)
    inside = phi.shape[0] < phi.shape[1]
    power = (basis.T @ y) ** 2 if inside else (basis.T @ (phi.T @ y)) ** 2 / jnp.maximum(spectrum, 1e-12)
    rest = jnp.maximum(y @ y - jnp.sum(power), 0.0)  # outside the span of the features
    shape = 2 + len(y) / 2

    def sweep(_, precision):
        shrink = 1 / (1 + precision * spectrum)
        rate = 2 / 25 + 0.5 * (jnp.sum(power * shrink**2) + rest + jnp.sum(spectrum * shrink))
        return shape / rate

    precision = jax.lax.fori_loop(0, 20, sweep, jnp.asarray(C_TOP))
    return shape / precision / (shape - 1)


@functools.cache
def learned(name: str, split: int, validate: bool, rows: int) -> tuple[np.ndarray, float]:
    """`evidence_lengthscales` of a split, on so many of its training rows; the same for all settings."""
    whole = data.uci(name)
    train, _ = whole.rows(split, validate)
    part = np.random.default_rng(split).permutation(train)[:rows]
    (x, *_), (y, *_) = (standardised(a, train) for a in (whole.x, whole.y))
    each, signal = evidence_lengthscales(jnp.asarray(x[part]), jnp.asarray(y[part]))
    return np.asarray(each), float(signal)


class Task(NamedTuple):
    """One split, ready for inference: inputs of the model, and the same features at the held-out rows."""

    inputs: dict[str, Any]
    held: tuple[jax.Array, ...]
    y: np.ndarray  # held out, standardised
    sd: float


def prepare(name: str, split: int, settings: Settings, validate: bool) -> Task:
    """Standardise, draw the features of every layer, fix the priors."""
    whole = data.uci(name)
    train, held = whole.rows(split, validate)
    x, _, _ = standardised(whole.x, train)
    y, _, sd = standardised(whole.y, train)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(10_000), split), settings.levels + 1)
    each, signal = learned(name, split, validate, settings.ard) if settings.ard else (np.ones(x.shape[1]), 1.0)
    maps = [
        fourier_map(k, x.shape[1], settings.features, kernel=KERNELS[settings.kernel], scales=settings.scales,
                    lengthscale=scale * each)
        for k, scale in zip(keys, settings.lengthscales, strict=False)
    ]  # fmt: skip
    both = [tuple(fourier_features(m, x[rows], inputs=True, constant=True) for m in maps) for rows in (train, held)]
    width = both[0][0].shape[1]
    v_variance = jnp.full(width, settings.v_variance).at[: settings.features].mul(signal)
    noise = jnp.clip(residual_variance(both[0][0], y[train], v_variance), 1e-3, 1e3)
    anchors = [-jnp.log(noise)] + [jnp.log(C_TOP)] * (settings.levels - 1)
    inputs = {
        "features": both[0],
        "y": jnp.asarray(y[train]),
        "v_variance": v_variance,
        "w_mean": tuple(jnp.zeros(width).at[-1].set(a) for a in anchors),
        "w_variance": jnp.full(width, settings.w_variance).at[-1].set(1.0),
    }
    return Task(inputs, both[1], y[held], float(sd))


# -- inference and scores ---------------------------------------------------------------------------------------------


def compiled(settings: Settings, careful: bool = False) -> ngmp.Program:
    if not settings.mean_field:
        solver = optax.chain(ngmp.adaptive(grow=1.1), optax.scale(0.25)) if careful else None
        return ngmp.compile(precision_hierarchy, tol=1e-5, max_sweeps=200, solver=solver)
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


def scores(post: ngmp.Posterior, task: Task, settings: Settings) -> dict[str, float]:
    """NLL and RMSE on the held-out rows, in the units of the target."""
    means, variances = [], []
    for name, phi in zip(["v", *(f"w{k}" for k in range(1, settings.levels + 1))], task.held, strict=True):
        q: Any = post[name]
        means.append(phi @ q.mean)
        variances.append(jnp.einsum("nd,de,ne->n", phi, q.covariance, phi))
    f, var_f, y = means[0], variances[0], task.y
    if settings.student:
        spread = jnp.full(len(y), 1 / C_TOP)  # E[e^-s] of the level above, from the top down
        for m, v in list(zip(means, variances, strict=True))[:1:-1]:
            spread = jnp.exp(-m + 0.5 * (v + spread))
        z = jnp.linspace(-8.0, 8.0, 201)[:, None]
        log_w = jax.nn.log_softmax(-0.5 * z**2, axis=0)
        variance = var_f + jnp.exp(-(means[1] + jnp.sqrt(variances[1] + spread) * z))
    else:
        log_w, variance = jnp.zeros((1, 1)), jnp.maximum(var_f + jnp.exp(-means[1] + 0.5 * variances[1]), 1e-8)[None]
    log_n = -0.5 * (jnp.log(2 * jnp.pi * variance) + (y - f) ** 2 / variance)
    nll = -jnp.mean(jax.nn.logsumexp(log_w + log_n, axis=0))
    rmse = jnp.sqrt(jnp.mean((y - f) ** 2))
    return {"nll": float(nll + np.log(task.sd)), "rmse": float(rmse * task.sd)}


def homoscedastic(program: ngmp.Program, task: Task) -> ngmp.State:
    """Begin at the fit of constant noise: from larger noise, rows it cannot explain stay noise."""
    state = program.init(**task.inputs)
    precision = jnp.exp(task.inputs["w_mean"][0][-1])
    zero = jnp.zeros_like(task.inputs["y"])
    start = ngmp.families.Gaussian(zero, zero - 0.5 * precision)
    return eqx.tree_at(lambda s: s.leaves["y.r"], state, start)


_PROGRAMS: dict[Any, ngmp.Program] = {}


def run(task: Task, settings: Settings, careful: bool) -> ngmp.Posterior:
    key = settings.levels, settings.mean_field, careful
    if key not in _PROGRAMS:
        _PROGRAMS[key] = compiled(settings, careful)
    return _PROGRAMS[key](**task.inputs, init=homoscedastic(_PROGRAMS[key], task))


def fit(name: str, split: int, settings: Settings, validate: bool = False) -> dict[str, float]:
    """One split of one data set: scores, sweeps, seconds."""
    start = time.perf_counter()
    task = prepare(name, split, settings, validate)
    post = run(task, settings, careful=False)
    if not settings.mean_field and not post.converged:
        again = run(task, settings, careful=True)
        post = again if float(again.residual) < float(post.residual) else post
    found = scores(post, task, settings)
    return {**found, "sweeps": int(post.sweeps), "residual": float(post.residual),
            "seconds": time.perf_counter() - start}  # fmt: skip


# -- the study --------------------------------------------------------------------------------------------------------


def load(path: str) -> dict[str, Any]:
    file = RESULTS / f"{path}.json"
    return json.loads(file.read_text())["splits"] if file.exists() else {}


def sweep(path: str, kept: dict[str, Any], name: str, arm: str, splits: int, validate: bool = False) -> None:
    """The splits of a data set and an arm that are not there yet, saved one by one."""
    for split in range(splits):
        key = f"{name}/{arm}/{split + 1}"
        if key in kept:
            continue
        chosen = choice(name, split) if arm == "tuned" else arm
        if chosen is None:
            print(f"{key}: nothing chosen yet; run --tune first")
            continue
        kept[key] = found = {**fit(name, split, {**ARMS, **GRID}[chosen], validate), "setting": chosen}
        save(path, {"splits": kept})
        print(key, {k: x if isinstance(x, str) else round(x, 4) for k, x in found.items()}, flush=True)


def each(kept: dict[str, Any], name: str, arm: str, what: str) -> list[float]:
    return [r[what] for key, r in kept.items() if key.startswith(f"{name}/{arm}/")]


def choice(name: str, split: int) -> str | None:
    """The setting with the least NLL on the validation rows of a split; None if some have not been tried there."""
    kept = load("uci_validation")
    found = {arm: kept.get(f"{name}/{arm}/{split + 1}") for arm in GRID}
    return min(GRID, key=lambda arm: found[arm]["nll"]) if all(found.values()) else None


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
                left = sum(r > 1e-5 for r in each(kept, name, arm, "residual"))
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
    parser.add_argument("--tune", nargs="*", metavar="SETTING", help="score GRID (or these) on the validation splits")
    parser.add_argument("--quick", action="store_true", help="3 splits of yacht and Boston, two arms")
    options = parser.parse_args()
    if options.quick:
        options.data, options.arms, options.splits = ["yacht", "boston_housing"], ["published", "cavity"], 3
    if options.tune is not None:
        kept = load("uci_validation")
        for name in options.data:
            for arm in options.tune or GRID:
                sweep("uci_validation", kept, name, arm, options.splits, True)
        lines = [[name, *(interval(each(kept, name, arm, "nll")) for arm in GRID)] for name in PUBLISHED]
        print(table("NLL on the validation splits", ["data", *GRID], lines))
        return
    path = "uci_quick" if options.quick else "uci"
    kept = {} if options.quick else load(path)
    for name in options.data:
        for arm in options.arms:
            sweep(path, kept, name, arm, options.splits)
    print(report(kept))


if __name__ == "__main__":
    main()
